#!/usr/bin/python3 -B
"""Changes a release on a real cluster while clients generate; no caller may see an error or another text.

    life_test.py [--build FOLDER]

Two Pods generate one text after the other, each in a session of its own, and compare it with the first; a third one
measures a long text in a single session. The steps delete and kill workers, scale the pool, replace the authority of the
certificates, change the pool's configuration, take the coordinator away, and install a second release beside it. Options
and clusters as smoke_test.py; a cluster named by KUBECONFIG needs a default class of storage.
"""

import json
import sys
import time

import certificates
import node
from clients import (CLIENTS, check_the_long_session, counts, end_the_clients, errors, long_session, start, start_the_clients,
                     undisturbed)
from release import CHART, WORKERS, call, run, until


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
    until(f"{count} workers", lambda: len(release.pods("worker")) == count)
    release.wait_ready()


@undisturbed
def scale_to_six_and_three(release):
    workers_are(release, WORKERS)
    workers_are(release, 6)
    workers_are(release, 3)


@undisturbed
def scale_back(release):
    workers_are(release, WORKERS)


def uids(release):
    return {pod["metadata"]["uid"] for pod in release.pods("coordinator", "worker")}


@undisturbed
def rotate_the_authority(release):
    """The certificates get another authority, in three upgrades, and no Pod is replaced."""
    before = uids(release)
    certificates.rotate(release, values(release))
    assert uids(release) == before, "a rotation has replaced Pods"


@undisturbed
def change_the_configuration(release):
    """Every Pod of the pool is replaced, one after the other."""
    before = {pod["metadata"]["uid"] for pod in release.get("pods")}
    release.helm("upgrade", CHART, *values(release), "--set", "poolDefaults.config.logging.level=debug")
    release.kubectl("rollout", "status", "statefulset/moe-switchyard-cpu", "--timeout", "170s")
    workers = release.pods("worker")
    assert len(workers) == WORKERS and not before & {pod["metadata"]["uid"] for pod in workers}


def survive(release, worker, kill, is_whole):
    """Kills the worker: each client meets at most one error, which names it, and has whole texts again within 15 s; the pool
    is whole within 30 s. Returns the errors and when the worker was dead."""
    before, old_errors = [[ask(release, name) for name in CLIENTS] for ask in (counts, errors)]
    kill()
    begin, dead = time.monotonic(), time.time()
    dying = [counts(release, name)[0] for name in CLIENTS]
    # The first of two was perhaps half done.
    until("text of each client", lambda: all(counts(release, name)[0] >= texts + 2 for name, texts in zip(CLIENTS, dying)), 15)
    served = time.monotonic() - begin
    until("whole pool", is_whole, begin + 30 - time.monotonic())
    whole = time.monotonic() - begin
    time.sleep(3)
    met = []
    for name, old, known in zip(CLIENTS, before, old_errors):
        new = counts(release, name)
        assert new[0] > old[0] and new[1] <= old[1] + 1 and new[2] == old[2], f"{name}: {old} {new}"
        met += errors(release, name)[len(known):]
    print(f"  {worker}: texts again after {served:.1f} s, the pool whole after {whole:.1f} s", flush=True)
    for when, text in met:
        print(f"    after {when - dead:.0f} s: {text}", flush=True)
        assert "UNAVAILABLE" in text and f"worker {worker}, layer " in text, text
    return met, dead


def worker_pod(release, name):
    """(id, restarts of its containers, whether it is ready); None: there is no such Pod."""
    for pod in release.pods("worker"):
        if pod["metadata"]["name"] == name and "deletionTimestamp" not in pod["metadata"]:
            ready = [each["status"] for each in pod["status"].get("conditions", []) if each["type"] == "Ready"]
            states = pod["status"].get("containerStatuses", [])
            return pod["metadata"]["uid"], sum(each["restartCount"] for each in states), ready == ["True"]
    return None


def kill_a_worker(release):
    """As a loss of its machine."""
    name = "moe-switchyard-cpu-2"
    old = worker_pod(release, name)

    def is_another_one():
        pod = worker_pod(release, name)
        return pod is not None and pod[0] != old[0] and pod[2]

    survive(release, name, lambda: release.kubectl("delete", "pod", name, "--grace-period=0", "--force"), is_another_one)


def crash(release, *names):
    """Kills the programs of these workers, one after the other, and returns the errors that clients met."""
    errors_met = []
    for name in names:
        pod, = [each for each in release.pods("worker") if each["metadata"]["name"] == name]
        process, = [each for each in node.ask(release, "usage", [pod])[name] if each["name"].startswith("switchyard")]
        old = worker_pod(release, name)

        def is_restarted(name=name, old=old):
            new = worker_pod(release, name)
            return new[0] == old[0] and new[1] == old[1] + 1 and new[2]

        met, dead = survive(release, name, lambda pid=process["pid"]: node.enter(release, "kill", "-KILL", pid), is_restarted)
        assert all(when <= dead + 1 for when, _ in met), f"{met}, dead at {dead}"
        errors_met += met
    return errors_met


def kill_a_process(release):
    """As a crash: whoever waits for it knows at once. Needs a node of our own."""
    if release.options.own_cluster:
        crash(release, "moe-switchyard-cpu-0", "moe-switchyard-cpu-1", "moe-switchyard-cpu-3")


def a_lost_step_names_its_worker(release):
    """To clients that repeat no step, each crash is at most one error."""
    end_the_clients(release)
    start_the_clients(release, retry=0)
    if release.options.own_cluster:
        assert crash(release, "moe-switchyard-cpu-1", "moe-switchyard-cpu-2"), "nobody met a lost worker"


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


STEPS = [install, delete_a_worker, scale_to_six_and_three, scale_back, rotate_the_authority, change_the_configuration,
         kill_a_worker, kill_a_process, a_lost_step_names_its_worker, end_the_clients, take_the_coordinator_away,
         start_workers_before_the_coordinator, a_second_release_with_a_long_name]

if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-life", STEPS, "nobody noticed"))
