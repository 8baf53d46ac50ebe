#!/usr/bin/env bash
# Runs scripts/bootstrap beside stand-ins for dpkg-query, apt-get and id: what it says and how it
# ends when something is missing, old or refused. Installs nothing.
#   bootstrap_test.sh REPOSITORY
set -uo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# A repository with a stand-in for what installs Python packages.
mkdir -p "$work/repository/scripts"
cp "$repository/scripts/bootstrap" "$repository/scripts/packages.txt" "$work/repository/scripts/"
cat >"$work/repository/scripts/python_env" <<'FAKE'
#!/bin/sh
echo "called $*" >>"$WORK/python.log"
exit "${PYTHON_FAILS:-0}"
FAKE
chmod +x "$work/repository/scripts/python_env"
repository=$work/repository

# Installed: everything in the list at a high version, less $ABSENT, with $OLD at version 0.1.
mkdir "$work/bin"
cat >"$work/bin/dpkg-query" <<'FAKE'
#!/bin/sh
for package; do :; done
[ "$package" = "$ABSENT" ] && [ ! -f "$WORK/installed" ] && exit 1
if [ "$package" = "$OLD" ]; then echo "installed 0.1"; else echo "installed 9:99999999"; fi
FAKE
cat >"$work/bin/apt-get" <<'FAKE'
#!/bin/sh
echo "$*" >>"$WORK/apt.log"
case "$*" in
  *"$APT_FAILS"*) echo "E: no route to the mirror"; exit 100 ;;
  *install*)
    { echo "dlstatus:1:50.0:Retrieving file 1 of 2"; echo "pmstatus:x:100.0:Installed x"; } >&3
    touch "$WORK/installed" ;;
esac
FAKE
printf '#!/bin/sh\necho "$FAKE_ID"\n' >"$work/bin/id"
chmod +x "$work/bin/"*

# run EXIT_CODE [NAME=value...]: runs it and keeps its words in $said.
run() {
  local want=$1
  shift
  rm -f "$work/installed" "$work/apt.log" "$work/python.log"
  said=$(env PATH="$work/bin:$PATH" WORK="$work" ABSENT= OLD= APT_FAILS=never FAKE_ID=0 "$@" \
    "$repository/scripts/bootstrap" build test 2>&1 </dev/null)
  local got=$?
  [ $got -eq "$want" ] || fail "exit $got, not $want, with $*: $said"
}
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
says() { [[ $said == *"$1"* ]] || fail "'$1' is not in: $said"; }

run 0
[ -z "$said" ] || fail "is not silent when nothing is missing: $said"
[ ! -f "$work/apt.log" ] || fail "calls apt-get when nothing is missing"
[ "$(cat "$work/python.log")" = "called " ] || fail "does not see to the Python packages once"
run 1 PYTHON_FAILS=1

run 0 ABSENT=libucx-dev
says "missing: libucx-dev"
says "download"
says "install 100 %"
grep -q 'install.*libucx-dev' "$work/apt.log" || fail "does not install what is missing"
grep -q 'libgtest-dev' "$work/apt.log" && fail "installs what is there"
[ -f "$work/python.log" ] || fail "forgets the Python packages after it has installed something"

run 1 ABSENT=libucx-dev FAKE_ID=1000
says "needs root"
says "sudo scripts/bootstrap build test"

run 1 ABSENT=libucx-dev APT_FAILS=update
says "cannot update the package lists"
says "E: no route to the mirror"

run 1 ABSENT=libucx-dev APT_FAILS=install
says "cannot install the packages"

run 1 OLD=libucx-dev
says "too old: libucx-dev 0.1 (needs 1.13)"
says "use Debian 12 or later"

# A system without apt: no more than the tools that the script itself needs.
mkdir "$work/other"
for tool in awk bash cat cut dirname env grep head id mktemp rm sed tail; do
  ln -s "$(command -v "$tool")" "$work/other/$tool"
done
said=$(env PATH="$work/other" "$repository/scripts/bootstrap" build 2>&1)
[ $? -eq 1 ] || fail "does not stop without apt-get"
says "not a Debian system"
says "libgrpc++-dev 1.51"

said=$("$repository/scripts/bootstrap" no_such_group 2>&1)
[ $? -eq 2 ] || fail "takes any group"
says "no group 'no_such_group'"

[ $failures -eq 0 ] && echo "bootstrap_test: passed"
exit "$failures"
