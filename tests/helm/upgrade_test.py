"""What the chart renders for an upgrade: what changes the Job that applies the models, and what goes by the live release."""

import pathlib
import subprocess
import tempfile
import unittest

import chart
import yaml

LAPTOP = {"coordinator": {"persistence": {"enabled": False}}}


def apply_job(values):
    """Its name, and what Kubernetes lets nobody change in it."""
    found, = [o for o in chart.objects(values=values) if o["kind"] == "Job" and "-apply-" in o["metadata"]["name"]]
    return found["metadata"]["name"], found["spec"]


class ApplyTest(unittest.TestCase):
    def test_whatever_changes_the_job_gives_it_another_name(self):
        toleration = {"key": "role", "operator": "Exists"}
        for changed in ({"coordinator": {"nodeSelector": {"role": "control"}}}, {"coordinator": {"tolerations": [toleration]}},
                        {"coordinator": {"affinity": {"nodeAffinity": {}}}}, {"coordinator": {"priorityClassName": "high"}},
                        {"coordinator": {"schedulerName": "other"}}, {"coordinator": {"port": 7702}},
                        {"image": {"pullSecrets": [{"name": "key"}]}}, {"image": {"pullPolicy": "Always"}},
                        {"images": {"tools": {"tag": "other"}}}, {"clusterDomain": "moe.example"},
                        {"nameOverride": "moe", "fullnameOverride": "rel-switchyard"},
                        {"apply": {"marginSeconds": 10}}, {"apply": {"resources": {"limits": {"memory": "1Gi"}}}},
                        {"security": {"certificates": {"source": "none"}}}):
            with self.subTest(changed):
                (name, spec), (other_name, other_spec) = apply_job({}), apply_job(changed)
                self.assertNotEqual(spec, other_spec)
                self.assertNotEqual(name, other_name)

    def test_other_models_give_the_job_another_name(self):
        self.assertNotEqual(apply_job({})[0], apply_job({"pools": {"workers": {"replicas": 5}}})[0])

    def test_nothing_else_gives_the_job_another_name(self):
        for changed in ({"coordinator": {"config": {"logging": {"level": "debug"}}}}, {"coordinator": {"podLabels": {"a": "b"}}},
                        {"networkPolicy": {"enabled": False}}, {"poolDefaults": {"nodeSelector": {"gpu": "yes"}}},
                        {"images": {"coordinator": {"tag": "other"}}}):
            self.assertEqual(apply_job({}), apply_job(changed), changed)

    def test_models_are_applied_again_where_the_plans_are_lost(self):
        def name(**coordinator):
            return apply_job({"coordinator": coordinator})[0]
        off = {"persistence": {"enabled": False}}
        for changed in ({"config": {"logging": {"level": "debug"}}}, {"podAnnotations": {"a": "b"}}, {"systemPort": 7703},
                        {"resources": {"limits": {"memory": "3Gi"}}}):
            self.assertNotEqual(name(**off), name(**off, **changed), changed)
            self.assertEqual(name(), name(**changed), changed)
        claims = [name(), name(**off), name(persistence={"existingClaim": "a"}), name(persistence={"existingClaim": "b"})]
        self.assertEqual(len(set(claims)), 4, claims)
        self.assertEqual(apply_job(LAPTOP), apply_job({**LAPTOP, "networkPolicy": {"enabled": False}}))


SYCTL = """
[ "$1" = get ] || { echo "did: syctl $*"; exit 0; }
echo attempt >>calls
[ "$(wc -l <calls)" -gt "$FAILURES" ] || { echo "syctl: unreachable, $(wc -l <calls)" >&2; exit 1; }
"""
# Each look at the clock takes a second.
CLOCK = """
echo tick >>ticks
echo $((1000 + $(wc -l <ticks)))
"""


class ApplyLogTest(unittest.TestCase):
    def run_script(self, failures, seconds):
        """(exit code, lines) of the Job's script, where syctl fails so many times before the coordinator answers."""
        spec = apply_job({"apply": {"marginSeconds": seconds - 4}})[1]["template"]["spec"]
        container, = spec["containers"]
        env = {each["name"]: each["value"] for each in container["env"]}
        with tempfile.TemporaryDirectory() as folder:
            for name, script in (("syctl", SYCTL), ("date", CLOCK), ("sleep", "")):
                path = pathlib.Path(folder, name)
                path.write_text(f"#!/bin/sh{script}")
                path.chmod(0o755)
            done = subprocess.run(["sh", "-c", *container["args"]], capture_output=True, text=True, check=False, timeout=60,
                                  cwd=folder, env={**env, "PATH": f"{folder}:/usr/bin:/bin", "FAILURES": str(failures)})
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_while_it_waits_it_says_why_every_ten_seconds(self):
        code, lines = self.run_script(failures=25, seconds=304)
        *waits, last = lines
        self.assertEqual(code, 0)
        self.assertEqual(waits, [f"waiting for the coordinator: syctl: unreachable, {n}" for n in (1, 11, 21)])
        self.assertEqual(last, "did: syctl -o table --timeout 304 apply -f /etc/switchyard/models.yaml --wait")

    def test_it_gives_up_and_says_why(self):
        code, lines = self.run_script(failures=1000, seconds=30)
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "FAILED: the coordinator did not answer within 30 s: syctl: unreachable, 30")

    def test_a_pod_that_failed_stays_with_its_log(self):
        spec = apply_job({})[1]
        self.assertEqual(spec["template"]["spec"]["restartPolicy"], "Never")
        # Waiting and applying end before the Job does, which would delete the Pod.
        self.assertGreaterEqual(spec["activeDeadlineSeconds"], 2 * 304 + 30)


CUSTOM = {"LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "DisaggregatedSet": "disaggregatedset.x-k8s.io/v1"}
FULL = "rel-switchyard"


def there(kind, name, spec=None, **more):
    """A live object of the release."""
    api = CUSTOM.get(kind, "apps/v1" if kind == "StatefulSet" else "v1")
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **more.pop("metadata", {})}, "spec": spec or {}, **more}


def identities(*pools, more=()):
    rows = [{"id": f"spiffe://cluster.local/ns/default/sa/{FULL}-{pool}", "roles": ["worker"]} for pool in pools]
    return there("ConfigMap", f"{FULL}-identities", data={"identities.yaml": yaml.safe_dump({"identities": [*rows, *more]})})


class LiveTest(unittest.TestCase):
    def accepted(self, objects, program, **options):
        code, rendered, error = chart.objects_over(objects, program=program, **options)
        self.assertEqual(code, 0, error)
        return rendered

    def refused(self, objects, why, after, **options):
        for program in chart.HELMS:
            code, _, error = chart.objects_over(objects, program=program, **options)
            self.assertNotEqual(code, 0, "it is accepted")
            self.assertIn(why, error)
            self.assertIn(f"After:\n  {after}", error)

    def test_a_pool_keeps_its_kind(self):
        name = f"{FULL}-a"
        for was, objects in (("StatefulSet", [there("StatefulSet", name)]),
                             # Of a LeaderWorkerSet, whose controller makes a StatefulSet of the same name.
                             ("LeaderWorkerSet", [there("LeaderWorkerSet", name),
                                                  there("StatefulSet", name, metadata={"ownerReferences": [{"name": name}]})]),
                             ("DisaggregatedSet", [there("DisaggregatedSet", FULL, {"roles": [{"name": "a"}, {"name": "b"}]})])):
            for kind in ("StatefulSet", *CUSTOM):
                values = {"poolDefaults": {"workloadKind": kind}, "pools": {"a": {}, "c": {}}}
                if kind == was:
                    for program in chart.HELMS:
                        self.accepted(objects, program, values=values)
                else:
                    self.refused(objects, f"pools.a.workloadKind: the pool is a {was}.",
                                 f"pools: {{a: {{workloadKind: {was}}}, a-2: {{workloadKind: {kind}}}}}", values=values)

    def test_a_claim_keeps_its_class(self):
        def claim(spec=None, annotations=None):
            return there("PersistentVolumeClaim", f"{FULL}-coordinator", {"storageClassName": "fast"} if spec is None else spec,
                         metadata={"annotations": annotations or {}})
        noted = {"switchyard.storage-class": "fast"}

        def values(name):
            return {"coordinator": {"persistence": {"storageClass": name}}}
        for upgrade in (True, False):
            self.refused([claim()], 'coordinator.persistence.storageClass: the claim is of the class "fast"',
                         'persistence: {storageClass: "fast"}', values=values("slow"), upgrade=upgrade)
        self.refused([claim(annotations=noted)], "coordinator.persistence.storageClass", 'persistence: {storageClass: "fast"}',
                     values=values(""))
        self.refused([claim(spec={"volumeName": "v"})], 'is of the class ""', 'persistence: {storageClass: ""}',
                     values=values("slow"))
        for objects, given in (([claim(annotations=noted)], "fast"), ([claim()], ""), ([], "slow")):
            rendered = self.accepted(objects, "helm3", values=values(given))
        made = chart.one(rendered, "PersistentVolumeClaim", f"{FULL}-coordinator")
        self.assertEqual(made["metadata"]["annotations"]["switchyard.storage-class"], "slow")
        # It is another one that is used.
        other = {"existingClaim": "mine", "storageClass": "slow"}
        self.accepted([claim()], "helm3", values={"coordinator": {"persistence": other}})

    def test_a_claim_does_not_shrink(self):
        def claim(size):
            return there("PersistentVolumeClaim", f"{FULL}-coordinator", {"resources": {"requests": {"storage": size}}})

        def values(size):
            return {"coordinator": {"persistence": {"size": size}}}
        for size, smaller in (("2Gi", "1Gi"), ("1Gi", "1G"), ("1Gi", "1023Mi"), ("1.5Gi", 1073741824), ("1e10", "9G"),
                              ("2Ti", "1T")):
            self.refused([claim(size)], f"coordinator.persistence.size: the claim has {size}", f"persistence: {{size: {size}}}",
                         values=values(smaller))
            self.accepted([claim(smaller if isinstance(smaller, str) else str(smaller))], "helm3",
                          values=values("10G" if size == "1e10" else size))
            self.accepted([claim("1Gi")], "helm3", values=values(1073741824))

    def test_selectors_stay(self):
        selector = {"matchLabels": {"app.kubernetes.io/name": "switchyard"}}
        live = there("StatefulSet", f"{FULL}-coordinator", {"selector": selector})
        fixed = {"fullnameOverride": FULL}
        self.refused([live], "nameOverride: the release's objects select Pods by app.kubernetes.io/name=switchyard",
                     'nameOverride: ""', values={**fixed, "nameOverride": "moe"})
        for program in chart.HELMS:
            self.accepted([live], program, values=fixed)
            self.accepted([live], program, values={"nameOverride": "moe"})

    def test_an_upgrade_keeps_the_number_of_an_autoscaler(self):
        autoscaling = {"enabled": True, "minReplicas": 3, "maxReplicas": 9}
        for kind in ("StatefulSet", "LeaderWorkerSet"):
            values = {"poolDefaults": {"workloadKind": kind}, "pools": {"a": {"autoscaling": autoscaling}, "b": {"replicas": 4}}}
            for live, want in ((7, 7), (1, 1), (0, 3), (None, None)):
                objects = [] if live is None else [there(kind, f"{FULL}-{name}", {"replicas": live}) for name in "ab"]
                for program in chart.HELMS:
                    rendered = self.accepted(objects, program, values=values)
                    found = {name: chart.one(rendered, kind, f"{FULL}-{name}")["spec"].get("replicas") for name in "ab"}
                    self.assertEqual(found, {"a": want, "b": 4}, (kind, live))

    def test_workers_of_a_pool_that_is_taken_out_keep_their_rights_once(self):
        prefix = f"spiffe://cluster.local/ns/default/sa/{FULL}-"

        def workers(objects, **options):
            rendered = self.accepted(objects, "helm3", values={"pools": {"a": {}}}, **options)
            table = chart.one(rendered, "ConfigMap", f"{FULL}-identities")["data"]["identities.yaml"]
            return [row["id"].removeprefix(prefix) for row in yaml.safe_load(table)["identities"] if row["roles"] == ["worker"]]
        # A caller with the role of a worker and an id from elsewhere have no Pods of the release.
        rows = identities("a", "b", "c", "d", more=[{"id": "spiffe://cluster.local/x", "roles": ["worker"]},
                                                    {"id": f"{prefix}look", "roles": ["observer"]}])
        pods = [there("StatefulSet", f"{FULL}-b"), there("LeaderWorkerSet", f"{FULL}-c"), there("StatefulSet", f"{FULL}-look"),
                there("DisaggregatedSet", FULL, {"roles": [{"name": "d"}]})]
        self.assertEqual(workers([rows, *pods]), ["a", "b", "c", "d"])
        self.assertEqual(workers([rows, *pods[:1]]), ["a", "b"])
        self.assertEqual(workers([rows]), ["a"])
        self.assertEqual(workers([rows, *pods], upgrade=False), ["a"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
