"""A second build of the programs, with another release number, in a folder of its own; an upgrade to it, and back."""

import json
import re
import shutil

import node
from clients import start
from release import CHART, CLUSTER, ROOT, call

VERSION = "0.2.0"
FOLDER = ROOT / "out/k8s-next"
CONTAINERD = "/run/containerd/containerd.sock"
# Also another configuration: every text is searched again in logs of this level.
CONFIGURATION = ["--set", "poolDefaults.config.logging.level=debug,coordinator.config.logging.level=debug"]


def build():
    """Builds these sources under another number. With ccache only what has the number is compiled anew."""
    listed = call("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            content, copy = (ROOT / name).read_bytes(), FOLDER / name
            if name == "CMakeLists.txt":
                content, changed = re.subn(rb"(project\(switchyard VERSION )[\d.]+", rb"\g<1>" + VERSION.encode(), content)
                assert changed == 1
            # What has not changed keeps its time, so that a second run compiles nothing.
            if not copy.exists() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
                shutil.copymode(ROOT / name, copy)
    call(FOLDER / "scripts/build", "release", "programs", limit=1800)


def load(release):
    """{image: digest}; the node knows them by tag and by digest."""
    images = FOLDER / "out/images"
    call(FOLDER / "deploy/image/build", "--build", FOLDER / "build/release", images)
    call(CLUSTER, "--state", release.options.own_cluster, "load", *images.glob("*.tar"))
    digests = {}
    for line in (images / "images.tsv").read_text().splitlines():
        name, reference, digests[name] = line.split("\t")
        assert reference.endswith(f":{VERSION}"), reference
        node.enter(release, "ctr", "--address", CONTAINERD, "-n", "k8s.io", "images", "tag", "--force", reference,
                   f"{reference.rsplit(':', 1)[0]}@{digests[name]}")
    return digests


def versions(release):
    """{Pod/container: (what its moe_build_info says, the digest of its image)}."""
    found = {}
    for pod in release.pods("coordinator", "worker"):
        images = {each["name"]: each["imageID"] for each in pod["status"]["containerStatuses"]}
        for name, metrics in node.metrics(release, pod).items():
            version, = re.findall(r'^moe_build_info\{[^}]*version="([^"]*)"', metrics, re.M)
            found[name] = version, images[name.split("/")[1]]
    return found


def releases(release):
    """{worker: release}, as an operator sees it."""
    release.kubectl("delete", "job", "releases", "--ignore-not-found")
    start(release, "releases", "/usr/bin/syctl --target moe-switchyard-coordinator:7700 --tls-dir /etc/switchyard-tls "
          "get workers -o json; sleep 2", "moe-switchyard-operator-tls")
    release.kubectl("wait", "job/releases", "--for", "condition=complete", "--timeout", "150s")
    listed = json.loads(release.kubectl("logs", "job/releases", "-c", "generate").stdout)
    return {worker["id"]: worker["release"] for worker in listed["workers"]}


def wait_for_rollouts(release):
    for kind in release.get("statefulsets"):
        release.kubectl("rollout", "status", f"statefulset/{kind['metadata']['name']}", "--timeout", "170s")
    release.wait_ready()


def upgrade(release, values):
    release.before = versions(release)
    assert {version for version, _ in release.before.values()} == {"0.1.0"}, release.before
    digests = [word for image in ("coordinator", "worker", "tools")
               for word in ("--set", f"images.{image}.digest={release.digests[image]}")]
    release.helm("upgrade", CHART, *values, *CONFIGURATION, *digests)
    wait_for_rollouts(release)
    after = versions(release)
    assert set(after) == set(release.before) and {version for version, _ in after.values()} == {VERSION}, after
    for name, (_, image) in after.items():
        wanted = release.digests["coordinator" if "coordinator" in name else "worker"]
        assert image != release.before[name][1] and (wanted in image), f"{name}: {image}, not {wanted}"
    shown = releases(release)
    assert len(shown) == len(after) - 1 and set(shown.values()) == {VERSION}, shown


def roll_back(release):
    release.helm("rollback")
    wait_for_rollouts(release)
    assert versions(release) == release.before, versions(release)
