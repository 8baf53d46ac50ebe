#!/usr/bin/env bash
# scripts/fuzz over stand-in fuzzers: what it prints and keeps, and how it exits. Builds nothing.
#   fuzz_test.sh REPOSITORY
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A repository of its own: the script writes to out/ and, when told, to the corpus.
mkdir -p "$work/scripts" "$work/bin"
cp "$1/scripts/fuzz" "$1/scripts/jobs" "$work/scripts/"
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# Each fuzzer finds one new input; $work/breaks names the one that crashes, $work/silent one that does nothing.
names="safetensors_header safetensors_index model_config quant_config tensor_values names
  register attach frames inbox ring_offer forward forward_stream"
count=$(wc -w <<<"$names")
for name in $names; do
  mkdir -p "$work/tests/fuzz/corpus/$name"
  echo seed >"$work/tests/fuzz/corpus/$name/seed"
  cat >"$work/bin/${name}_fuzzer" <<FAKE
#!/bin/sh
echo "\$*" >>"$work/calls"
[ "\$(cat "$work/silent" 2>/dev/null)" = $name ] && exit 0
merge=no
for word; do
  case "\$word" in
    -merge=1) merge=yes ;;
    -artifact_prefix=*) prefix=\${word#*=} ;;
    -*) ;;
    *) if [ -z "\$first" ]; then first=\$word; else second=\$word; fi ;;
  esac
done
if [ \$merge = yes ]; then cp "\$second"/* "\$first/"; exit 0; fi
echo grown >"\$first/${name}_grown"
echo "#12	DONE cov: 345 ft: 9 corp: 2/9b"
echo "stat::number_of_executed_units: 120"
echo "stat::average_exec_per_sec:     40"
if [ "\$(cat "$work/breaks" 2>/dev/null)" = $name ]; then
  echo "broken promise: two is two"
  echo bad >"\${prefix}crash-0123"
  echo slow >"\${prefix}slow-unit-0123"
  exit 77
fi
FAKE
done
chmod +x "$work/bin/"*

# run EXIT_CODE [ARGUMENT...]: keeps standard output in $said.
run() {
  local want=$1
  shift
  rm -f "$work/calls"
  said=$(BUILD="$work/bin" "$work/scripts/fuzz" "$@" 2>"$work/progress" </dev/null)
  local got=$?
  [ $got -eq "$want" ] || fail "exit $got, not $want, with $*: $said $(cat "$work/progress")"
}
says() { [[ $said =~ $1 ]] || fail "'$1' is not in: $said"; }
committed() { find "$work/tests/fuzz/corpus" -type f | wc -l; }

run 0 --format table
says 'quant_config +120 +40 +345 +1 \+ 1 +0'
[ "$(grep -c -e '-max_total_time=60 .*-print_final_stats=1' "$work/calls")" = "$count" ] || fail "not $count times 60 s: $(cat "$work/calls")"
grep -q -e '-timeout=5 -rss_limit_mb=512' "$work/calls" || fail "no limits: $(cat "$work/calls")"
[ "$(committed)" = "$count" ] || fail "it wrote into the committed corpus"

run 0 7 --only names
python3 -c 'import json,sys; found = json.loads(sys.argv[1]); row, = found["fuzzers"]
assert found["passed"] and found["seconds_each"] == 7 and row["coverage"] == 345 and row["corpus_found"] == 1' \
  "$said" || fail "not one object in json: $said"

run 0 5 --only names --keep
[ "$(committed)" = $((count + 1)) ] && [ -f "$work/tests/fuzz/corpus/names/names_grown" ] || fail "--keep does not add what was found"

echo model_config >"$work/breaks"
run 1 --format table --keep
says 'model_config +120 +40 +345 +1 \+ 1 +1'
says 'model_config: broken promise: two is two'
says 'out/fuzz/model_config/crash-0123'
[ -f "$work/out/fuzz/model_config/crash-0123" ] || fail "the reproducer is gone"
[[ $said != *slow-unit* ]] || fail "a slow input is called a finding"
[ ! -f "$work/tests/fuzz/corpus/model_config/model_config_grown" ] || fail "it kept inputs of a run with a finding"
rm "$work/breaks"

echo quant_config >"$work/silent"
run 1 --format table
says 'quant_config: it ran no input'
rm "$work/silent"

rm "$work/bin/names_fuzzer"
run 1 --format table --only names
says 'names: .*cannot be started'

run 2 0
run 2 --only nothing

[ $failures -eq 0 ] && echo 'fuzz_test: passed'
[ $failures -eq 0 ]
