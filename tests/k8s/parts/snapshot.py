"""What a node could leave behind on the host, read before and after."""
import os
import pathlib
import shutil
import subprocess

from parts import processes

NAMESPACES = ["pid", "net", "mnt", "cgroup", "uts", "ipc"]
# Settings whose values change by themselves.
MOVING = ("kernel/random/", "fs/dentry-state", "fs/inode-", "fs/file-nr", "fs/quota/", "kernel/ns_last_pid",
          "kernel/pty/nr", "net/netfilter/nf_conntrack_count", "fs/aio-nr", "kernel/keys/", "fs/nfs", "net/rds")


def _output(*command):
    """The lines of a command; None if it is not installed."""
    if not shutil.which(command[0]):
        return None
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    # Counters of packets are no rules.
    return [line.split(" counter packets")[0] for line in done.stdout.splitlines() if not line.startswith("#")]


def _files(root, depth=6):
    base = pathlib.Path(root)
    found = []
    for path, folders, names in os.walk(base):
        if len(pathlib.Path(path).relative_to(base).parts) >= depth:
            folders.clear()
        found += [os.path.join(path, name) for name in folders + names]
    return sorted(found)


def _settings():
    values = {}
    for path in _files("/proc/sys", depth=8):
        name = path.removeprefix("/proc/sys/")
        if name.startswith(MOVING) or not os.path.isfile(path):
            continue
        try:
            values[name] = pathlib.Path(path).read_text(errors="replace")
        except OSError:
            continue
    return values


def _cgroups(own):
    """Folders of cgroups, less those of nodes other than `own`, which may run at the same time."""
    return sorted(path for path in _files("/sys/fs/cgroup", depth=8)
                  if os.path.isdir(path) and (own in path or "/switchyard-k8s-" not in path))


def namespaces_of(pid):
    found = set()
    for kind in NAMESPACES:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return found


def processes_in(namespaces):
    """Processes of the host that are in one of these namespaces. One that has ended and that the host's first process
    has not yet waited for is none."""
    return sorted(pid for pid in os.listdir("/proc") if pid.isdigit() and namespaces_of(pid) & set(namespaces)
                  and processes.start_time(pid) is not None)


def processes_naming(text):
    """Processes whose command line holds `text`, other than this one and its parents."""
    own, pid = set(), os.getpid()
    while pid > 1:
        own.add(str(pid))
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        pid = int(fields[1])
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or pid in own:
            continue
        try:
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return sorted(found)


def take(own):
    """The state of the host, for a node whose cgroups are called `own`."""
    return {
        "mounts": pathlib.Path("/proc/self/mountinfo").read_text().splitlines(),
        "links": _output("ip", "-o", "link"),
        "addresses": _output("ip", "-o", "address"),
        "routes": _output("ip", "route", "show", "table", "all"),
        "network namespaces": _output("ip", "netns", "list"),
        "nft rules": _output("nft", "list", "ruleset"),
        "iptables rules": _output("iptables-save"),
        "cgroups": _cgroups(own),
        "settings": _settings(),
        "run": _files("/run"),
        "tmp": [name for name in os.listdir("/tmp") if "k8s" in name or "containerd" in name],
        "etc": _files("/etc/cni") + _files("/etc/containerd") + _files("/etc/kubernetes"),
        "lib": _files("/var/lib/kubelet") + _files("/var/lib/containerd") + _files("/var/lib/cni"),
    }


def differences(before, after):
    """One line for each thing that is not as it was."""
    lines = []
    for name, old in before.items():
        new = after[name]
        if old == new:
            continue
        if isinstance(old, dict):
            lines += [f"{name}: {key} is {new.get(key)!r}, was {old.get(key)!r}"
                      for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        else:
            lines += [f"{name}: gone: {item}" for item in old or [] if item not in (new or [])]
            lines += [f"{name}: new: {item}" for item in new or [] if item not in (old or [])]
    return lines
