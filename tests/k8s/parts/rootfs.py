"""Gives the node a root of its own, inside its mount namespace.

The host's programs and libraries are there read-only. What the node writes is in memory or in the state folder, so that
nothing of the host's file system can change. Runs as the first process of the namespaces, before any part of the node.
"""
import os
import pathlib
import subprocess

from parts import layout

PROGRAMS = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"]
COPIED = ["passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf"]
DEVICES = ["null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse"]
# What the kubelet insists on and would otherwise set for the whole machine. The node sees files of its own in their
# places, with the values that the kubelet wants.
TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=30, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.decode(errors='replace').strip()}")


def mount(*arguments):
    run("mount", *map(str, arguments))


def bind(source, target, read_only=True):
    target.mkdir(parents=True, exist_ok=True)
    mount("--bind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)


def tmpfs(target, mode="0755"):
    target.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", target)


def _host_programs(root):
    for name in PROGRAMS:
        path = pathlib.Path("/") / name
        if path.is_symlink():
            (root / name).symlink_to(os.readlink(path))
        elif path.is_dir():
            bind(path, root / name)


def _etc(root, pki):
    etc = root / "etc"
    (etc / "cni/net.d").mkdir(parents=True)
    for name in COPIED:
        path = pathlib.Path("/etc") / name
        if path.exists():
            (etc / name).write_bytes(path.read_bytes())
    # iptables is a link into this folder.
    bind("/etc/alternatives", etc / "alternatives")
    (etc / "hostname").write_text(layout.NODE_NAME + "\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{layout.NODE_IP} {layout.NODE_NAME}\n")
    (etc / "resolv.conf").write_text(f"nameserver {layout.NODE_IP}\n")
    (etc / "machine-id").write_text(os.urandom(16).hex() + "\n")
    bind(pki, root / layout.PKI.lstrip("/"))


def _dev(root):
    dev = root / "dev"
    tmpfs(dev)
    for name in DEVICES:
        if pathlib.Path("/dev", name).exists():
            (dev / name).touch()
            mount("--bind", f"/dev/{name}", dev / name)
    for name, kind, options in (("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"),
                                ("shm", "tmpfs", "mode=1777"), ("mqueue", "mqueue", "")):
        (dev / name).mkdir()
        mount("-t", kind, *(["-o", options] if options else []), kind, dev / name)
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
                         ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        (dev / name).symlink_to(target)


def _sys(root, hierarchies):
    (root / "sys").mkdir()
    mount("-t", "sysfs", "sysfs", root / "sys")
    groups = root / "sys/fs/cgroup"
    if len(hierarchies) == 1 and not hierarchies[0].options:
        mount("-t", "cgroup2", "cgroup2", groups)
        return
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", groups)
    for hierarchy in hierarchies:
        folder = groups / hierarchy.options.removeprefix("none,").removeprefix("name=")
        folder.mkdir()
        mount("-t", "cgroup", "-o", hierarchy.options, "cgroup", folder)


def _proc(root):
    (root / "proc").mkdir()
    mount("-t", "proc", "proc", root / "proc")
    own = root / "run/tunables"
    own.mkdir()
    for name, value in TUNABLES.items():
        path = root / "proc/sys" / name
        if path.exists():
            file = own / name.replace("/", ".")
            file.write_text(f"{value}\n")
            mount("--bind", file, path)


def enter(state, tools, hierarchies):
    """Builds the root below `state` and makes it this process's root and that of all its children."""
    root = state.root
    root.mkdir(exist_ok=True)
    mount("--make-rprivate", "/")
    tmpfs(root)
    _host_programs(root)
    _etc(root, state.pki)
    _dev(root)
    _sys(root, hierarchies)
    for name, mode in (("run", "0755"), ("tmp", "1777")):
        tmpfs(root / name, mode)
    _proc(root)
    bind(state.var, root / "var", read_only=False)
    (root / "var/run").symlink_to("/run")
    bind(state.logs, root / layout.LOGS.lstrip("/"), read_only=False)
    bind(state.volumes, root / "volumes", read_only=False)
    bind(tools, root / layout.BIN.lstrip("/"))
    (root / "old").mkdir()
    (root / "root").mkdir(mode=0o700)
    os.chdir(root)
    run("pivot_root", ".", "old")
    os.chroot(".")
    os.chdir("/")
    mount("--make-rshared", "/")
    mount("--make-rprivate", "/old")
    run("umount", "-l", "/old")
    os.rmdir("/old")
