#!/usr/bin/python3 -B
"""Changes a release on a real cluster while clients generate; no caller may see an error or another text.

    life_test.py [--build FOLDER]

Two Pods generate one text after the other, each in a session of its own, and compare it with the first; a third one
measures a long text in a single session. The steps delete and kill workers, scale the pool, change its configuration,
take the coordinator away, and install a second release beside it. Options and clusters as smoke_test.py; a cluster named
by KUBECONFIG needs a default class of storage.
"""

import json
import sys
import time

from clients import CLIENTS, check_the_long_session, counts, end_the_clients, long_session, start, start_the_clients, undisturbed
from release import CHART, WORKERS, call, run


def values(release):
    """Those of the release, whose coordinator keeps its plans."""
    return [*release.values(), *release.kept()]


def install(release):
    release.create_namespace()
    release.make_volume()
    release.helm("install", CHART, *values(release))
    release.wait_ready()
    start_the_clients(release)


@undisturbed
def delete_a_worker(release):
    release.kubectl("delete", "pod", "moe-switchyard-cpu-1")
    release.kubectl("wait", "pod/moe-switchyard-cpu-1", "--for", "create", "--timeout", "30s")


def workers_are(release, count):
    release.kubectl("scale", "statefulset/moe-switchyard-cpu", f"--replicas={count}")
    until = time.monotonic() + 90
    while len(release.pods("worker")) != count:
        assert time.monotonic() < until, f"not {count} workers"
        time.sleep(0.5)
    release.wait_ready()


@undisturbed
def scale_to_six_and_three(release):
    workers_are(release, WORKERS)
    workers_are(release, 6)
    workers_are(release, 3)


@undisturbed
def scale_back(release):
    workers_are(release, WORKERS)


@undisturbed
def change_the_configuration(release):
    """Every Pod of the pool is replaced, one after the other."""
    before = {pod["metadata"]["uid"] for pod in release.get("pods")}
    release.helm("upgrade", CHART, *values(release), "--set", "poolDefaults.config.logging.level=debug")
    release.kubectl("rollout", "status", "statefulset/moe-switchyard-cpu", "--timeout", "170s")
    workers = release.pods("worker")
    assert len(workers) == WORKERS and not before & {pod["metadata"]["uid"] for pod in workers}


def kill_a_worker(release):
    """As a loss of its machine: at most one error for each client, and texts again within 15 s."""
    before = [counts(release, name) for name in CLIENTS]
    release.kubectl("delete", "pod", "moe-switchyard-cpu-2", "--grace-period=0", "--force")
    begin = time.monotonic()
    release.kubectl("wait", "pod/moe-switchyard-cpu-2", "--for", "create", "--timeout", "30s")
    release.kubectl("wait", "pod/moe-switchyard-cpu-2", "--for", "condition=Ready", "--timeout", "30s")
    whole = time.monotonic() - begin
    assert whole <= 30, f"the pool was whole again after {whole:.1f} s"
    time.sleep(3)
    for name, old in zip(CLIENTS, before):
        new = counts(release, name)
        assert new[0] > old[0] and new[1] <= old[1] + 1 and new[2] == old[2], f"{name}: {old} {new}"


def worker_readiness(release):
    """{name: "True" or "False"}."""
    return {pod["metadata"]["name"]: next(c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
            for pod in release.pods("worker")}


def take_the_coordinator_away(release):
    """A session that is open goes on, and no worker stops being ready."""
    start(release, "long", long_session(18))  # some minutes
    time.sleep(5)
    release.kubectl("scale", "statefulset/moe-switchyard-coordinator", "--replicas=0")
    for _ in range(24):
        time.sleep(5)
        ready = worker_readiness(release)
        assert set(ready.values()) == {"True"}, ready
    job = json.loads(release.kubectl("get", "job", "long", "-o", "json").stdout)["status"]
    assert job.get("active") == 1 and not job.get("failed"), f"the session ended before the coordinator was back: {job}"
    bring_the_coordinator_back(release)
    check_the_long_session(release)


def bring_the_coordinator_back(release):
    release.kubectl("scale", "statefulset/moe-switchyard-coordinator", "--replicas=1")
    release.kubectl("wait", "pod/moe-switchyard-coordinator-0", "--for", "create", "--timeout", "30s")
    release.wait_ready()


def start_workers_before_the_coordinator(release):
    release.kubectl("scale", "statefulset/moe-switchyard-coordinator", "--replicas=0")
    for count in (0, WORKERS):
        release.kubectl("scale", "statefulset/moe-switchyard-cpu", f"--replicas={count}")
        release.kubectl("wait", "pod", "-l", "app.kubernetes.io/component=worker", "--for",
                        "create" if count else "delete", "--timeout", "60s")
    time.sleep(60)
    bring_the_coordinator_back(release)
    restarts = {c["restartCount"] for pod in release.pods("worker") for c in pod["status"]["containerStatuses"]}
    assert len(worker_readiness(release)) == WORKERS and restarts == {0}, restarts


def a_second_release_with_a_long_name(release):
    """In the same namespace, with another name of 53 characters."""
    name = "a-second-release-with-a-name-as-long-as-helm-takes-it"
    assert len(name) == 53
    helm = [release.helm_path, "-n", release.namespace]
    call(*helm, "install", name, CHART, *release.values(), "--set", "pools.cpu.replicas=2")
    release.kubectl("wait", "job", "-l", f"app.kubernetes.io/instance={name},app.kubernetes.io/component=apply",
                    "--for", "condition=complete", "--timeout", "90s")
    for each in (name, "moe"):
        out = call(*helm, "test", each, "--logs").stdout
        assert "the release serves" in out, out[-2000:]
    call(*helm, "uninstall", name, "--wait")


STEPS = [install, delete_a_worker, scale_to_six_and_three, scale_back, change_the_configuration, kill_a_worker,
         end_the_clients, take_the_coordinator_away, start_workers_before_the_coordinator,
         a_second_release_with_a_long_name]

if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-life", STEPS, "nobody noticed"))
