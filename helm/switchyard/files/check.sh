# `helm test`: whether the release serves. Each line says what was checked; the first failure ends it.
#   COORDINATOR  host:port of its system port      WORKERS  id=host:port of theirs
#   POOLS        pool=workers=offset of each pool whose Pods have names that only the cluster knows; a system port is
#                the worker's port and the offset
#   DEPLOYMENTS  names of what has to serve         SYCTL_TARGET  the coordinator's port
#   MODELS       name=folder=golden=deployment=served of each model, of which rows of one layer are computed here; no
#                golden: there are no recorded outputs to compare with as well; no deployment: it has one for each phase,
#                which the name finds that it is served by
set -eu
fail() {
  echo "FAILED: $*"
  exit 1
}
get() { timeout 5 wget -q -O - "http://$1$2"; }

get "$COORDINATOR" /readyz >/dev/null || fail "the coordinator at $COORDINATOR is not ready"
echo "ready: coordinator"
for pool in ${POOLS:-}; do
  name=${pool%%=*}
  rest=${pool#*=}
  found=$(syctl --timeout 10 get workers -o jsonpath='{range .workers[*]}{.pool}{" "}{.id}{" "}{.endpoint}{" "}{.state}{"\n"}{end}' |
    awk -v pool="$name" -v offset="${rest#*=}" \
      '$1 == pool && tolower($4) ~ /live$/ { at = split($3, part, ":"); print $2 "=" part[1] ":" part[at] + offset }')
  count=$(echo "$found" | grep -c =) || true
  [ "$count" -ge "${rest%%=*}" ] || fail "pool $name has $count live workers and not ${rest%%=*}"
  WORKERS="$WORKERS $found"
done
for worker in $WORKERS; do
  id=${worker%%=*}
  get "${worker#*=}" /readyz >/dev/null || fail "worker $id at ${worker#*=} is not ready"
  syctl -o table --timeout 10 wait worker "$id" --for live || fail "worker $id is not live"
done
for deployment in $DEPLOYMENTS; do
  syctl -o table --timeout 30 wait deployment "$deployment" --for serving || fail "$deployment is not served"
done
checkpoints=
for model in $MODELS; do
  name=${model%%=*}
  rest=${model#*=}
  folder=${rest%%=*}
  rest=${rest#*=}
  golden=${rest%%=*}
  rest=${rest#*=}
  deployment=${rest%%=*}
  served=${rest#*=}
  checkpoints="$checkpoints --checkpoint $folder"
  check() {
    verify --target "$SYCTL_TARGET" ${SYCTL_TLS_DIR:+--tls-dir "$SYCTL_TLS_DIR"} ${deployment:+--deployment "$deployment"} ${served:+--served-model "$served"} --model "$folder" "$@"
  }
  if [ -n "$golden" ]; then
    check --golden "$golden" || fail "model $name does not give the recorded outputs"
  fi
  check --rows 4 || fail "model $name does not give what its checkpoint says"
done
for target in "coordinator=$COORDINATOR" $WORKERS; do
  get "${target#*=}" /metrics | grep -q '^moe_ready 1' || fail "no metrics of ${target%%=*} at ${target#*=}"
  echo "metrics: ${target%%=*}"
done
# shellcheck disable=SC2086 # names of models and paths have no spaces
syctl -o table --timeout 60 doctor $checkpoints || fail "syctl doctor has found something"
echo "the release serves"
