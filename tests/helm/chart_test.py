"""The chart without a cluster: what it renders, what it refuses, and what holds of all its Pods.

    chart_test.py                    run the tests
    UPDATE_GOLDENS=1 chart_test.py   write golden/ anew
    BUILD=FOLDER chart_test.py       with the programs of that build
"""

import json
import os
import pathlib
import re
import subprocess
import unittest

import chart
import yaml

HERE = pathlib.Path(__file__).resolve().parent
EVERYTHING = {
    "pools": {
        "a": {"ranksPerPod": 2, "autoscaling": {"enabled": True}, "ringDir": "/run/rings",
              "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]},
        "b": {"device": {"preset": "nvidia"}, "podDisruptionBudget": {"enabled": False}},
        "c": {"workloadKind": "LeaderWorkerSet", "group": {"size": 2, "exclusiveTopology": "rack"}, "ranksPerPod": 2,
              "device": {"preset": "nvidia"}},
        "d": {"workloadKind": "DisaggregatedSet"}, "e": {"workloadKind": "DisaggregatedSet"}},
    "monitoring": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule", "dashboards")}}


def example_objects():
    for example in chart.EXAMPLES:
        yield example, chart.objects(example=example)
    yield "everything", chart.objects(values=EVERYTHING)


def served_containers(rendered):
    """Those of coordinator and workers."""
    for name, spec in chart.pod_specs(rendered):
        if name.endswith("-coordinator") or spec["containers"][0]["name"] == "worker":
            yield from spec["containers"]


def secrets_of(spec):
    """Names of the Secrets that Pods mount."""
    return [source["secret"]["name"] for volume in spec.get("volumes", [])
            for source in volume.get("projected", {}).get("sources", []) if "secret" in source]


class RenderTest(unittest.TestCase):
    def test_lint_is_clean(self):
        for program in chart.HELMS:
            for example in chart.EXAMPLES:
                code, out, error = chart.helm(
                    ["lint", "--strict", str(chart.CHART), "--kube-version", "1.35.0", "-f",
                     str(chart.CHART / "examples" / f"{example}.yaml")], program)
                self.assertEqual(code, 0, out + error)

    def test_examples_are_as_recorded(self):
        for example in chart.EXAMPLES:
            with self.subTest(example):
                golden = HERE / "golden" / f"{example}.yaml"
                if os.environ.get("UPDATE_GOLDENS"):
                    golden.write_text(chart.render(example=example)[1])
                # The same for every version of Kubernetes.
                for kube in chart.KUBE_VERSIONS:
                    code, out, error = chart.render(example=example, kube=kube)
                    self.assertEqual(code, 0, error)
                    self.assertEqual(out, golden.read_text(), f"{kube}: UPDATE_GOLDENS=1 writes what is right now")

    def test_renders_do_not_differ(self):
        for example in chart.EXAMPLES:
            for program in chart.HELMS:
                self.assertEqual(*(chart.render(example=example, program=program) for _ in range(2)))
        first, second = (chart.objects(example="several-models", program=p) for p in chart.HELMS)
        self.assertEqual(first, second)

    def test_every_example_renders_for_every_version(self):
        for kube in chart.KUBE_VERSIONS:
            for example in chart.EXAMPLES:
                self.assertTrue(chart.objects(example=example, kube=kube))
        code, _, error = chart.render(kube="1.28.0")
        self.assertNotEqual(code, 0)
        self.assertIn("kubeVersion", error)

    def test_as_a_subchart_it_takes_global(self):
        self.assertTrue(chart.objects(values={"global": {"anything": 1}}))

    def test_the_version_is_that_of_the_programs(self):
        project = re.search(r"project\([^)]*VERSION (\d[\d.]*)", (chart.ROOT / "CMakeLists.txt").read_text())
        self.assertEqual(yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"],
                         project.group(1))


class RefusedTest(unittest.TestCase):
    def test_each_is_refused_with_its_text(self):
        rows = [line.split("\t") for line in (HERE / "refused.tsv").read_text().splitlines()
                if not line.startswith("#")]
        count = {kind: sum(row[0] == kind for row in rows) for kind in ("schema", "template")}
        self.assertGreaterEqual(min(count.values()), 15)
        for who, values, text in rows:
            for program in chart.HELMS:
                with self.subTest(values=values, helm=program):
                    code, _, error = chart.render(values=values, program=program)
                    self.assertNotEqual(code, 0, "it is accepted")
                    if who == "template":
                        self.assertIn(text, error)
                        self.assertRegex(error, r"Before:\n  \S.*\nAfter:\n  \S")
                    else:
                        self.assertIn("values don't meet the specifications", error)
                        finding, = re.findall("^- (at .*)$", error, re.M)
                        self.assertTrue(finding == text or finding.startswith(f"at '{text}': "), finding)

    def test_what_after_says_is_accepted(self):
        for values in ("coordinator: {replicas: 1}", "pools: {workers: {replicas: 4}}",
                       "pools: {workers: {autoscaling: {enabled: true}}}",
                       "pools: {p: {phase: mixed, netDevices: net1}}",
                       "pools: {workers: {ranksPerPod: 8}}", "poolDefaults: {workloadKind: LeaderWorkerSet}",
                       "poolDefaults: {workloadKind: LeaderWorkerSet, group: {size: 2}}",
                       "pools: {p: {workloadKind: LeaderWorkerSet, autoscaling: {enabled: true}}}",
                       "pools: {prefill: {phase: prefill, workloadKind: DisaggregatedSet}, "
                       "decode: {phase: decode, workloadKind: DisaggregatedSet}}",
                       "pools: {p: {device: {preset: ascend910, argument: KIND}, image: {repository: h/n}}}",
                       "models: {chat: {sizeGiB: 60, artifact: {source: pvc, claim: weights, path: chat}}}",
                       "security: {certificates: {source: job}}", "pools: {test-pool: {}}",
                       "security: {certificates: {source: job}, tenantsSecret: names}",
                       "security: {identities: [{id: 'spiffe://cluster.local/b', roles: [source]}]}",
                       "security: {certificates: {source: certManager, issuerRef: {name: a, kind: Issuer}}}",
                       "security: {certificates: {callers: {source: null, source-caller: [source]}}}",
                       "fullnameOverride: a-b", "pools: {p: {dataPorts: 20000-20063}}",
                       "security: {certificates: {secrets: {a: mine-a, b: mine}}}\npools: {a: {}, b: {}}",
                       "poolDefaults: {shm: {sizeLimit: 2Gi}}", "networkPolicy: {enabled: true}"):
            self.assertEqual(chart.render(values=values)[0], 0, values)

    def test_the_schema_is_that_of_the_pages(self):
        done = subprocess.run([str(chart.ROOT / "scripts/chart_schema"), "--check"], check=False,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_values_have_a_schema_and_the_schema_has_values(self):
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        self.assertIn("draft-07", schema["$schema"])
        values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
        offered = {key for key, value in schema["properties"].items() if value} - {"global"}
        self.assertEqual(offered, set(values))


class PodsTest(unittest.TestCase):
    def test_all_are_restricted(self):
        for example, rendered in example_objects():
            for name, spec in chart.pod_specs(rendered):
                with self.subTest(example=example, pod=name):
                    self.assertIs(spec["automountServiceAccountToken"], name.endswith("-certificates"))
                    self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                    self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                    self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & set(spec))
                    for each in chart.containers(spec):
                        context = each["securityContext"]
                        self.assertIs(context["allowPrivilegeEscalation"], False)
                        self.assertIs(context["readOnlyRootFilesystem"], True)
                        self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                        self.assertTrue(each["resources"]["limits"]["memory"])

    def test_more_rights_are_root_with_one_capability(self):
        rendered = chart.objects(values={"poolDefaults": {"privileges": "netAdmin"}})
        spec = chart.one(rendered, "StatefulSet", "rel-switchyard-workers")["spec"]["template"]["spec"]
        worker, = spec["containers"]
        self.assertEqual(worker["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["NET_ADMIN"]})
        self.assertEqual(spec["securityContext"]["runAsUser"], 0)
        coordinator = chart.one(rendered, "StatefulSet", "rel-switchyard-coordinator")
        self.assertTrue(coordinator["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"])

    def test_none_that_stays_has_a_token_or_rights_at_the_api(self):
        roles = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
        for example, rendered in example_objects():
            for each in rendered:
                if each["kind"] == "ServiceAccount":
                    self.assertIs(each["automountServiceAccountToken"], False)
                if each["kind"] in roles or each["metadata"]["name"].endswith("-certificates"):
                    notes = each["metadata"]["annotations"]
                    self.assertEqual(notes["helm.sh/hook"], "pre-install,pre-upgrade", example)
                    self.assertEqual(notes["helm.sh/hook-delete-policy"],
                                     "before-hook-creation,hook-succeeded", example)
        for source in ("none", "existingSecrets"):
            found = {o["kind"] for o in chart.objects(values={"security": {"certificates": {"source": source}}})}
            self.assertFalse(roles & found, source)

    def test_the_job_reaches_only_its_own_secrets(self):
        rendered = chart.objects(values={"pools": {"a": {}}})
        rules = chart.one(rendered, "Role", "rel-switchyard-certificates")["rules"]
        self.assertEqual([r["verbs"] for r in rules], [["create"], ["get", "patch"]])
        self.assertEqual({r["resources"][0] for r in rules}, {"secrets"})
        wanted = ["authority"] + [f"{h}-tls" for h in ("a", "apply", "coordinator", "operator", "source", "test")]
        self.assertEqual(rules[1]["resourceNames"], [f"rel-switchyard-{name}" for name in wanted])

    def test_probes_name_the_health_services_of_the_programs(self):
        page = (chart.ROOT / "docs/OPERATIONS.md").read_text()
        plain = {"security": {"certificates": {"source": "none"}}}
        found = 0
        for container in served_containers(chart.objects(values=EVERYTHING | plain)):
            service = container["readinessProbe"]["grpc"]["service"]
            self.assertIn(f"`{service}`", page)
            ports = [port["containerPort"] for port in container["ports"]]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertEqual(container[probe]["grpc"]["port"], ports[0])
            found += 1
        self.assertEqual(found, 8)

    def test_probes_need_no_certificate(self):
        for _, rendered in example_objects():
            for container in served_containers(rendered):
                ports = [port["containerPort"] for port in container["ports"]]
                for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"),
                                    ("readinessProbe", "/readyz")):
                    self.assertEqual(container[probe]["httpGet"], {"path": path, "port": ports[1]})

    def test_ranks_of_a_pod_have_names_and_ports_of_their_own(self):
        rendered = chart.objects(values=EVERYTHING)
        spec = chart.one(rendered, "StatefulSet", "rel-switchyard-a")["spec"]["template"]["spec"]
        self.assertEqual([c["name"] for c in spec["containers"]], ["worker", "worker-1"])
        self.assertIn("--id=$(POD_NAME)-1", spec["containers"][1]["args"])
        self.assertIn("--listen=$(POD_IP):7711", spec["containers"][1]["args"])
        ports = [p["containerPort"] for c in spec["containers"] for p in c["ports"]]
        self.assertEqual(len(ports), len(set(ports)))
        monitor = chart.one(rendered, "PodMonitor", "rel-switchyard")
        self.assertEqual([e["port"] for e in monitor["spec"]["podMetricsEndpoints"]], ["system", "system-1"])

    def test_workers_begin_with_a_checkup_of_what_they_will_use(self):
        rendered = chart.objects(values={"poolDefaults": {"ringDir": "/run/rings"},
                                         "pools": {"a": {}, "b": {"doctor": {"enabled": False}}}})
        spec = chart.one(rendered, "StatefulSet", "rel-switchyard-a")["spec"]["template"]["spec"]
        copy, doctor = spec["initContainers"]
        self.assertEqual([copy["name"], doctor["name"]], ["copy-demo", "doctor"])
        self.assertIn("switchyard/tools:", doctor["image"])
        self.assertEqual(doctor["command"], ["/usr/bin/syctl", "doctor"])
        self.assertEqual(doctor["args"][:2], ["--scope=node", "--output=table"])
        # The folders that it looks at are the worker's.
        mounts = {each["mountPath"]: each["name"] for each in spec["containers"][0]["volumeMounts"]}
        looked = {each["mountPath"]: each["name"] for each in doctor["volumeMounts"]}
        self.assertEqual(looked, {path: name for path, name in mounts.items() if name != "config"})
        named = [word.split("=")[1] for word in doctor["args"][2:]]
        self.assertEqual(set(named) | {"/dev/shm"}, set(looked))
        without = chart.one(rendered, "StatefulSet", "rel-switchyard-b")["spec"]["template"]["spec"]
        self.assertEqual([each["name"] for each in without["initContainers"]], [copy["name"]])

    def test_the_grace_is_longer_than_the_leave(self):
        rendered = chart.objects(values={"poolDefaults": {"leaveTimeoutSeconds": 90, "leaveAloneTimeoutSeconds": 30}})
        spec = chart.one(rendered, "StatefulSet", "rel-switchyard-workers")["spec"]["template"]["spec"]
        self.assertEqual(spec["terminationGracePeriodSeconds"], 135)
        file = chart.one(rendered, "ConfigMap", "rel-switchyard-workers")["data"]["worker.yaml"]
        pool = yaml.safe_load(file)["pool"]
        self.assertEqual((pool["leave_timeout"], pool["leave_alone_timeout"]), ("90s", "30s"))

    def test_devices_bring_resources_and_tolerations(self):
        own = {"image": {"repository": "h/n"}}
        pools = {"cpu": {}, "gpu": {"device": {"preset": "nvidia"}},
                 "a": {"device": {"preset": "ascend910", "argument": "ascend"}, **own},
                 "b": {"device": {"preset": "ascend-1980", "argument": "ascend"}, **own}}
        rendered = chart.objects(values={"pools": pools})
        wanted = {"cpu": None, "gpu": "nvidia.com/gpu", "a": "huawei.com/Ascend910",
                  "b": "huawei.com/ascend-1980"}
        for name, resource in wanted.items():
            spec = chart.one(rendered, "StatefulSet", f"rel-switchyard-{name}")["spec"]["template"]["spec"]
            limits = spec["containers"][0]["resources"]["limits"]
            self.assertEqual(set(limits) - {"memory"}, {resource} - {None})
            tolerated = [t["key"] for t in spec.get("tolerations", [])]
            self.assertEqual(tolerated, [resource] if resource else [])

    def test_false_and_empty_values_of_a_pool_count(self):
        rendered = chart.objects(values={"poolDefaults": {"shm": {"sizeLimit": "1Gi"}, "priorityClassName": "x"},
                                         "pools": {"p": {"podDisruptionBudget": {"enabled": False},
                                                         "leaveTimeoutSeconds": 0, "leaveAloneTimeoutSeconds": 0,
                                                         "priorityClassName": ""}}})
        self.assertFalse([o for o in rendered if o["kind"] == "PodDisruptionBudget"])
        spec = chart.one(rendered, "StatefulSet", "rel-switchyard-p")["spec"]["template"]["spec"]
        self.assertEqual(spec["terminationGracePeriodSeconds"], 15)
        self.assertNotIn("priorityClassName", spec)


class CertificatesTest(unittest.TestCase):
    def test_each_pod_has_its_own_and_no_key_is_rendered(self):
        for example, rendered in example_objects():
            for name, spec in chart.pod_specs(rendered):
                if name.endswith("-certificates"):
                    continue
                holder = re.sub("-[0-9a-f]{8}$", "", name).removeprefix("rel-switchyard-")
                self.assertEqual(secrets_of(spec), [f"rel-switchyard-{holder}-tls"], example)
                mounts = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "tls"]
                self.assertEqual(mounts, [{"name": "tls", "mountPath": "/etc/switchyard-tls", "readOnly": True}])
            self.assertFalse([o for o in rendered if o["kind"] == "Secret"], example)

    def test_identities_are_those_of_the_certificates(self):
        values = {"pools": {"a": {}}, "security": {
            "certificates": {"source": "certManager", "issuerRef": {"name": "ca", "kind": "ClusterIssuer"},
                             "callers": {"operator": None, "look": ["observer"]}},
            "trustDomain": "moe.example", "identities": [
                {"id": "spiffe://moe.example/x", "roles": ["source"]},
                {"id": "spiffe://moe.example/y", "roles": ["worker"], "pools": ["spare"]}]}}
        rendered = chart.objects(values=values, namespace="n")
        table = yaml.safe_load(chart.one(rendered, "ConfigMap", "rel-switchyard-identities")["data"]["identities.yaml"])
        roles = {row["id"]: row["roles"] for row in table["identities"]}
        ids = "spiffe://moe.example/ns/n/sa/rel-switchyard-"
        self.assertEqual(roles, {
            ids + "coordinator": ["coordinator"], ids + "a": ["worker"], ids + "apply": ["operator"],
            ids + "test": ["source", "observer"], ids + "source": ["source"], ids + "look": ["observer"],
            "spiffe://moe.example/x": ["source"], "spiffe://moe.example/y": ["worker"]})
        # A worker joins its own pool only.
        self.assertEqual({row["id"]: row["pools"] for row in table["identities"] if "pools" in row},
                         {ids + "a": ["a"], "spiffe://moe.example/y": ["spare"]})
        made = [o["spec"] for o in rendered if o["kind"] == "Certificate"]
        self.assertEqual({spec["uris"][0] for spec in made},
                         set(roles) - {"spiffe://moe.example/x", "spiffe://moe.example/y"})
        self.assertEqual({spec["duration"] for spec in made}, {"8760h"})
        mounted = {secret for _, spec in chart.pod_specs(rendered) for secret in secrets_of(spec)}
        self.assertLessEqual(mounted, {spec["secretName"] for spec in made})

    def test_secrets_may_have_names_of_their_own(self):
        values = {"security": {"certificates": {"source": "existingSecrets", "secrets": {"workers": "mine"}}}}
        rendered = chart.objects(values=values)
        found = {name: secrets_of(spec) for name, spec in chart.pod_specs(rendered)}
        self.assertEqual(found["rel-switchyard-workers"], ["mine"])
        self.assertEqual(found["rel-switchyard-coordinator"], ["rel-switchyard-coordinator-tls"])

    def test_tenants_come_from_a_secret_and_reach_who_goes_by_them(self):
        rendered = chart.objects(values={"security": {"tenantsSecret": "names"}})
        mounted = {name: secrets_of(spec) for name, spec in chart.pod_specs(rendered) if "names" in secrets_of(spec)}
        self.assertEqual(set(mounted), {"rel-switchyard-coordinator", "rel-switchyard-workers"})
        for name, program in (("coordinator", "coordinator"), ("workers", "worker")):
            file = yaml.safe_load(chart.one(rendered, "ConfigMap", f"rel-switchyard-{name}")["data"][f"{program}.yaml"])
            self.assertEqual(file["security"], {"tls_dir": "/etc/switchyard-tls",
                                                "tenants": "/etc/switchyard-tls/tenants.yaml"})
        without = chart.objects(values={})
        self.assertFalse([o for o in without if "tenants" in json.dumps(o)])

    def test_without_certificates_nothing_is_mounted(self):
        rendered = chart.objects(values={"security": {"certificates": {"source": "none"}}})
        for _, spec in chart.pod_specs(rendered):
            self.assertNotIn("tls", json.dumps(spec["volumes"]))
        for each in rendered:
            if each["kind"] == "ConfigMap":
                self.assertNotIn("tls_dir", json.dumps(each["data"]))

    def test_a_renewal_rolls_no_pod(self):
        templates = [json.dumps([o["spec"]["template"] for o in chart.objects(values={"security": {
            "certificates": {"days": days}, "identities": more}}) if o["kind"] == "StatefulSet"])
                     for days, more in ((365, []), (30, [{"id": "spiffe://cluster.local/b", "roles": ["source"]}]))]
        self.assertEqual(templates[0], templates[1])


class ObjectsTest(unittest.TestCase):
    def test_names_fit(self):
        for release in ("r", "a" * 53, "switchyard", "a-" * 26 + "b"):
            rendered = chart.objects(name=release, values={"pools": {"abcdefghijklmno": {}, **{
                f"{letter}bcdefghijklmno": {"workloadKind": kind} for letter, kind in (
                    ("b", "LeaderWorkerSet"), ("c", "DisaggregatedSet"), ("d", "DisaggregatedSet"))}}})
            for each in rendered:
                # A StatefulSet leaves room for a hash, and the other kinds for up to 999 groups of a StatefulSet each.
                longest = {"StatefulSet": 52, "LeaderWorkerSet": 48, "DisaggregatedSet": 23}.get(each["kind"], 63)
                self.assertLessEqual(len(each["metadata"]["name"]), longest, each["kind"])

    def test_two_releases_share_no_name_and_no_selector(self):
        one, two = (chart.objects(name=name) for name in ("one", "two"))
        names = [{(o["kind"], o["metadata"]["name"]) for o in rendered} for rendered in (one, two)]
        self.assertFalse(names[0] & names[1])
        long = [{o["metadata"]["name"] for o in chart.objects(name="a" * 52 + last)} for last in "bc"]
        self.assertFalse(long[0] & long[1])
        for each in one:
            if each["kind"] in ("Service", "PodDisruptionBudget"):
                self.assertIn("one", json.dumps(each["spec"]["selector"]))

    def test_all_have_the_usual_labels(self):
        usual = {"app.kubernetes.io/" + key for key in ("name", "instance", "version", "part-of", "managed-by")}
        for example, rendered in example_objects():
            for each in rendered:
                self.assertLessEqual(usual | {"helm.sh/chart"}, set(each["metadata"]["labels"]), example)

    def test_a_new_chart_rolls_no_pod(self):
        text = chart.render(example="laptop")[1]
        for _, spec in [(o["metadata"]["name"], o["spec"]["template"]) for o in yaml.safe_load_all(text)
                        if o and o["kind"] == "StatefulSet"]:
            self.assertNotIn("helm.sh/chart", json.dumps(spec))

    def test_the_apply_job_is_new_when_it_does_something_else(self):
        def job(values):
            found, = [o["metadata"]["name"] for o in chart.objects(values=values)
                      if o["kind"] == "Job" and "-apply-" in o["metadata"]["name"]]
            return found
        self.assertEqual(job({}), job({"networkPolicy": {"enabled": False}}))
        self.assertNotEqual(job({}), job({"pools": {"w": {"replicas": 5}}}))
        self.assertNotEqual(job({}), job({"image": {"tag": "other"}}))
        self.assertFalse([o for o in chart.objects(values={"demo": False})
                          if o["kind"] == "Job" and "-apply-" in o["metadata"]["name"]])

    def test_models_reach_coordinator_workers_and_file(self):
        rendered = chart.objects(example="several-models")
        file = chart.one(rendered, "ConfigMap", "rel-switchyard-models")["data"]["models.yaml"]
        models = {m["name"]: m for m in yaml.safe_load_all(file)}
        self.assertEqual(models["chat"]["checkpoint"], "/models/chat/qwen3-30b-a3b")
        self.assertEqual(models["draft"]["min_workers"], 8)
        for name in ("rel-switchyard-coordinator", "rel-switchyard-cpu"):
            spec = chart.one(rendered, "StatefulSet", name)["spec"]["template"]["spec"]
            mounts = {m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
            self.assertLessEqual({"/models/chat", "/models/draft"}, mounts)

    def test_every_model_with_recorded_outputs_is_compared(self):
        artifact = {"source": "pvc", "claim": "c", "path": "p"}
        models = {"a": {"sizeGiB": 1, "golden": "g", "artifact": artifact},
                  "b": {"sizeGiB": 1, "golden": "g", "artifact": artifact, "deployment": {"model": "big"}},
                  "c": {"sizeGiB": 1, "artifact": artifact, "deployment": {"pools": ["p"]}}}
        split = {"p": {"phase": "prefill"}, "d": {"phase": "decode"}}
        # name=folder=golden=deployment=served: each is found by its deployment or, with one for each phase, by its name.
        for pools, last in ((split, ("=a", "=big", "c=")), ({"p": {}}, ("a=", "b=", "c="))):
            rendered = chart.objects(values={"models": models, "pools": pools})
            env = chart.one(rendered, "Pod", "rel-switchyard-test")["spec"]["containers"][0]["env"]
            given, = [each["value"].split() for each in env if each["name"] == "MODELS"]
            self.assertEqual(given, [f"a=/models/a/p=/models/a/p/g={last[0]}", f"b=/models/b/p=/models/b/p/g={last[1]}",
                                     f"c=/models/c/p=={last[2]}"])
            file = chart.one(rendered, "ConfigMap", "rel-switchyard-models")["data"]["models.yaml"]
            served = {(m["name"], m.get("model")) for m in yaml.safe_load_all(file)}
            for name, model in (("a", "a"), ("b", "big")) if pools is split else ():
                self.assertLessEqual({(f"{name}-prefill", model), (f"{name}-decode", model)}, served)

    def test_pools_scale_by_hpa_or_keda(self):
        keda = {"enabled": True, "kind": "keda", "triggers": [{"type": "prometheus", "metadata": {}}]}
        rendered = chart.objects(values={"pools": {"a": {"autoscaling": {"enabled": True, "maxReplicas": 9}},
                                                   "b": {"autoscaling": keda}, "c": {"replicas": 3}}})
        hpa = chart.one(rendered, "HorizontalPodAutoscaler", "rel-switchyard-a")["spec"]
        scaled = chart.one(rendered, "ScaledObject", "rel-switchyard-b")["spec"]
        self.assertEqual((hpa["minReplicas"], hpa["maxReplicas"]), (2, 9))
        self.assertEqual(hpa["scaleTargetRef"], scaled["scaleTargetRef"] | {"name": "rel-switchyard-a"})
        for name, replicas in (("a", None), ("b", None), ("c", 3)):
            spec = chart.one(rendered, "StatefulSet", f"rel-switchyard-{name}")["spec"]
            self.assertEqual(spec.get("replicas"), replicas)

    def test_disruptions_take_one_worker_and_never_wait_for_the_coordinator(self):
        rendered = chart.objects(values={"pools": {"a": {"replicas": 4}, "b": {"replicas": 1}}})
        budgets = [o for o in rendered if o["kind"] == "PodDisruptionBudget"]
        self.assertEqual([o["metadata"]["name"] for o in budgets], ["rel-switchyard-a"])
        self.assertEqual(budgets[0]["spec"]["maxUnavailable"], 1)

    def test_workers_spread_over_machines(self):
        own = [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
        rendered = chart.objects(values={"pools": {"a": {}, "b": {"topologySpreadConstraints": own}}})
        for name, key in (("a", "kubernetes.io/hostname"), ("b", "rack")):
            spec = chart.one(rendered, "StatefulSet", f"rel-switchyard-{name}")["spec"]["template"]["spec"]
            self.assertEqual([each["topologyKey"] for each in spec["topologySpreadConstraints"]], [key])

    def test_claims_of_devices_reach_every_rank(self):
        spec = chart.one(chart.objects(values=EVERYTHING), "StatefulSet",
                         "rel-switchyard-a")["spec"]["template"]["spec"]
        self.assertEqual(spec["resourceClaims"], EVERYTHING["pools"]["a"]["resourceClaims"])
        for container in spec["containers"]:
            self.assertEqual(container["resources"]["claims"], [{"name": "gpu"}])

    def test_monitoring_is_there_when_asked_for(self):
        wanted = {"PodMonitor", "PrometheusRule"}
        self.assertFalse(wanted & {o["kind"] for o in chart.objects()})
        rendered = chart.objects(values=EVERYTHING)
        self.assertLessEqual(wanted, {o["kind"] for o in rendered})
        boards = chart.one(rendered, "ConfigMap", "rel-switchyard-dashboards")
        self.assertEqual(boards["metadata"]["labels"]["grafana_dashboard"], "1")
        self.assertTrue(json.loads(boards["data"]["switchyard.json"])["panels"])

    def test_the_page_names_tests_that_there_are(self):
        page = (chart.ROOT / "docs/KUBERNETES.md").read_text().split("## Conventions")[1].split("\n## ")[0]
        sources = "".join(path.read_text() for path in HERE.glob("*_test.py"))
        named = re.findall(r"`(\w+)` \|$", page, re.M)
        self.assertGreaterEqual(len(named), 15)
        self.assertEqual([name for name in named if f"def {name}(" not in sources], [])

    def test_strangers_reach_nothing(self):
        for example, rendered in example_objects():
            policies = [o["spec"] for o in rendered if o["kind"] == "NetworkPolicy"]
            self.assertGreaterEqual(len(policies), 3, example)
            for policy in policies:
                self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
                for rule in policy.get("ingress") or []:
                    self.assertTrue(rule.get("from"), example)
        rendered = chart.objects(values={"networkPolicy": {"enabled": False}})
        self.assertFalse([o for o in rendered if o["kind"] == "NetworkPolicy"])

    def test_programs_take_their_files(self):
        programs = pathlib.Path(os.environ.get("BUILD") or chart.ROOT / "build/release") / "bin"
        if not programs.exists():
            self.skipTest(f"{programs} is not there")
        rendered = chart.objects(example="several-models", values={"security": {"tenantsSecret": "names"}})
        for name, key, program in (("coordinator", "coordinator.yaml", "switchyard-coordinator"),
                                   ("cpu", "worker.yaml", "switchyard-worker")):
            text = chart.one(rendered, "ConfigMap", f"rel-switchyard-{name}")["data"][key]
            own = ["--id=w"] if name == "cpu" else []
            done = subprocess.run([str(programs / program), *own, "--config", "-", "--print-config"],
                                  input=text, capture_output=True, text=True, check=False, timeout=30)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
