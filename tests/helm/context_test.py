"""Tests that change a cluster take the one that was named, and never the current one of KUBECONFIG."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import release
import yaml

SMOKE = pathlib.Path(__file__).with_name("smoke_test.py")


def kubeconfig(folder):
    """One of two contexts, of which "used-now" is the current one."""
    names = ("used-now", "for-tests")
    path = pathlib.Path(folder) / "config"
    path.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": names[0],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.invalid"}} for name in names],
        "users": [{"name": name, "user": {"token": f"token-of-{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names]}))
    return str(path)


def smoke(environment, *words):
    return subprocess.run([sys.executable, "-B", str(SMOKE), *words], env=environment, capture_output=True, text=True, check=False,
                          timeout=60)


class ContextTest(unittest.TestCase):
    def test_without_a_name_nothing_begins(self):
        with tempfile.TemporaryDirectory() as folder:
            done = smoke(os.environ | {"KUBECONFIG": kubeconfig(folder)})
        self.assertEqual(done.returncode, 2, done.stderr)
        for part in ("give --context NAME", "CONTEXT=NAME", "kubectl config get-contexts -o name"):
            self.assertIn(part, done.stderr)

    def test_a_name_is_of_kubeconfig(self):
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        done = smoke(environment, "--context", "for-tests")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("KUBECONFIG", done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            done = smoke(os.environ | {"KUBECONFIG": kubeconfig(folder)}, "--context", "unknown")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("unknown", done.stderr)

    def test_commands_see_only_the_one_that_was_named(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["KUBECONFIG"] = kubeconfig(folder)
            self.addCleanup(os.environ.pop, "KUBECONFIG")
            text = pathlib.Path(release.only_this_context("for-tests", tempfile.mkdtemp(dir=folder))).read_text()
        self.assertEqual(yaml.safe_load(text)["current-context"], "for-tests")
        self.assertIn("https://for-tests.invalid", text)
        self.assertIn("token-of-for-tests", text)
        self.assertNotIn("used-now", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
