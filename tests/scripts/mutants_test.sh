#!/usr/bin/env bash
# scripts/mutants over a tree of stand-ins: a "build" copies product.txt, and a bug is a patch of it.
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

mkdir -p "$work/tree/tests/mutants" "$work/tree/scripts" "$work/tree/build/release"
cd "$work/tree" || exit 1
printf 'sound\n' >product.txt
cat >scripts/build <<'FAKE'
#!/bin/sh
# scripts/build release --tests TARGET...
grep broken product.txt && { echo "product.txt: error: broken"; exit 1; }
mkdir -p build/release
cp product.txt build/release/product
FAKE
chmod +x scripts/build

# row NAME SAYS CODE_WITHOUT CODE_WITH WORD: a bug that turns the product into WORD, and a check that
# exits CODE_WITHOUT for a sound product and prints the product and exits CODE_WITH for another.
row() {
  printf '%s\tprotocol\tproduct\t%s\t%s\n' "$1" "$2" \
    "grep -qx sound {build}/product && exit $3; cat {build}/product; exit $4"
  printf 'The product is %s.\n\n--- a/product.txt\n+++ b/product.txt\n@@ -1 +1 @@\n-sound\n+%s\n' "$5" "$5" \
    >"tests/mutants/$1.patch"
}
table() {
  rm -f tests/mutants/*.patch
  "$@" >tests/mutants.tsv
}
add() { "$@" >>tests/mutants.tsv; }

# run EXIT_CODE [ARGUMENT...]: runs it on the tree and keeps its words in $said.
run() {
  local want=$1
  shift
  said=$(SOURCE="$work/tree" "$repository/scripts/mutants" "$@" 2>&1)
  local got=$?
  [ $got -eq "$want" ] || fail "exit $got, not $want, with $*: $said"
  [ "$(cat product.txt)" = sound ] || fail "the tree itself was changed"
}
says() { [[ $said =~ $1 ]] || fail "'$1' is not in: $said"; }

table row first 'I[0-9]' 0 1 'I2 broke'
add row second worse 0 1 worse
run 0 --check
run 0
says 'first +protocol +caught .*I2'
says '2 of 2 caught'
run 0 second
says '1 of 1 caught'
run 0 --rotate 1
says '1 of 1 caught'
run 0 --rotate 9
says '2 of 2 caught'

add row escapes x 0 0 x
run 1
says 'escapes +protocol +ESCAPED'
says '2 of 3 caught'
table row crashes x 0 139 x
run 1
says 'ESCAPED +[0-9]+ +exit 139'
table row silent x 0 1 y
run 1
says "exit 1 without 'x'"
table row always x 1 1 x
run 1
says 'UNSOUND .*fails without a bug'
table row unbuildable x 0 1 broken
run 1
says 'UNSOUND .*unbuildable.patch does not build: .*error: broken'

# What an interrupted run left in the copy is gone in the next one.
table row first x 0 1 x
printf 'left over\n' >build/mutants/product.txt
printf 'left over\n' >build/mutants/stray.txt
run 0
says 'caught'
[ ! -e build/mutants/stray.txt ] || fail 'the copy has a file that the tree has not'

# A patch that no longer fits is a failure that names it, whether or not anything is built.
sed -i 's/^-sound$/-old words/' tests/mutants/first.patch
run 1
says 'UNSOUND .*tests/mutants/first.patch does not apply'
run 1 --check
says 'tests/mutants/first.patch does not apply'
rm tests/mutants/first.patch
run 1
says 'UNSOUND .*tests/mutants/first.patch does not exist'
run 1 --check
says 'tests/mutants/first.patch, which tests/mutants.tsv names, does not exist'
table row first x 0 1 x
cp tests/mutants/first.patch tests/mutants/nobody.patch
run 1 --check
says 'nobody.patch has no row'
table row first x 0 1 x
sed -i 's,product.txt,tests/product.txt,' tests/mutants/first.patch
printf 'sound\n' >tests/product.txt
run 1 --check
says 'first.patch changes a test'

# The same inside a repository, whose root git would otherwise take for the root of the patches.
table row first x 0 1 x
git init -q .
run 0 --check
run 0
says 'caught'

run 2 no_such_bug
run 2 --rotate none
run 2 --unknown
printf 'bad\tother kind\tproduct\tx\tcheck\n' >tests/mutants.tsv
run 2
says 'bad row'

[ $failures -eq 0 ] && echo "mutants_test: passed"
exit "$failures"
