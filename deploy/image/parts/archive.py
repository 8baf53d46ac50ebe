"""An image as one file: an OCI layout that containerd, podman and skopeo read, with the manifest that
`docker load` looks for beside it."""

import io
import json
import tarfile

from parts.files import digest

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def dump(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def blob_path(name):
    return "blobs/" + name.replace(":", "/")


class Image:
    """Config and manifest over layers. `reference` is host/name:tag, `labels` go into both."""

    def __init__(self, reference, layers, run, labels, created):
        self.reference, self.layers = reference, layers
        self.config = dump({
            "created": created, "architecture": "amd64", "os": "linux",
            "config": {**run, "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": created, "created_by": "deploy/image/build"} for _ in layers]})
        self.manifest = dump({
            "schemaVersion": 2, "mediaType": MANIFEST, "annotations": labels,
            "config": _descriptor(CONFIG, self.config),
            "layers": [_descriptor(LAYER, layer.data) for layer in layers]})
        self.digest = digest(self.manifest)

    def write(self, path, epoch):
        """Writes the archive. Whoever imports it finds the image under its reference."""
        index = dump({"schemaVersion": 2, "mediaType": INDEX, "manifests": [{
            **_descriptor(MANIFEST, self.manifest),
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {"io.containerd.image.name": self.reference,
                            "org.opencontainers.image.ref.name": self.reference.split(":")[-1]}}]})
        docker = dump([{"Config": blob_path(digest(self.config)), "RepoTags": [self.reference],
                        "Layers": [blob_path(layer.digest) for layer in self.layers]}])
        files = {"oci-layout": dump({"imageLayoutVersion": "1.0.0"}), "index.json": index,
                 "manifest.json": docker, blob_path(self.digest): self.manifest,
                 blob_path(digest(self.config)): self.config}
        files.update({blob_path(layer.digest): layer.data for layer in self.layers})
        with tarfile.open(path, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name in ("blobs", "blobs/sha256"):
                member = tarfile.TarInfo(name)
                member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, epoch
                tar.addfile(member)
            for name, data in sorted(files.items()):
                member = tarfile.TarInfo(name)
                member.size, member.mode, member.mtime = len(data), 0o644, epoch
                tar.addfile(member, io.BytesIO(data))


def _descriptor(media_type, data):
    return {"mediaType": media_type, "digest": digest(data), "size": len(data)}
