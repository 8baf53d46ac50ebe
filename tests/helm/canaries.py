"""Secrets and data of a release that generates, and the search for them in everything that it tells."""

import base64
import concurrent.futures
import gzip
import json
import os
import subprocess

import node
from clients import start

TENANTS = "tenants"  # the Secret with their names
KINDS = ("pods,services,configmaps,statefulsets,jobs,serviceaccounts,networkpolicies,poddisruptionbudgets,"
         "persistentvolumeclaims,endpointslices,controllerrevisions,events")
# What an operator sees; doctor looks at itself, and at the way to all workers.
TELL = """
syctl="/usr/bin/syctl --target moe-switchyard-coordinator:7700 --tls-dir /etc/switchyard-tls"
name=$($syctl get deployments -o name); name=${name##*/}
for each in "get workers" "get deployments" "get models" "get layers" "get plan" "get revisions $name" "get sessions" "get events" \\
    "get metrics" "get metrics moe-switchyard-cpu-0" "describe deployment $name" "describe worker moe-switchyard-cpu-0" \\
    "describe layer 0" "explain layer 0" "doctor" "version"; do
  for output in json wide; do
    echo "--- syctl $each -o $output"
    $syctl $each -o $output 2>&1 || echo "FAILED: syctl $each -o $output"
  done
done
echo told
"""


def forms(secret):
    """Ways to write these bytes: raw, hexadecimal, base64 with what may be before, and as protobuf's text."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for before in range(3):
        text = base64.b64encode(bytes(before) + secret)
        # A character has six bits; those at the edges depend on what is around.
        middle = text[-(-before * 8 // 6):(before + len(secret)) * 8 // 6]
        yield middle
        yield middle.translate(bytes.maketrans(b"+/", b"-_"))
    if len(secret) == 16:  # a random id, which is written as two numbers
        yield secret[7::-1].hex().encode() + secret[:7:-1].hex().encode()
    yield "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in "\"'\\" else f"\\{byte:03o}" for byte in secret).encode()


def numbers(cookie):
    """The same 64 bits as a number."""
    for order in ("little", "big"):
        number = int.from_bytes(cookie, order)
        yield str(number).encode()
        yield f"{number:016x}".encode()


def make_tenants(release):
    """The Secret of the values, with a name of a tenant that is nowhere else."""
    release.tenant = f"canary-{os.urandom(8).hex()}"
    ids = [f"spiffe://cluster.local/ns/{release.namespace}/sa/moe-switchyard-{holder}" for holder in ("test", "source")]
    file = f'tenants:\n- {{name: {release.tenant}, ids: ["{ids[0]}", "{ids[1]}"]}}\n'
    release.kubectl("create", "secret", "generic", TENANTS, f"--from-literal=tenants.yaml={file}")


def secrets_of(release):
    """{name: bytes} of a release whose clients generate now."""
    found = {}
    coordinator, = release.pods("coordinator")
    told = node.say(release, "sniff", {"seconds": 8, "rows": 200})
    assert len(told["cookies"]) >= 4 and len(told["rows"]) >= 100, told
    found |= {f"cookie {i}": bytes.fromhex(each) for i, each in enumerate(told["cookies"])}
    found |= {f"row {i}": bytes.fromhex(each) for i, each in enumerate(told["rows"])}
    found["key of the deployment"] = bytes.fromhex(node.say(release, "key", {"pod": coordinator["metadata"]["uid"]}))
    blobs = node.say(release, "blobs", [pod["metadata"]["uid"] for pod in release.pods("worker", "client")])
    assert len(blobs["addresses"]) >= len(release.pods("worker")) and blobs["ring secrets"], blobs
    found |= {f"address of UCX {i}": bytes.fromhex(each) for i, each in enumerate(blobs["addresses"])}
    found |= {f"ring secret {i}": bytes.fromhex(each) for i, each in enumerate(blobs["ring secrets"])}
    found["tenant"] = release.tenant.encode()
    for secret in release.get("secrets"):
        for file, value in (secret.get("data") or {}).items():
            if file.endswith(".key"):
                pem = base64.b64decode(value)
                der = base64.b64decode(b"".join(line for line in pem.splitlines() if not line.startswith(b"-----")))
                # The private number: of PKCS #8 for P-256 these bytes come before it.
                at = der.index(bytes.fromhex("0201010420")) + 5
                found[f"{secret['metadata']['name']}/{file}"] = der[at:at + 32]
                found[f"{secret['metadata']['name']}/{file} as PEM"] = pem.splitlines()[2]
    assert sum("tls.key" in name for name in found) >= 2 * 6 and any("authority" in name for name in found), sorted(found)
    return found


def raw(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, check=True, timeout=120).stdout


def logs(release):
    """{"log Pod/container": bytes}, several at a time: most of it is waiting."""
    names = [(pod["metadata"]["name"], container["name"]) for pod in release.get("pods")
             for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        read = pool.map(lambda name: raw(release.kubectl_path, "-n", release.namespace, "logs", name[0], "-c", name[1]), names)
        return {f"log {pod}/{container}": text for (pod, container), text in zip(names, read)}


def told_by(release):
    """{where: bytes}: logs of all containers, system ports, objects, Events, Helm's releases, syctl and doctor."""
    texts = {}
    release.kubectl("delete", "job", "tell", "--ignore-not-found")
    start(release, "tell", TELL, "moe-switchyard-operator-tls")
    release.kubectl("wait", "job/tell", "--for", "condition=complete", "--timeout", "150s")
    told = release.kubectl("logs", "job/tell", "-c", "generate").stdout
    assert "FAILED" not in told and told.endswith("told\n"), told[told.find("FAILED"):][:500]
    texts |= logs(release)
    urls = {}
    for pod in release.pods("coordinator", "worker"):
        coordinator = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "coordinator"
        paths = ["metrics", "livez", "readyz"]
        paths += [f"api/v1/{each}" for each in ("workers", "deployments", "sessions", "load")] if coordinator else []
        for container in pod["spec"]["containers"]:
            port, = [p["containerPort"] for p in container["ports"] if p["name"].startswith("system")]
            for path in paths:
                urls[f"http://{pod['status']['podIP']}:{port}/{path}"] = f"{path} of {pod['metadata']['name']}/{container['name']}"
    texts |= {urls[url]: base64.b64decode(text) for url, text in node.say(release, "fetch", list(urls)).items()}
    texts["objects"] = raw(release.kubectl_path, "-n", release.namespace, "get", KINDS, "-o", "json")
    for secret in release.get("secrets"):
        if secret["type"] == "helm.sh/release.v1":
            text = base64.b64decode(base64.b64decode(secret["data"]["release"]))
            texts[f"Helm's {secret['metadata']['name']}"] = gzip.decompress(text)
    return texts


def found_in(texts, secrets):
    """[(secret, where)] of all that is there."""
    found = []
    for name, secret in secrets.items():
        written = set(forms(secret)) | (set(numbers(secret)) if name.startswith("cookie") else set())
        found += [(name, where) for where, text in texts.items() if any(form in text for form in written)]
    return found


def check_that_it_finds(release, secrets):
    """Plants one secret after the other, in each form, into the log of a Pod; all are found there, and only there."""
    chosen = {name: secrets[name] for name in ("cookie 0", "row 0", "key of the deployment", "address of UCX 0", "ring secret 0",
                                               "tenant", "moe-switchyard-cpu-tls/tls.key")}
    lines = [form for secret in chosen.values() for form in list(forms(secret))[1:]]
    lines += list(numbers(chosen["cookie 0"]))
    text = "\n".join(line.decode() for line in lines)
    start(release, "planted", f"cat <<'END'\n{text}\nEND\nsleep 2")
    release.kubectl("wait", "job/planted", "--for", "condition=complete", "--timeout", "150s")
    log = release.kubectl("logs", "job/planted", "-c", "generate").stdout.encode()
    for line in lines:
        for name, secret in chosen.items():
            if line in set(forms(secret)):
                assert found_in({"planted": b"x" + line + b"y"}, {name: secret}), (name, line)
    assert found_in({"planted": log}, chosen) == [(name, "planted") for name in chosen], found_in({"planted": log}, chosen)
    for name, secret in chosen.items():
        assert found_in({"raw": b"ab" + secret + b"cd"}, {name: secret}), name
        assert found_in({"base64": base64.b64encode(b"some text " + secret + b" and more")}, {name: secret}), name
    release.kubectl("delete", "job", "planted")
    release.jobs.remove("planted")
