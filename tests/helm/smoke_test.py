#!/usr/bin/python3 -B
"""Installs the chart on a real cluster and lives with it for a moment; prints how long each step takes.

    smoke_test.py [--build FOLDER]

Without KUBECONFIG it starts a cluster of its own (tests/k8s/cluster), builds and loads the images, and ends the
cluster again. With KUBECONFIG and --context it uses that one, whose machines have the images; --prefix says where from.
It works in a namespace of its own, which it deletes. Exit 0 when every step did what it should.
"""

import os
import sys
import time

import chart
import notes
import yaml
from certificates import Forwarded
from release import CHART, ROOT, WORKERS, call, demo, reference, run, same_text

READY_SECONDS = 60  # of an installation, with the images on the machine


def install(release):
    release.create_namespace()
    begin = time.monotonic()
    text = release.helm("install", CHART, *release.values()).stdout
    for part in ("callers need a certificate", f"helm -n {release.namespace} test moe", "port-forward"):
        assert part in text, text
    release.wait_ready()
    took = time.monotonic() - begin
    pods = release.pods("coordinator", "worker")
    assert len(pods) == 1 + WORKERS and all("readinessProbe" in c for pod in pods for c in pod["spec"]["containers"]), pods
    print(f"  all Pods are ready, and the model is served, {took:.1f} s after the beginning of helm install", flush=True)
    assert took <= READY_SECONDS or not release.options.own_cluster, f"{took:.1f} s until all Pods were ready"
    restarts = {c["restartCount"] for pod in release.get("pods") for c in pod["status"]["containerStatuses"]}
    assert restarts == {0}, restarts
    # What made the certificates is gone, with its rights.
    for kind in ("roles", "rolebindings"):
        assert not release.get(kind), kind
    assert not [job for job in release.get("jobs") if job["metadata"]["name"].endswith("-certificates")]


def helm_test(release):
    out = release.helm("test", "--logs").stdout
    for line in ("verified: within bounds", "the release serves"):
        assert line in out, out


def helm_test_without_a_worker(release):
    last = f"moe-switchyard-cpu-{WORKERS - 1}"
    release.kubectl("scale", "statefulset/moe-switchyard-cpu", f"--replicas={WORKERS - 1}")
    release.kubectl("wait", f"pod/{last}", "--for", "delete", "--timeout", "60s")
    done = release.helm("test", "--logs", check=False)
    assert done.returncode != 0 and f"FAILED: worker {last}" in done.stdout, done.stdout
    release.kubectl("scale", "statefulset/moe-switchyard-cpu", f"--replicas={WORKERS}")
    release.kubectl("wait", f"pod/{last}", "--for", "create", "--timeout", "30s")
    release.wait_ready()


def generate(release):
    """As `make demo`, in both modes. In normal, bits depend on which worker has which expert: here as there."""
    for mode in ("low_latency", "normal"):
        name = f"client-{mode.replace('_', '-')}"
        release.client(name, 80, mode=mode)
        text, want = release.text_of(name), demo(release.options, 80, mode)
        assert text.startswith(want), f"{mode}: {text!r} is not {want!r}"


def delete_a_worker_under_load(release):
    release.client("busy", 2000)
    release.kubectl("wait", "pod", "-l", "job-name=busy", "--for", "condition=Ready", "--timeout", "150s")
    release.kubectl("delete", "pod", "moe-switchyard-cpu-0")
    release.wait_ready()
    text, want = release.text_of("busy"), reference(release.options, 2000)
    same_text(text, want)


def pods_of(release):
    return {pod["metadata"]["uid"] for pod in release.pods("coordinator", "worker")}


def upgrade_to_the_same(release):
    before = pods_of(release)
    release.helm("upgrade", CHART, *release.values())
    release.wait_ready()
    assert pods_of(release) == before, "the same values have replaced Pods"


def change_and_roll_back(release):
    """Every worker is replaced by one with another configuration, and again by one with the former."""
    def configuration():
        return {each["metadata"]["name"]: each["data"] for each in release.get("configmaps")}
    before = configuration()
    for verb, words in (("upgrade", (CHART, *release.values(), "--set", "poolDefaults.config.logging.level=debug")),
                        ("rollback", ())):
        pods = {pod["metadata"]["uid"] for pod in release.pods("worker")}
        release.helm(verb, *words)
        release.kubectl("rollout", "status", "statefulset/moe-switchyard-cpu", "--timeout", "170s")
        release.wait_ready()
        assert not pods & {pod["metadata"]["uid"] for pod in release.pods("worker")}, verb
        assert (configuration() == before) == (verb == "rollback"), verb
    helm_test(release)


def renew_certificates(release):
    """Leaves made anew by an upgrade are served without a new Pod, and one client after the other generates."""
    before, forwarded, want = pods_of(release), Forwarded(release), reference(release.options, 80)
    try:
        old = forwarded.serial()
        release.kubectl("delete", "secret", "moe-switchyard-coordinator-tls", "moe-switchyard-cpu-tls")
        release.helm("upgrade", CHART, *release.values())
        until, clients = time.monotonic() + 150, 0
        while forwarded.serial() == old:
            assert time.monotonic() < until, "the coordinator still has its old certificate"
            release.client(f"renewed-{clients}", 80)
            same_text(release.text_of(f"renewed-{clients}"), want)
            clients += 1
    finally:
        forwarded.close()
    assert pods_of(release) == before, "a renewal has replaced Pods"
    helm_test(release)


def uninstall(release):
    notes.uninstall(release)


def examples_are_accepted(release):
    """Every object passes strict server-side apply, in a namespace that refuses and warns of Pods which are not
    restricted. The kinds of the Prometheus operator are unknown to our own cluster."""
    release.define_groups()
    known = set(call(release.kubectl_path, "api-versions").stdout.split())
    unknown = {"monitoring.coreos.com/v1"}
    if not release.options.own_cluster:
        unknown |= {"leaderworkerset.x-k8s.io/v1", "disaggregatedset.x-k8s.io/v1"}
    namespace = f"{release.namespace}-examples"
    kubectl = [release.kubectl_path, "-n", namespace]
    call(*kubectl, "create", "namespace", namespace)
    try:
        call(*kubectl, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted",
             "pod-security.kubernetes.io/warn=restricted")
        for example in chart.EXAMPLES:
            rendered = chart.objects(example=example, namespace=namespace)
            left_out = {o["apiVersion"] for o in rendered} - known
            assert left_out <= unknown, left_out
            rendered = [o for o in rendered if o["apiVersion"] in known]
            done = call(*kubectl, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-",
                        text=yaml.safe_dump_all(rendered))
            assert "Warning" not in done.stderr, done.stderr
            assert done.stdout.count("serverside-applied") == len(rendered), done.stdout
        control = call(*kubectl, "run", "control", "--image=any", "--dry-run=server", check=False)
        assert "violates PodSecurity" in control.stderr, control.stderr
    finally:
        call(*kubectl, "delete", "namespace", namespace, "--wait=false", check=False)


def commands_of_the_page(release):
    """docs/KUBERNETES.md as it stands; it names the images and the rights that are the default."""
    if release.options.prefix == "localhost/switchyard" and release.rights == "none":
        search = f"{release.kubectl_path.parent}:{os.environ['PATH']}"
        call("env", f"PATH={search}", "/usr/bin/python3", ROOT / "tests/docs/run_commands.py", "--node", ROOT,
             "docs/KUBERNETES.md", limit=400)


STEPS = [examples_are_accepted, commands_of_the_page, install, helm_test, generate, helm_test_without_a_worker,
         delete_a_worker_under_load, upgrade_to_the_same, change_and_roll_back, renew_certificates, uninstall]


if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-smoke", STEPS,
                 "the chart installs, serves, changes and leaves"))
