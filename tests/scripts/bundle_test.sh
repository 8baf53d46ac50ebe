#!/usr/bin/env bash
# Makes a bundle of a build, unpacks it in another place and uses it where glibc is the only
# library: verify with two workers, and a C program with libswitchyard.so.
#   bundle_test.sh REPOSITORY BUILD
#
# A mount namespace hides the machine's libraries. Where namespaces are forbidden, the same programs
# run in sight of them, and only the loader's log shows that they were not used.
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

archive=$(BUILD=$build OUT=$work/out LEVEL=1 "$repository/scripts/bundle") || exit 1
root=$work/root
mkdir -p "$root/opt/moved" "$root/scratch" "$root/model" "$root/dev" "$root/proc" "$root/sys"
tar --extract --zstd --file "$archive" --directory "$root/opt/moved"
name=$(basename "$archive" .tar.zst)
rm -rf "$work/out"  # so that nothing can be found in the place where the bundle was made
bundle=$root/opt/moved/$name

# What lies in it.
(cd "$bundle" && sha256sum --quiet --check SHA256SUMS) || fail 'a file is not as SHA256SUMS has it'
while IFS= read -r file; do
  file=${file#"$bundle"/}
  grep -q "  $file\$" "$bundle/SHA256SUMS" || [ "$file" = SHA256SUMS ] ||
    fail "$file has no checksum"
  case $file in
    licenses/* | MANIFEST.tsv | SHA256SUMS) continue ;;
  esac
  package=$(awk -F'\t' -v file="$file" '$1 == file { print $2 }' "$bundle/MANIFEST.tsv")
  [ -n "$package" ] && [ -n "$(ls "$bundle/licenses/$package")" ] || fail "$file has no license"
  case $file in
    bin/* | lib/*)
      sections=$(readelf --sections --dynamic --wide "$bundle/$file")
      [[ $sections != *' .debug_info '* ]] || fail "$file is not stripped"
      [[ $sections != *'(RUNPATH)'* ]] || fail "$file looks for libraries in a RUNPATH" ;;
  esac
done < <(find "$bundle" -type f)
for program in switchyard-{coordinator,worker,quantize} syctl generate verify switchyard-eval; do
  [ -x "$bundle/bin/$program" ] || fail "no program $program"
done
grep -q $'^# glibc\t2\\.[0-9]* or later$' "$bundle/MANIFEST.tsv" || fail 'no glibc version'

# A machine with glibc only.
while IFS= read -r file; do
  case $file in
    /lib/*.so* | /lib64/*) mkdir -p "$root${file%/*}" && cp "$file" "$root$file" ;;
  esac
done < <(dpkg-query --listfiles libc6)
mkdir -p "$root/lib64"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
cp "$repository"/models/sqlite-moe-7m/{config.json,*.safetensors} "$root/model/"
at=
namespace=(unshare --mount)
[ "$(id -u)" = 0 ] || namespace+=(--user --map-root-user)
# inside PROGRAM...: runs it there, as this process.
inside() {
  exec "${namespace[@]}" bash -c '
    root=$1
    shift
    for folder in dev proc sys; do mount --rbind "/$folder" "$root/$folder" || exit; done
    exec env -i LD_DEBUG=libs LD_DEBUG_OUTPUT=/scratch/ld TMPDIR=/scratch \
      /usr/sbin/chroot "$root" "$@"
  ' - "$root" "$@"
}
if ! (inside /lib64/ld-linux-x86-64.so.2 --version) >/dev/null 2>&1; then
  echo 'namespaces are forbidden here: the programs run in sight of the libraries of this machine'
  at=$root
  inside() {
    exec env -i LD_DEBUG=libs LD_DEBUG_OUTPUT="$root/scratch/ld" TMPDIR="$root/scratch" "$@"
  }
fi
bin=$at/opt/moved/$name/bin

glibc=$(dpkg-query --listfiles libc6)
# check_loaded PROCESSES WHAT: every library that the last programs loaded is the bundle's or
# glibc's.
check_loaded() {
  local logs=("$root"/scratch/ld.*)
  [ ${#logs[@]} -ge "$1" ] || fail "$2: ${#logs[@]} processes, not $1"
  cat "${logs[@]}" >"$work/loaded"
  rm -f "${logs[@]}"
  sed -n 's/.*calling init: //p' "$work/loaded" | sort -u >"$work/libraries"
  while IFS= read -r library; do
    [[ $library == *"/opt/moved/"* || $library == "$at/scratch/program" ]] ||
      grep -q "/${library##*/}\$" <<<"$glibc" || fail "$2 loads $library"
  done <"$work/libraries"
  for module in cma ib rdmacm; do
    grep -q "/lib/ucx/libuct_$module\\.so" "$work/libraries" ||
      fail "$2 does not load UCX's $module"
  done
}

for transport in shm tcp; do
  said=$(inside "$bin/verify" --model "$at/model" --golden "$at/model/golden.safetensors" \
    --workers 2 --transport "$transport" 2>&1) || fail "verify over $transport: $said"
  [[ $said == *'verified: within bounds'* ]] || fail "verify over $transport: $said"
  check_loaded 4 "verify over $transport"
done

# A C program that uses the library and the header of the bundle.
${CC:-cc} -I"$bundle/include" "$repository/tests/client/c_api_program.c" -o "$root/scratch/program" \
  -L"$bundle/lib" -lswitchyard -Wl,-rpath,"$at/opt/moved/$name/lib" ||
  fail 'the C program does not build'
printf 'name: local\ncheckpoint: %s\nmin_workers: 1\n' "$at/model" >"$root/scratch/local.yaml"
# start NAME PROGRAM...: sets `address` to where it listens.
start() {
  local log=$work/$1.log
  shift
  (inside "$@" --log-level error) >"$log" 2>&1 &
  started+=($!)
  for _ in {1..300}; do
    address=$(sed -n 's/^ready //p' "$log")
    [ -z "$address" ] || return 0
    sleep 0.1
  done
  fail "$1 is not ready: $(cat "$log")"
}
start coordinator "$bin/switchyard-coordinator" --listen 127.0.0.1:0 \
  --deployment "$at/scratch/local.yaml"
coordinator=$address
start worker "$bin/switchyard-worker" --coordinator "$coordinator" --id w0 --net-devices lo
gateway=$address
for _ in {1..300}; do
  (inside "$bin/syctl" --coordinator "$coordinator" get plan) >/dev/null 2>&1 && break
  sleep 0.1
done
said=$(inside "$at/scratch/program" "$coordinator" "$gateway" 2>&1) || fail "the C program: $said"
[[ $said == *passed* ]] || fail "the C program: $said"
kill -TERM "${started[1]}"
wait "${started[1]}" || fail 'the worker did not end well'
kill -TERM "${started[0]}"
wait "${started[0]}" || fail 'the coordinator did not end well'
started=()
check_loaded 3 'the C program'

[ $failures -eq 0 ] && echo 'bundle_test: passed'
[ $failures -eq 0 ]
