"""The table of docs/KUBERNETES.md that says what the examples ask of a cluster is what they render."""

import re
import unittest

import chart

PAGE = (chart.ROOT / "docs/KUBERNETES.md").read_text()
UNITS = {"Mi": 1, "Gi": 1024}


def mebibytes(quantity):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()
    return int(number) * UNITS[unit]


def millicores(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def workloads(rendered):
    """(component, number of Pods, their spec) of what stays."""
    for each in rendered:
        spec = each.get("spec", {})
        if each["kind"] == "StatefulSet":
            yield each["metadata"]["labels"]["app.kubernetes.io/component"], spec["replicas"], spec["template"]["spec"]
        for part in [spec] if each["kind"] == "LeaderWorkerSet" else [role["spec"] for role in spec.get("roles", [])]:
            group = part["leaderWorkerTemplate"]
            yield "worker", part["replicas"] * group["size"], group["workerTemplate"]["spec"]


def size(spec):
    """(millicores, MiB that it requests, MiB that it is limited to) of a Pod."""
    found = [container["resources"] for container in spec["containers"]]
    return (sum(millicores(each["requests"]["cpu"]) for each in found),
            sum(mebibytes(each["requests"]["memory"]) for each in found),
            sum(mebibytes(each["limits"]["memory"]) for each in found))


def row(example):
    """As the page has it."""
    pods = list(workloads(chart.objects(example=example)))
    workers = [(count, spec) for component, count, spec in pods if component == "worker"]
    coordinator, = [spec for component, _, spec in pods if component == "coordinator"]
    sums = [sum(count * size(spec)[what] for count, spec in workers) for what in range(3)]
    disks = {sum(mebibytes(volume["emptyDir"]["sizeLimit"]) for volume in spec["volumes"]
                 if volume["name"].startswith("model-") and "emptyDir" in volume) for _, spec in workers}
    disk, = disks
    cpu, memory, limit = size(coordinator)
    return (f"| `{example}.yaml` | {sum(count for count, _ in workers)} | {sums[0] / 1000:g} | {sums[1]} MiB | {sums[2]} MiB | "
            f"{cpu / 1000:g}, {memory} MiB, {limit} MiB | {disk} MiB |")


class SizingTest(unittest.TestCase):
    def test_the_table_is_what_the_examples_ask_for(self):
        section = PAGE.split("\n## Sizing\n")[1].split("\n## ")[0]
        self.assertEqual(re.findall(r"^\| `\S+\.yaml` .*$", section, re.M), [row(example) for example in chart.EXAMPLES])


if __name__ == "__main__":
    unittest.main(verbosity=2)
