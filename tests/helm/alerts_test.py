"""The alerts: each fires and stays silent as alerts.yaml says, on metrics that there are."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import chart
import yaml

HERE = pathlib.Path(__file__).resolve().parent
LABELS = 'namespace="default",app_kubernetes_io_instance="rel"'
ALL = {"monitoring": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule", "dashboards")}}


def metrics_of_the_page():
    text = (chart.ROOT / "docs/METRICS.md").read_text()
    rows = re.findall(r"^\| `(moe_\w+)` \| \S+ \| (\w+) \|", text, re.M)
    names = {name for name, _ in rows}
    for name, kind in rows:
        if kind == "histogram":
            names |= {name + suffix for suffix in ("_bucket", "_count", "_sum")}
    return names


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=120)


def discovered(rendered):
    """What Prometheus's discovery says of every port of the Pods: the labels before they are changed."""
    for name, template in chart.templates(rendered):
        pod = {"__meta_kubernetes_namespace": "default", "__meta_kubernetes_pod_name": f"{name}-0"}
        for key, value in template["metadata"].get("labels", {}).items():
            pod["__meta_kubernetes_pod_label_" + re.sub("[^a-zA-Z0-9_]", "_", key)] = value
        for container in template["spec"]["containers"]:
            for port in container.get("ports", []):
                yield pod | {"__meta_kubernetes_pod_container_name": container["name"],
                             "__meta_kubernetes_pod_container_port_name": port["name"]}


def relabeled(rules, labels):
    """The labels that are left, or None for a port that is not scraped."""
    for rule in rules:
        pattern = rule.get("regex", "(.*)")
        value = ";".join(labels.get(source, "") for source in rule.get("source_labels", []))
        if rule.get("action") == "keep":
            if not re.fullmatch(pattern, value):
                return None
        elif rule.get("action") == "labelmap":
            found = {name: re.fullmatch(pattern, name) for name in labels}
            labels = labels | {match.group(1): labels[name] for name, match in found.items() if match}
        else:
            labels = labels | {rule["target_label"]: value}
    return {name: value for name, value in labels.items() if not name.startswith("__")}


class ScrapeTest(unittest.TestCase):
    """A Prometheus without the operator, as the page configures it."""

    def setUp(self):
        page = (chart.ROOT / "docs/KUBERNETES.md").read_text()
        self.text, = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.S)

    def test_promtool_accepts_it(self):
        # Debian's is built without discovery in Kubernetes.
        config = yaml.safe_load(self.text)
        self.assertEqual(config["scrape_configs"][0].pop("kubernetes_sd_configs"), [{"role": "pod"}])
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(yaml.safe_dump(config))
            file.flush()
            done = promtool("check", "config", file.name)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)

    def test_it_scrapes_every_rank_with_the_labels_of_the_alerts(self):
        rules = yaml.safe_load(self.text)["scrape_configs"][0]["relabel_configs"]
        rendered = chart.objects(values={"pools": {"a": {"ranksPerPod": 3}, "b": {
            "workloadKind": "LeaderWorkerSet", "group": {"size": 2}, "ranksPerPod": 2}}})
        scraped = [labels for labels in (relabeled(rules, each) for each in discovered(rendered)) if labels]
        self.assertEqual({(each["pod"], each["container"]) for each in scraped}, {
            ("rel-switchyard-coordinator-0", "coordinator"), *((f"rel-switchyard-{pool}-0", f"worker{rank}") for pool, rank in (
                ("a", ""), ("a", "-1"), ("a", "-2"), ("b", ""), ("b", "-1")))})
        self.assertEqual(len(scraped), 6)
        for each in scraped:
            self.assertEqual((each["namespace"], each["app_kubernetes_io_instance"]), ("default", "rel"))
            self.assertEqual(each.get("switchyard_pool"), {"coordinator": None}.get(each["container"], each["pod"].split("-")[-2]))
            self.assertIn(each["app_kubernetes_io_component"], ("coordinator", "worker"))
        monitor = chart.one(chart.objects(values=ALL), "PodMonitor", "rel-switchyard")["spec"]
        wanted = {re.sub("[./]", "_", label) for label in monitor["podTargetLabels"]}
        self.assertLessEqual(wanted, set().union(*scraped))


class AlertsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rendered = chart.objects(values=ALL)
        cls.rule = chart.one(rendered, "PrometheusRule", "rel-switchyard")
        cls.dashboards = chart.one(rendered, "ConfigMap", "rel-switchyard-dashboards")
        cls.work = tempfile.TemporaryDirectory()
        cls.rules = pathlib.Path(cls.work.name) / "rules.yaml"
        cls.rules.write_text(yaml.safe_dump(cls.rule["spec"]))
        cls.alerts = [rule["alert"] for group in cls.rule["spec"]["groups"] for rule in group["rules"]]
        cls.cases = yaml.safe_load((HERE / "alerts.yaml").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def test_promtool_accepts_them(self):
        done = promtool("check", "rules", self.rules)

        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)

    def test_each_has_a_case(self):
        self.assertEqual(sorted(self.alerts), sorted(self.cases))

    def test_each_fires_and_stays_silent(self):
        tests = []
        for alert, case in self.cases.items():
            query = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
            if "names" in case:
                query = f"count by ({', '.join(case['names'])}) ({query})"
            else:
                query = f"count({query})"
            labels = ",".join(f'{key}="{value}"' for key, value in case.get("names", {}).items())
            for kind in ("fires", "silent"):
                samples = [{"labels": f"{{{labels}}}", "value": 1}] if kind == "fires" else []
                tests.append({
                    "name": f"{alert} {kind}", "interval": "30s",
                    "input_series": [self.series(text) for text in case[kind]],
                    "promql_expr_test": [{"expr": query, "eval_time": "20m", "exp_samples": samples}]})
        file = pathlib.Path(self.work.name) / "test.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(self.rules)], "evaluation_interval": "30s",
                                        "tests": tests}))

        done = promtool("test", "rules", file)

        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)

    @staticmethod
    def series(text):
        name, values = text.replace("{L,", "{" + LABELS + ",").replace("{L}", "{" + LABELS + "}").split("} ")
        return {"series": name + "}", "values": values}

    def test_a_promtool_that_fails_is_noticed(self):
        file = pathlib.Path(self.work.name) / "wrong.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(self.rules)], "tests": [{
            "interval": "30s", "input_series": [self.series('moe_nan_rows_total{L} 0x60')],
            "promql_expr_test": [{"expr": "count(ALERTS)", "eval_time": "20m",
                                  "exp_samples": [{"labels": "{}", "value": 99}]}]}]}))

        self.assertNotEqual(promtool("test", "rules", file).returncode, 0)

    def test_metrics_are_those_of_the_page(self):
        known = metrics_of_the_page()
        used = set(re.findall(r"\bmoe_\w+", yaml.safe_dump(self.rule["spec"])))
        for text in self.dashboards["data"].values():
            used |= set(re.findall(r"\bmoe_\w+", text))

        self.assertGreater(len(used), 20)
        self.assertEqual(sorted(used - known), [])

    def test_expected_workers_are_those_of_the_values(self):
        rendered = chart.objects(values={**ALL, "pools": {"a": {"replicas": 3, "ranksPerPod": 2}, "b": {}}})
        rules = chart.one(rendered, "PrometheusRule", "rel-switchyard")["spec"]["groups"][0]["rules"]
        missing, = [rule for rule in rules if rule["alert"] == "SwitchyardWorkersMissing"]

        self.assertTrue(missing["expr"].endswith('state="live"}) < 8'), missing["expr"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
