#!/usr/bin/env bash
# Installs a build below a folder and uses what is there as its users do: units, configuration files,
# programs, and libswitchyard from projects that find it with pkg-config and with CMake.
#   install_test.sh REPOSITORY BUILD
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
install_to() { BUILD=$build DESTDIR=$1 PREFIX=$2 "$repository/scripts/install"; }

# As a package does: every file below DESTDIR, and none that names it.
root=$work/root
install_to "$root" /usr >/dev/null || fail 'DESTDIR: it does not install'
for file in usr/bin/{syctl,switchyard-{coordinator,worker,quantize,eval}} \
  usr/lib/switchyard/{verify,generate} usr/lib/libswitchyard.so \
  usr/include/switchyard/client/switchyard{,_worker}.h usr/lib/pkgconfig/switchyard.pc \
  usr/lib/cmake/switchyard/switchyard-config.cmake etc/switchyard/{coordinator,worker}.yaml \
  usr/lib/systemd/system/switchyard-{coordinator,worker,worker@}.service; do
  [ -f "$root/$file" ] || fail "no $file"
done
for file in bash-completion/completions/syctl zsh/vendor-completions/_syctl \
  fish/vendor_completions.d/syctl.fish; do
  grep -qs __complete "$root/usr/share/$file" || fail "no completion in $file"
done
for program in "$root"/usr/bin/*; do
  page=$(find "$root/usr/share/man" -name "$(basename "$program").[18]")
  [ -f "$page" ] || { fail "no manual page of $program"; continue; }
  # Each option of the help; in the page a dash is "\-".
  "$program" --help | sed -nE 's/^ +(-[a-zA-Z],)?(--[a-z0-9-]+).*/\2/p' | sed 's/-/\\-/g' >"$work/options"
  [ -s "$work/options" ] || fail "$program has no options"
  while IFS= read -r option; do
    grep -qF "\\fB$option\\fR" "$page" || fail "$page has no $option"
  done <"$work/options"
  command -v man >/dev/null || continue
  said=$(man --warnings -E UTF-8 -l -P cat "$page" 2>&1 >"$work/shown")
  [ -z "$said" ] && grep -q '^NAME$' "$work/shown" || fail "man $page: $said"
done
! grep -rlF "$work" "$root" || fail 'these files name the folder of the installation'
while IFS= read -r file; do
  sections=$(readelf --sections --dynamic --wide "$file")
  [[ $sections != *' .debug_info '* ]] || fail "$file is not stripped"
  [[ $sections != *RPATH* && $sections != *RUNPATH* ]] || fail "$file has a search path"
done < <(find "$root/usr/bin" "$root/usr/lib/switchyard" "$root"/usr/lib/*.so -type f)
said=$(install_to relative /usr 2>&1) && fail 'DESTDIR=relative is taken'
[[ $said == *'"relative" is not absolute'* ]] || fail "DESTDIR=relative: $said"

# In a prefix, without DESTDIR: units and programs can be used where they are.
prefix=$work/own
install_to '' "$prefix" >/dev/null || fail 'PREFIX: it does not install'
config=$prefix/etc/switchyard
echo '# edited' >>"$config/worker.yaml"
said=$(install_to '' "$prefix") || fail 'it does not install a second time'
[[ $said == *"kept as it was: $config/worker.yaml"* ]] || fail "the second time: $said"
grep -q '^# edited$' "$config/worker.yaml" || fail 'an edited configuration file is overwritten'

# The programs take the files: every key that is set, and every key of a comment.
for name in coordinator worker; do
  file=$config/$name.yaml
  printed=$("$prefix/bin/switchyard-$name" --config "$file" --print-config 2>&1) ||
    fail "$file: $printed"
  given=$(grep -cE '^  [a-z_]+: ' "$file")
  [ "$(grep -cF "# $file:" <<<"$printed")" = "$given" ] ||
    fail "$file: not all of its $given keys count: $printed"
  sed -E 's/^(  )?#([a-z_]+:)/\1\2/' "$file" >"$work/all.yaml"
  touch "$work/deployment.yaml"
  "$prefix/bin/switchyard-$name" --config "$work/all.yaml" --print-config >/dev/null ||
    fail "$file: a key in a comment is refused"
done

units=("$prefix"/lib/systemd/system/switchyard-{coordinator,worker,worker@}.service)
if command -v systemd-analyze >/dev/null; then
  cp "${units[2]}" "$work/switchyard-worker@w0.service"
  said=$(systemd-analyze verify --man=no "${units[@]:0:2}" "$work/switchyard-worker@w0.service" 2>&1)
  [ -z "$said" ] || fail "systemd-analyze verify: $said"
  for unit in "${units[@]:0:2}"; do
    said=$(systemd-analyze security --offline=yes --threshold=40 "$unit" 2>&1) ||
      fail "$unit is exposed too much: $(tail -n 1 <<<"$said")"
    tail -n 1 <<<"$said"
  done
fi

# start UNIT FLAG...: what the unit starts, until it says that it is ready; sets `address`.
start() {
  local log=$work/$1.log command
  : >"$log"
  command=$(sed -n 's/^ExecStart=//p' "$prefix/lib/systemd/system/$1.service")
  shift
  $command "$@" --log-level error >"$log" 2>&1 &
  started+=($!)
  for _ in {1..300}; do
    address=$(sed -n 's/^ready //p' "$log")
    [ -z "$address" ] || return 0
    sleep 0.1
  done
  fail "$command is not ready: $(cat "$log")"
}
start switchyard-coordinator --listen 127.0.0.1:0 --system-port 0 --store "sqlite:$work/plans.sqlite"
coordinator=$address
start switchyard-worker --coordinator "$coordinator"
gateway=$address
syctl() { "$prefix/bin/syctl" --target "$coordinator" "$@"; }
sed "s#^checkpoint: .*#checkpoint: $repository/models/sqlite-moe-7m#" \
  "$prefix/share/doc/switchyard/examples/deployment.yaml" >"$work/deployment.yaml"
syctl apply -f "$work/deployment.yaml" --wait >"$work/apply" || fail "apply: $(cat "$work/apply")"
said=$(syctl get workers -o table) || fail "get workers: $said"
[[ $said == *worker-0* ]] || fail "get workers: $said"

# Projects that use the library, found in the folder of the package.
program=$repository/tests/client/c_api_program.c
export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig PKG_CONFIG_SYSTEM_LIBRARY_PATH=/
version=$(pkg-config --modversion switchyard)
[ "$version" = "$(sed -n 's/^CMAKE_PROJECT_VERSION:.*=//p' "$build/CMakeCache.txt")" ] ||
  fail "pkg-config has version $version"
# shellcheck disable=SC2046
${CC:-cc} $(pkg-config --cflags switchyard) "$program" -o "$work/by_pkgconfig" \
  $(pkg-config --libs switchyard) || fail 'pkg-config: the program does not build'
cmake -S "$repository/tests/scripts/consumer" -B "$work/consumer" -DPROGRAM="$program" \
  -DCMAKE_PREFIX_PATH="$root/usr" >"$work/cmake.log" 2>&1 &&
  cmake --build "$work/consumer" >>"$work/cmake.log" 2>&1 || fail "CMake: $(tail -n 20 "$work/cmake.log")"
for consumer in "$work/by_pkgconfig" "$work/consumer/by_cmake"; do
  said=$(LD_LIBRARY_PATH=$root/usr/lib ldd "$consumer" | grep -F libswitchyard)
  [[ $said == *"$root/usr/lib/libswitchyard.so.0"* ]] || fail "$consumer is linked with: $said"
  said=$(LD_LIBRARY_PATH=$root/usr/lib "$consumer" "$coordinator" "$gateway" 2>&1) ||
    fail "$consumer: $said"
  [[ $said == *passed* ]] || fail "$consumer: $said"
done

for i in 1 0; do
  kill -TERM "${started[i]}"
  wait "${started[i]}" || fail "program $i did not end well"
done
started=()
[ $failures -eq 0 ] && echo 'install_test: passed'
[ $failures -eq 0 ]
