"""Writes and reads OCI archives: an image of one static program, and the names of the images in an archive."""
import gzip
import hashlib
import io
import json
import pathlib
import tarfile

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
NAME = "io.containerd.image.name"
REF_NAME = "org.opencontainers.image.ref.name"


def _add(tar, name, data, mode=0o644):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = mode
    tar.addfile(info, io.BytesIO(data))


def _json(value):
    return json.dumps(value, sort_keys=True).encode()


def write(path, image, program, user="65532:65532"):
    """Writes an archive of one image whose only file is `program`, which is its entry point."""
    program = pathlib.Path(program)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), 0o755)
    plain = layer.getvalue()
    packed = gzip.compress(plain, compresslevel=1, mtime=0)
    blobs = {}

    def describe(data, media, **more):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data), **more}

    config = _json({
        "architecture": "amd64", "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": user, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
    })
    manifest = _json({"schemaVersion": 2, "mediaType": MANIFEST, "config": describe(config, CONFIG),
                      "layers": [describe(packed, LAYER)]})
    index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        describe(manifest, MANIFEST, annotations={NAME: image, REF_NAME: image.rpartition(":")[2]})]})
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", index)
        for digest, data in sorted(blobs.items()):
            _add(tar, f"blobs/sha256/{digest}", data)


def names(path):
    """The images in an archive by name, for both formats: OCI's index.json and Docker's manifest.json."""
    with tarfile.open(path) as tar:
        members = {m.name.removeprefix("./"): m for m in tar.getmembers()}
        read = lambda name: json.load(tar.extractfile(members[name]))
        if "index.json" in members:
            found = []
            for manifest in read("index.json").get("manifests", []):
                annotations = manifest.get("annotations", {})
                found.append(annotations.get(NAME) or annotations.get(REF_NAME, ""))
            return [name for name in found if name]
        if "manifest.json" in members:
            return [tag for image in read("manifest.json") for tag in image.get("RepoTags") or []]
    raise ValueError(f"{path} is no image archive: it has neither index.json nor manifest.json")
