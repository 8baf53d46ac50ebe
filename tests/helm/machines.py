"""Machines that a cluster knows and that are not there: Node objects without a kubelet. The scheduler binds Pods to them as
to any other, and nothing ever runs there."""

import datetime
import json
import threading

from release import call, until

MARK = "switchyard.test/machine"
BEAT_SECONDS = 10  # the cluster gives a machine up after 50 s without one
ROLE = "node-role.kubernetes.io/control-plane"
GIB = 1 << 30


class Machine:
    """With so many processors and so much memory, in a rack, which is in a zone; more labels and resources as given."""

    def __init__(self, name, zone, rack, cpus, memory_gib, labels=None, resources=None, taints=()):
        self.name = name
        self.rack = rack
        self.zone = zone
        self.labels = {MARK: "yes", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                       "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/rack": rack, **(labels or {})}
        self.resources = {"cpu": str(cpus), "memory": str(memory_gib * GIB), "ephemeral-storage": str(500 * GIB), "pods": "110",
                          **(resources or {})}
        self.taints = list(taints)

    def node(self):
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is said to be"}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self.labels},
                "spec": {"taints": self.taints},
                "status": {"capacity": self.resources, "allocatable": self.resources, "conditions": [ready]}}

    def lease(self):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": self.name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now}}


def gpu_machine(name, zone, rack, product, family):
    """With eight GPUs, the labels of NVIDIA's feature discovery, and the taint that such machines usually have."""
    labels = {f"nvidia.com/gpu.{key}": value for key, value in
              {"product": product, "family": family, "count": "8", "memory": "81559", "present": "true"}.items()}
    return Machine(name, zone, rack, cpus=192, memory_gib=2048, labels=labels, resources={"nvidia.com/gpu": "8"},
                   taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])


# Four racks of two in two zones; then two machines with the GPU of the example, and one with another.
CPU = [Machine(f"cpu-{i}", zone=f"zone-{i // 4}", rack=f"rack-{i // 2}", cpus=32, memory_gib=128) for i in range(8)]
H100 = [gpu_machine(f"h100-{i}", f"zone-{i}", f"rack-h100-{i}", "NVIDIA-H100-80GB-HBM3", "hopper") for i in range(2)]
A100 = [gpu_machine("a100-0", "zone-0", "rack-a100", "NVIDIA-A100-SXM4-80GB", "ampere")]
ALL = [*CPU, *H100, *A100]


def remove(release):
    """Also those of a test that failed on a node that goes on, with their Pods, which no kubelet ends."""
    names = {machine.name for machine in ALL}
    for pod in json.loads(release.kubectl("get", "pods", "-A", "-o", "json").stdout)["items"]:
        if pod["spec"].get("nodeName") in names:
            release.kubectl("delete", "pod", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"], "--force",
                            "--grace-period=0", "--ignore-not-found")
    release.kubectl("delete", "nodes", "-l", MARK)
    for what in ("label", "taint"):
        release.kubectl(what, "nodes", "--all", f"{ROLE}-", check=False)


class Machines:
    """All of them, kept ready until close(). Meanwhile the node that is real takes only what tolerates its role."""

    def __init__(self, release):
        self.release = release
        self.end = threading.Event()
        self.heart = threading.Thread(target=self.beat, daemon=True)
        for verb, effect in (("label", ""), ("taint", ":NoSchedule")):
            release.kubectl(verb, "nodes", "--all", f"{ROLE}={effect}")
        self.send([machine.node() for machine in ALL])
        self.renew()
        self.heart.start()
        until("machines that are ready", lambda: not self.unready(), 60)

    def send(self, objects):
        call(self.release.kubectl_path, "apply", "--server-side", "--force-conflicts", "-f", "-",
             text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def renew(self):
        self.send([machine.lease() for machine in ALL])

    def beat(self):
        while not self.end.wait(BEAT_SECONDS):
            self.renew()

    def unready(self):
        """{machine: what it has in place of Ready and its own taints alone}."""
        found = {}
        nodes = {node["metadata"]["name"]: node for node in self.release.get("nodes")}
        for machine in ALL:
            node = nodes.get(machine.name, {"spec": {}, "status": {"conditions": []}})
            state = ({each["type"]: each["status"] for each in node["status"]["conditions"]}.get("Ready"),
                     node["spec"].get("taints", []))
            if state != ("True", machine.taints):
                found[machine.name] = state
        return found

    def close(self):
        unready = self.unready()
        self.end.set()
        self.heart.join(60)
        remove(self.release)
        assert not unready, f"machines did not stay ready: {unready}"
