"""Floods of the ports of a release while clients generate, and what they may cost."""

import threading
import time

import node
from clients import CLIENTS, counts, end_the_clients, start_the_clients

EACH = 500  # half-open connections to each port, and as many senseless ones
SECONDS = 60
RSS_KIB_MAX = 64 * 1024  # more than before
LINES_MAX = 40  # that a process writes meanwhile
IDLE_SECONDS = 70  # in which gRPC closes connections without calls
QUIET_SECONDS = 120  # in which descriptors are as before


def processes(usage):
    """{"pod/pid": {...}} of every process."""
    return {f"{pod}/{each['pid']}": each for pod, rows in usage.items() for each in rows}


class Watch:
    """Looks every second at the Pods, and keeps the most memory and descriptors of each process."""

    def __init__(self, release):
        self.release, self.pods = release, release.pods("coordinator", "worker")
        self.rss, self.fds, self.over = {}, {}, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def look(self):
        for name, each in processes(node.ask(self.release, "usage", self.pods)).items():
            self.rss[name] = max(self.rss.get(name, 0), each["rss_kib"])
            self.fds[name] = max(self.fds.get(name, 0), each["fds"])

    def run(self):
        while not self.over.wait(1):
            self.look()

    def end(self):
        self.over.set()
        self.thread.join()
        return self.rss, self.fds


def readiness(release):
    return release.readiness("coordinator", "worker")


def restarts(release):
    return {f"{pod['metadata']['name']}/{each['name']}": each["restartCount"]
            for pod in release.pods("coordinator", "worker") for each in pod["status"]["containerStatuses"]}


def lines(release):
    """{Pod/container: lines of its log}."""
    found = {}
    for pod in release.pods("coordinator", "worker"):
        for container in pod["spec"]["containers"]:
            name = pod["metadata"]["name"], container["name"]
            found["/".join(name)] = release.kubectl("logs", name[0], "-c", name[1]).stdout.splitlines()
    return found


def process_of(release, client):
    """One that lives as long as the client's Pod."""
    pod, = [each for each in release.pods("client") if each["metadata"]["labels"].get("job-name") == client
            and each["status"]["phase"] == "Running"]
    shell, = [each for each in node.ask(release, "usage", [pod])[pod["metadata"]["name"]] if each["name"] == "sh"]
    return shell["pid"]


def resting(release):
    """The descriptors of each process when nobody is connected."""
    return {name: each["fds"] for name, each in
            processes(node.ask(release, "usage", release.pods("coordinator", "worker"))).items()}


def measured_at_rest(release):
    """The descriptors after a first text, once all connections that came with it are gone."""
    release.client("warm", 20)
    release.text_of("warm")
    time.sleep(IDLE_SECONDS)
    return resting(release)


def wait_for_rest(release, rest):
    begin = time.monotonic()
    while more := {name: (fds, rest[name]) for name, fds in resting(release).items() if fds > rest[name]}:
        assert time.monotonic() < begin + QUIET_SECONDS, f"descriptors (now, before): {more}"
        time.sleep(2)
    return time.monotonic() - begin


def endure(release, name, targets, rest, beside=None):
    """Floods the targets while two clients generate, from the node or, beside one of them, from its address. Returns counts."""
    start_the_clients(release)
    pid = process_of(release, beside) if beside else None
    watch = Watch(release)
    time.sleep(10)
    rss, _ = watch.end()
    ready, logs, texts = readiness(release), lines(release), [counts(release, client) for client in CLIENTS]
    watch, flood = Watch(release), node.Flood(release, targets, EACH, SECONDS, pid)
    begin = time.monotonic()
    while not flood.over():
        assert time.monotonic() < begin + 2 * SECONDS, "the flood does not end"
        assert readiness(release) == ready, f"{readiness(release)}, before: {ready}"
        time.sleep(1)
    rss_most, fds_most = watch.end()
    made = [new[0] - old[0] for new, old in zip((counts(release, client) for client in CLIENTS), texts)]
    more = {each: rss_most[each] - rss[each] for each in rss}
    written = {each: new[len(logs[each]):] for each, new in lines(release).items()}
    counted = flood.counts()
    for target, count in counted.items():
        print(f"  {name} {target}: {count}", flush=True)
    print(f"  {name}: texts {made} in {SECONDS} s; at most {max(more.values()) / 1024:.1f} MiB more, {max(fds_most.values())} "
          f"descriptors, {max(map(len, written.values()))} lines of a log", flush=True)
    end_the_clients(release)
    for client, old in zip(CLIENTS, texts):
        new = counts(release, client)
        assert new[0] > old[0] and new[1:] == old[1:], f"{client}: {old}, then {new}"
    assert min(made) > 0, f"texts: {made}"
    assert readiness(release) == ready, f"{readiness(release)}, before: {ready}"
    assert not any(restarts(release).values()), restarts(release)
    assert max(more.values()) <= RSS_KIB_MAX, f"KiB more: {more}"
    loudest = max(written.values(), key=len)
    assert len(loudest) <= LINES_MAX, f"{len(loudest)} lines: " + "\n".join(loudest[:20])
    print(f"  {name}: descriptors as before after {wait_for_rest(release, rest):.0f} s", flush=True)
    return counted
