#!/usr/bin/env bash
# scripts/compare_bench over two build folders whose benchmarks only write figures.
#   compare_bench_test.sh REPOSITORY
set -uo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# build NAME STEP_US READ_MS EXTRA_ROW: a benchmark that appends its name to the order of runs.
build() {
  mkdir -p "$work/$1/bench" "$work/$1/bin"
  cat >"$work/$1/bench/acceptance" <<CODE
#!/usr/bin/env bash
echo $1 >>"$work/order"
while [ \$# -gt 0 ]; do [ "\$1" != --json ] || json=\$2; shift; done
cat >"\$json" <<JSON
{"figures":[
{"name":"step","value":2.0,"unit":"x","met":true,"floor":"$2 us against memcpy of 2 MB in 50 us"},
{"name":"read","value":0.5,"unit":"x","at_least":0.6,"met":false,"floor":"9.1 of 20.2 GB/s; $3 ms"},
{"name":"added","value":-3,"unit":"us","met":true,"floor":"$2 (p90 900.0) us against 5 us"},
{"name":"p99","value":$2,"unit":"us","met":true,"floor":"alone p99 5 us"}$4]}
JSON
exit 1
CODE
  chmod +x "$work/$1/bench/acceptance"
}
build old 100.0 20.0 ''
build new 110.0 10.0 ',{"name":"late","value":1,"unit":"us","met":true,"floor":""}'

# run EXIT_CODE ARGUMENT...
run() {
  local want=$1
  shift
  said=$("$repository/scripts/compare_bench" "$work/old" "$work/new" --runs "$work/runs" "$@" 2>&1)
  local got=$?
  [ $got -eq "$want" ] || fail "exit $got, not $want: $said"
}
says() { [[ $said == *"$1"* ]] || fail "'$1' is not in: $said"; }

run 0 --rounds 2
[ "$(tr '\n' ' ' <"$work/order")" = 'old new old new ' ] || fail "runs: $(cat "$work/order")"
says '| step | 100.0 | 110.0 | 1.100 (1.100-1.100) | 1.000 | 2 |'
says '| read | 20000.0 | 10000.0 | 0.500 (0.500-0.500) | 1.000 | 2 |'
says '| added | 100.0 | 110.0 | 1.100 (1.100-1.100) | - | 2 |'
says '| p99 | 100.0 | 110.0 | 1.100 (1.100-1.100) | 1.100 | 2 |'
says 'only one build has the row: late'

# Later rounds are added to those that lie there.
run 1 --rounds 1 --at-most 1.03
says '| 3 |'
run 0 --rounds 0 --at-most 1.2
[ "$(wc -l <"$work/order")" -eq 6 ] || fail 'no round must run with --rounds 0'

exit $((failures > 0))
