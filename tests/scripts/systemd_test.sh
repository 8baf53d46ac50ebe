#!/usr/bin/env bash
# Boots systemd in namespaces on a copy of this machine's files, installs the Debian package there, and
# does what an operator does with the units: start, generate, kill, stop, a wrong configuration.
#   systemd_test.sh REPOSITORY BUILD
#
# Exit 77 where it cannot run: without root, systemd, overlays, or cgroups to write to.
set -uo pipefail
repository=$1
build=$2
skip() {
  echo "skipped: $*"
  exit 77
}

# What follows runs in namespaces of its own, whose end ends all that it has started and mounted.
if [ $# -eq 2 ]; then
  [ "$(id -u)" = 0 ] || skip 'it needs root'
  [ -x /lib/systemd/systemd ] || skip 'systemd is missing'
  for program in nsenter unshare pgrep ip; do
    command -v $program >/dev/null || skip "$program is missing"
  done
  hierarchy=/sys/fs/cgroup/systemd
  [ -d $hierarchy ] || hierarchy=/sys/fs/cgroup
  group=$hierarchy/switchyard-test-$$
  mkdir "$group" 2>/dev/null || skip "$hierarchy cannot be written to"
  work=$(mktemp -d)
  remove() {
    rm -rf "$work"
    for _ in {1..50}; do
      find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.1
    done
  }
  trap remove EXIT
  unshare --mount --pid --fork --kill-child "$0" "$repository" "$build" "$work" "$group"
  exit
fi
work=$3
group=$4
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

package=$(BUILD=$build OUT=$work/out LEVEL=0 "$repository/scripts/deb") || exit 1
mkdir "$work/layers"
mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs "$work/layers" ||
  skip 'nothing can be mounted'
mkdir "$work/layers"/{upper,work,root}
root=$work/layers/root
mount -t overlay -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" overlay "$root" ||
  skip 'overlays cannot be mounted'
mkdir -p "$root/srv/model"
cp "$package" "$root/srv/switchyard.deb"
cp "$repository"/models/sqlite-moe-7m/{config.json,*.safetensors,eval.txt} "$root/srv/model/"
printf 'name: local\ncheckpoint: /srv/model\n' >"$root/srv/local.yaml"
said=$(chroot "$root" dpkg --force-depends --install /srv/switchyard.deb 2>&1) || fail "dpkg --install: $said"

# Only what systemd itself starts, and our units.
echo >"$root/etc/fstab"
rm -f "$root"/etc/systemd/system/*.wants/* "$root/etc/systemd/system/default.target"
cat >"$work/boot" <<'BOOT'
root=$1
group=$2
place=/sys/fs/cgroup/$(basename "$(dirname "$group")")
[ "$(dirname "$group")" != /sys/fs/cgroup ] || place=/sys/fs/cgroup
echo 0 >"$group/cgroup.procs"
mount --make-rprivate /
mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" || exit
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup" && mkdir -p "$root$place" &&
  mount --bind "$group" "$root$place" || exit
for folder in run tmp; do mount -t tmpfs tmpfs "$root/$folder" || exit; done
mount -t tmpfs -o mode=755 tmpfs "$root/dev" && mkdir "$root"/dev/{pts,shm} || exit
for device in null zero full random urandom; do
  touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device" || exit
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" && ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" && ip link set lo up || exit
exec unshare --cgroup env -i container=other PATH=/usr/sbin:/usr/bin chroot "$root" \
  /lib/systemd/systemd --system --unit=multi-user.target --log-target=console
BOOT
unshare --pid --fork --kill-child --mount --uts --ipc --net bash "$work/boot" "$root" "$group" \
  >"$work/boot.log" 2>&1 &
for _ in {1..100}; do
  init=$(pgrep --parent $! 2>/dev/null) && break
  sleep 0.1
done
# inside COMMAND...: runs it beside systemd.
inside() { timeout 60 nsenter --target "$init" --all --root --wd -- "$@" </dev/null; }
state=unknown
for _ in {1..300}; do
  state=$(inside systemctl is-system-running 2>/dev/null)
  [[ $state =~ ^(running|degraded)$ ]] && break
  sleep 0.1
done
[[ $state =~ ^(running|degraded)$ ]] || skip "systemd does not boot here: $(tail -n 3 "$work/boot.log")"
echo "systemd is $state"

# is UNIT PROPERTY VALUE: waits for it.
is() {
  local value
  for _ in {1..300}; do
    value=$(inside systemctl show --property "$2" --value "$1")
    [ "$value" != "$3" ] || return 0
    sleep 0.1
  done
  fail "$1: $2 is $value, not $3: $(inside journalctl --unit "$1" --output cat --lines 3)"
}
# until_seen TEXT COMMAND...: repeats it until it prints that.
until_seen() {
  local text=$1 said
  shift
  for _ in {1..300}; do
    said=$("$@" 2>&1)
    [[ $said != *"$text"* ]] || return 0
    sleep 0.1
  done
  fail "$*: no '$text' in: $said"
}
both=(switchyard-coordinator switchyard-worker)

said=$(inside systemctl enable --now "${both[@]}" 2>&1) || {
  # As docs/INSTALL.md says.
  if inside journalctl --unit switchyard-worker | grep -q 'give this process the capability NET_ADMIN'; then
    echo 'this kernel asks for NET_ADMIN'
    mkdir "$root/etc/systemd/system/switchyard-worker.service.d"
    printf '[Service]\nAmbientCapabilities=CAP_NET_ADMIN\nCapabilityBoundingSet=CAP_NET_ADMIN\n' \
      >"$root/etc/systemd/system/switchyard-worker.service.d/override.conf"
    inside systemctl daemon-reload
    inside systemctl reset-failed switchyard-worker
    said=$(inside systemctl restart switchyard-worker 2>&1)
  fi
  [ -z "$said" ] || [[ $said == *'Created symlink'* ]] || fail "enable --now: $said"
}
# Type=notify: they serve when systemctl returns.
for unit in "${both[@]}"; do
  [ "$(inside systemctl show --property ActiveState --value "$unit")" = active ] ||
    fail "$unit: $(inside systemctl status "$unit")"
  user=$(inside ps -o user:20= -C "$(cut -c1-15 <<<"$unit")")
  [ "$user" = switchyard ] || fail "$unit runs as $user"
done
said=$(inside syctl apply -f /srv/local.yaml --wait 2>&1) || fail "apply: $said"
said=$(inside switchyard-eval --target 127.0.0.1:7700 --model /srv/model --text /srv/model/eval.txt \
  --windows 1 2>&1) || fail "eval: $said"
[[ $said == *bits*per*byte* ]] || fail "eval: $said"

inside systemctl kill --signal SIGKILL switchyard-worker
is switchyard-worker NRestarts 1
until_seen 'local@2' inside syctl get workers -o table
inside systemctl restart switchyard-coordinator || fail 'the coordinator does not restart'
until_seen ' serving ' inside syctl get deployments -o table

# A stop is a leave in order.
inside systemctl stop switchyard-worker || fail 'the worker does not stop'
is switchyard-worker Result success
said=$(inside syctl get events -o table 2>&1)
[[ $said == *'no longer a member: left'* ]] || fail "get events: $said"

# A start with a wrong configuration is not repeated.
echo 'nonsense: 1' >>"$root/etc/switchyard/worker.yaml"
inside systemctl start switchyard-worker 2>/dev/null && fail 'it starts with a wrong configuration'
is switchyard-worker ActiveState failed
is switchyard-worker ExecMainStatus 2
is switchyard-worker NRestarts 0

said=$(inside dpkg --remove switchyard 2>&1) || fail "dpkg --remove: $said"
is switchyard-coordinator ActiveState inactive
[ -f "$root/var/lib/private/switchyard/plans.sqlite" ] || fail 'removing takes the plans along'

[ $failures -eq 0 ] && echo 'systemd_test: passed'
[ $failures -eq 0 ]
