#!/usr/bin/env python3
"""What holds on the node of tests/k8s/cluster, and that it leaves nothing behind. Needs root; takes about two minutes.

  tests/k8s/node_test.py [-v] [TestClass[.test_name]...]

Uses out/k8s-test, so that a node of `make k8s-up` is left alone. tests/k8s/README.md has the table.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
from parts import layout, processes, snapshot  # noqa: E402
from parts.owned_bridge import USER  # noqa: E402
from parts.waiting import Timeout, wait_until  # noqa: E402

STATE = layout.Layout(layout.REPOSITORY / "out/k8s-test")
CLUSTER = [str(HERE / "cluster"), "--state", str(STATE.state)]
MIB = 1 << 20


def cluster(*arguments, check=True):
    done = subprocess.run([*CLUSTER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"cluster {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
    return done


def tools():
    return pathlib.Path(subprocess.run([*CLUSTER, "tools"], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout.strip())


def restricted(**more):
    """A container of the probe image that Pod Security `restricted` admits."""
    return {
        "name": "probe", "image": layout.PROBE_IMAGE, "imagePullPolicy": "Never",
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}, **more}


def pod(name, container, seccomp="RuntimeDefault", **spec):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 2,
                 "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": seccomp}},
                 "containers": [container], **spec}}


def grpc_probe(service, **more):
    return {"grpc": {"port": 9090, "service": service}, "periodSeconds": 1, "failureThreshold": 1, **more}


def service(name, app, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": app}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}}


class LeavesNothing(unittest.TestCase):
    """After `down` the host is as it was, however the node ended."""

    def setUp(self):
        cluster("down")
        self.before = snapshot.take(STATE.name)
        self.addCleanup(cluster, "down")

    def expect_as_before(self, namespaces=()):
        # Waits, since other programs of the machine may be changing something for a moment.
        found = []

        def same():
            found[:] = snapshot.differences(self.before, snapshot.take(STATE.name))
            found.extend(f"process {pid}" for pid in snapshot.processes_in(namespaces))
            found.extend(f"process {line}" for line in snapshot.processes_naming(str(STATE.state)))
            return not found
        try:
            wait_until(same, 10, "the state before")
        except Timeout:
            self.fail("not as before:\n" + "\n".join(found))
        self.assertEqual([path.name for path in STATE.state.iterdir()], ["lock"])

    def namespaces_of_node(self):
        first = STATE.read_record()["first"]["pid"]
        return snapshot.namespaces_of(first) - snapshot.namespaces_of(os.getpid())

    def wait_for_end(self, namespaces):
        try:
            wait_until(lambda: not snapshot.processes_in(namespaces), 20, "the end of the node")
        except Timeout:
            left = snapshot.processes_in(namespaces)
            self.fail("\n".join(pathlib.Path(f"/proc/{pid}/status").read_text()[:200] for pid in left))

    def test_after_down(self):
        cluster("up")
        own = self.namespaces_of_node()
        self.assertEqual(len(own), len(snapshot.NAMESPACES))
        self.assertGreater(len(snapshot.processes_in(own)), 8)

        cluster("down")

        self.expect_as_before(own)

    def test_after_up_is_killed_half_way(self):
        for seconds in (0.3, 1.5, 4, 7):
            with self.subTest(seconds=seconds):
                with subprocess.Popen([*CLUSTER, "up"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
                    with self.assertRaises(subprocess.TimeoutExpired):
                        up.wait(seconds)
                    up.kill()

                cluster("down")

                self.expect_as_before()

    def test_after_the_keeper_is_killed(self):
        cluster("up")
        own = self.namespaces_of_node()
        self.assertTrue(processes.kill(STATE.read_record()["keeper"]))
        self.wait_for_end(own)
        self.assertEqual(cluster("status", check=False).returncode, 1)

        cluster("down")

        self.expect_as_before(own)

    def test_a_part_that_ends_ends_the_node(self):
        cluster("up")
        own = self.namespaces_of_node()
        (scheduler,) = [pid for pid in snapshot.processes_in(own)
                        if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "kube-scheduler"]
        os.kill(int(scheduler), signal.SIGKILL)
        self.wait_for_end(own)
        self.assertIn("kube-scheduler ended with -9", cluster("status", check=False).stdout)

        cluster("down")

        self.expect_as_before(own)


class Node(unittest.TestCase):
    """One node for all tests of the class; each test looks at one thing that the chart relies on."""

    @classmethod
    def setUpClass(cls):
        cls.tools = tools()
        cluster("down")
        begin = time.monotonic()
        print(cluster("up").stdout, end="", file=sys.stderr)
        print(f"up: {time.monotonic() - begin:.1f} s", file=sys.stderr)
        cls.addClassCleanup(cluster, "down")
        for name, level in (("strict", "restricted"), ("open", "privileged")):
            labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn", "audit")}
            cls.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        cls.make_objects()

    @classmethod
    def make_objects(cls):
        """Everything that takes time to start, at once."""
        volume = STATE.volumes / "one"
        volume.mkdir()
        os.chown(volume, USER, USER)
        serving = restricted(
            startupProbe=grpc_probe("live", failureThreshold=30), livenessProbe=grpc_probe("live"),
            readinessProbe=grpc_probe("ready"),
            volumeMounts=[{"name": "memory", "mountPath": "/memory"}, {"name": "disk", "mountPath": "/disk"},
                          {"name": "image", "mountPath": "/image"}])
        volumes = [{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}},
                   {"name": "disk", "persistentVolumeClaim": {"claimName": "one"}},
                   {"name": "image", "image": {"reference": layout.PAUSE_IMAGE, "pullPolicy": "Never"}}]
        said = cls.apply(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "one"},
             "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static",
                      "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/volumes/one",
                                                                             "type": "Directory"}}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"},
             "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "static",
                      "resources": {"requests": {"storage": "1Gi"}}}},
            pod("serving", serving, volumes=volumes),
            pod("restarting", restricted(livenessProbe=grpc_probe("live"))),
            pod("greedy", restricted(args=["allocate", "128"]), restartPolicy="Never"),
            pod("modest", restricted(args=["allocate", "32"]), restartPolicy="Never"),
            service("headless", "serving", clusterIP="None", publishNotReadyAddresses=True),
            service("balanced", "serving"))
        cls.warnings = [line for line in said.splitlines() if "Warning" in line]
        cls.apply(pod("unconfined", restricted(), seccomp="Unconfined"), namespace="open")
        cls.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/serving", "pod/restarting")
        cls.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/unconfined", namespace="open")

    @classmethod
    def run_tool(cls, tool, *arguments, check=True, **options):
        done = subprocess.run([cls.tools / tool, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120, check=False,
                              env={**os.environ, "KUBECONFIG": str(STATE.kubeconfig)}, **options)
        if check and done.returncode != 0:
            raise AssertionError(f"{tool} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
        return done

    @classmethod
    def kubectl(cls, *arguments, namespace="strict", check=True, **options):
        return cls.run_tool("kubectl", "--namespace", namespace, *arguments, check=check, **options)

    @classmethod
    def apply(cls, *objects, namespace="strict", check=True):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        arguments = [] if objects[0]["kind"] == "Namespace" else ["--namespace", namespace]
        return cls.run_tool("kubectl", *arguments, "apply", "--server-side", "-f", "-", input=text, check=check).stdout

    def probe(self, *arguments, name="serving", namespace="strict", check=True):
        return self.kubectl("exec", name, "--", "/probe", *arguments, namespace=namespace, check=check)

    def pod_status(self, name):
        return json.loads(self.kubectl("get", "pod", name, "-o", "json").stdout)["status"]

    def test_version(self):
        version = json.loads(self.kubectl("version", "-o", "json").stdout)

        pinned = re.search(r"k8s.io/kubernetes (v\S+)", (HERE / "node/go.mod").read_text()).group(1)
        self.assertEqual(version["serverVersion"]["gitVersion"], pinned)
        self.assertEqual(version["clientVersion"]["gitVersion"], pinned)

    def test_restricted_pods_draw_no_warning(self):
        self.assertEqual(self.warnings, [])

    def test_pod_security_refuses_what_restricted_forbids(self):
        bad = pod("bad", restricted(securityContext={"privileged": True}))

        said = self.apply(bad, check=False)

        self.assertIn('violates PodSecurity "restricted:latest"', said)
        self.assertIn("NotFound", self.kubectl("get", "pod", "bad", check=False).stdout)

    def test_audit_log_has_what_makes_pods(self):
        """Pod Security's verdict included, and nothing else."""
        self.kubectl("create", "deployment", "unsafe", "--image=any", "--dry-run=server")
        self.kubectl("create", "configmap", "silent")

        def events():
            lines = (STATE.logs / "audit.log").read_text().splitlines()
            return [json.loads(line) for line in lines]
        wait_until(lambda: any(event["objectRef"].get("name") == "unsafe" for event in events()), 10, "the entry")
        found = {event["objectRef"].get("name"): event.get("annotations", {}) for event in events()
                 if event["objectRef"].get("namespace") == "strict" and event["responseStatus"]["code"] == 201}
        self.assertIn('would violate PodSecurity "restricted:latest"',
                      found["unsafe"]["pod-security.kubernetes.io/audit-violations"])
        self.assertEqual(found["serving"]["pod-security.kubernetes.io/enforce-policy"], "restricted:latest")
        self.assertNotIn("pod-security.kubernetes.io/audit-violations", found["serving"])
        self.assertNotIn("silent", found)
        self.assertLessEqual({event["verb"] for event in events()}, {"create", "update", "patch"})

    def test_seccomp_runtime_default(self):
        confined = self.probe("privileges").stdout.splitlines()
        free = self.probe("privileges", name="unconfined", namespace="open").stdout.splitlines()

        self.assertIn("Seccomp=2", confined)
        self.assertIn("Seccomp=0", free)
        self.assertIn("operation not permitted", self.probe("keyring", check=False).stdout)
        self.assertEqual(self.probe("keyring", name="unconfined", namespace="open", check=False).returncode, 0)

    def test_non_root_without_capabilities(self):
        said = self.probe("privileges").stdout.splitlines()

        self.assertIn(f"Uid={USER}", said)
        self.assertIn("CapEff=0000000000000000", said)
        self.assertIn("NoNewPrivs=1", said)

    def test_socket_filters_need_no_capability(self):
        self.assertEqual(self.probe("filter").stdout, "")

    def test_root_file_system_is_read_only(self):
        done = self.probe("write", "/file", "1", check=False)

        self.assertEqual(done.returncode, 1)
        self.assertIn("read-only file system", done.stdout)

    def test_memory_limit(self):
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s", "pod/modest")
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "--timeout=30s", "pod/greedy")

        ended = self.pod_status("greedy")["containerStatuses"][0]["state"]["terminated"]
        self.assertEqual((ended["reason"], ended["exitCode"]), ("OOMKilled", 137))

    def test_memory_volume_has_its_size(self):
        self.assertIn(f"bytes={32 * MIB}", self.probe("mounted", "/memory").stdout)

        full = self.probe("write", "/memory/large", str(40 * MIB), check=False)
        self.assertIn("no space left on device", full.stdout)
        self.probe("write", "/memory/large", "1")

    def test_exec_tells_the_exit_code(self):
        self.assertEqual(self.probe("resolve", "localhost").returncode, 0)
        self.assertEqual(self.probe("read", "/missing", check=False).returncode, 1)

    def test_logs(self):
        self.assertIn("probe: serving HTTP on 8080", self.kubectl("logs", "serving").stdout)

    def test_port_forward(self):
        with subprocess.Popen(
                [self.tools / "kubectl", f"--kubeconfig={STATE.kubeconfig}", "--namespace=strict", "port-forward",
                 "pod/serving", ":8080"], stdout=subprocess.PIPE, text=True) as forward:
            try:
                port = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline()).group(1)
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                    self.assertEqual(answer.read(), b"probe of serving\n")
            finally:
                forward.send_signal(signal.SIGTERM)

    def test_grpc_readiness_probe_names_its_service(self):
        self.probe("get", "http://localhost:8080/set?service=ready&to=NOT_SERVING")
        self.kubectl("wait", "--for=condition=Ready=false", "--timeout=15s", "pod/serving")

        self.probe("get", "http://localhost:8080/set?service=ready&to=SERVING")
        self.kubectl("wait", "--for=condition=Ready", "--timeout=15s", "pod/serving")
        self.assertEqual(self.pod_status("serving")["containerStatuses"][0]["restartCount"], 0)

    def test_grpc_liveness_probe_restarts_the_container(self):
        self.probe("get", "http://localhost:8080/set?service=live&to=NOT_SERVING", name="restarting")

        wait_until(lambda: self.pod_status("restarting")["containerStatuses"][0]["restartCount"] == 1, 20,
                   "the restart", interval=0.5)

    def test_static_volume_of_the_host(self):
        self.probe("write", "/disk/kept", "3")

        self.assertEqual((STATE.volumes / "one/kept").stat().st_size, 3)
        self.assertEqual((STATE.volumes / "one/kept").stat().st_uid, USER)

    def test_image_volume(self):
        self.assertEqual(self.probe("mounted", "/image/pause").returncode, 0)

    def test_services_and_their_names(self):
        address = self.pod_status("serving")["podIP"]
        balanced = self.kubectl("get", "service", "balanced", "-o", "jsonpath={.spec.clusterIP}").stdout

        self.assertEqual(self.probe("resolve", "headless").stdout.strip(), address)
        self.assertEqual(self.probe("resolve", "balanced.strict.svc.cluster.local").stdout.strip(), balanced)
        self.assertEqual(self.probe("resolve", "kubernetes.default").stdout.strip(), layout.API_SERVICE_IP)
        for name in ("balanced", "headless:8080"):
            said = self.probe("get", f"http://{name}/", name="restarting")
            self.assertEqual(said.stdout, "probe of serving\n")
        self.assertNotEqual(self.probe("resolve", "missing", check=False).returncode, 0)

    def test_rbac(self):
        account = "--as=system:serviceaccount:strict:default"

        self.assertIn("Forbidden", self.kubectl("get", "secrets", account, check=False).stdout)
        self.kubectl("create", "role", "reader", "--verb=list", "--resource=secrets")
        self.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=strict:default")
        self.assertEqual(self.kubectl("get", "secrets", account).returncode, 0)

    def test_both_helms_install(self):
        with tempfile.TemporaryDirectory() as folder:
            chart = pathlib.Path(folder)
            (chart / "templates").mkdir()
            (chart / "Chart.yaml").write_text("apiVersion: v2\nname: tiny\nversion: 1.0.0\n")
            (chart / "templates/pod.yaml").write_text(
                json.dumps({**pod("tiny", restricted()), "metadata": {"name": "tiny-{{ .Release.Name }}"}}))
            for helm in ("helm3", "helm4"):
                with self.subTest(helm=helm):
                    self.run_tool(helm, "install", helm, folder, "--namespace", "strict", "--wait", "--timeout", "60s")
                    self.assertTrue(self.pod_status(f"tiny-{helm}")["containerStatuses"][0]["ready"])
                    self.run_tool(helm, "uninstall", helm, "--namespace", "strict", "--wait")

    def test_archives_are_loaded(self):
        from parts import archive
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "image.tar"
            archive.write(path, "localhost/switchyard/loaded:2", self.tools / "probe")

            self.assertIn("loaded localhost/switchyard/loaded:2", cluster("load", str(path)).stdout)

        self.apply(pod("loaded", restricted(image="localhost/switchyard/loaded:2")))
        self.kubectl("wait", "--for=condition=Ready", "--timeout=30s", "pod/loaded")

    def test_up_on_a_node_that_is_up_changes_nothing(self):
        before = STATE.read_record()

        self.assertIn("is up already", cluster("up").stdout)
        self.assertEqual(STATE.read_record(), before)


if __name__ == "__main__":
    unittest.main()
