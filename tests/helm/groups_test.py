#!/usr/bin/python3 -B
"""Pools as LeaderWorkerSet and as DisaggregatedSet, made by their real controller on a real cluster.

    groups_test.py [--build FOLDER]

The controller of kubernetes-sigs/lws runs on the node of a cluster of its own, with its webhooks, as a process and not as a
Pod. Options as smoke_test.py, without KUBECONFIG.
"""

import base64
import json
import subprocess
import sys

import phases
import yaml
from release import CHART, CLUSTER, call, reference, run, same_text, until

SET = "moe-switchyard-cpu"
CONTROLLER = {
    "apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration", "internalCertManagement": {"enable": False},
    "leaderElection": {"leaderElect": False}, "webhook": {"host": "127.0.0.1", "port": 9443, "certDir": "/run/lws"},
    "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "127.0.0.1:9444"}}
# The node has no /etc/ssl, and so no openssl.cnf.
CERTIFICATE = ("printf '[req]\ndistinguished_name = name\n[name]\n' >openssl.cnf && openssl req -config openssl.cnf -x509 "
               "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=lws -days 2 -addext basicConstraints=critical,CA:TRUE "
               "-addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.crt")


def enter(release, script, **options):
    return call(CLUSTER, "--state", release.options.own_cluster, "enter", "sh", "-c", script, **options)


def start_the_controller(release):
    assert release.options.own_cluster, "this test needs a cluster of its own: unset KUBECONFIG"
    release.define_groups()
    enter(release, f"mkdir -p /run/lws && cd /run/lws && cat >config.yaml && {CERTIFICATE}", text=json.dumps(CONTROLLER))
    start = "cd /run/lws && export KUBECONFIG=/etc/kubernetes/pki/admin.kubeconfig && exec lws --config config.yaml >log 2>&1"
    subprocess.Popen(  # pylint: disable=consider-using-with; it ends with the node
        [str(CLUSTER), "--state", str(release.options.own_cluster), "enter", "sh", "-c", start], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    authority = base64.b64encode(enter(release, "cat /run/lws/tls.crt").stdout.encode()).decode()
    manifests = list(yaml.safe_load_all((release.kubectl_path.parent.parent / "webhooks").read_text()))
    for hook in (hook for each in manifests for hook in each["webhooks"]):
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:9443{path}", "caBundle": authority}
    release.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(manifests))
    ask = "curl -s --cacert /run/lws/tls.crt -o /dev/null -w %{http_code} https://127.0.0.1:9443/"
    until("webhooks", lambda: enter(release, ask, check=False).stdout == "404", 30)


def values(release, example, *more):
    """One machine has no racks to tell groups apart."""
    return ["-f", CHART / f"examples/{example}.yaml", "--set", "poolDefaults.group.exclusiveTopology=",
            "--set", f"poolDefaults.privileges={release.rights},tests.privileges={release.rights}",
            "--set", f"image.prefix={release.options.prefix}", *more]


def groups(release, *more):
    return values(release, "leader-worker-set", "--set", "pools.cpu.group.exclusiveTopology=", *more)


def workers(release):
    """{name: uid} of those Pods that do not end."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in release.pods("worker")
            if "deletionTimestamp" not in pod["metadata"]}


def ready(release, count):
    """True once so many workers' Pods are ready and no others are there."""
    pods = release.pods("worker")
    good = [pod for pod in pods for condition in pod["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"]
    return len(pods) == len(good) == count


def whole(release, count):
    until(f"{count} ready Pods of workers", lambda: ready(release, count))
    release.kubectl("wait", "job", "-l", "app.kubernetes.io/component=apply", "--for", "condition=complete",
                    "--timeout", "150s")


def serves(release):
    done = release.helm("test", "--logs")
    for line in ("verified: within bounds", "the release serves"):
        assert line in done.stdout, done.stdout
    return done.stdout


def install_groups(release):
    release.create_namespace()
    release.helm("install", CHART, *groups(release))
    whole(release, 4)
    assert set(workers(release)) == {f"{SET}-{pod}" for pod in ("0", "0-1", "1", "1-1")}, workers(release)
    assert f"metrics: {SET}-1-1-rank1" in serves(release)


def groups_generate(release):
    release.client("groups", 80)
    same_text(release.text_of("groups"), reference(release.options, 80))


def a_pod_comes_back_by_itself(release):
    before = workers(release)
    release.kubectl("delete", "pod", f"{SET}-0-1")
    until("new Pod", lambda: workers(release).get(f"{SET}-0-1") not in (None, before[f"{SET}-0-1"]))
    whole(release, 4)
    after = workers(release)
    assert {name for name in before if before[name] != after.get(name)} == {f"{SET}-0-1"}, after


def groups_scale(release):
    for count in (3, 2):
        release.kubectl("scale", f"leaderworkersets.leaderworkerset.x-k8s.io/{SET}", f"--replicas={count}")
        whole(release, 2 * count)


def an_update_replaces_groups(release):
    before = workers(release)
    release.helm("upgrade", CHART, *groups(release, "--set", "poolDefaults.podAnnotations.changed=yes"))
    until("update", lambda: not set(before.values()) & set(workers(release).values()))
    whole(release, 4)
    assert set(workers(release)) == set(before)
    serves(release)


def a_pool_keeps_its_kind(release):
    before = workers(release)
    done = release.helm("upgrade", CHART, *groups(release, "--set", "pools.cpu.workloadKind=StatefulSet,pools.cpu.group.size=1"),
                        check=False)
    assert done.returncode != 0 and "pools.cpu.workloadKind: the pool is a LeaderWorkerSet" in done.stderr, done.stderr
    assert workers(release) == before


def both_keep_their_kind(release):
    before = workers(release)
    done = release.helm("upgrade", CHART, *values(release, "disaggregated-set", "--set",
                        "poolDefaults.workloadKind=StatefulSet,poolDefaults.group.maxSurge=0"), check=False)
    assert done.returncode != 0 and "workloadKind: the pool is a DisaggregatedSet" in done.stderr, done.stderr
    assert workers(release) == before


def uninstall(release):
    release.delete_jobs()
    release.helm("uninstall", "--wait")
    until("end of the Pods", lambda: not release.pods("worker", "coordinator"))
    for kind in ("statefulsets", "leaderworkersets.leaderworkerset.x-k8s.io", "disaggregatedsets.disaggregatedset.x-k8s.io",
                 "services"):
        assert not release.get(kind), kind


def install_disaggregated(release):
    release.helm("install", CHART, *values(release, "disaggregated-set"))
    whole(release, 3)
    names = sorted(workers(release))
    assert [name.split("-")[-2] for name in names] == ["decode", "decode", "prefill"], names
    serves(release)
    release.client("phases", 80)
    same_text(release.text_of("phases"), reference(release.options, 80))
    phases.stay_in_their_pools(release)


def an_update_replaces_both_phases(release):
    before = workers(release)
    release.helm("upgrade", CHART, *values(release, "disaggregated-set", "--set", "pools.decode.podAnnotations.changed=yes"))
    until("update of both", lambda: not set(before) & set(workers(release)), 180)
    whole(release, 3)
    serves(release)


STEPS = [start_the_controller, install_groups, groups_generate, a_pod_comes_back_by_itself, groups_scale,
         an_update_replaces_groups, a_pool_keeps_its_kind, uninstall, install_disaggregated, an_update_replaces_both_phases,
         both_keep_their_kind, uninstall]


if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-groups", STEPS,
                 "pools of groups are installed, serve, change and leave"))
