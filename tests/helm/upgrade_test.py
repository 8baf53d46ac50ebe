"""What the chart renders for an upgrade: what changes the Job that applies the models, and what goes by the live release."""

import unittest

import chart

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
