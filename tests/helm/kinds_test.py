"""Pools that other projects' objects make: LeaderWorkerSet and DisaggregatedSet, without a cluster."""

import json
import subprocess
import unittest

import chart
import yaml

GROUPS = {"workloadKind": "LeaderWorkerSet", "replicas": 3, "group": {"size": 2}, "ranksPerPod": 2}
CUSTOM = {"LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "DisaggregatedSet": "disaggregatedset.x-k8s.io/v1"}


def accept(objects):
    """(exit code, accepted, what is wrong) as the API server, the definitions of the other projects and their
    webhooks see them. Other definitions than those are not at hand."""
    known = [o for o in objects if not o["apiVersion"].startswith(("monitoring.", "keda.", "cert-manager."))]
    done = subprocess.run([str(chart.TOOLS / "accept"), str(chart.TOOLS.parent / "crds")], check=False, timeout=60,
                          input=yaml.safe_dump_all(known), capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def template(rendered, name):
    found, = [template for owner, template in chart.templates(rendered) if owner == name]
    return found


class KindsTest(unittest.TestCase):
    def test_every_object_fits_its_definition(self):
        found = set()
        for example in chart.EXAMPLES:
            for kube in chart.KUBE_VERSIONS:
                rendered = chart.objects(example=example, kube=kube)
                code, accepted, error = accept(rendered)
                self.assertEqual(code, 0, f"{example}: {error}")
                self.assertEqual(len(accepted), len([o for o in rendered if not o["apiVersion"].startswith("monitoring.")]))
                found |= {line.split()[0] for line in accepted}
        self.assertLessEqual({"StatefulSet", "NetworkPolicy", *CUSTOM}, found)

    def test_what_does_not_fit_is_seen(self):
        rendered = chart.objects(example="disaggregated-set") + chart.objects(example="leader-worker-set")
        groups, = [o for o in rendered if o["kind"] == "LeaderWorkerSet"]
        both, = [o for o in rendered if o["kind"] == "DisaggregatedSet"]
        service = [o for o in rendered if o["kind"] == "Service"][0]
        for changed, path, value, text in (
                (groups, "spec.leaderWorkerTemplate.sise", 2, "sise"),
                (groups, "spec.leaderWorkerTemplate.restartPolicy", "Always", "restartPolicy"),
                (groups, "spec.leaderWorkerTemplate.size", 0, "size must be equal or greater than 1"),
                (groups, "spec.leaderWorkerTemplate.workerTemplate.spec.container", [], "container"),
                (groups, "metadata.name", "1st", "a DNS-1035 label"),
                (groups, "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable", 0, "must not be 0 when"),
                (both, "spec.roles", both["spec"]["roles"][:1], "should have at least 2 items"),
                (both, "spec.roles", [both["spec"]["roles"][0]] * 2, "Duplicate value"),
                (both, "metadata.name", "a" * 60, "must be no more than 63"),
                (service, "spec.clusterIp", "None", "clusterIp")):
            with self.subTest(path=path, value=value):
                other = json.loads(json.dumps(changed))
                *folders, last = path.split(".")
                inner = other
                for folder in folders:
                    inner = inner[folder]
                inner[last] = value
                code, _, error = accept([other])
                self.assertEqual(code, 1)
                self.assertIn(text, error)
        uneven = json.loads(json.dumps(both))
        uneven["spec"]["roles"][0]["spec"]["replicas"] = 0
        self.assertIn("replicas must be zero for all roles or non-zero for all roles", accept([uneven])[2])

    def test_their_pods_are_those_of_a_stateful_set(self):
        kinds = {kind: chart.objects(values={"pools": {name: {"workloadKind": kind, "phase": "mixed"} for name in "ab"}})
                 for kind in ("StatefulSet", *CUSTOM)}
        want = template(kinds["StatefulSet"], "rel-switchyard-a")
        for kind, rendered in kinds.items():
            self.assertEqual(template(rendered, "rel-switchyard-a"), want, kind)
            # Everything else is the same: Services, identities, policies, budgets.
            names = {(o["kind"], o["metadata"]["name"]) for o in rendered if o["kind"] not in ("StatefulSet", *CUSTOM)}
            self.assertLessEqual({("Service", "rel-switchyard-a"), ("NetworkPolicy", "rel-switchyard-b"),
                                  ("PodDisruptionBudget", "rel-switchyard-a"), ("ServiceAccount", "rel-switchyard-b")}, names)
            services = {o["metadata"]["name"]: o["spec"] for o in rendered if o["kind"] == "Service"}
            self.assertLessEqual(set(services["rel-switchyard-a"]["selector"].items()), set(want["metadata"]["labels"].items()))
            self.assertIs(services["rel-switchyard-a"]["publishNotReadyAddresses"], True)

    def test_groups_are_a_leader_worker_set(self):
        group = {**GROUPS, "group": {"size": 2, "exclusiveTopology": "rack", "maxSurge": 1}}
        rendered = chart.objects(values={"pools": {"a": GROUPS, "b": group}})
        plain, exclusive = (chart.one(rendered, "LeaderWorkerSet", f"rel-switchyard-{name}") for name in "ab")
        self.assertEqual(plain["apiVersion"], CUSTOM["LeaderWorkerSet"])
        spec = plain["spec"]
        self.assertEqual((spec["replicas"], spec["leaderWorkerTemplate"]["size"]), (3, 2))
        # Workers need no leader, and one that fails takes no other one with it.
        self.assertEqual(spec["leaderWorkerTemplate"]["restartPolicy"], "None")
        self.assertNotIn("leaderTemplate", spec["leaderWorkerTemplate"])
        rollout = [each["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] for each in (plain, exclusive)]
        self.assertEqual(rollout, [{"maxUnavailable": 1, "maxSurge": 0}, {"maxUnavailable": 0, "maxSurge": 1}])
        self.assertNotIn("annotations", plain["metadata"])
        self.assertEqual(exclusive["metadata"]["annotations"], {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"})

    def test_no_two_ranks_of_a_group_have_one_id(self):
        rendered = chart.objects(values={"pools": {"a": GROUPS}})
        ids = [word.removeprefix("--id=") for container in template(rendered, "rel-switchyard-a")["spec"]["containers"]
               for word in container["args"] if word.startswith("--id=")]
        # As the controller names them: the first Pod of group 1 is SET-1, and its other one SET-1-1.
        pods = [f"rel-switchyard-a-{group}{member}" for group in range(3) for member in ("", "-1")]
        workers = [each.replace("$(POD_NAME)", pod) for pod in pods for each in ids]
        self.assertEqual(len(set(workers)), 12)
        test = chart.one(rendered, "Pod", "rel-switchyard-test")["spec"]["containers"][0]
        asked = {each["name"]: each.get("value") for each in test["env"]}
        self.assertEqual(sorted(each.split("=")[0] for each in asked["WORKERS"].split()), sorted(workers))
        for each in asked["WORKERS"].split():
            worker, target = each.split("=")
            self.assertTrue(target.startswith(worker.split("-rank")[0] + ".rel-switchyard-a."), each)
        self.assertEqual(chart.one(rendered, "ConfigMap", "rel-switchyard-models")["data"]["models.yaml"].count(
            "min_workers: 12"), 1)

    def test_prefill_and_decode_are_one_disaggregated_set(self):
        rendered = chart.objects(example="disaggregated-set")
        self.assertFalse([o for o in rendered if o["kind"] in ("StatefulSet", "LeaderWorkerSet")
                          and not o["metadata"]["name"].endswith("-coordinator")])
        both = chart.one(rendered, "DisaggregatedSet", "rel-switchyard")
        self.assertEqual(both["apiVersion"], CUSTOM["DisaggregatedSet"])
        roles = {role["name"]: role["spec"] for role in both["spec"]["roles"]}
        self.assertEqual({name: spec["replicas"] for name, spec in roles.items()}, {"prefill": 1, "decode": 2})
        for name, spec in roles.items():
            labels = spec["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"]
            self.assertEqual(labels["switchyard.pool"], name)
            self.assertNotIn("partition", spec["rolloutStrategy"]["rollingUpdateConfiguration"])
        test = chart.one(rendered, "Pod", "rel-switchyard-test")["spec"]["containers"][0]
        asked = {each["name"]: each.get("value") for each in test["env"]}
        self.assertEqual((asked["WORKERS"], asked["POOLS"]), ("", "decode=2=100 prefill=1=100"))

    def test_kinds_of_one_release_may_differ(self):
        pools = {"a": {}, "b": GROUPS, "c": {"workloadKind": "DisaggregatedSet"}, "d": {"workloadKind": "DisaggregatedSet"}}
        rendered = chart.objects(values={"pools": pools})
        self.assertEqual({o["kind"] for o in rendered} & {"StatefulSet", *CUSTOM}, {"StatefulSet", *CUSTOM})
        self.assertEqual(accept(rendered)[0], 0)
        alarm = chart.objects(values={"pools": pools, "monitoring": {"prometheusRule": {"enabled": True}}})
        self.assertIn("< 18", json.dumps(chart.one(alarm, "PrometheusRule", "rel-switchyard")))

    def test_groups_scale_by_hpa_or_keda(self):
        keda = {"enabled": True, "kind": "keda", "triggers": [{"type": "prometheus", "metadata": {}}]}
        rendered = chart.objects(values={"poolDefaults": {"workloadKind": "LeaderWorkerSet"}, "pools": {
            "a": {"autoscaling": {"enabled": True}}, "b": {"autoscaling": keda}}})
        for kind, name in (("HorizontalPodAutoscaler", "rel-switchyard-a"), ("ScaledObject", "rel-switchyard-b")):
            self.assertEqual(chart.one(rendered, kind, name)["spec"]["scaleTargetRef"], {
                "apiVersion": CUSTOM["LeaderWorkerSet"], "kind": "LeaderWorkerSet", "name": name})
            self.assertNotIn("replicas", chart.one(rendered, "LeaderWorkerSet", name)["spec"])
        definition = yaml.safe_load((chart.TOOLS.parent / "crds/leaderworkerset.x-k8s.io_leaderworkersets.yaml").read_text())
        self.assertIn("scale", definition["spec"]["versions"][0]["subresources"])

    def test_budgets_count_the_pods_of_groups(self):
        one_group = {"workloadKind": "LeaderWorkerSet", "replicas": 1}
        rendered = chart.objects(values={"pools": {"a": {**one_group, "group": {"size": 4}}, "b": one_group}})
        self.assertEqual([o["metadata"]["name"] for o in rendered if o["kind"] == "PodDisruptionBudget"],
                         ["rel-switchyard-a"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
