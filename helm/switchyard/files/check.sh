# `helm test`: whether the release serves. Each line says what was checked; the first failure ends it.
#   COORDINATOR  host:port of its system port      WORKERS  id=host:port of theirs
#   MODELS       name=folder=golden of each model   SYCTL_TARGET  the coordinator's port
set -eu
fail() {
  echo "FAILED: $*"
  exit 1
}
get() { timeout 5 wget -q -O - "http://$1$2"; }

get "$COORDINATOR" /readyz >/dev/null || fail "the coordinator at $COORDINATOR is not ready"
echo "ready: coordinator"
for worker in $WORKERS; do
  id=${worker%%=*}
  get "${worker#*=}" /readyz >/dev/null || fail "worker $id at ${worker#*=} is not ready"
  syctl -o table --timeout 10 wait worker "$id" --for live || fail "worker $id is not live"
done
for model in $MODELS; do
  name=${model%%=*}
  syctl -o table --timeout 30 wait deployment "$name" --for serving || fail "model $name is not served"
  golden=${model##*=}
  folder=${model#*=}
  [ -n "$golden" ] || continue
  verify --target "$SYCTL_TARGET" --deployment "$name" --model "${folder%%=*}" --golden "$golden" ||
    fail "model $name does not give the recorded outputs"
done
for target in "coordinator=$COORDINATOR" $WORKERS; do
  get "${target#*=}" /metrics | grep -q '^moe_ready 1' || fail "no metrics of ${target%%=*} at ${target#*=}"
  echo "metrics: ${target%%=*}"
done
echo "the release serves"
