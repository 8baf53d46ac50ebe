#!/usr/bin/env bash
# make verify and make eval end with the exit codes of their programs.
#   make_checks_test.sh REPOSITORY
set -uo pipefail
cd "$1" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

mkdir "$work/bin"
for program in verify switchyard-eval switchyard-worker; do
  printf '#!/bin/sh\necho "ran %s $*"\nexit $FAKE_EXIT\n' "$program" >"$work/bin/$program"
  chmod +x "$work/bin/$program"
done

# ends CODE WORD...: make with these words ends with CODE when its programs end with $fake.
ends() {
  local code=$1
  shift
  out=$(FAKE_EXIT=$fake make "$@" BUILD="$work" 2>&1)
  local got=$?
  if [ "$got" != "$code" ]; then
    echo "FAILED: make $*: exit $got, not $code, when the program ends with $fake:"
    echo "$out"
    failures=$((failures + 1))
  fi
}
says() {
  if ! grep -q "$1" <<<"$out"; then
    echo "FAILED: no line with '$1' in:"
    echo "$out"
    failures=$((failures + 1))
  fi
}

for fake in 0 1 2; do
  ends $fake verify GOLDEN=g
  says '^ran verify --model models/sqlite-moe-7m --golden g$'
  ends $fake --silent eval TEXT=t WINDOWS=3
  says '^ran switchyard-eval --model models/sqlite-moe-7m --text t --windows 3$'
  ends $fake verify eval GOLDEN=g TEXT=t
done
# A program that is killed has measured nothing.
fake=137
ends 2 verify GOLDEN=g
fake=0
ends 2 verify
says 'make verify: GOLDEN is required'
# Beside other goals, make's own code for a failure.
fake=1
ends 2 verify help GOLDEN=g
fake=0
ends 0 help verify GOLDEN=g
says '^ran verify'
# -n runs nothing.
ends 0 -n verify GOLDEN=g
if grep -q '^ran' <<<"$out"; then
  echo "FAILED: make -n ran the program"
  failures=$((failures + 1))
fi
left=$(find out -maxdepth 1 -name '.*.run-*' 2>/dev/null)
if [ -n "$left" ]; then
  echo "FAILED: files are left: $left"
  failures=$((failures + 1))
fi
exit $((failures > 0))
