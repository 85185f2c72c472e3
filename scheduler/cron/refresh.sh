#!/bin/sh
# Copies the zone data of the Go toolchain on the PATH into zonedata/, and writes beside it which IANA release it is
# and its SHA-256. Run by `go generate`; a test compares the three.
set -eu
cd "$(dirname "$0")"
from="$(go env GOROOT)/lib/time"
release="$(sed -n 's/^DATA=//p' "$from/update.bash")"
test -n "$release"
cp "$from/zoneinfo.zip" zonedata/zoneinfo.zip
chmod 644 zonedata/zoneinfo.zip
printf '%s sha256:%s\n' "$release" "$(sha256sum zonedata/zoneinfo.zip | cut -d' ' -f1)" > zonedata/version
