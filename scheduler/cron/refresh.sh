#!/bin/sh
# Makes zonedata/zoneinfo.zip from the newest tzdata that Debian serves. `make zones` runs it.
#
# Debian packages each IANA release within days, and keeps its source, tzdata.zi. zic compiles it in its slim form. The
# file +VERSION names the release, and its time is when IANA published it. All times are that one, and the files are
# sorted and not compressed, so the same release always gives the same archive.
#
#   refresh.sh --newer   only says whether Debian serves a newer release than the archive is
set -eu
cd "$(dirname "$0")"
archive="$PWD/zonedata/zoneinfo.zip"
command -v unzip >/dev/null || { echo "this needs unzip" >&2; exit 1; }
have="$(unzip -p "$archive" +VERSION 2>/dev/null || echo none)"

served="$(apt-cache policy tzdata 2>/dev/null | sed -n 's/^ *Candidate: *\(20[0-9][0-9][a-z]\).*/\1/p')"
if [ -z "$served" ]; then
  echo "apt-cache names no tzdata: this needs Debian or a derivative, and apt-get update" >&2
  exit 1
fi
if [ "${1:-}" = --newer ]; then
  if [ "$served" \> "$have" ]; then
    echo "the binary's time zone data is $have, and $served is served: run make zones"
  else
    echo "the binary's time zone data is $have, the newest that is served"
  fi
  exit 0
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt-get downloads as a user of its own
cd "$work"
apt-get download -qq tzdata
dpkg-deb -x tzdata_*.deb package
source=package/usr/share/zoneinfo/tzdata.zi
release="$(sed -n '1s/^# version //p' "$source")"
published="$(zcat package/usr/share/doc/tzdata/changelog.gz | sed -n "s/^Release $release - //p")"
test -n "$release"
test -n "$published"

PATH="$PATH:/usr/sbin" zic -b slim -d zones "$source"
printf '%s' "$release" > zones/+VERSION
find zones -type f -exec touch -d "$published" {} +
cd zones
export TZ=UTC
find . -type f | sed 's,^\./,,' | LC_ALL=C sort | zip -q -0 -X "$work/zoneinfo.zip" -@
cat "$work/zoneinfo.zip" > "$archive"
echo "time zone data $release, published $published (was $have)"
