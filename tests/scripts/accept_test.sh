#!/usr/bin/env bash
# scripts/accept over stand-in programs: what it runs, what it tells, how it exits. Builds nothing.
#   accept_test.sh REPOSITORY
set -uo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
mkdir -p "$work/bin" "$work/tests"

# verify answers with the digest in $work/digest, but exits 1 for what $work/broken names.
cat >"$work/bin/verify" <<'FAKE'
#!/bin/sh
here=$(dirname "$0")/..
broken=$(cat "$here/broken" 2>/dev/null)
if [ -n "$broken" ] && echo "$*" | grep -qe "$broken"; then
  echo '{"verdict": "fail", "failures": ["block p0 layer 2: too far"], "digest": "ffff"}'
  exit 1
fi
digest=$(cat "$here/digest" 2>/dev/null || echo aaaa)
echo "$*" | grep -q -- '--transport tcp' || digest=aaaa
echo "{\"digest\": \"$digest\", \"top1\": {\"agreement\": 1.0},
  \"blocks\": [{\"pooled_diff\": 1e-6, \"worst_row_diff\": 2e-6, \"near_ties\": 3}]}"
FAKE
cat >"$work/bin/switchyard-eval" <<'FAKE'
#!/bin/sh
echo '{"verdict": "pass", "bits_per_byte": 1.09}'
FAKE
cat >"$work/tests/drills_e2e_test" <<'FAKE'
#!/bin/sh
repeat=${2#--gtest_repeat=}
while [ "$repeat" -gt 0 ]; do
  echo "drill kill shm idle: refused after $(cat "$(dirname "$0")/../late" 2>/dev/null || echo 2.5) ms"
  [ -f "$(dirname "$0")/../once" ] || echo "drill kill shm idle: answered after 1.5 ms"
  echo "[       OK ] Worker/KillDrill.IsNoticedNamedAndMended/shm_idle (9 ms)"
  repeat=$((repeat - 1))
done
FAKE

# On late workers each run is a process of its own, without --gtest_repeat.
cat >"$work/tests/planned_change_e2e_test" <<'FAKE'
#!/bin/sh
case $2 in --gtest_repeat=*) exec "$(dirname "$0")/drills_e2e_test" "$@" ;; esac
if [ -f "$(dirname "$0")/../slipped" ]; then
  printf 'planned_change_test.cc:9: Failure\na step failed\n'
  exit 1
fi
echo "drill join shm: planned after 0.2 s, the prefill step of 30.6 s ended after 30.7 s, 5000 decode steps of 0.011 s at p99 (0.010 before), 0 steps failed"
echo "[       OK ] ${1#--gtest_filter=} (9 ms)"
FAKE

# The tree for scripts/mutants: its check prints product.txt, which the one bug changes.
mkdir -p "$work/tree/tests/mutants" "$work/tree/scripts"
printf '#!/bin/sh\n' >"$work/tree/scripts/build"
printf 'sound\n' >"$work/tree/product.txt"
printf -- '--- a/product.txt\n+++ b/product.txt\n@@ -1 +1 @@\n-sound\n+seen\n' >"$work/tree/tests/mutants/one.patch"
mutant_says() {
  printf 'one\tprotocol\tproduct\t%s\tgrep -q sound product.txt || { cat product.txt; exit 1; }\n' "$1" \
    >"$work/tree/tests/mutants.tsv"
}
mutant_says seen
chmod +x "$work/bin/"* "$work/tests/"* "$work/tree/scripts/build"

# run EXIT_CODE [ARGUMENT...]: keeps standard output in $said.
run() {
  local want=$1
  shift
  said=$(SOURCE="$work/tree" BUILD="$work" "$repository/scripts/accept" "$@" 2>"$work/progress")
  local got=$?
  [ $got -eq "$want" ] || fail "exit $got, not $want, with $*: $said $(cat "$work/progress")"
}
says() { [[ $said =~ $1 ]] || fail "'$1' is not in: $said"; }

run 0 --format table
says '59 of 59 checks passed'
says 'goldens shm low_latency 3 +ok .*answers aaaa'
says 'low_latency bit-equal +ok .*16 cells'
says 'eval gateway 4 windows +ok .*1\.0900'
says 'drill kill tcp decode +ok .*20 times, .*p99 2\.5 ms'
says 'planned change late tcp +ok .*80 of 80 runs, 80 changes, .*p99 at most 11\.0 ms \(10\.0 before\)'
says 'mutant one +ok .*protocol: caught'
grep -q '^\[1/58\] goldens loopback normal 1$' "$work/progress" || fail "no progress: $(head -n 2 "$work/progress")"

run 0 --only 'goldens shm'
python3 -c 'import json,sys; found = json.loads(sys.argv[1]); assert found["passed"] and len(found["checks"]) == 8' \
  "$said" || fail "not one object in json: $said"

echo 'gateway.*--workers 3.*normal' >"$work/broken"
run 1 --format table --only goldens
says 'goldens gateway normal 3 +FAIL .*exit 1: block p0 layer 2: too far'
says '31 of 32 checks passed'
rm "$work/broken"

touch "$work/slipped"
run 1 --format table --only 'late shm' --drills 1
says 'planned change late shm +FAIL .*4 of 4 failed: .*a step failed'
rm "$work/slipped"

echo bbbb >"$work/digest"
run 1 --format table --only 'goldens|bit-equal'
says 'low_latency bit-equal +FAIL .*not aaaa: tcp low_latency 1 bbbb'
rm "$work/digest"

echo 1500.0 >"$work/late"
run 1 --format table --only 'drill kill shm idle'
says 'FAIL .*p99 1500\.0 ms'
rm "$work/late"

touch "$work/once"
run 1 --format table --only 'drill kill shm idle'
says 'FAIL .*10 times'
rm "$work/once"

mutant_says never
run 1 --format table --only mutant
says 'mutant one +FAIL .*ESCAPED'

run 1 --format table --only 'no such check'

[ $failures -eq 0 ] && echo 'accept_test: passed'
[ $failures -eq 0 ]
