"""The node's process on the host: makes the cgroups and the namespaces, waits for the node's end and removes the cgroups.

If this process is killed, the kernel ends the node; its empty cgroups stay until `cluster down`.
"""
import ctypes
import json
import os
import signal
import subprocess
import sys

from parts import cgroups, layout, processes
from parts.waiting import wait_until

PR_SET_PDEATHSIG = 1
NAMESPACES = ["--pid", "--mount", "--net", "--uts", "--ipc", "--cgroup"]
PYTHON = "/usr/bin/python3"


def _interpreter():
    """The node has the host's /usr only, so that an interpreter elsewhere would lack its library there."""
    return PYTHON if os.access(PYTHON, os.X_OK) else sys.executable


def keep(state, options):
    """Runs the node until it ends or SIGTERM comes; `options` are parts.boot's."""
    libc = ctypes.CDLL(None, use_errno=True)
    folders = cgroups.plan(state.name)
    state.write_record(keeper=processes.identify(os.getpid()), cgroups=folders)
    joins = cgroups.create(folders)

    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for join in joins:
            with open(join, "w", encoding="ascii") as procs:
                procs.write("0")

    descriptors = (options["listener"], options["report"], options["leash"])
    with subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--", _interpreter(), "-B", "-m", "parts.boot",
             json.dumps(options)],
            cwd=layout.REPOSITORY / "tests/k8s", stdin=subprocess.DEVNULL, pass_fds=descriptors,
            preexec_fn=prepare) as unshare:
        for descriptor in descriptors:
            os.close(descriptor)
        first = {}

        def stop(*_):
            processes.kill(first) or unshare.kill()

        signal.signal(signal.SIGTERM, stop)
        wait_until(lambda: processes.only_child(unshare.pid) or unshare.poll() is not None, 10,
                   "the start of the node's first process")
        pid = processes.only_child(unshare.pid)
        if pid:
            first.update(processes.identify(pid))
            state.write_record(first=first)
        unshare.wait()
    cgroups.remove(folders)
    return 0
