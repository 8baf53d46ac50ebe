"""Builds the images twice and looks into them.

    image_test.py REPOSITORY BUILD [UNITTEST OPTIONS]

What is checked: two builds in different folders, the second with an empty cache, have equal digests; the
archives are whole; no image has more in it than its bill of materials says; service images have no shell;
the programs run from them as a user without rights on a read-only root. The errors of the builder name
what to do.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT, BUILD = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "deploy/image"))
from parts import elf, packages  # noqa: E402

BUILDER = ROOT / "deploy/image/build"
SERVICES = ["coordinator", "worker"]
IMAGES = [*SERVICES, "tools", "model-sqlite-moe-7m"]
NO_SHELL = {"sh", "bash", "dash", "busybox", "apt-get", "dpkg", "python3", "gcc"}


def run_builder(*arguments, builder=BUILDER, build=BUILD):
    return subprocess.run([sys.executable, str(builder), "--build", str(build), *map(str, arguments)],
                          capture_output=True, text=True, check=False, timeout=500)


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Archive:
    """An archive as who imports it sees it; every blob is checked against its name."""

    def __init__(self, path):
        with tarfile.open(path) as tar:
            self.members = tar.getmembers()
            self.files = {m.name: tar.extractfile(m).read() for m in self.members if m.isfile()}
        for name, data in self.files.items():
            if name.startswith("blobs/"):
                assert sha256(data) == name[len("blobs/"):].replace("/", ":"), name
        self.index = json.loads(self.files["index.json"])
        self.entry, = self.index["manifests"]
        self.manifest = json.loads(self.blob(self.entry))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.layers = [tarfile.open(fileobj=io.BytesIO(self.blob(layer)))
                       for layer in self.manifest["layers"]]

    def blob(self, descriptor):
        data = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(data) == descriptor["size"], descriptor
        return data

    def tree(self):
        """{path: TarInfo, data} of the root file system."""
        tree = {}
        for layer in self.layers:
            for member in layer.getmembers():
                data = layer.extractfile(member).read() if member.isfile() else None
                tree[member.name] = (member, data)
        return tree


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="switchyard-images-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        done = run_builder(cls.work / "one")
        assert done.returncode == 0, done.stderr
        cls.out = done.stdout
        cls.archives = {name: Archive(cls.work / "one" / f"{name}.tar") for name in IMAGES}

    def test_two_builds_have_equal_digests(self):
        only = [word for name in ("worker", "model-sqlite-moe-7m") for word in ("--only", name)]
        done = run_builder(*only, "--cache", self.work / "empty", self.work / "elsewhere/two")

        self.assertEqual(done.returncode, 0, done.stderr)
        first = (self.work / "one/images.tsv").read_text().splitlines()
        second = (self.work / "elsewhere/two/images.tsv").read_text().splitlines()
        self.assertEqual(len(second), 2)
        self.assertLess(set(second), set(first))
        for name in ("worker", "model-sqlite-moe-7m"):
            for file in (f"{name}.tar", f"{name}.spdx.json"):
                self.assertEqual((self.work / "one" / file).read_bytes(),
                                 (self.work / "elsewhere/two" / file).read_bytes(), file)

    def test_archives_are_whole(self):
        for name, archive in self.archives.items():
            with self.subTest(name):
                self.assertEqual(json.loads(archive.files["oci-layout"]),
                                 {"imageLayoutVersion": "1.0.0"})
                reference = archive.entry["annotations"]["io.containerd.image.name"]
                self.assertRegex(reference, rf"^localhost/switchyard/{name}:\d+\.\d+\.\d+$")
                docker, = json.loads(archive.files["manifest.json"])
                self.assertEqual(docker["RepoTags"], [reference])
                self.assertTrue(all(file in archive.files for file in docker["Layers"]))
                diff_ids = archive.config["rootfs"]["diff_ids"]
                plain = [sha256(gzip.decompress(archive.blob(layer)))
                         for layer in archive.manifest["layers"]]
                self.assertEqual(diff_ids, plain)
                self.assertEqual(archive.config["config"]["User"], "65532:65532")
                labels = archive.config["config"]["Labels"]
                for label in ("title", "description", "version", "revision", "licenses", "created"):
                    self.assertTrue(labels["org.opencontainers.image." + label], label)

    def test_entries_are_sorted_and_have_one_time(self):
        for name, archive in self.archives.items():
            for layer in archive.layers:
                members = layer.getmembers()
                self.assertEqual([m.name for m in members], sorted(m.name for m in members), name)
                self.assertEqual(len({m.mtime for m in members}), 1, name)
                self.assertEqual([m.name for m in members if m.mode & 0o6000], [], name)
                writable = [m.name for m in members if m.mode & 0o022 and not m.issym()]
                self.assertLessEqual(set(writable), {"tmp"}, name)

    def test_service_images_have_no_shell(self):
        for name in SERVICES:
            names = {os.path.basename(path) for path in self.archives[name].tree()}
            self.assertEqual(names & NO_SHELL, set(), name)

    def test_bills_of_materials_are_the_file_systems(self):
        for name, archive in self.archives.items():
            with self.subTest(name):
                bill = json.loads((self.work / "one" / f"{name}.spdx.json").read_text())
                listed = {file["fileName"]: file["checksums"][1]["checksumValue"]
                          for file in bill["files"]}
                there = {"./" + path: hashlib.sha256(data).hexdigest()
                         for path, (_, data) in archive.tree().items() if data is not None}
                self.assertEqual(listed, there)
                owned = [r["relatedSpdxElement"] for r in bill["relationships"]
                         if r["relationshipType"] == "CONTAINS"]
                self.assertEqual(sorted(owned), sorted(f["SPDXID"] for f in bill["files"]))
                self.assertIn(archive.entry["digest"], bill["comment"])
                locked = {row[:2] for row in packages.read_lock(ROOT / "deploy/image/packages.lock")}
                for package in bill["packages"][1:]:
                    self.assertIn((package["name"], package["versionInfo"]), locked)
                    self.assertTrue(self.has_license(archive.tree(), package["name"]), package)

    @staticmethod
    def has_license(tree, package):
        folder = "usr/share/doc/" + package
        if folder in tree and tree[folder][0].issym():
            folder = "usr/share/doc/" + tree[folder][0].linkname
        return folder + "/copyright" in tree

    def test_every_library_is_in_the_image(self):
        folder = "usr/lib/x86_64-linux-gnu/"
        for name, archive in self.archives.items():
            tree, needed = archive.tree(), set()
            for path, (_, data) in tree.items():
                if data is not None and elf.is_elf(data):
                    found = elf.Elf(data)
                    needed |= set(found.needed)
                    if found.interpreter:
                        self.assertTrue("usr" + found.interpreter in tree, path)
            self.assertEqual([n for n in sorted(needed) if folder + n not in tree], [], name)

    def test_without_a_cuda_build_that_image_is_refused(self):
        self.assertIn("worker-cuda: left out", self.out)

        done = run_builder("--cuda-build", self.work, "--only", "worker-cuda", self.work / "cuda")

        self.assertEqual(done.returncode, 1)
        self.assertIn("worker-cuda needs a build with the CUDA device", done.stderr)
        self.assertIn("scripts/build cuda", done.stderr)

    def test_they_serve_without_rights_on_a_read_only_root(self):
        """Coordinator, worker and verify, each in the root of its image."""
        if subprocess.run(["unshare", "--net", "--mount", "true"], check=False).returncode != 0:
            self.skipTest("no mount and network namespaces here")
        roots = self.work / "roots"
        for name, archive in self.archives.items():
            for layer in archive.layers:
                layer.extractall(roots / name, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
            (roots / name / "models").mkdir(exist_ok=True)

        done = subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash",
             str(ROOT / "tests/image/serve.sh"), str(roots)],
            capture_output=True, text=True, check=False, timeout=120)

        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, output)
        self.assertIn("verified: within bounds", output)
        self.assertIn("copied golden.safetensors", output)


class ErrorsTest(unittest.TestCase):
    """A copy of the builder with another lock."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="switchyard-images-"))
        self.addCleanup(shutil.rmtree, self.work)
        shutil.copytree(ROOT / "deploy/image", self.work / "deploy/image")
        for file in ("CMakeLists.txt", "LICENSE"):
            shutil.copy(ROOT / file, self.work / file)
        self.lock = self.work / "deploy/image/packages.lock"

    def build(self, rows):
        packages.write_lock(self.lock, rows)
        done = run_builder("--only", "coordinator", self.work / "out",
                           builder=self.work / "deploy/image/build")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("--update-lock", done.stderr)
        return done.stderr

    def test_a_version_that_the_mirror_no_longer_has(self):
        text = self.build([("zlib1g", "1:0.1-1", "0" * 64)])

        self.assertIn("cannot get zlib1g 1:0.1-1", text)

    def test_another_package_than_the_locked_one(self):
        rows = packages.read_lock(self.lock)
        name, version, _ = next(row for row in rows if row[0] == "zlib1g")

        text = self.build([(name, version, "0" * 64)])

        self.assertIn("zlib1g " + version + " has SHA-256", text)

    def test_a_library_that_no_package_has(self):
        rows = [row for row in packages.read_lock(self.lock) if row[0] != "libsqlite3-0"]

        text = self.build(rows)

        self.assertIn("switchyard-coordinator needs libsqlite3.so.0", text)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
