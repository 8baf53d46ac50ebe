# Applies the models once the coordinator answers. While it waits, it prints the reason every ten seconds. It gives up before
# the Job's deadline: Kubernetes keeps a failed Pod with its log, and deletes one that still runs at the deadline.
#   APPLY_SECONDS   how long it waits, and how long models may take to load
set -u
end=$(($(date +%s) + APPLY_SECONDS)) said=0
until why=$(syctl get deployments -o name 2>&1 >/dev/null); do
  now=$(date +%s)
  if [ "$now" -ge "$end" ]; then
    echo "FAILED: the coordinator did not answer within $APPLY_SECONDS s: $why"
    exit 1
  fi
  if [ $((now - said)) -ge 10 ]; then
    echo "waiting for the coordinator: $why"
    said=$now
  fi
  sleep 1
done
exec syctl -o table --timeout "$APPLY_SECONDS" apply -f /etc/switchyard/models.yaml --wait
