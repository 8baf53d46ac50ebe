#!/usr/bin/env bash
# scripts/mutants with tables of stand-in checks, and that the real table names real bugs. Builds
# nothing.
#   mutants_test.sh REPOSITORY
set -uo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# A check that exits $2 and says $3 when it is given a bug, and $1 when it is not.
cat >"$work/check" <<'FAKE'
#!/bin/sh
case "$*" in
  *--mutant=*) echo "$3"; exit "$2" ;;
  *) exit "$1" ;;
esac
FAKE
chmod +x "$work/check"
row() { printf '%s\t%s\tnothing\t%s\t{build}/check %s --mutant=%s\n' "$1" protocol "$2" "$3" "$1"; }

# run EXIT_CODE [ARGUMENT...]: runs it on $work/table and keeps its words in $said.
run() {
  local want=$1
  shift
  said=$(TABLE="$work/table" BUILD="$work" "$repository/scripts/mutants" "$@" 2>&1)
  local got=$?
  [ $got -eq "$want" ] || fail "exit $got, not $want, with $*: $said"
}
says() { [[ $said =~ $1 ]] || fail "'$1' is not in: $said"; }

row first 'I[0-9]' '0 1 I2' >"$work/table"
row second 'worse' '0 1 worse' >>"$work/table"
run 0
says 'first +protocol +caught .*I2'
says '2 of 2 caught'
run 0 second
says '1 of 1 caught'
run 0 --rotate 1
says '1 of 1 caught'
run 0 --rotate 9
says '2 of 2 caught'

row escapes 'x' '0 0 x' >>"$work/table"
run 1
says 'escapes +protocol +ESCAPED'
says '2 of 3 caught'
row crashes 'x' '0 139 x' >"$work/table"
run 1
says 'ESCAPED +[0-9]+ +exit 139'
row silent 'x' '0 1 y' >"$work/table"
run 1
says "exit 1 without 'x'"
row always 'x' '1 1 x' >"$work/table"
run 1
says 'UNSOUND .*fails without a bug'

run 2 no_such_bug
run 2 --rotate none
run 2 --unknown
printf 'bad\tprotocol\tnothing\tx\tcheck --mutant=another\n' >"$work/table"
run 2
says 'bad row'

# One row for each bug, and none for anything else.
difference=$(diff <(sed -nE 's/.*\{MutantId::k[A-Za-z]+, "([a-z_]+)".*/\1/p' "$repository/core/mutant.cc" | sort) \
                  <(grep -v '^#' "$repository/tests/mutants.tsv" | cut -f 1 | sort)) ||
  fail "core/mutant.cc (<) and tests/mutants.tsv (>) differ: $difference"

[ $failures -eq 0 ] && echo "mutants_test: passed"
exit "$failures"
