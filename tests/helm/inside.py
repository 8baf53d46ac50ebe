"""What release.py's tests look at and do inside the node of tests/k8s/cluster, as root there. Its text is the standard
input of Python: inside.py listening|usage|end|flood|sniff|key JSON. Prints JSON."""

import errno
import json
import os
import pathlib
import random
import select
import selectors
import shutil
import socket
import sqlite3
import sys
import tempfile
import time

PROC = pathlib.Path("/proc")
LISTENS = "0A"


def processes_of(uid):
    """The processes of a Pod, by number, without that which holds its namespaces."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            if uid in (folder / "cgroup").read_text() and (name := (folder / "comm").read_text().strip()) != "pause":
                found[int(folder.name)] = name
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def sockets_of(pid):
    """The inodes of a process's sockets."""
    inodes = set()
    for descriptor in (PROC / str(pid) / "fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:["):-1])
    return inodes


def listening_in(uid):
    """[[address, port, program]] of a Pod's network namespace."""
    processes, rows = processes_of(uid), []
    for table in ("tcp", "tcp6") if processes else ():
        for line in (PROC / str(min(processes)) / "net" / table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS:
                address, port = words[1].split(":")
                rows.append([address, int(port, 16), words[9]])
    owners = {inode: f"{name}/{pid}" for pid, name in processes_of(uid).items() for inode in sockets_of(pid)}
    return [[address, port, owners.get(inode, "nobody")] for address, port, inode in rows]


def listening(uids):
    """{uid: [[address, port, program]]}: every TCP socket that listens in the Pod's network namespace."""
    answer = {}
    for uid in uids:
        # A program may end between two looks; what nobody owns is seen again.
        for _ in range(20):
            try:
                answer[uid] = listening_in(uid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if all(owner != "nobody" for _, _, owner in answer[uid]):
                break
    return answer


def usage(uids):
    """{uid: [{pid, name, rss_kib, fds}]}."""
    answer = {}
    for uid in uids:
        answer[uid] = []
        for pid, name in processes_of(uid).items():
            try:
                status = dict(line.split(":", 1) for line in (PROC / str(pid) / "status").read_text().splitlines())
                answer[uid].append({"pid": pid, "name": name, "rss_kib": int(status["VmRSS"].split()[0]),
                                    "fds": len(os.listdir(PROC / str(pid) / "fd"))})
            except (FileNotFoundError, ProcessLookupError, KeyError):
                pass
    return answer


def end(options):
    """The Unix time at which a process ended, which gets the signal first if there is one."""
    process = os.pidfd_open(options["pid"])
    print("watched", flush=True)  # from here on it cannot be missed
    if options["signal"]:
        os.kill(options["pid"], options["signal"])
    if not select.select([process], [], [], options["seconds"])[0]:
        raise TimeoutError(f"{options}: it has not ended")
    return time.time()


# The beginning of a ClientHello, of a request and of HTTP/2's preface, and nothing at all.
HALVES = [b"", bytes.fromhex("160301020001 0001fc0303".replace(" ", "")), b"GET /livez HT", b"PRI * HTTP/2.0\r\n"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PAUSE_S = 2.0  # before a connection that the peer has closed is made again


def garbage(chance):
    """Noise alone, and behind what each protocol begins with."""
    noise = chance.randbytes(chance.choice([1, 64, 1024, 16384]))
    return chance.choice([noise, b"\x16\x03\x01\x40\x00" + noise, PREFACE + noise,
                          PREFACE + bytes.fromhex("000000040000000000") + noise,
                          b"GET /metrics HTTP/1.1\r\n" + noise, noise[:1] + bytes(len(noise))])


class Flood:
    """Keeps so many half-open and so many senseless connections to each target until the time is over."""

    def __init__(self, options):
        self.options = options
        self.chance = random.Random(1)
        self.selector = selectors.DefaultSelector()
        self.again = []  # (when, target, is garbage), in order
        self.counts = {tuple(target): {"tried": 0, "connected": 0, "closed": 0, "refused": 0, "unanswered": 0}
                       for target in options["targets"]}

    def connect(self, target, senseless):
        opened = socket.socket()
        opened.setblocking(False)
        self.counts[target]["tried"] += 1
        code = opened.connect_ex(target)
        if code not in (0, errno.EINPROGRESS):
            self.retry(opened, target, senseless, "refused")
            return
        self.selector.register(opened, selectors.EVENT_WRITE, (target, senseless, False))

    def retry(self, opened, target, senseless, count):
        opened.close()
        self.counts[target][count] += 1
        self.again.append((time.monotonic() + PAUSE_S, target, senseless))

    def turn(self, key):
        target, senseless, connected = key.data
        opened = key.fileobj
        try:
            if not connected:
                if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                    raise ConnectionRefusedError
                self.counts[target]["connected"] += 1
                self.selector.modify(opened, selectors.EVENT_READ, (target, senseless, True))
                if text := garbage(self.chance) if senseless else self.chance.choice(HALVES):
                    opened.send(text)
                return
            if opened.recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.selector.unregister(opened)
        self.retry(opened, target, senseless, "closed" if connected else "refused")

    def run(self):
        until = time.monotonic() + self.options["seconds"]
        for target in self.counts:
            for senseless in (False, True):
                # Spread over the first seconds, as the ones that follow are.
                self.again += [(time.monotonic() + i * PAUSE_S / self.options["each"], target, senseless)
                               for i in range(self.options["each"])]
        self.again.sort()
        while (now := time.monotonic()) < until:
            due = 0
            while due < len(self.again) and self.again[due][0] <= now and due < 200:
                due += 1
            now_due, self.again = self.again[:due], self.again[due:]
            for _, target, senseless in now_due:
                self.connect(target, senseless)
            for key, _ in self.selector.select(0.02):
                self.turn(key)
        for key in list(self.selector.get_map().values()):
            target, _, connected = key.data
            self.counts[target]["unanswered"] += not connected
            key.fileobj.close()
        return {f"{host}:{port}": counts for (host, port), counts in self.counts.items()}


def different(data):
    """Whether these bytes are so different from each other that they appear nowhere by accident. Half of those of a row
    in bf16 are exponents, which are alike."""
    return len(set(data)) > len(data) // 2


def sniff(options):
    """{"cookies", "rows"}: as hexadecimal digits, out of frames that pass on the node's network for some seconds."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    packets.settimeout(0.5)
    until, cookies, rows = time.monotonic() + options["seconds"], set(), set()
    while time.monotonic() < until:
        try:
            packet = packets.recv(65536)
        except TimeoutError:
            continue
        at = packet.find(b"SYF1\x01")  # docs/PROTOCOL.md: the header of a frame
        if at < 0 or at + 16 > len(packet):
            continue
        cookies.add(packet[at + 8:at + 16].hex())
        if len(rows) < options["rows"]:
            pieces = [packet[i:i + 32] for i in range(at - 480, at - 32, 32) if i > 96]  # UCX sends the payload first
            rows |= {piece.hex() for piece in pieces[:8] if different(piece)}
    return {"cookies": sorted(cookies), "rows": sorted(rows)}


def key(options):
    """The middle of the deployment's key, out of the coordinator's store: its only random bytes are near a record's end."""
    pid, = processes_of(options["pod"])
    with tempfile.TemporaryDirectory() as copy:
        for path in (PROC / str(pid) / "root/var/lib/switchyard").glob("plans.sqlite*"):
            shutil.copy(path, copy)
        with sqlite3.connect(f"{copy}/plans.sqlite") as store:
            record, = [bytes(row[0]) for row in store.execute("SELECT record FROM deployments")]
    end = record[-120:]
    window = max((end[i:i + 32] for i in range(len(end) - 31)), key=lambda window: len(set(window)))
    assert different(window), record.hex()
    return window[8:24].hex()


if __name__ == "__main__":
    print(json.dumps({"listening": listening, "usage": usage, "end": end, "sniff": sniff, "key": key,
                      "flood": lambda options: Flood(options).run()}[
        sys.argv[1]](json.loads(sys.argv[2]))))
