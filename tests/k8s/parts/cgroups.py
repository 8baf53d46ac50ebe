"""Cgroups of a node, on the host: one folder in each hierarchy, in which the node believes to be at the root."""
import dataclasses
import os
import pathlib

from parts.waiting import wait_until

# Hierarchies that the kubelet and runc use. A version-2 tree is one hierarchy.
NAMED = "name="


@dataclasses.dataclass(frozen=True)
class Hierarchy:
    mount: pathlib.Path   # where the host has it
    options: str          # what a version-1 hierarchy is mounted with; empty for version 2
    own: str              # path of this process in it

    def folder(self, name):
        """Where a node's cgroup lies: below this process's, so that its limits hold; at the root in version 2,
        where a cgroup with processes has no children."""
        below = self.mount / self.own.lstrip("/") if self.options else self.mount
        return (below if below.is_dir() else self.mount) / name


def parse(mountinfo, membership):
    """The hierarchies that /proc/self/mountinfo and /proc/self/cgroup describe. If there are version-1
    hierarchies, a version-2 tree beside them has no controllers and is left out."""
    own = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    first, second, seen = [], [], set()
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        mount = pathlib.Path(fields.split()[4])
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup2":
            second.append(Hierarchy(mount, "", own.get("", "/")))
        if kind != "cgroup":
            continue
        names = [o for o in options.split(",") if o in own]
        if not names or tuple(names) in seen:
            continue
        seen.add(tuple(names))
        text = ",".join(names)
        first.append(Hierarchy(mount, ("none," if text.startswith(NAMED) else "") + text, own[names[0]]))
    return first or second[:1]


def hierarchies():
    with open("/proc/self/mountinfo", encoding="utf-8") as mountinfo, \
            open("/proc/self/cgroup", encoding="utf-8") as membership:
        return parse(mountinfo.read(), membership.read())


def plan(name):
    """The folders of a node called `name`. They depend on the cgroup of the caller, so that they are
    recorded before they are made."""
    return [str(hierarchy.folder(name)) for hierarchy in hierarchies()]


def create(folders):
    """Makes the folders and returns the files that take a pid into each."""
    for folder in map(pathlib.Path, folders):
        folder.mkdir(exist_ok=True)
        # A new cpuset of version 1 is empty and takes no process before it has CPUs and memory nodes.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (folder / setting).exists() and not (folder / "cgroup.controllers").exists():
                (folder / setting).write_text((folder.parent / setting).read_text())
    return [f"{folder}/cgroup.procs" for folder in folders]


def remove(folders, seconds=15):
    """Removes the folders, waiting for the last processes in them to end."""
    for folder in map(pathlib.Path, folders):
        wait_until(lambda f=folder: _remove_tree(f), seconds, f"the end of all processes in {folder}")


def _remove_tree(folder):
    """Whether the folder and all below it are gone; they cannot go while a process is in one."""
    for path, _, _ in list(os.walk(folder, topdown=False)):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return not folder.exists()
