#!/usr/bin/python3 -B
"""Every example of the chart is installed on a real cluster, under Pod Security restricted, and its Pods go where it says.

    examples_test.py [--build FOLDER]

That of one machine without GPUs runs. The others get machines that only the scheduler knows, with processors, GPUs, zones and
racks: each Pod is admitted and bound there, and nothing runs. Coordinator and Jobs, also those of helm's hooks, run on the real
node, as on the machines that a cluster keeps for such Pods. Options as smoke_test.py, without KUBECONFIG.
"""

import pathlib
import shutil
import sys

import audit
import chart
import machines
import models_test
import yaml
from groups_test import start_the_controller
from machines import A100, CPU, H100
from release import CHART, call, reference, run, same_text, until

GPU = "nvidia.com/gpu"
RACKS = {machine.name: machine.rack for machine in machines.ALL}
ZONES = {machine.name: machine.zone for machine in machines.ALL}
# Of the Prometheus operator, which is not here: its kinds take everything.
MONITORING = ("PodMonitor", "PrometheusRule")
CONTROL = {"coordinator": {"nodeSelector": {machines.ROLE: ""},
                           "tolerations": [{"key": machines.ROLE, "operator": "Exists", "effect": "NoSchedule"}]}}
PARTS_OF_PODS = ("serviceAccountName", "securityContext", "nodeSelector", "tolerations", "topologySpreadConstraints")
PARTS_OF_CONTAINERS = ("name", "image", "command", "args", "resources", "securityContext")
# The claim of the coordinator, on the real node, whose cluster has no class of storage.
PLANS = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: plans}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/lib/FOLDER, type: Directory}
"""


def definition(kind):
    plural = f"{kind.lower()}s"
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.monitoring.coreos.com"},
            "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": anything}]}}


def prepare(release):
    start_the_controller(release)
    machines.remove(release)
    release.create_namespace()
    release.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(map(definition, MONITORING)))
    for kind in MONITORING:
        release.kubectl("wait", f"crd/{kind.lower()}s.monitoring.coreos.com", "--for", "condition=Established",
                        "--timeout", "30s")
    release.seen = set()


def install(release, example, values):
    release.seen.add(example)
    values = {**values, "image": {"prefix": release.options.prefix}}
    release.helm("install", CHART, "-f", CHART / f"examples/{example}.yaml", "-f", "-", text=yaml.safe_dump(values))


def laptop_runs(release):
    """With everything that a release may make: its hooks, its test and a client."""
    install(release, "laptop", {"poolDefaults": {"privileges": release.rights}, "tests": {"privileges": release.rights}})
    release.wait_ready()
    assert "the release serves" in release.helm("test", "--logs").stdout
    release.client("laptop", 80)
    same_text(release.text_of("laptop"), reference(release.options, 80))
    assert {pod["spec"]["nodeName"] for pod in release.get("pods")} == {"node"}
    made = audit.pods_made(release) if release.audited else []
    for pod in ("moe-switchyard-test", "moe-switchyard-cpu-0"):
        assert any(f"pods/{pod} " in title for title in made), made
    # Three Jobs, whose Pods have no name yet when they are asked for: certificates, apply and the client.
    assert not release.audited or sum(title.endswith("job-controller") for title in made) == 3, made
    release.kubectl("delete", "job", *release.jobs)
    release.jobs.clear()
    uninstall(release)


def uninstall(release):
    release.helm("uninstall")

    def gone():
        """What no kubelet ends has to be deleted by force."""
        left = [pod["metadata"]["name"] for pod in release.pods("worker", "coordinator", "apply", "test")]
        release.kubectl("delete", "pod", "--force", "--grace-period=0", "--ignore-not-found", *left or ["none"])
        return not left
    until("end of the Pods", gone)
    release.kubectl("delete", "pvc", "--all")


def make_machines(release):
    release.machines = machines.Machines(release)


def name(pod):
    return pod["metadata"]["name"]


def machine_of(pod):
    return pod["spec"].get("nodeName")


def of_pool(release, pool):
    return [pod for pod in release.pods("worker") if pod["metadata"]["labels"]["switchyard.pool"] == pool]


def placed(release, pools):
    """{pool: its machines in the order of its Pods' names}, once it has so many Pods, and all have a machine."""
    def machines_of(pool):
        return [machine_of(pod) for pod in sorted(of_pool(release, pool), key=name)]

    def done():
        return all(len(found := machines_of(pool)) == count and all(found) for pool, count in pools.items())
    until(f"Pods with machines: {pools}", done)
    check_that_they_are_of_the_release(release, pools)
    check_where_the_others_are(release)
    return {pool: machines_of(pool) for pool in pools}


def subset(wanted, found):
    """Whether `found` has all that `wanted` has; others add defaults, and write quantities as strings."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(subset(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(subset(value, each) for each in found) for value in wanted)
    return str(wanted) == str(found)


def check_that_they_are_of_the_release(release, pools):
    """Each Pod is what the release's manifest says, which is Pod Security's and the webhooks' to refuse or change."""
    manifest = call(release.helm_path, "-n", release.namespace, "get", "manifest", "moe").stdout
    templates = dict(chart.templates([each for each in yaml.safe_load_all(manifest) if each]))
    for pool in pools:
        wanted = templates[f"moe-switchyard-{pool}"]["spec"]
        for pod in of_pool(release, pool):
            for part in PARTS_OF_PODS:
                assert part not in wanted or subset(wanted[part], pod["spec"].get(part)), (name(pod), part, pod["spec"].get(part))
            for kind in ("initContainers", "containers"):
                for each, its in zip(wanted.get(kind, []), pod["spec"].get(kind, []), strict=True):
                    assert subset({key: each[key] for key in PARTS_OF_CONTAINERS if key in each}, its), (name(pod), its)


def check_where_the_others_are(release):
    until("Pods of coordinator and Job", lambda: all(map(machine_of, release.pods("coordinator", "apply"))) and
          {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in release.pods("coordinator", "apply")} ==
          {"coordinator", "apply"})
    assert {machine_of(pod) for pod in release.pods("coordinator", "apply")} == {"node"}
    # The hooks have ended there, or nothing would have been installed.
    assert release.get("secrets"), "the Job of the certificates did not run"


def waits_for(release, pool, count, reason):
    """True for so many Pods of a pool that the scheduler has found no machine for, because of this."""
    waiting = [condition["message"] for pod in of_pool(release, pool) if not machine_of(pod)
               for condition in pod["status"].get("conditions", [])
               if condition["type"] == "PodScheduled" and condition["reason"] == "Unschedulable"]
    return len(waiting) == count and all(reason in message for message in waiting)


def names(group):
    return {machine.name for machine in group}


def prefill_and_decode(release):
    """Each pool is spread over machines."""
    install(release, "prefill-decode", CONTROL)
    for pool, found in placed(release, {"prefill": 2, "decode": 2}).items():
        assert len(set(found)) == 2 and set(found) <= names(CPU), (pool, found)
    uninstall(release)


def prefill_and_decode_in_their_zones(release):
    """With the selectors that keep them apart."""
    selectors = {pool: {"nodeSelector": {"topology.kubernetes.io/zone": zone}}
                 for pool, zone in (("prefill", "zone-1"), ("decode", "zone-0"))}
    install(release, "prefill-decode", {**CONTROL, "pools": selectors})
    found = placed(release, {"prefill": 2, "decode": 2})
    for pool, zone in (("prefill", "zone-1"), ("decode", "zone-0")):
        assert len(set(found[pool])) == 2 and {ZONES[each] for each in found[pool]} == {zone}, found
    uninstall(release)


def make_claims(release, claim):
    """The coordinator's volume, and a claim of the checkpoint that the example names."""
    folder = pathlib.Path(release.options.own_cluster) / "volumes" / claim
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(models_test.MODEL, folder / models_test.CHAT)
    release.make_volume()
    release.kubectl("delete", "pv", "plans", claim, "--ignore-not-found")
    release.kubectl("apply", "-f", "-", text="---".join(
        (PLANS.replace("FOLDER", release.volume), models_test.CLAIM.replace("weights", claim))))


def several_models(release):
    """Each machine has room for three of the eight workers, and gets one."""
    make_claims(release, "weights")
    install(release, "several-models", CONTROL)
    found = placed(release, {"cpu": 8})["cpu"]
    assert set(found) == names(CPU), found
    uninstall(release)


def one_gpu_node(release):
    """On a machine with the GPU that it names; another one has as many GPUs, of another kind."""
    assert A100[0].resources[GPU] == H100[0].resources[GPU]
    make_claims(release, "chat-weights")
    install(release, "one-gpu-node", CONTROL)
    found = placed(release, {"gpu": 1})["gpu"]
    assert set(found) <= names(H100), found
    pod, = of_pool(release, "gpu")
    assert [each["resources"]["limits"][GPU] for each in pod["spec"]["containers"]] == ["1"] * 8, pod["spec"]


def more_gpus_than_there_are(release):
    """Two of three Pods with eight GPUs each fill both machines; the third one waits, and is told why."""
    release.kubectl("scale", "statefulset/moe-switchyard-gpu", "--replicas=3")
    until("a Pod that waits for GPUs", lambda: waits_for(release, "gpu", 1, f"Insufficient {GPU}"))
    found = [machine_of(pod) for pod in of_pool(release, "gpu") if machine_of(pod)]
    assert len(found) == 2 and set(found) == names(H100), found
    uninstall(release)


def leader_worker_set(release):
    """A group is in a rack of its own, on two machines of it."""
    install(release, "leader-worker-set", CONTROL)
    placed(release, {"cpu": 4})
    check_groups(release, 2)


def check_groups(release, count):
    """So many groups have machines, each in a rack where no other one is."""
    groups = {}
    for pod in of_pool(release, "cpu"):
        if machine_of(pod):
            groups.setdefault(pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"], []).append(machine_of(pod))
    assert len(groups) == count and {len(set(group)) for group in groups.values()} == {2}, groups
    racks = [{RACKS[machine] for machine in group} for group in groups.values()]
    assert {len(rack) for rack in racks} == {1} and len(set.union(*racks)) == count, racks


def more_groups_than_racks(release):
    """There are four racks of machines without GPUs: the first Pod of the fifth group waits."""
    release.kubectl("scale", "leaderworkersets.leaderworkerset.x-k8s.io/moe-switchyard-cpu", "--replicas=5")
    until("a Pod that waits for a rack", lambda: len(of_pool(release, "cpu")) == 9 and waits_for(
        release, "cpu", 1, "anti-affinity"))
    check_groups(release, 4)
    uninstall(release)


def disaggregated_set(release):
    install(release, "disaggregated-set", CONTROL)
    found = placed(release, {"prefill": 1, "decode": 2})
    assert len(set(found["decode"])) == 2 and set(found["decode"] + found["prefill"]) <= names(CPU), found
    uninstall(release)


def nothing_was_left_out(release):
    assert release.seen == set(chart.EXAMPLES), release.seen ^ set(chart.EXAMPLES)
    release.machines.close()


STEPS = [prepare, laptop_runs, make_machines, prefill_and_decode, prefill_and_decode_in_their_zones, several_models, one_gpu_node,
         more_gpus_than_there_are, leader_worker_set, more_groups_than_racks, disaggregated_set, nothing_was_left_out]


if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-examples", STEPS,
                 "every example is admitted, and its Pods go where it says"))
