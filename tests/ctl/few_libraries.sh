#!/usr/bin/env bash
# Checks that syctl brings gRPC, Protobuf and Abseil along, and what cmake/link_archives makes of a link.
#
#   few_libraries.sh SOURCE_DIR BIN_DIR
set -euo pipefail
source_dir=$1
bin_dir=$2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
fail() {
  echo "few_libraries.sh: $*" >&2
  exit 1
}
link() { "$source_dir/cmake/link_archives" echo "$@"; }

# All or none.
touch "$folder"/lib{grpc,absl_base,absl_more}.{so.1.2,a} "$folder"/lib{grpc++,ssl}.so.1.2
got=$(link -o x "$folder/libgrpc.so.1.2" "$folder/libabsl_base.so.1.2" "$folder/libssl.so.1.2" -lre2)
want="-o x $folder/libgrpc.a $folder/libabsl_base.a $folder/libssl.so.1.2 -lre2"
want+=" -Wl,--start-group $folder/libabsl_base.a $folder/libabsl_more.a -Wl,--end-group"
[ "$got" = "$want" ] || fail "links $got"
got=$(link "$folder/libgrpc.so.1.2" "$folder/libgrpc++.so.1.2")
[ "$got" = "$folder/libgrpc.so.1.2 $folder/libgrpc++.so.1.2" ] || fail "without an archive: $got"
[ "$(link -o x y.o)" = "-o x y.o" ] || fail "changes a link of something else"

# Where the packages have archives, as Debian's do.
[ -f "$(dirname "$(gcc -print-file-name=libgrpc++.so)")/libgrpc++.a" ] || exit 0
needed=$(objdump -p "$bin_dir/syctl" | awk '$1 == "NEEDED" { print $2 }')
[ -n "$needed" ] || fail "$bin_dir/syctl names no libraries"
if grep -E '^lib(grpc|gpr|absl|protobuf)' <<<"$needed"; then fail "syctl loads these"; fi
