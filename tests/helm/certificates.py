"""The certificates of a release on a real cluster: which the coordinator shows, and how another authority takes the place
of theirs."""

import base64
import json
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import time

import clients
from release import CHART, until

# A phase of a rotation lasts as long at least, and new files are seen as late at most.
PHASE_SECONDS = 150
# Prints whether the coordinator and a worker, as a gateway, let the Secret's certificate in.
KNOCK = """
for to in moe-switchyard-coordinator:7700 "moe-switchyard-cpu-0.moe-switchyard-cpu:7710 --transport=gateway"; do
  if /usr/bin/generate --target=$to --model=/models --mode=low_latency --tls-dir=/etc/switchyard-tls \\
      "--prompt=SELECT name FROM" --tokens=4 >/scratch/out 2>&1; then
    echo "LET IN"
  else
    echo "REFUSED $(tr '\\n' ' ' </scratch/out)"
  fi
done
"""


class Forwarded:
    """The coordinator's port on this machine, and the operator's certificate in a folder."""

    def __init__(self, release):
        self.folder = tempfile.TemporaryDirectory()
        self.fetch(release)
        self.process = subprocess.Popen(
            [release.kubectl_path, "-n", release.namespace, "port-forward",
             "service/moe-switchyard-coordinator", ":7700"], stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r"127.0.0.1:(\d+)", self.process.stdout.readline()).group(1))

    def fetch(self, release):
        """The certificate as it is now."""
        secret = json.loads(release.kubectl("get", "secret", "moe-switchyard-operator-tls", "-o", "json").stdout)
        for file in ("ca.crt", "tls.crt", "tls.key"):
            (pathlib.Path(self.folder.name) / file).write_bytes(base64.b64decode(secret["data"][file]))

    def serial(self):
        """That of the certificate with which the coordinator answers now."""
        context = ssl.create_default_context(cafile=f"{self.folder.name}/ca.crt")
        context.check_hostname = False
        context.load_cert_chain(f"{self.folder.name}/tls.crt", f"{self.folder.name}/tls.key")
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
            with context.wrap_socket(plain) as secured:
                return secured.getpeercert()["serialNumber"]

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.folder.cleanup()


def record(release):
    """{key: value} of the rotation that the Secret of the authority has."""
    secret = json.loads(release.kubectl("get", "secret", "moe-switchyard-authority", "-o", "json").stdout)
    text = base64.b64decode(secret["data"].get("rotation.yaml", "")).decode()
    return dict(line.split(": ", 1) for line in text.splitlines())


def knock(release, name):
    """What a Pod with the kept Secret meets at the coordinator and at a worker. It waits for whoever does not answer."""
    clients.start(release, name, KNOCK, secret="kept")
    release.kubectl("wait", f"job/{name}", "--for", "condition=complete", "--timeout", "150s", limit=170)
    return release.kubectl("logs", f"job/{name}", "-c", "generate").stdout.splitlines()[-2:]


def keep_the_certificate(release):
    """A copy of the Secret of `source`, which nobody renews."""
    secret = json.loads(release.kubectl("get", "secret", "moe-switchyard-source-tls", "-o", "json").stdout)
    kept = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept"}, "type": secret["type"],
            "data": secret["data"]}
    release.kubectl("apply", "-f", "-", text=json.dumps(kept))


def upgrade(release, values, phase):
    """One upgrade, which brings the rotation to this phase; another one at once changes nothing."""
    words = [*values, "--set", "security.certificates.rotateAuthority=life"]
    release.helm("upgrade", CHART, *words)
    begin = time.monotonic()
    now = record(release)
    assert now["phase"] == phase and now["word"] == "life", now
    if phase != "settled":
        release.helm("upgrade", CHART, *words)
        assert record(release) == now, "an upgrade that came too early has changed the phase"
    return begin


def wait_for_the_phase(begin):
    time.sleep(max(0, begin + PHASE_SECONDS + 2 - time.monotonic()))


def rotate(release, values):
    """All phases. A certificate of the old authority is let in until the last one, and refused afterwards."""
    forwarded = Forwarded(release)
    try:
        old = forwarded.serial()
        begin = upgrade(release, values, "announced")
        wait_for_the_phase(begin)
        forwarded.fetch(release)
        keep_the_certificate(release)
        begin = upgrade(release, values, "switched")
        until("new certificate of the coordinator", lambda: forwarded.serial() != old, PHASE_SECONDS)
        print(f"  a new certificate after {time.monotonic() - begin:.0f} s", flush=True)
        wait_for_the_phase(begin)
        assert knock(release, "knock") == ["LET IN"] * 2
        begin, tries = upgrade(release, values, "settled"), 0
        while True:
            answers = knock(release, f"knock-{tries}")
            if all(each.startswith("REFUSED") for each in answers):
                break
            assert time.monotonic() < begin + PHASE_SECONDS, answers
            tries += 1
        print(f"  the old authority's is refused after {time.monotonic() - begin:.0f} s", flush=True)
        assert all("UNAVAILABLE" in each or "unreachable" in each or "LOST" in each for each in answers), answers
        forwarded.fetch(release)
        assert forwarded.serial() != old
        release.kubectl("delete", "secret", "kept")
    finally:
        forwarded.close()
