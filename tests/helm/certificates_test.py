"""The script of the chart's Job for certificates, against an API of Secrets that is in this process.

    certificates_test.py BUILD      with syctl of that build
"""

import base64
import contextlib
import datetime
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "helm/switchyard/files/certificates.sh"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
HOLDERS = {"coordinator": "coordinator", "cpu": "worker", "apply": "operator", "test": "source,observer",
           "source": "source", "operator": "operator"}
PLAIN = {"ca.crt", "ca.key"}
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/release").resolve()


class Api:
    """Keeps Secrets as Kubernetes does: {name: {file: bytes}}."""

    def __init__(self):
        self.secrets = {}
        self.writes = []  # (name, Unix time)
        self.refuse_after = None  # so many writes; the next one is refused
        self.delay_s = 0.0
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, code, name=""):
                body = json.dumps({"metadata": {"name": name, "managedFields": [{"f:next.crt": {}, "f:ca.crt": {}}]},
                                   "data": {file: base64.b64encode(value).decode() for file, value in
                                            api.secrets.get(name, {}).items()}}, indent=2).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def body(self):
                assert self.headers["Authorization"] == "Bearer token"
                return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

            def do_GET(self):
                name = self.path.split("/")[-1]
                self.answer(200 if name in api.secrets else 404, name)

            def do_PATCH(self):
                name, patch = self.path.split("/")[-1], self.body()
                if name not in api.secrets:
                    return self.answer(404)
                return self.write(200, name, patch)

            def do_POST(self):
                new = self.body()
                assert None not in new["data"].values(), new
                assert new["type"] == ("Opaque" if new["metadata"]["name"] == "rel-authority" else "kubernetes.io/tls")
                return self.write(201, new["metadata"]["name"], new)

            def write(self, code, name, new):
                if api.refuse_after is not None and len(api.writes) >= api.refuse_after:
                    return self.answer(422, name)
                time.sleep(api.delay_s)
                data = api.secrets.setdefault(name, {})
                for file, value in new["data"].items():
                    data.pop(file, None)
                    if value is not None:
                        data[file] = base64.b64decode(value, validate=True)
                api.writes.append((name, time.time()))
                return self.answer(code, name)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/api/v1/namespaces/n/secrets"

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def copy(self):
        return {name: dict(files) for name, files in self.secrets.items()}


class CertificatesScriptTest(unittest.TestCase):
    def setUp(self):
        self.api = Api()
        self.addCleanup(self.api.close)

    def job(self, word="", holders=None):
        """One run, as the Job's. (exit code, output)"""
        with tempfile.TemporaryDirectory() as folder:
            account = pathlib.Path(folder, "account")
            account.mkdir()
            (account / "token").write_text("token")
            (account / "ca.crt").write_text("")
            work = pathlib.Path(folder, "work")
            work.mkdir()
            script = SCRIPT.read_text()
            for path, own in ((ACCOUNT, account), ("cd /work\n", f"cd {work}\n")):
                self.assertEqual(script.count(path), 1, path)
                script = script.replace(path, str(own))
            # The image of tools has no other programs.
            programs = pathlib.Path(folder, "bin")
            programs.mkdir()
            applets, = re.findall(r"^APPLETS = \[(.*?)\]", (ROOT / "deploy/image/build").read_text(), re.M | re.S)
            for program in (*re.findall(r'"(\w+)"', applets), "curl"):
                if shutil.which(program):
                    (programs / program).symlink_to(shutil.which(program))
            (programs / "syctl").symlink_to(BUILD / "bin/syctl")
            listed = " ".join(f"{each}=rel-{each}-tls={HOLDERS[each]}" for each in holders or HOLDERS)
            done = subprocess.run(
                [programs / "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60,
                env={"PATH": str(programs), "API": self.api.url, "INSTANCE": "rel",
                     "TRUST_DOMAIN": "moe.example", "PREFIX": "ns/n/sa/rel-", "DAYS": "365",
                     "ROTATE_AUTHORITY": word, "AUTHORITY": "rel-authority", "HOLDERS": listed})
            return done.returncode, done.stdout + done.stderr

    def run_job(self, word="", **options):
        code, out = self.job(word, **options)
        self.assertEqual(code, 0, out)
        return out

    def record(self):
        text = self.api.secrets["rel-authority"]["rotation.yaml"].decode()
        return dict(line.split(": ", 1) for line in text.splitlines())

    def since(self):
        return datetime.datetime.fromisoformat(self.record()["since"].replace("Z", "+00:00")).timestamp()

    def let_it_wait(self):
        """As if 150 s had gone by."""
        then = datetime.datetime.fromtimestamp(self.since() - 150, datetime.timezone.utc)
        text = self.api.secrets["rel-authority"]["rotation.yaml"].decode()
        self.api.secrets["rel-authority"]["rotation.yaml"] = text.replace(
            self.record()["since"], then.strftime("%Y-%m-%dT%H:%M:%SZ")).encode()

    def trusts(self, bundle, certificate):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("ca", bundle), ("leaf", certificate)):
                pathlib.Path(folder, name).write_bytes(content)
            return subprocess.run(["openssl", "verify", "-no-CApath", "-no-CAstore", "-CAfile", f"{folder}/ca",
                                   f"{folder}/leaf"], capture_output=True, check=False, timeout=20).returncode == 0

    def assert_all_trust(self, *states):
        """Everybody everybody, each with the Secrets of any of these states."""
        bundles = {state[f"rel-{each}-tls"]["ca.crt"] for state in states for each in HOLDERS}
        leaves = {state[f"rel-{each}-tls"]["tls.crt"] for state in states for each in HOLDERS}
        for bundle in bundles:
            for leaf in leaves:
                self.assertTrue(self.trusts(bundle, leaf))

    def test_makes_secrets_and_leaves_good_ones_alone(self):
        self.run_job()
        self.assertEqual(set(self.api.secrets), {"rel-authority", *(f"rel-{each}-tls" for each in HOLDERS)})
        # As a chart before the rotation made them: the next test begins with such a release.
        self.assertEqual(set(self.api.secrets["rel-authority"]), PLAIN)
        self.assert_all_trust(self.api.copy())
        before = self.api.copy()
        self.run_job()
        self.assertEqual(self.api.secrets, before)

    def test_three_runs_replace_the_authority(self):
        self.run_job()
        installed = self.api.copy()

        out = self.run_job("a")
        self.assertIn("next authority is announced", out)
        announced = self.api.copy()
        self.assertEqual(set(announced["rel-authority"]), PLAIN | {"next.crt", "next.key", "rotation.yaml"})
        self.assert_all_trust(installed, announced)
        self.assertIn("run 'syctl certs ensure' again", self.run_job("a"))
        self.assertEqual(self.api.secrets, announced, "too early for the next phase")

        self.let_it_wait()
        self.run_job()  # the word is needed no more
        switched = self.api.copy()
        self.assertEqual(set(switched["rel-authority"]), PLAIN | {"previous.crt", "rotation.yaml"})
        self.assertEqual(switched["rel-authority"]["ca.key"], announced["rel-authority"]["next.key"])
        self.assert_all_trust(announced, switched)

        self.let_it_wait()
        self.assertIn("no ca.crt here has one of before", self.run_job("a"))
        settled = self.api.copy()
        self.assertEqual(self.record()["phase"], "settled")
        self.assert_all_trust(switched, settled)
        for each in HOLDERS:
            self.assertFalse(self.trusts(settled["rel-cpu-tls"]["ca.crt"], installed[f"rel-{each}-tls"]["tls.crt"]))
        self.run_job("a")
        self.assertEqual(self.api.secrets, settled, "one word has begun two rotations")

    def test_a_run_that_ends_half_way_leaves_nobody_distrusted(self):
        self.run_job()
        for phase in ("announced", "switched", "settled"):
            before = self.api.copy()
            for writes in (0, 1, 3, len(HOLDERS), len(HOLDERS) + 1):
                self.api.secrets = {name: dict(files) for name, files in before.items()}
                self.api.writes, self.api.refuse_after = [], writes
                code, out = self.job("a")
                self.assertEqual(code, 1, out)
                self.assertIn("FAILED: cannot write secret", out)
                self.api.refuse_after = None
                half = self.api.copy()
                self.assert_all_trust(before, half)
                if writes == 0:
                    continue
                self.let_it_wait()
                self.run_job("a")
                self.assert_all_trust(half, self.api.copy())
                self.assertEqual(self.record()["phase"], phase, "somebody's time is not over yet")
            self.api.secrets = before
            with contextlib.suppress(KeyError):
                self.let_it_wait()
            self.run_job("a")
            self.assertEqual(self.record()["phase"], phase)
            self.let_it_wait()

    def test_the_wait_begins_when_the_last_secret_is_written(self):
        self.run_job()
        self.api.delay_s, self.api.writes = 0.4, []
        self.run_job("a")
        last = max(when for name, when in self.api.writes if name != "rel-authority")
        self.assertGreaterEqual(self.since(), int(last))
        self.assertGreater(last - self.api.writes[0][1], 1, "the control: it took a while")

    def test_a_deleted_secret_starts_the_wait_anew(self):
        self.run_job()
        self.run_job("a")
        self.let_it_wait()
        del self.api.secrets["rel-cpu-tls"]
        self.run_job("a")
        self.assertEqual(self.record()["phase"], "announced")
        self.let_it_wait()
        self.run_job("a")
        self.assertEqual(self.record()["phase"], "switched")

    def test_a_damaged_secret_is_named(self):
        self.run_job()
        self.run_job("a")
        del self.api.secrets["rel-authority"]["ca.key"]
        code, out = self.job("a")
        self.assertEqual(code, 1)
        self.assertIn("secret rel-authority has no ca.key", out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
