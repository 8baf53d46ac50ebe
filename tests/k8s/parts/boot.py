"""The first process of the node's namespaces: builds the node, starts its parts and forwards connections to the API server.

When it ends, the kernel ends every process of the node and with the last one its mounts, links and rules.
  python3 -m parts.boot JSON     with the keys of Options
"""
import asyncio
import dataclasses
import http.client  # noqa: F401  Imported before the root changes, as are all modules that are needed later.
import json
import os
import pathlib
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

from parts import archive, cgroups, components, layout, network, rootfs
from parts.forwarder import Forwarder
from parts.waiting import Timeout, wait_until

START_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Options:
    state: str     # folder of the node on the host
    tools: str     # folder of the programs on the host
    listener: int  # descriptor of a listening socket of the host
    report: int    # descriptor that takes one line of JSON for each stage
    leash: int     # descriptor that ends when nobody waits for the node any more


class Node:
    def __init__(self, options):
        self._options = options
        self._state = layout.Layout(pathlib.Path(options.state))
        self._parts = {}    # name -> Popen
        self._begin = time.monotonic()
        self._tls = None

    def report(self, **fields):
        os.write(self._options.report, (json.dumps(fields) + "\n").encode())

    def start(self):
        for name, stage in (("namespaces", self._isolate), ("etcd, containerd", self._stores),
                            ("images", self._images), ("API server", self._api_server),
                            ("controllers, kubelet, proxy, DNS", self._rest), ("node ready", self._ready)):
            begin = time.monotonic()
            stage()
            self.report(stage=name, seconds=round(time.monotonic() - begin, 2))
        self.report(ready=True, seconds=round(time.monotonic() - self._begin, 2))
        os.close(self._options.report)

    def _isolate(self):
        groups = cgroups.hierarchies()
        rootfs.enter(self._state, self._options.tools, groups)
        if not groups[0].options:
            _delegate_cgroup2()
        network.set_up()
        components.write_configs()
        self._tls = ssl.create_default_context(cafile=f"{layout.PKI}/ca.crt")
        os.environ.clear()
        os.environ.update(PATH=f"{layout.BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                          HOME="/root", LANG="C.UTF-8")

    def _stores(self):
        self._launch(components.ETCD)
        self._launch(components.CONTAINERD_PART)
        self._wait(components.ETCD)
        self._until(lambda: _accepts(layout.CONTAINERD), "containerd's socket")

    def _images(self):
        # The API server starts meanwhile.
        self._launch(components.API_SERVER)
        for image in (layout.PAUSE_IMAGE, layout.PROBE_IMAGE):
            program = image.rpartition("/")[2].partition(":")[0]
            path = f"/run/{program}.tar"
            archive.write(path, image, f"{layout.BIN}/{program}")
            rootfs.run(f"{layout.BIN}/ctr", "--address", layout.CONTAINERD, "--namespace", "k8s.io",
                       "images", "import", path)
            os.unlink(path)

    def _api_server(self):
        self._wait(components.API_SERVER)

    def _rest(self):
        for part in components.REST:
            self._launch(part)
        rootfs.run(f"{layout.BIN}/kubectl", f"--kubeconfig={layout.PKI}/admin.kubeconfig", "apply",
                   "--server-side", "-f", f"{layout.CONFIG}/objects.json")
        for part in components.REST:
            if part.healthy:
                self._wait(part)

    def _ready(self):
        def ready():
            node = self._get(f"/api/v1/nodes/{layout.NODE_NAME}")
            conditions = node.get("status", {}).get("conditions", []) if node else []
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        self._until(ready, "readiness of the node")
        self._until(lambda: self._get("/api/v1/namespaces/default/serviceaccounts/default"),
                    "the default service account")

    def _launch(self, part):
        with open(f"{layout.LOGS}/{part.name}.log", "wb") as log:
            self._parts[part.name] = subprocess.Popen(  # pylint: disable=consider-using-with
                components.command(part), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")

    def _wait(self, part):
        self._until(lambda: self._answers(part.healthy), f"a healthy {part.name}")

    def _until(self, condition, what):
        """Waits for a condition as long as every part runs and somebody waits for the node."""
        def checked():
            for name, process in self._parts.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} exited with {process.returncode} during the start:\n" + _tail(name))
            if select.select([self._options.leash], [], [], 0)[0]:
                raise RuntimeError("the command that started the node ended")
            return condition()
        wait_until(checked, START_SECONDS, what, interval=0.05)

    def _answers(self, url):
        try:
            request = urllib.request.Request(url)
            with urllib.request.urlopen(request, timeout=5, context=self._tls if url.startswith("https") else None):
                return True
        except (OSError, http.client.HTTPException):
            return False

    def _get(self, path):
        """An object of the API server as the administrator sees it, or None."""
        config = json.loads(pathlib.Path(layout.PKI, "admin.kubeconfig").read_text())
        token = config["users"][0]["user"]["token"]
        request = urllib.request.Request(layout.API_URL + path, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._tls) as answer:
                return json.load(answer)
        except (OSError, ValueError, http.client.HTTPException):
            return None

    async def run(self):
        """Forwards connections and reaps processes until a part of the node ends. Returns what ended."""
        names = {process.pid: name for name, process in self._parts.items()}
        ended = asyncio.get_running_loop().create_future()

        def reap():
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if pid == 0:
                    return
                if pid in names and not ended.done():
                    ended.set_result(f"{names[pid]} ended with {os.waitstatus_to_exitcode(status)}")

        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap)
        reap()
        listener = socket.socket(fileno=self._options.listener)
        async with await Forwarder("127.0.0.1", layout.API_PORT).start(listener):
            return await ended


def _delegate_cgroup2():
    """Moves this process into a leaf: in version 2 a cgroup with processes cannot limit its children."""
    root = pathlib.Path("/sys/fs/cgroup")
    (root / "init").mkdir()
    (root / "init/cgroup.procs").write_text("0")
    for controller in (root / "cgroup.controllers").read_text().split():
        (root / "cgroup.subtree_control").write_text(f"+{controller}")


def _accepts(path):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def _tail(name, lines=8):
    text = pathlib.Path(layout.LOGS, f"{name}.log").read_text(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def main():
    node = Node(Options(**json.loads(sys.argv[1])))
    try:
        node.start()
    except (RuntimeError, OSError, Timeout, subprocess.SubprocessError) as error:
        print(f"node: {error}", flush=True)
        node.report(failed=str(error))
        return 1
    print("node: " + asyncio.run(node.run()), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
