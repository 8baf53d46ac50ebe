#!/usr/bin/python3 -B
"""A real Prometheus scrapes a release on a real cluster, and a worker that is lost raises its alert.

    scrape_test.py [--build FOLDER]

The chart's PodMonitor becomes the configuration that the Prometheus operator would make of it, and its PrometheusRule the
rules. Prometheus runs on the node of a cluster of its own; since Debian's is built without discovery in Kubernetes, the test
writes down the Pods that there are. Options as smoke_test.py, without KUBECONFIG.
"""

import json
import os
import subprocess
import sys
import time

import yaml
from release import CHART, CLUSTER, WORKERS, call, run

LOST = "moe-switchyard-cpu-2"
ALERT = "SwitchyardWorkerDown"
SERIES_MAX = 2000  # of a process
MONITORING = ["--set", "monitoring.podMonitor.enabled=true,monitoring.podMonitor.interval=5s",
              "--set", "monitoring.prometheusRule.enabled=true"]


def enter(release, *command, **options):
    return call(CLUSTER, "--state", release.options.own_cluster, "enter", *command, **options)


def meta(label):
    return "__meta_kubernetes_pod_label_" + label.translate(str.maketrans("./-", "___"))


def keep(sources, pattern):
    return {"action": "keep", "source_labels": sources, "regex": pattern}


def write(release, name, content):
    script = f"mkdir -p /run/scrape && cd /run/scrape && cat >{name}.new && mv {name}.new {name}"
    enter(release, "sh", "-c", script, text=json.dumps(content))


def discover(release):
    """Writes a target for each port of each container, with the labels that Prometheus's own discovery gives it."""
    targets = []
    for pod in release.get("pods"):
        address = pod["status"].get("podIP")
        labels = {meta(key): value for key, value in pod["metadata"]["labels"].items()}
        labels |= {"__meta_kubernetes_namespace": release.namespace, "__meta_kubernetes_pod_name": pod["metadata"]["name"]}
        for container in pod["spec"]["containers"] if address else []:
            for port in container.get("ports", []):
                targets.append({"targets": [f"{address}:{port['containerPort']}"],
                                "labels": labels | {"__meta_kubernetes_pod_container_name": container["name"],
                                                    "__meta_kubernetes_pod_container_port_name": port["name"]}})
    write(release, "pods.json", targets)


def jobs_of(monitor):
    """The scrape configurations that the operator makes of a PodMonitor."""
    selector = monitor["spec"]["selector"]
    chosen = [keep([meta(label)], value) for label, value in selector.get("matchLabels", {}).items()]
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In", each
        chosen.append(keep([meta(each["key"])], "|".join(each["values"])))
    named = [{"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
             for source, target in (("namespace", "namespace"), ("pod_name", "pod"), ("pod_container_name", "container"))]
    named += [{"source_labels": [meta(label)], "target_label": label.translate(str.maketrans("./-", "___"))}
              for label in monitor["spec"]["podTargetLabels"]]
    return [{"job_name": f"{monitor['metadata']['name']}-{i}",
             "metrics_path": endpoint["path"], "scrape_interval": endpoint["interval"], "scrape_timeout": "3s",
             "file_sd_configs": [{"files": ["/run/scrape/pods.json"], "refresh_interval": "5s"}],
             "relabel_configs": [keep(["__meta_kubernetes_pod_container_port_name"], endpoint["port"]), *chosen, *named]}
            for i, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])]


def query(release, expression):
    """[(labels, value)] of an instant query."""
    done = enter(release, "curl", "-sf", "-m", "5", "--data-urlencode", f"query={expression}",
                 "http://127.0.0.1:9090/api/v1/query", check=False)
    if done.returncode != 0:
        return []
    answer = json.loads(done.stdout)
    assert answer["status"] == "success", answer
    return [(result["metric"], float(result["value"][1])) for result in answer["data"]["result"]]


def wait_for(release, what, expression, right, seconds):
    until = time.monotonic() + seconds
    while True:
        found = query(release, expression)
        if right(found):
            return found
        assert time.monotonic() < until, f"{what}: {found}"
        time.sleep(2)


def firing(release):
    return [labels for labels, _ in query(release, 'ALERTS{alertstate="firing"}')]


def install(release):
    assert release.options.own_cluster, "this test needs a cluster of its own: unset KUBECONFIG"
    release.create_namespace()
    release.helm("install", CHART, *release.values())
    release.wait_ready()


def start_prometheus(release):
    rendered = list(yaml.safe_load_all(release.helm("template", CHART, "--kube-version", "1.36.0",
                                                       *release.values(), *MONITORING).stdout))
    monitor, = [each for each in rendered if each and each["kind"] == "PodMonitor"]
    rule, = [each for each in rendered if each and each["kind"] == "PrometheusRule"]
    files = {"rules.yaml": rule["spec"],
             "prometheus.yaml": {"global": {"evaluation_interval": "5s"}, "rule_files": ["/run/scrape/rules.yaml"],
                                 "scrape_configs": jobs_of(monitor)}}
    for name, content in files.items():
        write(release, name, content)
    discover(release)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        # It ends with the node.
        subprocess.Popen(  # pylint: disable=consider-using-with
            [str(CLUSTER), "--state", str(release.options.own_cluster), "enter", "timeout", "900", "prometheus",
             "--config.file=/run/scrape/prometheus.yaml", "--storage.tsdb.path=/run/scrape/series",
             "--web.listen-address=127.0.0.1:9090"], stdout=nowhere, stderr=nowhere)
    wait_for(release, "not every process is scraped", "up == 1", lambda found: len(found) == WORKERS + 1, 60)


def every_process_has_its_series(release):
    ready = query(release, "moe_ready")
    assert len(ready) == WORKERS + 1 and all(value == 1 for _, value in ready), ready
    pods = {labels["pod"]: labels for labels, _ in ready}
    for pod in release.pods("coordinator", "worker"):
        labels = pods[pod["metadata"]["name"]]
        assert labels["app_kubernetes_io_instance"] == "moe" and labels["namespace"] == release.namespace, labels
    samples = query(release, "scrape_samples_scraped")
    assert len(samples) == WORKERS + 1 and all(50 < value <= SERIES_MAX for _, value in samples), samples
    slowest = max(value for _, value in query(release, "scrape_duration_seconds"))
    print(f"  at most {max(value for _, value in samples):.0f} series of a process, scraped in {1000 * slowest:.0f} ms")


def a_healthy_release_raises_nothing(release):
    time.sleep(30)
    assert not firing(release), firing(release)


def a_lost_worker_raises_its_alert(release):
    """Its Pod stays, and its program does not come back, as on a machine that lost the image's registry."""
    release.kubectl("set", "image", f"pod/{LOST}", "worker=localhost/switchyard/lost:1")
    found = wait_for(release, "no alert", f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}', bool, 180)
    assert [labels["pod"] for labels, _ in found] == [LOST], found
    release.client("client", 20)
    release.text_of("client")
    assert {labels["pod"] for labels, _ in query(release, "up == 1")} == {
        pod["metadata"]["name"] for pod in release.pods("coordinator", "worker")} - {LOST}


def the_alert_resolves(release):
    release.kubectl("delete", "pod", LOST)
    release.kubectl("wait", f"pod/{LOST}", "--for", "create", "--timeout", "30s")
    release.wait_ready()
    discover(release)
    wait_for(release, "the alert stays", f'ALERTS{{alertname="{ALERT}"}}', lambda found: not found, 120)
    wait_for(release, "not every process is scraped", "up == 1", lambda found: len(found) == WORKERS + 1, 60)
    assert not firing(release), firing(release)


STEPS = [install, start_prometheus, every_process_has_its_series, a_healthy_release_raises_nothing,
         a_lost_worker_raises_its_alert, the_alert_resolves]

if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-scrape", STEPS, "scraped, raised, resolved"))
