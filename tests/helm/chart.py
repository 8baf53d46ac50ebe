"""Renders the chart, and reads what came out."""

import os
import pathlib
import subprocess
import tempfile

import live
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "helm/switchyard"
EXAMPLES = sorted(path.stem for path in (CHART / "examples").glob("*.yaml"))
HELMS = ("helm3", "helm4")
KUBE_VERSIONS = ("1.29.0", "1.35.0", "1.37.0")


def tools():
    """The folder with helm, built when it is not there: a missing tool is no reason to skip."""
    done = subprocess.run([str(ROOT / "scripts/k8s_tools")], stdout=subprocess.PIPE, text=True,
                          check=True, timeout=1500)
    return pathlib.Path(done.stdout.strip())


TOOLS = tools()


def helm(arguments, program="helm3", **env):
    """(exit code, standard output, standard error)."""
    done = subprocess.run([str(TOOLS / program), *arguments], capture_output=True, text=True,
                          check=False, timeout=60, env={**os.environ, **env})
    return done.returncode, done.stdout, done.stderr


def render(values=None, example=None, program="helm3", kube="1.35.0", name="rel", namespace="default", more=()):
    """As helm: the text of all objects, or what is wrong with the values. `more` are options of helm."""
    arguments = ["template", name, str(CHART), "--kube-version", kube, "--namespace", namespace, *more]
    if example:
        arguments += ["-f", str(CHART / "examples" / f"{example}.yaml")]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values if isinstance(values, str) else yaml.safe_dump(values or {}))
        file.flush()
        return helm([*arguments, "-f", file.name], program)


def objects(**options):
    """The objects of a rendering that has to succeed."""
    code, out, error = render(**options)
    assert code == 0, error
    return [each for each in yaml.safe_load_all(out) if each]


def notes(values, program="helm3"):
    """What helm says after an installation, in one line."""
    with live.cluster([]) as kubeconfig, tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(yaml.safe_dump(values))
        file.flush()
        arguments = ["install", "rel", str(CHART), "--dry-run=client", "--kubeconfig", str(kubeconfig), "-f", file.name]
        code, out, error = helm(arguments, program, HELM_DRIVER="memory", HELM_MEMORY_DRIVER_DATA=os.devnull)
    assert code == 0, error
    return " ".join(out.split("\nNOTES:\n")[1].split())


def objects_over(there, upgrade=True, **options):
    """(exit code, objects, what is wrong) where a cluster has these objects."""
    with live.cluster(there) as kubeconfig:
        more = ["--dry-run=server", "--kubeconfig", str(kubeconfig), "--api-versions", ",".join(live.APIS),
                "--disable-openapi-validation"]
        code, out, error = render(more=[*more, "--is-upgrade"] if upgrade else more, **options)
    return code, [each for each in yaml.safe_load_all(out) if each], error


def one(all_objects, kind, name):
    found, = [o for o in all_objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def templates(all_objects):
    """(name, template of Pods) of what makes Pods; the parts of a DisaggregatedSet by their own names."""
    for each in all_objects:
        name, spec = each["metadata"]["name"], each.get("spec", {})
        if each["kind"] in ("StatefulSet", "Job", "Deployment"):
            yield name, spec["template"]
        elif each["kind"] == "LeaderWorkerSet":
            yield name, spec["leaderWorkerTemplate"]["workerTemplate"]
        elif each["kind"] == "DisaggregatedSet":
            for role in spec["roles"]:
                yield f"{name}-{role['name']}", role["spec"]["leaderWorkerTemplate"]["workerTemplate"]


def pod_specs(all_objects):
    """(name of the object, spec of its Pods)."""
    for each in all_objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
    for name, template in templates(all_objects):
        yield name, template["spec"]


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]
