#!/usr/bin/env bash
# Calls a coordinator as its users do who have no .proto files: with the buf that scripts/lint_proto
# installs, and with grpcurl where it is, for itself or among the tools of Kubernetes' tests. Exits with 77 where
# neither is.
#   reflection_test.sh REPOSITORY BUILD
set -uo pipefail
repository=$1
build=$2
buf=$(ls "$repository"/build/buf/node_modules/@bufbuild/buf-*/bin/buf 2>/dev/null | head -n 1)
grpcurl=$(command -v grpcurl || { tools=$("$repository/scripts/k8s_tools" --check 2>/dev/null) && ls "$tools/grpcurl"; })
[ -n "$buf$grpcurl" ] || { echo 'neither buf nor grpcurl is installed'; exit 77; }
work=$(mktemp -d)
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT
started=()
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# start FLAG...: a coordinator; sets `address`.
start() {
  local log=$work/${#started[@]}.log
  : >"$log"
  "$build/bin/switchyard-coordinator" --listen 127.0.0.1:0 --store memory --log-level error "$@" \
    >"$log" 2>&1 &
  started+=($!)
  for _ in {1..300}; do
    address=$(sed -n 's/^ready //p' "$log")
    [ -z "$address" ] || return 0
    sleep 0.1
  done
  fail "the coordinator is not ready: $(cat "$log")"
}
call_buf() {
  "$buf" curl --protocol grpc --http2-prior-knowledge "http://$address/switchyard.v1.CoordinatorService/$1" 2>&1
}
call_grpcurl() { "$grpcurl" -plaintext "$address" "switchyard.v1.CoordinatorService/$1" 2>&1; }
# check_buf, check_grpcurl: the standard health service.
check_buf() {
  "$buf" curl --protocol grpc --http2-prior-knowledge "http://$address/grpc.health.v1.Health/Check" 2>&1
}
check_grpcurl() { "$grpcurl" -plaintext "$address" grpc.health.v1.Health/Check 2>&1; }

tools=()
[ -z "$buf" ] || tools+=(call_buf)
[ -z "$grpcurl" ] || tools+=(call_grpcurl)
start
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:.*=//p' "$build/CMakeCache.txt")
for call in "${tools[@]}"; do
  said=$($call GetVersion) || fail "$call: $said"
  [[ $said == *"\"version\":"*"\"$version\""* ]] || fail "$call: no version in $said"
  said=$($call ListWorkers) || fail "$call: $said"
  [[ $said == '{'*'}' ]] || fail "$call ListWorkers: $said"
  said=$(${call/call/check}) || fail "${call/call/check}: $said"
  [[ $said == *'"status":'*'"SERVING"'* ]] || fail "${call/call/check}: $said"
  said=$($call ListWorker) && fail "$call: a call that does not exist succeeds: $said"
done
if [ -n "$grpcurl" ]; then
  said=$("$grpcurl" -plaintext "$address" list)
  [[ $said == *grpc.health.v1.Health*switchyard.v1.CoordinatorService* ]] || fail "grpcurl list: $said"
  said=$("$grpcurl" -plaintext "$address" describe grpc.health.v1.Health) || fail "grpcurl describe: $said"
  [[ $said == *'rpc Check'*'rpc Watch'* ]] || fail "grpcurl describe: $said"
fi

start --reflection off
for call in "${tools[@]}"; do
  said=$($call GetVersion) && fail "--reflection off: $call succeeds: $said"
done
said=$("$build/bin/syctl" --target "$address" version) || fail "--reflection off: $said"

"$build/bin/syctl" certs ensure "$work/tls" --trust-domain moe.example >"$work/certs" || fail "certs: $(cat "$work/certs")"
# secure_buf ROLE, secure_grpcurl ROLE: a call with that role's certificate, described by reflection.
secure_buf() {
  "$buf" curl --protocol grpc --insecure --cert "$work/tls/$1/tls.crt" --key "$work/tls/$1/tls.key" \
    "https://$address/switchyard.v1.CoordinatorService/ListWorkers" 2>&1
}
secure_grpcurl() {
  "$grpcurl" -insecure -cert "$work/tls/$1/tls.crt" -key "$work/tls/$1/tls.key" "$address" \
    switchyard.v1.CoordinatorService/ListWorkers 2>&1
}
start --tls-dir "$work/tls/coordinator"
for call in "${tools[@]}"; do
  said=$(${call/call/secure} operator) || fail "$call as operator: $said"
  [[ $said == '{'*'}' ]] || fail "$call as operator: $said"
  said=$(${call/call/secure} worker) && fail "$call as worker succeeds: $said"
  said=$($call GetVersion) && fail "$call without a certificate succeeds: $said"
done

[ $failures -eq 0 ] && echo "reflection_test: passed with ${tools[*]}"
[ $failures -eq 0 ]
