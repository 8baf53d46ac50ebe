#!/usr/bin/env bash
# Makes the Debian package of a build and installs it in a chroot that has the essential packages and
# those that the package depends on, and nothing else. Starts what its units start, asks syctl.
#   deb_test.sh REPOSITORY BUILD
#
# The chroot is made of files of this machine's packages, so that the test needs no mirror.
set -uo pipefail
repository=$1
build=$2
work=$(mktemp -d)
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT
started=()
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

package=$(BUILD=$build OUT=$work/out LEVEL=0 "$repository/scripts/deb") || exit 1
first=$(sha256sum <"$package")
BUILD=$build OUT=$work/out LEVEL=0 "$repository/scripts/deb" >/dev/null
[ "$first" = "$(sha256sum <"$package")" ] || fail 'the same build gives another package'
dpkg-deb --contents "$package" >"$work/contents" || fail 'it has no contents'
bad=$(awk '$1 !~ /^([-d]rw.r-.r-.|lrwxrwxrwx)$/ || $2 != "root/root"' "$work/contents")
[ -z "$bad" ] || fail "owners or modes: $bad"
depends=$(dpkg-deb --field "$package" Depends)
for needed in libgrpc++1.51 libprotobuf32 libucx0 libsqlite3-0 libc6; do
  [[ $depends == *"$needed "* ]] || fail "it does not depend on $needed: $depends"
done

# Every installed package that `roots` need, by dpkg's database: "a | b (>= 1)" is met by what is there.
closure() {
  dpkg-query --show --showformat '${db:Status-Status}\t${Package}\t${Essential}\t${Pre-Depends}, ${Depends}\t${Provides}\n' |
    awk -F '\t' -v roots="$1" '
      function name(text) { sub(/^ +/, "", text); sub(/[ (:].*/, "", text); return text }
      $1 != "installed" { next }
      { there[$2] = 1; depends[$2] = $4; if ($3 == "yes") queue[++last] = $2
        count = split($5, each, ","); for (i = 1; i <= count; ++i) provider[name(each[i])] = $2 }
      END {
        count = split(roots, each, ",")
        for (i = 1; i <= count; ++i) queue[++last] = name(each[i])
        for (at = 1; at <= last; ++at) {
          one = queue[at]
          if (!(one in there)) one = provider[one]
          if (one == "" || one in seen) continue
          seen[one] = 1
          print one
          count = split(depends[one], each, /[,|]/)
          for (i = 1; i <= count; ++i) if (name(each[i]) != "") queue[++last] = name(each[i])
        }
      }'
}
root=$work/root
mkdir -p "$root"/{dev,proc,sys,tmp,model,scratch} "$root"/var/lib/dpkg/{info,updates,triggers} \
  "$root"/usr/{bin,lib,lib64,sbin}
for folder in bin lib lib64 sbin; do ln -s "usr/$folder" "$root/$folder"; done
mapfile -t packages < <(closure "$depends")
echo "${#packages[@]} packages in the chroot"
dpkg-query --status "${packages[@]}" >"$root/var/lib/dpkg/status"
for name in "${packages[@]}"; do cp /var/lib/dpkg/info/"$name"{,:*}.list "$root/var/lib/dpkg/info/"; done 2>/dev/null
cp /var/lib/dpkg/info/libc-bin.triggers /var/lib/dpkg/info/libc-bin.postinst "$root/var/lib/dpkg/info/"
echo libc-bin >"$root/var/lib/dpkg/triggers/ldconfig"
dpkg-query --listfiles "${packages[@]}" | grep -vE '^$|^/usr/share/(doc|man|locale|info)/' |
  LC_ALL=C sort -u >"$work/files"
while IFS= read -r file; do
  if [ -d "$file" ] && [ ! -L "$file" ]; then echo "$file" >&3; else echo "$file"; fi
done <"$work/files" 3>"$work/folders" >"$work/copied"
sed "s#^#$root#" "$work/folders" | xargs -d '\n' mkdir -p
tar --create --directory / --ignore-failed-read --hard-dereference --files-from "$work/copied" 2>/dev/null |
  tar --extract --keep-directory-symlink --directory "$root"
cp "$package" "$root/scratch/"
cp "$repository"/models/sqlite-moe-7m/{config.json,*.safetensors} "$root/model/"

namespace=(unshare --mount)
[ "$(id -u)" = 0 ] || namespace+=(--user --map-root-user)
# inside PROGRAM...: runs it there, as this process.
inside() {
  exec "${namespace[@]}" bash -c '
    root=$1
    shift
    for folder in dev proc sys; do mount --rbind "/$folder" "$root/$folder" || exit; done
    exec env -i PATH=/usr/sbin:/usr/bin LC_ALL=C /usr/sbin/chroot "$root" "$@"
  ' - "$root" "$@"
}
if ! (inside true) 2>"$work/why"; then
  echo "not installed, because namespaces are forbidden here: $(cat "$work/why")"
  [ $failures -eq 0 ]
  exit
fi
said=$(inside dpkg --install "/scratch/$(basename "$package")" 2>&1) || fail "dpkg --install: $said"
said=$(inside dpkg --verify switchyard 2>&1)
[ -z "$said" ] || fail "dpkg --verify: $said"
said=$(inside ldconfig -p)
[[ $said == *libswitchyard.so.0* ]] || fail 'the loader does not know libswitchyard.so.0'
for program in syctl switchyard-{coordinator,worker,quantize,eval}; do
  said=$(inside "$program" --version 2>&1) || fail "$program: $said"
done

# start UNIT FLAG...: what the unit starts, until it says that it is ready; sets `address`.
start() {
  local log=$work/$1.log command
  : >"$log"
  command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/$1.service")
  shift
  # shellcheck disable=SC2086
  (inside $command "$@" --log-level error) >"$log" 2>&1 &
  started+=($!)
  for _ in {1..300}; do
    address=$(sed -n 's/^ready //p' "$log")
    [ -z "$address" ] || return 0
    sleep 0.1
  done
  fail "$command is not ready: $(cat "$log")"
}
syctl() { (inside syctl --target "$coordinator" "$@"); }
start switchyard-coordinator --listen 127.0.0.1:0 --system-port 0 --store sqlite:/scratch/plans.sqlite
coordinator=$address
start switchyard-worker --coordinator "$coordinator"
printf 'name: local\ncheckpoint: /model\n' >"$root/scratch/local.yaml"
said=$(syctl apply -f /scratch/local.yaml --wait 2>&1) || fail "apply: $said"
said=$(syctl get workers -o table 2>&1) || fail "get workers: $said"
[[ $said == *'worker-0  live '*'local@1'* ]] || fail "get workers: $said"
for i in 1 0; do
  kill -TERM "${started[i]}"
  wait "${started[i]}" || fail "program $i did not end well"
done
started=()

# An upgrade keeps an edited file; removing leaves configuration alone, purging nothing.
echo '# edited' >>"$root/etc/switchyard/worker.yaml"
said=$(inside dpkg --force-confold --install "/scratch/$(basename "$package")" 2>&1) || fail "again: $said"
grep -q '^# edited$' "$root/etc/switchyard/worker.yaml" || fail 'an edited file is overwritten'
said=$(inside dpkg --remove switchyard 2>&1) || fail "remove: $said"
[ -f "$root/etc/switchyard/worker.yaml" ] || fail 'removing takes the configuration along'
said=$(inside dpkg --purge switchyard 2>&1) || fail "purge: $said"
left=$(find "$root" -xdev -path "$root/proc" -prune -o -name '*switchyard*' ! -name '*.deb' -print)
[ -z "$left" ] || fail "purging leaves $left"

[ $failures -eq 0 ] && echo 'deb_test: passed'
[ $failures -eq 0 ]
