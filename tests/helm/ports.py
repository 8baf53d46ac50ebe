"""The ports of a release's Pods, and the table of docs/KUBERNETES.md that says which there are."""

import json
import re
import subprocess
import tempfile

import node
import yaml
from release import CHART, ROOT

DATA_PORTS = (21000, 21063)
RANKS = {"cpu": 1, "pair": 2, "range": 1}
PAGE = (ROOT / "docs/KUBERNETES.md").read_text()
PASSING = {"apply", "certificates", "test"}  # components whose Pods end by themselves


def table(page):
    """(components, key or "", number or 0, of, address) of each row of the page's table of ports."""
    rows = page.split("\n## Ports\n")[1].split("\n## ")[0]
    for line in re.findall(r"^\| (.*) \|$", rows, re.M):
        components, ports, of, address, _ = (cell.strip() for cell in line.split("|"))
        key = re.search(r"`([\w.]+)`", ports)
        number = re.search(r", (\d+)$", ports)
        if components != "component":
            yield components.split(", "), key.group(1) if key else "", int(number.group(1)) if number else 0, of, address


def check_the_defaults_of_the_table():
    """The numbers of the page are those of values.yaml."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    found = set()
    for components, key, number, _, _ in table(PAGE):
        if number:
            names = key.split(".") if "." in key else ["poolDefaults", key]
            assert defaults[names[0]][names[1]] == number, (components, key, number)
            found.add(key)
    assert found == {"coordinator.port", "coordinator.systemPort", "port", "systemPort"}, found


def hexadecimal(address):
    """As /proc/net/tcp writes it."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def check(name, sockets, component, ranks, address):
    """Compares the sockets of a Pod with the rows of its component; returns its ports for rows."""
    rows = [row for row in table(PAGE) if component in row[0]]
    assert rows, f"{name}: the page has no row of {component}"
    wanted, data_max, data_min = set(), 0, 0
    for _, _, number, of, _ in rows:
        if number:
            wanted |= {number + rank for rank in range(ranks)}
        elif limits := re.search(r"(?:(\d+) to |at most )(\d+)$", of):
            data_min, data_max = ranks * int(limits.group(1) or 0), ranks * int(limits.group(2))
    ports = [port for _, _, port, _ in sockets]
    assert all(protocol.startswith("tcp") for protocol, _, _, _ in sockets), f"{name}: {sockets}"
    assert len(ports) == len(set(ports)) and wanted <= set(ports), f"{name}: {sockets}, wanted {wanted}"
    data = set(ports) - wanted
    assert data_min <= len(data) <= data_max, f"{name}: {len(data)} ports for rows: {sockets}"
    hosts = {"all": {"00000000"}, "the Pod's": {hexadecimal(address)},
             "the Pod's and 127.0.0.1": {hexadecimal(address), hexadecimal("127.0.0.1")}, "": set()}
    for _, host, port, owner in sockets:
        assert host in hosts[rows[0][4]], f"{name}: {host}:{port} of {owner}"
        assert owner != "nobody", f"{name}: {port} is not a socket of the Pod's programs"
    return data


def check_that_a_stray_port_is_seen():
    ours = [["tcp", "00000000", port, "coordinator/1"] for port in (7700, 7701)]
    assert check("control", ours, "coordinator", 1, "10.0.0.1") == set()
    assert check("control", [], "apply", 1, "10.0.0.1") == set()
    for component, stray in (("coordinator", [*ours, ["tcp", "00000000", 7702, "coordinator/1"]]),
                             ("coordinator", [*ours, ["udp", "00000000", 7702, "coordinator/1"]]),
                             ("coordinator", ours[:1]), ("apply", [["tcp", hexadecimal("10.0.0.1"), 4000, "syctl/1"]])):
        try:
            check("control", stray, component, 1, "10.0.0.1")
        except AssertionError:
            continue
        raise AssertionError(f"what the page does not say of {component} was not noticed: {stray}")


def component_of(pod):
    """The Pod of certificates is not the release's: a name says what it is."""
    labels = pod.get("metadata", {}).get("labels", {})
    return labels.get("app.kubernetes.io/component") or labels.get("app.kubernetes.io/name", "").removeprefix("moe-switchyard-")


class Watch:
    """Looks at the sockets of Pods that end by themselves, for as long as a `with` lasts."""

    def __init__(self, release):
        self.samples = {}
        self.pods = tempfile.TemporaryFile("w+")
        self.watch = subprocess.Popen([release.kubectl_path, "-n", release.namespace, "get", "pods", "--watch", "-o", "json"],
                                      stdout=self.pods)
        self.sockets = node.Sockets(release)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watch.terminate()
        self.watch.wait(10)
        self.samples = self.sockets.end()

    def compared(self):
        """{component: most ports for rows} after each look was compared with the page."""
        self.pods.seek(0)
        text, pods, decoder = self.pods.read().strip(), {}, json.JSONDecoder()
        while text:
            pod, at = decoder.raw_decode(text)
            text = text[at:].strip()
            pods[pod["metadata"]["uid"]] = pod
        found = {}
        for uid, looks in self.samples.items():
            pod = pods.get(uid, {})
            component = component_of(pod)
            for sockets in looks if component in PASSING else ():
                data = check(pod["metadata"]["name"], sockets, component, 1, pod["status"].get("podIP", "0.0.0.0"))
                found[component] = max(found.get(component, 0), len(data))
        return found
