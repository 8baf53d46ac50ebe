"""What single values of the chart come to, without a cluster."""

import unittest

import chart


def pool_spec(rendered, name):
    """The spec of the Pods of a pool that is a StatefulSet."""
    return chart.one(rendered, "StatefulSet", f"rel-switchyard-{name}")["spec"]["template"]["spec"]


class ImagesTest(unittest.TestCase):
    OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"

    def image(self, pool, defaults=None, worker=None):
        rendered = chart.objects(values={"image": {"prefix": "h", "tag": "t"}, "images": {"worker": worker or {}},
                                         "poolDefaults": {"image": defaults or {}}, "pools": {"p": {"image": pool}}})
        return pool_spec(rendered, "p")["containers"][0]["image"]

    def test_a_pools_own_image_takes_no_tag_or_digest_from_elsewhere(self):
        for above in ({"worker": {"repository": "h/w", "tag": "old", "digest": self.OLD}},
                      {"defaults": {"repository": "h/w", "tag": "old", "digest": self.OLD}},
                      {"defaults": {"repository": "h/w"}, "worker": {"repository": "h/v", "digest": self.OLD}}):
            for pool, want in (({"tag": "new"}, "h/w:new"), ({"repository": "h/own"}, "h/own:t"),
                               ({"repository": "h/own", "tag": "new"}, "h/own:new"), ({"digest": self.NEW}, f"h/w@{self.NEW}"),
                               ({"tag": "new", "digest": self.NEW}, f"h/w@{self.NEW}")):
                with self.subTest(pool=pool, above=above):
                    self.assertEqual(self.image(pool, **above), want)

    def test_without_one_it_has_that_of_all(self):
        self.assertEqual(self.image({}), "h/worker:t")
        self.assertEqual(self.image({}, worker={"digest": self.OLD}), f"h/worker@{self.OLD}")
        self.assertEqual(self.image({}, defaults={"tag": "d"}, worker={"digest": self.OLD}), "h/worker:d")
        self.assertEqual(self.image({"digest": ""}, defaults={"digest": self.OLD}), "h/worker:t")


class NamesTest(unittest.TestCase):
    def test_a_release_whose_services_could_have_no_name_is_refused(self):
        for name, better in (("a.b", "a-b"), ("1moe", "r1moe"), ("2.0", "r2-0")):
            for program in chart.HELMS:
                code, _, error = chart.render(name=name, program=program)
                self.assertNotEqual(code, 0, name)
                self.assertIn(f"fullnameOverride: release {name}: ", error)
                self.assertIn(f"After:\n  helm install {better}, or fullnameOverride: {better}", error)
            self.assertTrue(chart.objects(name=better))
            self.assertTrue(chart.objects(name=name, values={"fullnameOverride": better}))


def texts(node, wanted, path=()):
    """(path, value) of all keys of these names below an object's root, and of all labels."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key in wanted or (path and path[-1] in ("labels", "matchLabels", "annotations")):
            yield (*path, key), value
        yield from texts(value, wanted, (*path, key))


class QuotingTest(unittest.TestCase):
    """What a program reads is the text of the values, also where YAML has another meaning for it."""

    FIELDS = ("name", "namespace", "image", "reference", "claimName", "storageClassName", "priorityClassName", "schedulerName",
              "runtimeClassName", "secretName", "path", "interval")

    def test_every_name_stays_a_text(self):
        for word in ("on", "true", "null", "no"):
            scheduling = {"priorityClassName": word, "schedulerName": word}
            pool = {"runtimeClassName": word, **scheduling}
            values = {
                "fullnameOverride": word, "nameOverride": word, "monitoring": {"podMonitor": {"enabled": True}},
                "coordinator": {"persistence": {"storageClass": word}, **scheduling},
                "security": {"tenantsSecret": word, "certificates": {"secrets": {word: word}}},
                "pools": {word: {**pool, "image": {"repository": word, "tag": "1"}}, "a": {
                    **pool, "workloadKind": "LeaderWorkerSet", "group": {"size": 2, "exclusiveTopology": word}}},
                "models": {word: {"sizeGiB": 1, "artifact": {"source": "pvc", "claim": word}},
                           "b": {"sizeGiB": 1, "artifact": {"source": "imageVolume", "image": word}}}}
            with self.subTest(word):
                rendered = chart.objects(name=word, namespace=word, values=values)
                values["security"]["certificates"] |= {"source": "certManager", "issuerRef": {"name": word}}
                rendered += chart.objects(name=word, namespace=word, values=values)
                found = [each for o in rendered for each in texts(o, self.FIELDS)]
                self.assertEqual([each for each in found if not isinstance(each[1], (str, dict))], [])
                having = {path[-1] for path, value in found if value == word}
                self.assertLessEqual({*self.FIELDS} - {"image", "path", "interval"}, having)
                self.assertLessEqual({"app.kubernetes.io/name", "app.kubernetes.io/instance", "switchyard.pool",
                                      "leaderworkerset.sigs.k8s.io/exclusive-topology"}, having)

    def test_signs_of_yaml_in_paths_are_kept(self):
        path = "/data/a, b: {c} #d"
        rendered = chart.objects(values={"poolDefaults": {"ringDir": path}, "models": {
            "m": {"sizeGiB": 1, "artifact": {"source": "hostPath", "hostPath": path}}}})
        volumes = {each["name"]: each for each in pool_spec(rendered, "workers")["volumes"]}
        for name in ("rings", "model-m"):
            self.assertEqual(volumes[name]["hostPath"], {"path": path, "type": "Directory"})


class DevicesTest(unittest.TestCase):
    def test_a_preset_adds_a_device_where_the_pool_names_none(self):
        claims = [{"name": "g", "resourceClaimTemplateName": "gpu"}]
        mig = {"nvidia.com/mig-1g.10gb": 1}
        for pool, want in (({}, {"nvidia.com/gpu": 1}), ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, {"nvidia.com/gpu": 2}),
                           ({"resources": {"limits": {"nvidia.com/gpu": 0}}}, {"nvidia.com/gpu": 0}),
                           ({"resources": {"limits": {"nvidia.com/gpu": "0"}}}, {"nvidia.com/gpu": "0"}),
                           ({"resources": {"limits": mig}}, mig), ({"resourceClaims": claims}, {}),
                           ({"resources": {"limits": {"other.com/nic": 1}}}, {"nvidia.com/gpu": 1, "other.com/nic": 1})):
            with self.subTest(pool):
                spec = pool_spec(chart.objects(values={"pools": {"p": {**pool, "device": {"preset": "nvidia"}}}}), "p")
                limits = spec["containers"][0]["resources"]["limits"]
                self.assertEqual({key: value for key, value in limits.items() if key != "memory"}, want)
                self.assertEqual(limits["memory"], "4Gi")
                self.assertEqual([each["key"] for each in spec["tolerations"]], ["nvidia.com/gpu"])


class CopiesTest(unittest.TestCase):
    def test_copies_of_models_ask_for_the_disk_that_they_take(self):
        def artifact(source, **more):
            return {"source": source, **more}
        models = {"a": {"sizeGiB": 10, "artifact": artifact("image", image="i")},
                  "b": {"sizeGiB": 0.5, "artifact": artifact("image", image="j")},
                  "c": {"sizeGiB": 60, "artifact": artifact("pvc", claim="c")}}
        rendered = chart.objects(values={"models": models})
        checked = 0
        for name, spec in chart.pod_specs(rendered):
            copies = [each for each in spec.get("initContainers", []) if each["name"].startswith("copy-")]
            if not copies:
                continue
            limits = {each["name"]: each["emptyDir"]["sizeLimit"] for each in spec["volumes"] if "model-" in each["name"]
                      and "emptyDir" in each}
            self.assertEqual(limits, {"model-a": "11260Mi", "model-b": "563Mi"}, name)
            self.assertEqual([each["resources"]["requests"]["ephemeral-storage"] for each in copies], ["11823Mi"] * 2, name)
            checked += 1
        self.assertEqual(checked, 3)


class PolicyTest(unittest.TestCase):
    def test_only_scrapers_reach_system_ports(self):
        def reached(rendered, name, label):
            rules = chart.one(rendered, "NetworkPolicy", name)["spec"]["ingress"]
            peer = [{"podSelector": {"matchLabels": label}}]
            ports = [port for rule in rules if rule["from"] == peer for port in rule["ports"]]
            return {at for port in ports for at in range(port["port"], port.get("endPort", port["port"]) + 1)}
        peers = {each: [{"podSelector": {"matchLabels": {"is": each}}}] for each in ("clients", "gatewayClients", "scrapers")}
        for system, more in ((7810, {}), (1024, {}), (65532, {}), (7810, {"dataPorts": "20000-20063", "ranksPerPod": 1})):
            pool = {"systemPort": system, "ranksPerPod": 4, **more}
            rendered = chart.objects(values={"networkPolicy": peers, "pools": {"p": pool}})
            ranks = pool["ranksPerPod"]
            systems, grpc = set(range(system, system + ranks)), set(range(7710, 7710 + ranks))
            found = {each: reached(rendered, "rel-switchyard-p", {"is": each}) for each in peers}
            self.assertEqual((found["scrapers"], found["gatewayClients"]), (systems, grpc))
            rows = set(range(20000, 20064)) if more else set(range(1024, 65536)) - systems
            self.assertEqual(found["clients"], rows | grpc)
            found = {each: reached(rendered, "rel-switchyard-coordinator", {"is": each}) for each in peers}
            self.assertEqual(found, {"clients": {7700}, "gatewayClients": set(), "scrapers": {7701}})


class NotesTest(unittest.TestCase):
    def test_they_name_what_an_uninstallation_leaves(self):
        issuer = {"issuerRef": {"name": "ca", "kind": "Issuer"}}
        label = "(label app.kubernetes.io/instance=rel)"
        for source, more, left in (("job", {}, f"the Secrets of certificates and authority {label}, and"),
                                   ("certManager", issuer, f"the Secrets of certificates {label}, and"),
                                   ("existingSecrets", {}, "ran, and"), ("none", {}, "ran, and")):
            for kept, last in ((False, "nothing else."), (True, "persistentvolumeclaim/rel-switchyard-coordinator with")):
                for program in chart.HELMS:
                    said = chart.notes({"security": {"certificates": {"source": source, **more}},
                                        "coordinator": {"persistence": {"enabled": kept}}}, program)
                    self.assertIn(f"{left} {last}", said)
        # What cert-manager makes has the label as well.
        made = chart.objects(values={"security": {"certificates": {"source": "certManager", **issuer}}})
        self.assertEqual({o["spec"]["secretTemplate"]["labels"]["app.kubernetes.io/instance"] for o in made
                          if o["kind"] == "Certificate"}, {"rel"})

    def test_they_name_secrets_that_there_are(self):
        def said(**callers):
            return chart.notes({"security": {"certificates": {"callers": callers}}})
        self.assertIn("secret rel-switchyard-operator-tls ", said())
        self.assertIn("secret/rel-switchyard-source-tls ", said())
        other = said(operator=None, source=None, people=["observer", "operator"], engine=["source"])
        self.assertIn("secret rel-switchyard-people-tls ", other)
        self.assertIn("secret/rel-switchyard-engine-tls ", other)
        none = said(operator=None, source=None)
        self.assertNotIn("-tls", none.replace("--tls-dir", ""))
        self.assertIn("no caller in security.certificates.callers has it", none)


if __name__ == "__main__":
    unittest.main(verbosity=2)
