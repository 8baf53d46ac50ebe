#!/usr/bin/env bash
# Runs coordinator, worker and verify from unpacked images, in network and mount namespaces of its own.
#   serve.sh FOLDER    with the folders coordinator, worker, tools and model-sqlite-moe-7m
set -euo pipefail
cd "$1"
ip link set lo up
for image in coordinator worker tools; do
  mkdir -p "$image"/{dev,proc,sys}
  mount --bind "$image" "$image"
  mount --bind model-sqlite-moe-7m/model "$image/models"
  for folder in dev proc sys; do mount --rbind "/$folder" "$image/$folder"; done
  mount -o remount,bind,ro "$image"
done
in_image() { chroot --userspec=65532:65532 "$@"; }

# The model image copies its checkpoint, as an init container does.
mkdir copied
chown 65532:65532 copied
mkdir model-sqlite-moe-7m/target
mount --bind copied model-sqlite-moe-7m/target
in_image model-sqlite-moe-7m /usr/bin/cp -r /model/. /target
for file in copied/*; do echo "copied ${file#copied/}"; done

in_image coordinator /usr/bin/switchyard-coordinator --listen 127.0.0.1:7700 --store memory --log-level error &
coordinator=$!
in_image worker /usr/bin/switchyard-worker --id w0 --coordinator 127.0.0.1:7700 --log-level warn &
worker=$!
printf 'name: demo\ncheckpoint: /models\n' |
  in_image tools /usr/bin/sh -c 'syctl apply -f - --wait'
in_image tools /usr/bin/verify --target 127.0.0.1:7700 --model /models --golden /models/golden.safetensors
kill "$worker"
wait "$worker"
kill "$coordinator"
wait "$coordinator"
