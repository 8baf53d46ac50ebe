#!/usr/bin/python3 -B
"""Changes a release on a real cluster while clients generate; no caller may see an error or another text.

    life_test.py [--build FOLDER]

Two Pods generate one text after the other, each in a session of its own, and compare it with the first; they repeat no step,
so that whatever is lost is an error. A third one measures a long text in a single session. The steps delete and kill workers,
scale the pool, replace the authority of the certificates, change the pool's configuration, take the coordinator away, and
install a second release beside it; in the end only what the notes name is left, the coordinator's plans included. Options and
clusters as smoke_test.py; a cluster named by KUBECONFIG needs a default class of storage.
"""

import json
import signal
import sys
import time

import certificates
import node
from clients import CLIENTS, LongSession, counts, end_the_clients, errors, start_the_clients, undisturbed
from notes import uninstall
from release import CHART, WORKERS, call, run, until

AWAY_SECONDS = 120  # of the coordinator


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
    """Kills the worker: each client meets at most one error, within a second, which names worker and layer, and has whole texts
    again within 15 s; the pool is whole within 30 s. `kill` returns a function for the Unix time of the worker's end, or None.
    Returns the errors."""
    before, old_errors = [[ask(release, name) for name in CLIENTS] for ask in (counts, errors)]
    when_dead = kill()
    begin = time.monotonic()
    dying = [counts(release, name)[0] for name in CLIENTS]
    # The first of two was perhaps half done.
    until("text of each client", lambda: all(counts(release, name)[0] >= texts + 2 for name, texts in zip(CLIENTS, dying)), 15)
    served = time.monotonic() - begin
    until("whole pool", is_whole, begin + 30 - time.monotonic())
    whole = time.monotonic() - begin
    time.sleep(3)
    met = []
    for name, old, known in zip(CLIENTS, before, old_errors):
        new, news = counts(release, name), errors(release, name)[len(known):]
        assert new[0] > old[0] and new[2] == old[2], f"{name}: {old} {new}"
        assert len(news) <= 1 and new[1] == old[1] + len(news), f"{name}: {old} {new} {news}"
        met += news
    print(f"  {worker}: texts again after {served:.1f} s, the pool whole after {whole:.1f} s", flush=True)
    dead = when_dead() if when_dead else None
    for when, text in met:
        print(f"    {f'after {when - dead:.2f} s: ' if dead else ''}{text}", flush=True)
        assert "UNAVAILABLE" in text and f"worker {worker}, layer " in text, text
        assert dead is None or when <= dead + 1, f"{when - dead} s after the end: {text}"
    return met


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

    def kill():
        # Only on a node of our own is it known when the program ends: Kubernetes forgets the Pod before.
        pod, = [each for each in release.pods("worker") if each["metadata"]["name"] == name]
        end = node.End(release, node.program(release, pod)) if release.options.own_cluster else None
        release.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        return end.when if end else None

    def is_another_one():
        pod = worker_pod(release, name)
        return pod is not None and pod[0] != old[0] and pod[2]

    survive(release, name, kill, is_another_one)


def crash(release, *names):
    """Kills the programs of these workers, one after the other, and returns the errors that clients met."""
    met = []
    for name in names:
        pod, = [each for each in release.pods("worker") if each["metadata"]["name"] == name]
        pid, old = node.program(release, pod), worker_pod(release, name)

        def is_restarted(name=name, old=old):
            new = worker_pod(release, name)
            return new[0] == old[0] and new[1] == old[1] + 1 and new[2]

        met += survive(release, name, lambda pid=pid: node.End(release, pid, signal.SIGKILL).when, is_restarted)
    return met


def kill_a_process(release):
    """As a crash: whoever waits for it knows at once. Needs a node of our own."""
    if release.options.own_cluster:
        assert crash(release, *(f"moe-switchyard-cpu-{i}" for i in (0, 1, 3))), "nobody met a lost worker"


def a_repeated_step_hides_a_crash(release):
    """To clients that repeat steps, as `generate` does by itself, a crash is no error."""
    end_the_clients(release)
    start_the_clients(release, retry=60)
    if release.options.own_cluster:
        met = crash(release, "moe-switchyard-cpu-1", "moe-switchyard-cpu-2")
        assert not met, met


def take_the_coordinator_away(release):
    """A session that is open goes on, and no worker stops being ready."""
    long, ready = LongSession(release, 24), release.readiness("worker")  # some minutes
    assert len(ready) == WORKERS and all(state[0][0] == "True" for state in ready.values()), ready
    until("window of the long session", long.windows, 30)
    release.kubectl("scale", "statefulset/moe-switchyard-coordinator", "--replicas=0")
    release.kubectl("wait", "pod/moe-switchyard-coordinator-0", "--for", "delete", "--timeout", "60s")
    progress, begin = [long.windows()], time.monotonic()
    while time.monotonic() < begin + AWAY_SECONDS:
        time.sleep(5)
        assert release.readiness("worker") == ready, f"{release.readiness('worker')}, before: {ready}"
        progress.append(long.windows())
        assert progress[-1] > progress[-2], f"no token in 5 s: windows {progress}"
    print(f"  away for {time.monotonic() - begin:.0f} s, {progress[-1] - progress[0]} windows of 512 tokens meanwhile", flush=True)
    bring_the_coordinator_back(release)
    assert release.readiness("worker") == ready, f"{release.readiness('worker')}, before: {ready}"
    long.check()


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
    assert len(release.pods("worker")) == WORKERS and restarts == {0}, restarts


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
    release.kubectl("delete", "secret,pod", "-l", f"app.kubernetes.io/instance={name}")


STEPS = [install, delete_a_worker, scale_to_six_and_three, scale_back, rotate_the_authority, change_the_configuration,
         kill_a_worker, kill_a_process, a_repeated_step_hides_a_crash, end_the_clients, take_the_coordinator_away,
         start_workers_before_the_coordinator, a_second_release_with_a_long_name, uninstall]

if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-life", STEPS, "nobody noticed"))
