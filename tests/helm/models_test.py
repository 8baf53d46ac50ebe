#!/usr/bin/python3 -B
"""Several models and pools of one phase on a real cluster, and what `helm test` does not let through.

    models_test.py [--build FOLDER]

Two examples are installed as they are, with less memory: the rows of a phase stay in its pool, and each of two models, one on a
claim and one in an image, generates its text. `helm test` fails when a worker's metrics are out of reach, and with a model of
which one expert has the weights of another one. Options as smoke_test.py, without KUBECONFIG.
"""

import json
import pathlib
import shutil
import sys

import node
import phases
import yaml
from release import CHART, ROOT, WORKERS, reference, run, same_text, until

MODEL = ROOT / "models/sqlite-moe-7m"
CHAT = "qwen3-30b-a3b"  # as the example calls its folder
GOLDEN = "golden.safetensors"
SILENT = "moe-switchyard-cpu-1"
CLAIM = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: weights}
spec:
  storageClassName: weights
  capacity: {storage: 1Gi}
  accessModes: [ReadOnlyMany]
  hostPath: {path: /volumes/weights, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: weights}
spec:
  storageClassName: weights
  accessModes: [ReadOnlyMany]
  resources: {requests: {storage: 1Gi}}
"""
SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}


def install(release, example, *more):
    release.helm("install", CHART, "-f", CHART / f"examples/{example}.yaml", *common(release), *more)
    release.wait_ready()
    serves(release)


def common(release):
    return ["--set", f"poolDefaults.privileges={release.rights},tests.privileges={release.rights}",
            "--set", f"image.prefix={release.options.prefix}"]


def serves(release):
    done = release.helm("test", "--logs")
    assert "the release serves" in done.stdout, done.stdout
    return done.stdout


def fails(release, why):
    done = release.helm("test", "--logs", check=False)
    assert done.returncode != 0 and f"FAILED: {why}" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def install_pools_of_one_phase(release):
    assert release.options.own_cluster, "this test needs a cluster of its own: unset KUBECONFIG"
    release.create_namespace()
    install(release, "prefill-decode")


def rows_stay_in_their_phase(release):
    release.client("phases", 80)
    same_text(release.text_of("phases"), reference(release.options, 80))
    phases.stay_in_their_pools(release)


def uninstall(release):
    release.delete_jobs()
    release.helm("uninstall", "--wait")
    until("end of the Pods", lambda: not release.pods("worker", "coordinator"))


def damaged(model):
    """The model, but the first expert of the first layer has the last projection of the next one."""
    size = int.from_bytes(model[:8], "little")
    tensors = json.loads(model[8:8 + size])
    names = [f"model.layers.0.mlp.experts.{expert}.down_proj.weight" for expert in (0, 1)]
    (begin, end), (other, other_end) = [[8 + size + at for at in tensors[name]["data_offsets"]] for name in names]
    assert end - begin == other_end - other and model[begin:end] != model[other:other_end]
    return model[:begin] + model[other:other_end] + model[end:]


def make_claim(release):
    """Of the weights of two models: the demo's, and the same with an expert that is not its own."""
    folder = pathlib.Path(release.options.own_cluster) / "volumes/weights"
    for name in (CHAT, "damaged"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(MODEL, folder / name)
    file = folder / "damaged/model.safetensors"
    file.write_bytes(damaged(file.read_bytes()))
    release.kubectl("delete", "pv", "weights", "--ignore-not-found")
    release.kubectl("apply", "-f", "-", text=CLAIM)


def several(release):
    """The example, without Prometheus's operator, and with fewer and smaller workers."""
    changes = {"coordinator": {"resources": SMALL}, "tests": {"resources": SMALL},
               "pools": {"cpu": {"replicas": WORKERS, "resources": SMALL}},
               "models": {"chat": {"golden": GOLDEN}},
               "monitoring": {"podMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}}
    file = pathlib.Path(release.options.own_cluster) / "several.yaml"
    file.write_text(yaml.safe_dump(changes))
    return ["-f", file, *release.kept()]


def install_several_models(release):
    make_claim(release)
    release.make_volume()
    install(release, "several-models", *several(release))


def each_model_generates(release):
    for model in ("chat", "draft"):
        release.client(model, 80, lambda job, name=model: job["spec"]["template"]["spec"]["containers"][0]["args"].append(
            f"--deployment={name}"))
        same_text(release.text_of(model), reference(release.options, 80))


def filter_metrics(release, what):
    """Adds ("-I") or takes away ("-D") a rule with which a worker no longer hears who asks for its metrics."""
    pod, = [pod for pod in release.pods("worker") if pod["metadata"]["name"] == SILENT]
    process, = [each for each in node.ask(release, "usage", [pod])[SILENT] if each["name"].startswith("switchyard")]
    rule = ["INPUT", "-p", "tcp", "-m", "string", "--algo", "bm", "--string", "GET /metrics", "-j", "DROP"]
    node.enter(release, "nsenter", f"--net=/proc/{process['pid']}/ns/net", "iptables", what, *rule)


def helm_test_without_metrics(release):
    """The worker is ready, serves and answers probes all the same."""
    filter_metrics(release, "-I")
    fails(release, f"no metrics of {SILENT} ")
    filter_metrics(release, "-D")
    serves(release)


def helm_test_with_a_damaged_expert(release):
    release.helm("upgrade", CHART, "-f", CHART / "examples/several-models.yaml", *common(release), *several(release), "--set",
                 "models.damaged.artifact.source=pvc,models.damaged.artifact.claim=weights,models.damaged.artifact.path=damaged",
                 "--set", f"models.damaged.sizeGiB=1,models.damaged.golden={GOLDEN}")
    release.kubectl("rollout", "status", "statefulset/moe-switchyard-cpu", "--timeout", "170s")
    release.wait_ready()
    done = fails(release, "model damaged does not give the recorded outputs")
    # The recorded outputs of the other one, and its random rows.
    assert done.count("verified: within bounds") == 2, done


STEPS = [install_pools_of_one_phase, rows_stay_in_their_phase, uninstall, install_several_models, each_model_generates,
         helm_test_without_metrics, helm_test_with_a_damaged_expert]


if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-models", STEPS, "several models serve, and helm test sees what does not"))
