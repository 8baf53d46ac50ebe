#!/usr/bin/env bash
# scripts/uncalled over a build folder of two objects and a program.
#   uncalled_test.sh REPOSITORY
set -uo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

core=$work/core/CMakeFiles/sy_core.dir
mkdir -p "$core" "$work/bin"
cat >"$work/core.cc" <<'CODE'
namespace switchyard {
struct Shape {
  explicit Shape(int n);
  virtual ~Shape();
  virtual int Sides();
  int n_;
};
Shape::Shape(int n) : n_(n) {}
Shape::~Shape() = default;
int Shape::Sides() { return n_; }
static int Helper(int n) { return n + 1; }
int Unused(int n) { return Helper(n); }
template <typename T>
T Twice(T t) { return t + t; }
template int Twice<int>(int);
inline int Inline() { return 3; }
}  // namespace switchyard
int Outside() { return switchyard::Inline(); }
CODE
cat >"$work/main.cc" <<'CODE'
namespace switchyard {
struct Shape {
  explicit Shape(int n);
  virtual ~Shape();
  virtual int Sides();
  int n_;
};
}
int main() { switchyard::Shape shape(0); return shape.n_; }
CODE
g++ -O0 -ffunction-sections -c "$work/core.cc" -o "$core/core.cc.o" &&
  g++ -O0 -ffunction-sections -Wl,--gc-sections "$work/main.cc" "$core/core.cc.o" -o "$work/bin/program" ||
  fail 'the stand-ins do not build'

# run EXIT_CODE: with the table on standard input.
run() {
  cat >"$work/table"
  said=$(TABLE="$work/table" BUILD="$work" "$repository/scripts/uncalled" 2>&1)
  local got=$?
  [ $got -eq "$1" ] || fail "exit $got, not $1: $said"
}
says() { [[ $said =~ $1 ]] || fail "'$1' is not in: $said"; }

run 1 <<<'# none'
says 'core/core.cc: no program calls switchyard::Unused\(int\)'
says '1 uncalled, 0 explained'
run 0 <<<$'switchyard::Unused(int)\tthe test of the script'
says '1 uncalled, 1 explained'
run 1 <<<$'switchyard::Unused(int)'
says 'says no reason'
run 1 <<<$'switchyard::Unused(int)\tthe test\nswitchyard::Shape::Sides()\ta virtual function is called'
says 'Shape::Sides\(\) is called now, or gone'

[ $failures -eq 0 ] && echo 'uncalled_test: passed'
[ $failures -eq 0 ]
