"""Debian packages of a lock file: fetched by name and version, checked by SHA-256, read without dpkg.

packages.lock has one package a line: name, version, SHA-256 of the .deb. The mirror keeps a version
only until a newer one replaces it; the error of `fetch` then names the command that renews the lock.
"""

import hashlib
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile

UPDATE = "deploy/image/build --update-lock"


class LockError(Exception):
    """A package that cannot be had as the lock has it, or a library that no package of it has."""


def read_lock(path):
    """[(name, version, sha256)] of a lock file."""
    rows = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, version, digest = line.split("\t")
            rows.append((name, version, digest))
    return rows


def write_lock(path, rows):
    text = "# The Debian packages whose files are in the images. deploy/image/build --update-lock\n"
    text += "# writes this file.\n# name\tversion\tSHA-256 of the .deb\n"
    path.write_text(text + "".join("\t".join(row) + "\n" for row in sorted(rows)))


def _apt(arguments, folder=None):
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=600)


def fetch(row, cache):
    """The path of a package's .deb in `cache`, downloaded if it is not there."""
    name, version, digest = row
    path = cache / f"{digest}.deb"
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        done = _apt(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3",
                     "download", f"{name}={version}"], folder)
        found = sorted(pathlib.Path(folder).glob("*.deb"))
        if done.returncode != 0 or len(found) != 1:
            raise LockError(
                f"cannot get {name} {version}: {done.stderr.strip() or 'nothing was downloaded'}\n"
                f"If the package lists are old, 'apt-get update' helps. If the mirror no longer has "
                f"this version, '{UPDATE}' writes the versions that it has.")
        got = hashlib.sha256(found[0].read_bytes()).hexdigest()
        if got != digest:
            raise LockError(f"{name} {version} has SHA-256 {got}, and packages.lock has {digest}: "
                            f"do not use it before you know why; '{UPDATE}' takes it over")
        os.replace(found[0], path)
    return path


def candidate(name):
    """The lock's row for the version of a package that apt would install now."""
    done = _apt(["apt-cache", "show", "--no-all-versions", name])
    fields = dict(line.split(": ", 1) for line in done.stdout.splitlines()
                  if ": " in line and line[0] != " ")
    policy = _apt(["apt-cache", "policy", name]).stdout
    version = next((line.split()[1] for line in policy.splitlines() if "Candidate:" in line), None)
    if done.returncode != 0 or fields.get("Version") != version:
        raise LockError(f"apt knows no package {name}; run 'apt-get update'")
    return name, version, fields["SHA256"]


class Package:
    """What an image takes from a .deb: its regular files and links, by path from the root."""

    def __init__(self, row, path):
        self.name, self.version, self.digest = row
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], check=True,
                              capture_output=True, timeout=120).stdout
        self.files, self.links = {}, {}
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                name = merged(os.path.normpath("/" + member.name.lstrip("./")))
                if member.isfile():
                    self.files[name] = (member.mode, tar.extractfile(member).read())
                elif member.issym():
                    self.links[name] = member.linkname

    def resolve(self, path):
        """The path of the regular file that `path` is, or is a link to, in this package, or None."""
        for _ in range(8):
            if path in self.files:
                return path
            if path not in self.links:
                return None
            path = merged(os.path.normpath(os.path.join(os.path.dirname(path), self.links[path])))
        return None


def merged(path):
    """Below /usr, where /bin, /sbin, /lib and /lib64 are links to in an image, as in Debian itself."""
    for top in ("/bin/", "/sbin/", "/lib/", "/lib64/"):
        if path.startswith(top):
            return "/usr" + path
    return path
