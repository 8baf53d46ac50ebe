#!/usr/bin/python3 -B
"""Installs the chart on a real cluster and lives with it for a moment; prints how long each step takes.

    smoke_test.py [--build FOLDER]

Without KUBECONFIG it starts a cluster of its own (tests/k8s/cluster), builds and loads the images, and ends the
cluster again. With KUBECONFIG it uses that one, whose machines have the images; --prefix says where from.
It works in a namespace of its own, which it deletes. Exit 0 when every step did what it should.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import chart
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLUSTER = ROOT / "tests/k8s/cluster"
CHART = ROOT / "helm/switchyard"
STATE = ROOT / "out/k8s-smoke"
WORKERS = 4


def call(*command, limit=180, check=True, text=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          timeout=limit, input=text)
    if check and done.returncode != 0:
        raise SystemExit(f"FAILED: {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


class Release:
    """The release "moe" in a namespace of its own."""

    namespace = f"smoke-{os.getpid()}"

    def __init__(self, options):
        tools = pathlib.Path(call(CLUSTER, "tools", limit=1500).stdout.strip())
        self.kubectl_path, self.helm_path = tools / "kubectl", tools / "helm3"
        self.options = options
        self.jobs = []
        self.rights = options.privileges
        self.level = "restricted" if self.rights == "none" else "privileged"

    def kubectl(self, *words, **options):
        return call(self.kubectl_path, "-n", self.namespace, *words, **options)

    def helm(self, verb, *words, **options):
        return call(self.helm_path, "-n", self.namespace, verb, "moe", *words, **options)

    def values(self):
        return ["-f", CHART / "examples/laptop.yaml", "--set", f"pools.cpu.replicas={WORKERS}",
                "--set", f"poolDefaults.privileges={self.rights},tests.privileges={self.rights}",
                "--set", f"image.prefix={self.options.prefix}"]

    def get(self, what):
        return json.loads(self.kubectl("get", what, "-o", "json").stdout)["items"]

    def wait_ready(self):
        self.kubectl("wait", "pod", "-l", "app.kubernetes.io/component in (coordinator, worker)", "--for",
                     "condition=Ready", "--timeout", "60s")
        self.kubectl("wait", "job", "-l", "app.kubernetes.io/component=apply", "--for",
                     "condition=complete", "--timeout", "60s")

    def client(self, name, tokens):
        """A Job like helm/client.yaml that generates so many tokens."""
        text = (ROOT / "helm/client.yaml").read_text()
        text = text.replace("name: client", f"name: {name}").replace("--tokens=80", f"--tokens={tokens}\n        - --mode=low_latency")
        text = text.replace("localhost/switchyard", self.options.prefix)
        if self.rights == "netAdmin":
            text = text.replace("runAsNonRoot: true", "runAsNonRoot: false").replace(
                "runAsUser: 65532", "runAsUser: 0").replace("drop: [ALL]", "drop: [ALL], add: [NET_ADMIN]")
        self.kubectl("apply", "-f", "-", text=text)
        self.jobs.append(name)

    def text_of(self, name):
        done = self.kubectl("wait", f"job/{name}", "--for", "condition=complete", "--timeout", "60s",
                            check=False)
        log = self.kubectl("logs", f"job/{name}", "-c", "generate").stdout
        assert done.returncode == 0, f"job {name} did not end well: {log[-1000:]}"
        return log


def reference(options, tokens):
    """The text of four workers of this machine. In low_latency it does not depend on the placement."""
    return call(options.build / "bin/generate", "--model", ROOT / "models/sqlite-moe-7m", "--workers", 4,
                "--mode", "low_latency", "--prompt", "SELECT name FROM", "--tokens", tokens).stdout.strip()


def install(release):
    call(release.kubectl_path, "create", "namespace", release.namespace)
    call(release.kubectl_path, "label", "namespace", release.namespace,
         f"pod-security.kubernetes.io/enforce={release.level}")
    notes = release.helm("install", CHART, *release.values()).stdout
    for part in ("callers need a certificate", f"helm -n {release.namespace} test moe", "port-forward"):
        assert part in notes, notes
    release.wait_ready()
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
    release.client("client", 80)
    text, want = release.text_of("client"), reference(release.options, 80)
    assert text.startswith(want), f"{text!r} is not {want!r}"


def delete_a_worker_under_load(release):
    release.client("busy", 2000)
    release.kubectl("wait", "pod", "-l", "job-name=busy", "--for", "condition=Ready", "--timeout", "60s")
    release.kubectl("delete", "pod", "moe-switchyard-cpu-0")
    release.wait_ready()
    text, want = release.text_of("busy"), reference(release.options, 2000)
    assert text.startswith(want), "the text is another one"


def pods_of(release):
    return {pod["metadata"]["uid"] for pod in release.get("pods")
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") in ("coordinator", "worker")}


def upgrade_to_the_same(release):
    before = pods_of(release)
    release.helm("upgrade", CHART, *release.values())
    release.wait_ready()
    assert pods_of(release) == before, "the same values have replaced Pods"


class Forwarded:
    """The coordinator's port on this machine, and the operator's certificate in a folder."""

    def __init__(self, release):
        self.folder = tempfile.TemporaryDirectory()
        for file in ("ca.crt", "tls.crt", "tls.key"):
            secret = json.loads(release.kubectl("get", "secret", "moe-switchyard-operator-tls", "-o", "json").stdout)
            (pathlib.Path(self.folder.name) / file).write_bytes(base64.b64decode(secret["data"][file]))
        self.process = subprocess.Popen(
            [release.kubectl_path, "-n", release.namespace, "port-forward",
             "service/moe-switchyard-coordinator", ":7700"], stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r"127.0.0.1:(\d+)", self.process.stdout.readline()).group(1))

    def serial(self):
        """That of the certificate with which the coordinator answers now."""
        context = ssl.create_default_context(cafile=f"{self.folder.name}/ca.crt")
        context.check_hostname = False
        context.load_cert_chain(f"{self.folder.name}/tls.crt", f"{self.folder.name}/tls.key")
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
            with context.wrap_socket(plain) as secured:
                return secured.getpeercert()["serialNumber"]

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.folder.cleanup()


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
            assert release.text_of(f"renewed-{clients}").startswith(want), "the text is another one"
            clients += 1
    finally:
        forwarded.close()
    assert pods_of(release) == before, "a renewal has replaced Pods"
    helm_test(release)


def uninstall(release):
    release.kubectl("delete", "job", *release.jobs)
    release.helm("uninstall", "--wait")
    release.kubectl("wait", "pod", "-l", "app.kubernetes.io/component in (coordinator, worker)", "--for",
                    "delete", "--timeout", "60s")
    left = {f"{each['kind']}/{each['metadata']['name']}"
            for kind in ("all", "configmaps", "serviceaccounts", "persistentvolumeclaims", "networkpolicies",
                         "poddisruptionbudgets", "secrets") for each in release.get(kind)}
    left -= {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
    names = ["authority", *(f"{each}-tls" for each in ("apply", "coordinator", "cpu", "operator", "source", "test"))]
    assert left == {"Pod/moe-switchyard-test", *(f"Secret/moe-switchyard-{name}" for name in names)}, left
    release.kubectl("delete", "secret", "-l", "app.kubernetes.io/instance=moe")
    assert not release.get("secrets")


def examples_are_accepted(release):
    """Every object passes strict server-side apply, in a namespace that refuses and warns of Pods which are not
    restricted. The kinds of the Prometheus operator are unknown to this cluster."""
    namespace = f"{release.namespace}-examples"
    kubectl = [release.kubectl_path, "-n", namespace]
    call(*kubectl, "create", "namespace", namespace)
    try:
        call(*kubectl, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted",
             "pod-security.kubernetes.io/warn=restricted")
        for example in chart.EXAMPLES:
            rendered = [o for o in chart.objects(example=example, namespace=namespace)
                        if not o["apiVersion"].startswith("monitoring.")]
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
         delete_a_worker_under_load, upgrade_to_the_same, renew_certificates, uninstall]


def timed(name, step, *arguments):
    begin = time.monotonic()
    step(*arguments)
    print(f"{name:<32} {time.monotonic() - begin:6.1f} s", flush=True)


def start_cluster(options):
    timed("cluster", lambda: call(CLUSTER, "--state", STATE, "up", limit=1800))
    os.environ["KUBECONFIG"] = call(CLUSTER, "--state", STATE, "kubeconfig").stdout.strip()
    with tempfile.TemporaryDirectory() as images:
        timed("images", call, ROOT / "deploy/image/build", "--build", options.build, images)
        timed("load", call, CLUSTER, "--state", STATE, "load", *pathlib.Path(images).glob("*.tar"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--prefix", default="localhost/switchyard", help="of the images' names")
    parser.add_argument("--privileges", choices=["none", "netAdmin"], default="none",
                        help="of workers and engines, as in the chart's values (default: %(default)s)")
    options = parser.parse_args()
    own = "KUBECONFIG" not in os.environ
    try:
        if own:
            start_cluster(options)
        release = Release(options)
        try:
            for step in STEPS:
                timed(step.__name__, step, release)
        finally:
            call(release.kubectl_path, "delete", "namespace", release.namespace, "--wait=false", check=False)
    finally:
        if own:
            timed("cluster down", call, CLUSTER, "--state", STATE, "down")
    print("the chart installs, serves, changes and leaves")


if __name__ == "__main__":
    sys.exit(main())
