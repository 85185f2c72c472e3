#!/bin/bash
# machine.sh DIR - this machine once more: its files under an overlay, where changes are lost in the end, its network, and
# processes of its own under a real init. DIR gets `pid`, a file with the process id of that init, and is /mnt inside.
# SIGTERM ends the machine.
set -euo pipefail
dir=$1

# systemd wants a hierarchy of control groups of its own. In a private namespace its mounts end with this script.
if [ -z "${private:-}" ]; then private=1 exec unshare --mount --propagation private -- "$0" "$@"; fi
cd "$dir"
mkdir groups layer
mount -t cgroup -o none,name=systemd cgroup groups
group=groups/machine-$$
mkdir "$group"
echo $$ >"$group/cgroup.procs"
mount -t tmpfs tmpfs layer
mkdir layer/{changes,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/layer/changes,workdir=$dir/layer/work" layer/root

# Of the real machine's units only targets start here, without what they want. The machine ends with this script, however
# that ends.
setpriv --pdeathsig KILL unshare --mount --pid --ipc --uts --cgroup --fork --kill-child -- /bin/bash -euc '
  cd layer/root
  mount -t proc proc proc
  mount --rbind /dev dev
  mount -t tmpfs tmpfs run
  mount -t tmpfs tmpfs tmp
  mount -t sysfs sysfs sys
  mount -t tmpfs tmpfs sys/fs/cgroup
  mkdir sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
  mount --bind "$0" mnt
  rm -rf usr/lib/systemd/system/*.wants etc/systemd/system/*.wants usr/sbin/policy-rc.d etc/fstab
  ln -sf multi-user.target usr/lib/systemd/system/default.target
  mkdir tmp/outside
  pivot_root . tmp/outside
  cd /
  umount -l tmp/outside
  mount --make-rshared / # systemd hands credentials over by mounts that must be seen here
  exec env -i PATH="$PATH" container=other /lib/systemd/systemd --system --log-target=console --show-status=no' "$dir" &
machine=$!
trap 'kill -KILL $machine' TERM
until init=$(cat "/proc/$machine/task/$machine/children") && [ -n "$init" ]; do :; done
echo "${init% }" >pid.new
mv pid.new pid
until ! kill -0 $machine 2>/dev/null; do wait $machine || true; done
echo $$ >groups/cgroup.procs
find "$group" -depth -type d -delete
