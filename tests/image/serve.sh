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
user=65532
in_image() { exec chroot --userspec="$user:$user" "$@"; }  # in a subshell or in the background

# Some kernels let nobody but a holder of CAP_NET_ADMIN attach the filter with which workers and engines close
# UCX's ports to strangers.
ucx_user=$user
filter='import ctypes, socket, struct
statement = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffffffff), 8)
socket.socket().setsockopt(1, 26, struct.pack("HxxxxxxP", 1, ctypes.addressof(statement)))'
if ! setpriv --reuid "$user" --regid "$user" --clear-groups python3 -c "$filter" 2>/dev/null; then
  echo "this kernel refuses socket filters to users without rights: worker and verify run as root"
  ucx_user=0
fi

# The model image copies its checkpoint, as an init container does.
mkdir copied
chown 65532:65532 copied
mkdir model-sqlite-moe-7m/target
mount --bind copied model-sqlite-moe-7m/target
(in_image model-sqlite-moe-7m /usr/bin/cp -r /model/. /target)
for file in copied/*; do echo "copied ${file#copied/}"; done

in_image coordinator /usr/bin/switchyard-coordinator --listen 127.0.0.1:7700 --store memory --log-level error &
coordinator=$!
user=$ucx_user in_image worker /usr/bin/switchyard-worker --id w0 --coordinator 127.0.0.1:7700 --log-level warn &
worker=$!
printf 'name: demo\ncheckpoint: /models\n' |
  (in_image tools /usr/bin/sh -c 'for i in 1 2 3 4 5 6 7 8; do syctl get workers >/dev/null 2>&1 && break; sleep 1; done
    syctl apply -f - --wait --timeout 60')
(user=$ucx_user in_image tools /usr/bin/verify --target 127.0.0.1:7700 --model /models --golden /models/golden.safetensors)
kill "$worker"
wait "$worker"
kill "$coordinator"
wait "$coordinator"
