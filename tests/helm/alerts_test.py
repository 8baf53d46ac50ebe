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
