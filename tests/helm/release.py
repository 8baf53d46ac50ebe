"""A release of the chart on a real cluster, clients of it, and how tests run their steps there."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import audit
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLUSTER = ROOT / "tests/k8s/cluster"
CHART = ROOT / "helm/switchyard"
WORKERS = 4
GROUP_KINDS = ("leaderworkersets.leaderworkerset.x-k8s.io", "disaggregatedsets.disaggregatedset.x-k8s.io")
WARNING = "would violate PodSecurity"
PATIENCE = "150s"  # of a Pod or a Job, on two CPUs that six tests share
# Of our own cluster, which provides none. As an administrator hands one to a user: nobody but 65532 may write there.
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAME}
spec:
  storageClassName: NAME
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/lib/NAME, type: Directory}
"""


def call(*command, limit=180, check=True, text=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          timeout=limit, input=text)
    if check and done.returncode != 0:
        raise SystemExit(f"FAILED: {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def unwarned(done):
    assert WARNING not in done.stderr, done.stderr
    return done


def until(what, condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} within {seconds} s"
        time.sleep(0.5)


class Release:
    """The release "moe" in a namespace of its own."""

    namespace = f"chart-{os.getpid()}"

    def __init__(self, options):
        tools = pathlib.Path(call(CLUSTER, "tools", limit=1500).stdout.strip())
        self.kubectl_path, self.helm_path = tools / "kubectl", tools / f"helm{options.helm}"
        self.options = options
        self.volume = f"plans-{self.namespace}"
        self.jobs = []
        self.audited = False
        self.rights = options.privileges
        self.level = "restricted" if self.rights == "none" else "privileged"

    def kubectl(self, *words, **options):
        return unwarned(call(self.kubectl_path, "-n", self.namespace, *words, **options))

    def helm(self, verb, *words, **options):
        return unwarned(call(self.helm_path, "-n", self.namespace, verb, "moe", *words, **options))

    def create_namespace(self):
        """It refuses Pods that are not of the level, and warns of whatever would make such Pods."""
        call(self.kubectl_path, "create", "namespace", self.namespace)
        call(self.kubectl_path, "label", "namespace", self.namespace,
             *(f"pod-security.kubernetes.io/{mode}={self.level}" for mode in ("enforce", "audit", "warn")))
        if self.level == "restricted":
            control = call(self.kubectl_path, "-n", self.namespace, "create", "deployment", audit.CONTROL, "--image=any",
                           "--dry-run=server")
            assert WARNING in control.stderr, f"the control caused no warning: {control.stderr}"
            self.audited = bool(self.options.own_cluster)

    def define_groups(self):
        """Makes LeaderWorkerSet and DisaggregatedSet known to our own cluster. Others are left as they are."""
        if self.options.own_cluster:
            call(self.kubectl_path, "apply", "--server-side", "-f", self.kubectl_path.parent.parent / "crds")
            until("established definitions", self.groups_are_defined, 30)

    def groups_are_defined(self):
        """`kubectl wait` ends with an error where a definition is so new that its conditions are null."""
        states = [crd.get("status", {}).get("conditions") or [] for crd in self.get("crd")
                  if crd["metadata"]["name"] in GROUP_KINDS]
        return len(states) == len(GROUP_KINDS) and all(
            ("Established", "True") in {(each["type"], each["status"]) for each in state} for state in states)

    def values(self):
        return ["-f", CHART / "examples/laptop.yaml", "--set", f"pools.cpu.replicas={WORKERS}",
                "--set", f"poolDefaults.privileges={self.rights},tests.privileges={self.rights}",
                "--set", f"image.prefix={self.options.prefix}"]

    def make_volume(self):
        """For the coordinator's plans. A cluster that KUBECONFIG names has a default class of storage instead."""
        if self.options.own_cluster:
            call(CLUSTER, "--state", self.options.own_cluster, "enter", "install", "-d", "-o", "65532", "-g", "65532",
                 "-m", "700", f"/var/lib/{self.volume}")
            self.kubectl("apply", "-f", "-", text=VOLUME.replace("NAME", self.volume))

    def kept(self):
        """The values with which the coordinator keeps its plans on that volume."""
        storage = self.volume if self.options.own_cluster else ""
        return ["--set", f"coordinator.persistence.enabled=true,coordinator.persistence.storageClass={storage}"]

    def get(self, what):
        return json.loads(self.kubectl("get", what, "-o", "json").stdout)["items"]

    def pods(self, *components):
        """The Pods of these components."""
        return [pod for pod in self.get("pods")
                if pod["metadata"]["labels"].get("app.kubernetes.io/component") in components]

    def readiness(self, *components):
        """{Pod: since when it is ready, or not}: it is another time once readiness was lost, however shortly."""
        return {pod["metadata"]["name"]: [(each["status"], each["lastTransitionTime"]) for each in pod["status"]["conditions"]
                                          if each["type"] == "Ready"] for pod in self.pods(*components)}

    def wait_ready(self):
        for state in ("create", "condition=Ready"):  # helm returns before there are Pods
            self.kubectl("wait", "pod", "-l", "app.kubernetes.io/component in (coordinator, worker)", "--for", state,
                         "--timeout", PATIENCE)
        self.kubectl("wait", "job", "-l", "app.kubernetes.io/component=apply", "--for",
                     "condition=complete", "--timeout", PATIENCE)

    def client(self, name, tokens, change=lambda job: None, mode="low_latency"):
        """A Job like helm/client.yaml that generates so many tokens in this mode, after `change`."""
        job = yaml.safe_load((ROOT / "helm/client.yaml").read_text().replace("localhost/switchyard", self.options.prefix))
        job["metadata"]["name"] = name
        pod = job["spec"]["template"]["spec"]
        container, = pod["containers"]
        container["args"] = [f"--tokens={tokens}" if word.startswith("--tokens") else word for word in container["args"]]
        container["args"].append(f"--mode={mode}")
        if self.rights == "netAdmin":
            pod["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}
            container["securityContext"] = container["securityContext"] | {
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}
        change(job)
        self.kubectl("apply", "-f", "-", text=json.dumps(job))
        self.jobs.append(name)

    def delete_jobs(self):
        """Those of all clients."""
        if self.jobs:
            self.kubectl("delete", "job", "--ignore-not-found", *dict.fromkeys(self.jobs))
            self.jobs.clear()

    def text_of(self, name):
        done = self.kubectl("wait", f"job/{name}", "--for", "condition=complete", "--timeout", "150s",
                            check=False)
        log = self.kubectl("logs", f"job/{name}", "-c", "generate").stdout
        assert done.returncode == 0, f"job {name} did not end well: {log[-1000:]}"
        return log


def demo(options, tokens, mode):
    """The text that `make demo` prints."""
    out = call("env", f"BUILD={options.build.resolve()}", "PROMPT=SELECT name FROM", f"TOKENS={tokens}", f"MODE={mode}",
               f"WORKERS={WORKERS}", "TRANSPORT=auto", "DEVICE=", ROOT / "scripts/demo").stdout
    text, measured, _ = out.partition("\nbits per byte of the first window")
    assert measured, out
    return text.strip()


def reference(options, tokens, mode="low_latency"):
    """As demo(), without the measurement that comes after the text there: `generate` with four workers of this machine. In
    low_latency the text does not depend on the placement."""
    return call(options.build / "bin/generate", "--model", ROOT / "models/sqlite-moe-7m", "--workers", 4,
                "--mode", mode, "--prompt", "SELECT name FROM", "--tokens", tokens).stdout.strip()


def same_text(log, want):
    """The log of a client has this text, beside what `generate` says of it and of its connections."""
    assert want in log, f"another text:\n{log[:3000]}\ninstead of\n{want}"


def timed(name, step, *arguments):
    begin = time.monotonic()
    step(*arguments)
    print(f"{name:<32} {time.monotonic() - begin:6.1f} s", flush=True)


def start_cluster(options, state):
    timed("cluster", lambda: call(CLUSTER, "--state", state, "up", limit=1800))
    os.environ["KUBECONFIG"] = call(CLUSTER, "--state", state, "kubeconfig").stdout.strip()
    with tempfile.TemporaryDirectory() as images:
        timed("images", call, ROOT / "deploy/image/build", "--build", options.build, images)
        timed("load", call, CLUSTER, "--state", state, "load", *pathlib.Path(images).glob("*.tar"))


def only_this_context(name, folder):
    """The path of a kubeconfig with this context of KUBECONFIG and no other one: no command can take another cluster."""
    path = pathlib.Path(folder) / "kubeconfig"
    path.touch(mode=0o600)
    kubectl = pathlib.Path(call(CLUSTER, "tools", limit=1500).stdout.strip()) / "kubectl"
    path.write_text(call(kubectl, "config", "view", "--raw", "--context", name, "--minify", "--flatten").stdout)
    return str(path)


def choose_the_cluster(parser, options):
    """Sets KUBECONFIG as the options say, and own_cluster: the state of the node if it is one of ours."""
    if options.node:
        os.environ["KUBECONFIG"] = call(CLUSTER, "--state", options.node, "kubeconfig").stdout.strip()
    elif "KUBECONFIG" in os.environ:
        if not options.context:
            parser.error("KUBECONFIG is set, and nothing says which cluster may be changed: give --context NAME (make: CONTEXT=NAME) "
                         "with a name of `kubectl config get-contexts -o name`, or unset KUBECONFIG for a cluster of the test's own")
        options.folder = tempfile.TemporaryDirectory()  # removed with the options
        os.environ["KUBECONFIG"] = only_this_context(options.context, options.folder.name)
    if options.context and (options.node or "KUBECONFIG" not in os.environ):
        parser.error("--context is of a cluster that KUBECONFIG names")


def choose(steps, options):
    """Those that --only and --without leave; a name that no step has is an error."""
    only, without = (set(filter(None, words.split(","))) for words in (options.only, options.without))
    unknown = (only | without) - {step.__name__ for step in steps}
    assert not unknown, f"no such step: {', '.join(sorted(unknown))}"
    return [step for step in steps if (not only or step.__name__ in only) and step.__name__ not in without]


def run(description, name, steps, summary):
    """The main function of a test: each step gets the release. `name` is that of its cluster."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--prefix", default="localhost/switchyard", help="of the images' names")
    parser.add_argument("--privileges", choices=["none", "netAdmin"], default="none",
                        help="of workers and engines, as in the chart's values (default: %(default)s)")
    parser.add_argument("--helm", choices=["3", "4"], default="3", help="whose commands (default: %(default)s)")
    parser.add_argument("--node", type=pathlib.Path,
                        help="the state of a node of tests/k8s/cluster that is up and has the images, and stays as it is")
    parser.add_argument("--context", metavar="NAME", help="of KUBECONFIG: the cluster that the test changes. There is no default")
    parser.add_argument("--only", default="", metavar="STEP,...", help="only these steps; most need the first")
    parser.add_argument("--without", default="", metavar="STEP,...", help="all steps but these")
    options = parser.parse_args()
    state = options.node or ROOT / "out" / name
    choose_the_cluster(parser, options)
    own = "KUBECONFIG" not in os.environ
    options.own_cluster = state if own or options.node else None
    try:
        if own:
            start_cluster(options, state)
        release = Release(options)
        chosen = choose(steps, options)
        try:
            for step in chosen:
                timed(step.__name__, step, release)
            if release.audited:
                timed("audit log", audit.check, release)
        finally:
            call(release.kubectl_path, "delete", "namespace", release.namespace, "--wait=false", check=False)
            call(release.kubectl_path, "delete", "pv", release.volume, "--ignore-not-found", "--wait=false", check=False)
    finally:
        if own:
            timed("cluster down", call, CLUSTER, "--state", state, "down")
    print(summary)
