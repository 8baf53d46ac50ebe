"""Where the files of a node lie, on the host and inside the node."""
import dataclasses
import hashlib
import json
import os
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

# Addresses inside the node's network namespace; nothing of them is visible on the host.
NODE_NAME = "node"
NODE_IP = "192.168.77.2"
GATEWAY_IP = "192.168.77.1"
POD_SUBNET = "10.244.0.0/24"
SERVICE_SUBNET = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
API_PORT = 6443
API_URL = f"https://127.0.0.1:{API_PORT}"

# Folders inside the node.
BIN = "/opt/node/bin"
PKI = "/etc/kubernetes/pki"
CONFIG = "/etc/kubernetes"
LOGS = "/var/log/node"
CONTAINERD = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/switchyard/pause:1"
PROBE_IMAGE = "localhost/switchyard/probe:1"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The host's folders of one node. Two nodes with different `state` folders can run side by side."""
    state: pathlib.Path

    @property
    def name(self):
        """Names the node's cgroups."""
        return "switchyard-k8s-" + hashlib.sha256(str(self.state).encode()).hexdigest()[:12]

    lock = property(lambda self: self.state / "lock")
    record = property(lambda self: self.state / "node.json")
    kubeconfig = property(lambda self: self.state / "kubeconfig")
    pki = property(lambda self: self.state / "pki")
    var = property(lambda self: self.state / "var")
    root = property(lambda self: self.state / "root")
    logs = property(lambda self: self.state / "logs")
    volumes = property(lambda self: self.state / "volumes")

    def read_record(self):
        try:
            return json.loads(self.record.read_text())
        except (OSError, ValueError):
            return {}

    def write_record(self, **fields):
        """Replaces the record in one step, so that a reader never sees half of it."""
        new = self.record.with_suffix(".new")
        new.write_text(json.dumps({**self.read_record(), **fields}))
        os.replace(new, self.record)
