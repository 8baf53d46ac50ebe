#!/usr/bin/python3 -B
"""What `syctl doctor` finds in a Pod of a release on a real cluster: eight planted faults, and nothing where there is none.

    doctor_test.py [--build FOLDER]

A Pod with the labels and volumes of helm/client.yaml, and with the operator's certificate beside its own, examines the release.
Each fault flips its own check, those that wait for it are skipped, and what the line says to do brings all of them back.
tests/ctl/doctor/doctor_test.cc does the same with processes. Options as smoke_test.py, without KUBECONFIG.
"""

import base64
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import node
import yaml
from another_build import VERSION
from release import CHART, ROOT, call, run, until

POD = "checkup"
SERVICE = "moe-switchyard-coordinator"
OPERATOR = "moe-switchyard-operator"
NODE = ("shared-memory", "memlock", "ring-sockets", "checkpoint", "certificate")
COORDINATOR = ("clock", "workers", "versions", "worker-dns", "worker-ports")
CHECKS = {*NODE, "dns", "coordinator", *COORDINATOR}
# A name as the transport gives them.
SOCKET = "switchyard-0123456789abcdef0123456789abcdef"
LEAVE_SOCKET = """
import os, socket, sys
os.chdir(sys.argv[1]), os.setgid(65532), os.setuid(65532)
left = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
left.bind(sys.argv[2]), left.listen(1), left.close()
"""
RENUMBER = """
import pathlib, sys
file, old, new = pathlib.Path(sys.argv[1]), *(f"\\0{number}\\0".encode() for number in sys.argv[2:])
assert len(old) == len(new) and old in file.read_bytes()
file.write_bytes(file.read_bytes().replace(old, new))
"""
# An authority as openssl wants it, which can issue what has ended.
ISSUE = """
[ca]
default_ca = it
[it]
database = index
serial = serial
new_certs_dir = .
certificate = ca.crt
private_key = ca.key
default_md = sha256
policy = any
x509_extensions = leaf
unique_subject = no
[any]
commonName = optional
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth, serverAuth
subjectAltName = URI:%s
[req]
distinguished_name = name
[name]
"""


def values(release):
    return [*release.values(), *release.kept()]


def pod(release):
    """That of the client, which waits instead of generating; the second container has no larger /dev/shm."""
    job = yaml.safe_load((ROOT / "helm/client.yaml").read_text().replace("localhost/switchyard", release.options.prefix))
    template = job["spec"]["template"]
    spec = template["spec"]
    whole, = spec["containers"]
    whole |= {"name": "whole", "command": ["/usr/bin/sleep", "3600"], "args": []}
    whole["volumeMounts"] = [*whole["volumeMounts"], *({"name": name, "mountPath": path} for name, path in (
        ("operator", "/etc/operator-tls"), ("rings", "/rings"), ("scratch", "/scratch"), ("original", "/original")))]
    small = {**whole, "name": "small"}
    whole["volumeMounts"] = [*whole["volumeMounts"], {"name": "shm", "mountPath": "/dev/shm"}]
    tls, = [volume for volume in spec["volumes"] if volume["name"] == "tls"]
    operator = json.loads(json.dumps(tls).replace("source-tls", "operator-tls")) | {"name": "operator"}
    image = spec["initContainers"][0]["image"]
    spec["volumes"] += [operator, {"name": "rings", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}},
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
                        {"name": "original", "image": {"reference": image, "pullPolicy": "IfNotPresent"}}]
    spec |= {"containers": [whole, small], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "labels": template["metadata"]["labels"]}, "spec": spec}


def install(release):
    release.create_namespace()
    release.make_volume()
    release.helm("install", CHART, *values(release))
    release.wait_ready()
    release.kubectl("apply", "-f", "-", text=json.dumps(pod(release)))
    release.kubectl("wait", f"pod/{POD}", "--for", "condition=Ready", "--timeout", "150s")


class Checkup:
    """What doctor says: `states` by check, and its rows."""

    def __init__(self, text, code):
        document = json.loads(text)
        self.rows = {row["check"]: row for row in document["checks"]}
        self.states = {check: row["state"] for check, row in self.rows.items()}
        failed = sum(state == "FAIL" for state in self.states.values())
        assert document["failed"] == failed and code == (1 if failed else 0), (text, code)


def in_pod(release, *command, container="whole", **options):
    return release.kubectl("exec", POD, "-c", container, "--", *command, **options)


def volume(release, name):
    """The folder of an emptyDir of the Pod, in the node."""
    uid = json.loads(release.kubectl("get", "pod", POD, "-o", "json").stdout)["metadata"]["uid"]
    return f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/{name}"


def examine(release, *more, container="whole", tls="/etc/operator-tls", program="syctl", before=""):
    words = [program, "doctor", "-o", "json", "--target", f"{SERVICE}:7700", "--tls-dir", tls, "--checkpoint", "/models",
             "--ring-dir", "/rings", "--shm-bytes", "128MiB", *more]
    done = in_pod(release, "sh", "-c", f"{before} exec {' '.join(words)}", container=container, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return Checkup(done.stdout, done.returncode)


def check_healthy(release):
    """Everything is right again; the workers may need a moment to find the coordinator."""
    said = []

    def is_healthy():
        said[:] = [examine(release)]
        return said[0].states == {check: "OK" for check in CHECKS}
    try:
        until("healthy release", is_healthy)
    except AssertionError as error:
        raise AssertionError(f"{error}: {[row for row in said[0].rows.values() if row['state'] != 'OK']}") from error


def flips(release, check, state, remedy, skipped=(), more=(), **how):
    """The fault is seen by its own check, which says this remedy; those that need it are skipped. Waits, since what was
    planted may reach the Pod some time later."""
    wanted = {each: "OK" for each in CHECKS} | {each: "SKIP" for each in skipped} | {check: state}
    said = []

    def is_seen():
        said[:] = [examine(release, *more, **how)]
        return said[0].states[check] != "OK"
    until(f"{state} of {check}", is_seen, 150)
    assert said[0].states == wanted, said[0].rows
    row = said[0].rows[check]
    assert remedy in row["next"], row
    print(f"  {check}: {row['found']}. Next: {row['next']}", flush=True)


def nothing_is_found(release):
    """With the certificate of a client, too, which may not ask for the workers."""
    check_healthy(release)
    client = examine(release, tls="/etc/switchyard-tls").states
    assert "FAIL" not in client.values() and "WARN" not in client.values(), client
    hidden = {"clock", "workers", "worker-dns", "worker-ports"}
    assert {check for check, state in client.items() if state == "SKIP"} == hidden, client


def small_shared_memory(release):
    flips(release, "shared-memory", "FAIL", "sizeLimit of the emptyDir in a Pod", container="small")
    check_healthy(release)  # in the container that has such an emptyDir


def memory_that_cannot_be_locked(release):
    """The limit is lowered, since some machines have none. It does not matter without RDMA, nor with the capability."""
    low = {"before": "ulimit -l 64;"}
    flips(release, "memlock", "FAIL", "the capability IPC_LOCK for the container, whose namespace must then allow it",
          more=("--rdma",), **low)
    assert examine(release, **low).states["memlock"] == "OK"
    namespace = f"{release.namespace}-locked"
    other = pod(release)
    container = other["spec"]["containers"][0]
    container |= {"command": ["sh", "-c", "ulimit -l 64; exec syctl doctor --scope node --rdma -o json"], "volumeMounts": [],
                  "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                      "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}}
    other["spec"] = {"automountServiceAccountToken": False, "restartPolicy": "Never", "containers": [container],
                     "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}}
    try:
        call(release.kubectl_path, "create", "namespace", namespace)
        call(release.kubectl_path, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged")
        kubectl = [release.kubectl_path, "-n", namespace]
        call(*kubectl, "apply", "-f", "-", text=json.dumps(other))
        phase = [*kubectl, "get", "pod", POD, "-o", "jsonpath={.status.phase}"]
        until("end of the Pod", lambda: call(*phase).stdout in ("Succeeded", "Failed"), 120)
        log = call(*kubectl, "logs", POD).stdout
        assert call(*phase).stdout == "Succeeded", log
        assert Checkup(log, 0).states["memlock"] == "OK", log
    finally:
        call(release.kubectl_path, "delete", "namespace", namespace, "--wait=false", check=False)
    check_healthy(release)


def a_name_that_does_not_resolve(release):
    """The Service is gone; an upgrade to the same values makes it again."""
    release.kubectl("delete", "service", SERVICE)
    flips(release, "dns", "FAIL", "look at the Service", skipped=("coordinator", *COORDINATOR))
    release.helm("upgrade", CHART, *values(release))
    check_healthy(release)


def ended(release):
    """A certificate of the operator, issued by the release's authority, that has ended an hour ago."""
    def secret(name):
        data = json.loads(release.kubectl("get", "secret", name, "-o", "json").stdout)["data"]
        return {file: base64.b64decode(content) for file, content in data.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, content in {**secret("moe-switchyard-authority"), "tls.key": secret(f"{OPERATOR}-tls")["tls.key"]}.items():
            (folder / file).write_bytes(content)
        (folder / "index").touch()
        (folder / "serial").write_text("4711")
        (folder / "ca.cnf").write_text(ISSUE % f"spiffe://cluster.local/ns/{release.namespace}/sa/{OPERATOR}")
        now = datetime.datetime.now(datetime.timezone.utc)
        begin, end = ((now - datetime.timedelta(hours=hours)).strftime("%Y%m%d%H%M%SZ") for hours in (2, 1))
        for command in ("req -new -config ca.cnf -key tls.key -subj /CN=operator -out tls.csr",
                        f"ca -batch -notext -config ca.cnf -startdate {begin} -enddate {end} -in tls.csr -out tls.crt"):
            subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
        return (folder / "tls.crt").read_bytes()


def an_expired_certificate(release):
    """The Job of an upgrade renews it, and the Pod gets the new one."""
    patch = {"data": {"tls.crt": base64.b64encode(ended(release)).decode()}}
    release.kubectl("patch", "secret", f"{OPERATOR}-tls", "-p", json.dumps(patch))
    flips(release, "certificate", "FAIL", "'syctl certs ensure'", skipped=("dns", "coordinator", *COORDINATOR))
    release.helm("upgrade", CHART, *values(release))
    check_healthy(release)


def another_release(release):
    """The same program under another number, which it has as text. The Pod's own syctl is the remedy."""
    number = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    in_pod(release, "cp", "/usr/bin/syctl", "/scratch/")
    node.enter(release, "python3", "-c", RENUMBER, f"{volume(release, 'scratch')}/syctl", number, VERSION)
    assert VERSION in in_pod(release, "/scratch/syctl", "version", "--client").stdout
    flips(release, "versions", "WARN", "use the syctl of that release", program="/scratch/syctl")
    check_healthy(release)


def a_missing_file_of_the_model(release):
    in_pod(release, "rm", "/models/model.safetensors")
    flips(release, "checkpoint", "FAIL", "copy the checkpoint again")
    in_pod(release, "cp", "/original/model/model.safetensors", "/models/")
    check_healthy(release)


def no_coordinator(release):
    release.kubectl("scale", f"statefulset/{SERVICE}", "--replicas=0")
    release.kubectl("wait", f"pod/{SERVICE}-0", "--for", "delete", "--timeout", "60s")
    flips(release, "coordinator", "FAIL", "check that switchyard-coordinator runs there", skipped=COORDINATOR)
    release.kubectl("scale", f"statefulset/{SERVICE}", "--replicas=1")
    check_healthy(release)


def sockets_that_were_left(release):
    node.enter(release, "python3", "-c", LEAVE_SOCKET, volume(release, "rings"), SOCKET)
    flips(release, "ring-sockets", "WARN", "remove these files")
    in_pod(release, "rm", f"/rings/{SOCKET}")
    check_healthy(release)


STEPS = [install, nothing_is_found, small_shared_memory, memory_that_cannot_be_locked, a_name_that_does_not_resolve,
         an_expired_certificate, another_release, a_missing_file_of_the_model, no_coordinator, sockets_that_were_left]

if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n\n", maxsplit=1)[0], "k8s-doctor", STEPS, "doctor finds what is wrong, and nothing else"))
