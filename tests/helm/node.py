"""The node of a release, where the test has one of its own: sockets, memory and descriptors of Pods, and floods."""

import json
import pathlib
import subprocess

from release import CLUSTER, call

INSIDE = pathlib.Path(__file__).with_name("inside.py").read_text()


def command(release, what, argument, pid=None):
    """The words that run inside.py in the node, or in the network namespace of one of its processes."""
    assert release.options.own_cluster, "this test needs a cluster of its own: unset KUBECONFIG"
    netns = ["nsenter", f"--net=/proc/{pid}/ns/net"] if pid else []
    return [CLUSTER, "--state", release.options.own_cluster, "enter", *netns, "python3", "-", what, json.dumps(argument)]


def started(words):
    """A process that runs inside.py so."""
    process = subprocess.Popen(  # pylint: disable=consider-using-with
        [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(INSIDE)
    process.stdin.close()
    process.stdin = None  # communicate() would write to it
    return process


class End:
    """The end of one of the node's processes, which gets a signal first if there is one."""

    def __init__(self, release, pid, signal=0):
        options = {"pid": pid, "signal": signal, "seconds": 60}
        self.process = started(command(release, "end", options))
        assert self.process.stdout.readline() == "watched\n", "there is no such process"

    def when(self):
        """Its Unix time; waits for it."""
        output = self.process.stdout.read()
        assert self.process.wait(10) == 0, "the process has not ended"
        return json.loads(output)


class Sockets:
    """The sockets of Pods that are neither coordinator nor worker, from now until end()."""

    def __init__(self, release):
        self.release, self.file = release, f"/run/{release.namespace}-sockets"
        self.process = started(command(release, "sockets", {"end": self.file, "seconds": 300}))

    def end(self):
        """{uid of the Pod: [[[protocol, address, port, program]]]}: each state that it was seen in."""
        enter(self.release, "touch", self.file)
        output, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, "nobody has looked at sockets"
        return json.loads(output)


def program(release, pod):
    """The number, in the node, of the only program of a worker's Pod."""
    process, = [each for each in ask(release, "usage", [pod])[pod["metadata"]["name"]] if each["name"].startswith("switchyard")]
    return process["pid"]


def say(release, what, argument):
    """What inside.py says of it."""
    return json.loads(call(*command(release, what, argument), text=INSIDE).stdout)


def enter(release, *words):
    """The output of a command in the node, as bytes."""
    return subprocess.run([str(CLUSTER), "--state", str(release.options.own_cluster), "enter", *map(str, words)],
                          capture_output=True, check=True, timeout=60).stdout


def metrics(release, pod):
    """{Pod/container: what it answers for its metrics}."""
    found = {}
    for container in pod["spec"]["containers"]:
        port, = [each["containerPort"] for each in container["ports"] if each["name"].startswith("system")]
        found[f"{pod['metadata']['name']}/{container['name']}"] = enter(
            release, "curl", "-s", "-m", "5", f"http://{pod['status']['podIP']}:{port}/metrics").decode()
    return found


def ask(release, what, pods):
    """What inside.py says of these Pods, by their names."""
    names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
    return {names[uid]: value for uid, value in say(release, what, list(names)).items()}


class Flood:
    """So many half-open and so many senseless connections to each of the targets, for some seconds."""

    def __init__(self, release, targets, each, seconds, pid=None):
        options = {"targets": targets, "each": each, "seconds": seconds}
        self.process = started(command(release, "flood", options, pid))

    def over(self):
        return self.process.poll() is not None

    def counts(self):
        """{"host:port": {"tried", "connected", "closed", "refused", "unanswered"}}."""
        output = self.process.stdout.read()
        assert self.process.wait(60) == 0, "the flood failed"
        return json.loads(output)
