#!/usr/bin/python3 -B
"""What strangers find and can do at the ports of a release, and what a release tells: drills on a real cluster.

    drills_test.py [--build FOLDER]

Each Pod listens on the ports of docs/KUBERNETES.md and on no other. A worker's Pod begins with doctor. Floods of every port
are not noticed. Nothing that the release tells has one of its secrets, at any level of the log. It is upgraded to another build,
and back, under load. Options as smoke_test.py, without KUBECONFIG.
"""

import collections
import json
import re
import sys
import time
from datetime import datetime

import another_build
import canaries
import floods
import node
import ports
from clients import CLIENTS, LongSession, end_the_clients, start_the_clients, undisturbed
from release import CHART, run

RANGE = "moe-switchyard-range-0"


def values(release):
    """Besides the usual pool one whose Pod has two ranks, and one that states its data ports."""
    small = ("resources.requests.cpu=100m", "resources.requests.memory=128Mi", "replicas=1")
    return [*release.values(), *release.kept(), "--set", ",".join(
        [f"security.tenantsSecret={canaries.TENANTS}", "pools.cpu.replicas=2", "pools.pair.ranksPerPod=2", f"pools.range.dataPorts={ports.DATA_PORTS[0]}-{ports.DATA_PORTS[1]}",
         *(f"pools.{pool}.{each}" for pool in ("pair", "range") for each in small)])]


def install(release):
    release.create_namespace()
    release.make_volume()
    canaries.make_tenants(release)
    with ports.Watch(release) as watch:
        release.helm("install", CHART, *values(release))
        release.wait_ready()
        release.helm("test")
    release.ports_of_passing = watch.compared()


def sockets_are_those_of_the_page(release):
    ports.check_the_defaults_of_the_table()
    ports.check_that_a_stray_port_is_seen()
    passing = release.ports_of_passing
    assert set(passing) == ports.PASSING and passing["test"] > 0, passing
    start_the_clients(release)
    seen, engines = {}, set()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pods = [pod for pod in release.get("pods") if pod["status"]["phase"] == "Running"]
        listening = node.ask(release, "listening", pods)
        for pod in pods:
            name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
            component, pool = labels["app.kubernetes.io/component"], labels.get("switchyard.pool")
            data = ports.check(name, listening[name], component, ports.RANKS.get(pool, 1), pod["status"]["podIP"])
            seen[component] = max(seen.get(component, 0), len(data))
            if pool == "range":
                assert all(ports.DATA_PORTS[0] <= port <= ports.DATA_PORTS[1] for port in data), f"{name}: {data}"
            if component == "client":
                engines |= {name for _ in data}
        time.sleep(0.5)
    end_the_clients(release)
    assert set(seen) == {"coordinator", "worker", "client"} and len(engines) == 2, (seen, engines)
    print(f"  most ports for rows of a Pod: {seen | passing}", flush=True)


def log_of_doctor(release, pod):
    return release.kubectl("logs", pod, "-c", "doctor", check=False).stdout


def doctor_looks_first(release):
    """It finds nothing in a healthy release, and takes no time; with a certificate of somebody else's key a Pod does not
    start until that is put right."""
    for pod in release.pods("worker"):
        log = log_of_doctor(release, pod["metadata"]["name"])
        for check in ("shared-memory", "memlock", "checkpoint", "certificate"):
            assert re.search(rf"^{check} +OK ", log, re.M) and "FAIL" not in log, log
        done, = [each["state"]["terminated"] for each in pod["status"]["initContainerStatuses"] if each["name"] == "doctor"]
        took = datetime.fromisoformat(done["finishedAt"]) - datetime.fromisoformat(done["startedAt"])
        assert took.total_seconds() <= 2, f"{pod['metadata']['name']}: doctor took {took}"
    right = secret_of(release, "range")
    release.kubectl("patch", "secret", "moe-switchyard-range-tls", "-p",
                    json.dumps({"data": {"tls.crt": secret_of(release, "coordinator")["tls.crt"]}}))
    release.kubectl("delete", "pod", RANGE)
    begin = time.monotonic()
    while "FAIL" not in (log := log_of_doctor(release, RANGE)):
        assert time.monotonic() < begin + 60, f"doctor found nothing: {log}"
        time.sleep(0.5)
    row, = re.findall("^certificate +FAIL .*", log, re.M)
    assert "Next: " in row and "belong together" in row, row
    print(f"  {row}", flush=True)
    worker, = json.loads(release.kubectl("get", "pod", RANGE, "-o", "json").stdout)["status"]["containerStatuses"]
    assert "waiting" in worker["state"], worker
    release.kubectl("patch", "secret", "moe-switchyard-range-tls", "-p", json.dumps({"data": right}))
    release.kubectl("wait", f"pod/{RANGE}", "--for", "condition=Ready", "--timeout", "170s")


def secret_of(release, holder):
    return json.loads(release.kubectl("get", "secret", f"moe-switchyard-{holder}-tls", "-o", "json").stdout)["data"]


def own_ports(release):
    """[address, port] of gRPC and of the system port of every process."""
    found = []
    for pod in release.pods("coordinator", "worker"):
        found += [[pod["status"]["podIP"], port["containerPort"]]
                  for container in pod["spec"]["containers"] for port in container["ports"]]
    return found


def a_flood_of_our_ports(release):
    release.rest = floods.measured_at_rest(release)
    for target, count in floods.endure(release, "flood", own_ports(release), release.rest).items():
        assert count["connected"] > floods.EACH, f"{target}: {count}"


def data_ports(release):
    """[address, port] of what UCX listens on at two workers."""
    ours = own_ports(release)
    pods = [pod for pod in release.pods("worker") if pod["metadata"]["name"].endswith(("cpu-0", "range-0"))]
    listening = node.ask(release, "listening", pods)
    return [[pod["status"]["podIP"], port] for pod in pods for _, _, port, _ in listening[pod["metadata"]["name"]]
            if [pod["status"]["podIP"], port] not in ours]


def a_flood_of_data_ports(release):
    """A stranger's connections are not answered, so that UCX, which believes what it reads, sees none of them."""
    counts = floods.endure(release, "data ports", data_ports(release), release.rest)
    assert len(counts) >= 8, counts
    for target, count in counts.items():
        assert count["connected"] == 0 and count["unanswered"] >= 2 * floods.EACH, f"{target}: {count}"


def a_flood_from_an_engine(release):
    """From the address of an engine, which is let in for the moments in which the engine attaches: UCX sees what comes then."""
    counts = floods.endure(release, "data ports, from an engine", data_ports(release), release.rest, beside=CLIENTS[0])
    assert len(counts) >= 8, counts
    entered = sum(count["connected"] for count in counts.values())
    assert entered > 0, "UCX has seen none of these connections, so that this tells nothing of it"
    print(f"  {entered} of {sum(count['tried'] for count in counts.values())} connections were let in", flush=True)


def search(release):
    """While clients generate."""
    secrets = canaries.secrets_of(release)
    texts = canaries.told_by(release)
    found = canaries.found_in(texts, secrets)
    assert not found, found
    kinds = collections.Counter(re.sub(r"( \d+$|^\S+/)", "", name) for name in secrets)
    print(f"  {dict(kinds)} in none of {len(texts)} texts, {sum(map(len, texts.values()))} bytes", flush=True)
    return secrets


def nothing_tells_a_secret(release):
    start_the_clients(release)
    secrets = search(release)
    end_the_clients(release)
    canaries.check_that_it_finds(release, secrets)


def make_another_build(release):
    another_build.build()
    release.digests = another_build.load(release)
    start_the_clients(release, patience=100)
    release.long = LongSession(release, 10)


@undisturbed
def upgrade_to_another_build(release):
    another_build.upgrade(release, values(release))


def nor_does_a_log_of_all_details(release):
    """As nothing_tells_a_secret; the release writes its log at the level debug now."""
    search(release)


@undisturbed
def roll_back(release):
    another_build.roll_back(release)


def no_session_noticed(release):
    """The long one went on while every process was replaced twice; others were opened as soon as a coordinator was there."""
    waits = [release.kubectl("logs", f"job/{name}", "-c", "generate").stdout.count("WAITS") for name in CLIENTS]
    end_the_clients(release)
    release.long.check()
    print(f"  times that a client found no coordinator: {waits}", flush=True)


STEPS = [install, sockets_are_those_of_the_page, doctor_looks_first, a_flood_of_our_ports, a_flood_of_data_ports,
         a_flood_from_an_engine, nothing_tells_a_secret, make_another_build, upgrade_to_another_build, nor_does_a_log_of_all_details, roll_back,
         no_session_noticed]

if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-drills", STEPS, "nothing is open that should not be"))
