"""The shared libraries that programs load, out of the packages of the lock."""

import os

from parts.elf import Elf, is_elf
from parts.packages import LockError, UPDATE

FOLDER = "/usr/lib/x86_64-linux-gnu"


class Libraries:
    """Finds libraries by the name with which programs load them."""

    def __init__(self, packages):
        self._by_name = {}
        for package in packages:
            for path in [*package.files, *package.links]:
                file = package.resolve(path)
                if os.path.dirname(path) == FOLDER and ".so" in path and file:
                    self._by_name.setdefault(os.path.basename(path), (package, file))

    def closure(self, programs, modules=()):
        """{soname: (package, path in it)} of all that `programs` load, directly or not.

        `programs` are {name: bytes}. `modules` are paths that a program opens by itself.
        """
        found = {}
        waiting = [(need, name) for name, data in sorted(programs.items())
                   for need in Elf(data).needed]
        for package, path in modules:
            waiting += [(need, path) for need in Elf(package.files[path][1]).needed]
        while waiting:
            soname, user = waiting.pop()
            if soname in found:
                continue
            if soname not in self._by_name:
                raise LockError(f"{user} needs {soname}, which no package of packages.lock has; "
                                f"'{UPDATE}' adds it")
            package, path = found[soname] = self._by_name[soname]
            waiting += [(need, path) for need in Elf(package.files[path][1]).needed]
        return found


def host_packages(programs, modules):
    """Names of the Debian packages of this machine that have what `programs` and `modules` load."""
    import subprocess  # only the update of the lock looks at the machine
    paths, waiting = set(modules), list(programs) + list(modules)
    while waiting:
        path = waiting.pop()
        with open(path, "rb") as file:
            data = file.read()
        for need in Elf(data).needed if is_elf(data) else []:
            library = f"{FOLDER}/{need}"
            if not os.path.exists(library):
                raise LockError(f"{path} needs {need}, and {library} is not there; install the "
                                "packages of scripts/packages.txt first")
            if library not in paths:
                paths.add(library)
                waiting.append(library)
    names = set()
    for path in paths:
        for spelling in (path, path.removeprefix("/usr"), os.path.realpath(path),
                         os.path.realpath(path).removeprefix("/usr")):
            done = subprocess.run(["dpkg-query", "--search", spelling], capture_output=True,
                                  text=True, check=False, timeout=60)
            if done.returncode == 0:
                names.add(done.stdout.split(":")[0])
                break
        else:
            raise LockError(f"no package has installed {path}")
    # Packages of one source may have their license in one of them, and a link to its folder.
    names |= {os.readlink(f"/usr/share/doc/{name}") for name in names
              if os.path.islink(f"/usr/share/doc/{name}")}
    return names
