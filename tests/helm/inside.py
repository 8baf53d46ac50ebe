"""What release.py's tests look at and do inside the node of tests/k8s/cluster, as root there. Its text is the standard
input of Python: inside.py listening|sockets|usage|end|flood|sniff|key|blobs|fetch JSON. Prints JSON."""

import base64
import errno
import json
import os
import pathlib
import random
import re
import select
import selectors
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
import urllib.request

PROC = pathlib.Path("/proc")
# The states, in tables of /proc/net, of sockets that take what comes: they listen, or have a port and no peer.
LISTENS = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
PIECE = 1 << 24  # bytes of memory that are looked at together
OF_POD = re.compile(r"/pod([0-9a-f-]{36})/")


def processes_of(uid):
    """The processes of a Pod, by number, without that which holds its namespaces, and without those that the runtime is about to
    put there: they have the node's network still."""
    found, own = {}, os.readlink(PROC / "self/ns/net")
    for folder in PROC.glob("[0-9]*"):
        try:
            if uid in (folder / "cgroup").read_text() and (name := (folder / "comm").read_text().strip()) != "pause" \
                    and os.readlink(folder / "ns/net") != own:
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
    """[[protocol, address, port, program]] of a Pod's network namespace."""
    processes, rows = processes_of(uid), []
    for table, state in LISTENS.items() if processes else ():
        for line in (PROC / str(min(processes)) / "net" / table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state:
                address, port = words[1].split(":")
                rows.append([table, address, int(port, 16), words[9]])
    owners = {inode: f"{name}/{pid}" for pid, name in processes_of(uid).items() for inode in sockets_of(pid)}
    return [[*row, owners.get(inode, "nobody")] for *row, inode in rows]


def listening(uids):
    """{uid: [[protocol, address, port, program]]}: every socket that takes what comes to the Pod's network namespace."""
    answer = {}
    for uid in uids:
        # A program may end between two looks; what nobody owns is seen again.
        for _ in range(20):
            try:
                answer[uid] = listening_in(uid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if all(row[3] != "nobody" for row in answer[uid]):
                break
    return answer


def pods_without_services():
    """The Pods none of whose processes is a coordinator or worker."""
    programs = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            if found := OF_POD.search((folder / "cgroup").read_text()):
                programs.setdefault(found.group(1), set()).add((folder / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return [uid for uid, names in programs.items()
            if names != {"pause"} and not any(name.startswith("switchyard-") for name in names)]


def sockets(options):
    """{uid: [what listening() says]} of such Pods, each answer once, until a file is there."""
    answers, end = {}, pathlib.Path(options["end"])
    last = time.monotonic() + options["seconds"]
    while not end.exists() and time.monotonic() < last:
        for uid, rows in listening(pods_without_services()).items():
            known = answers.setdefault(uid, [])
            if rows not in known:
                known.append(rows)
        time.sleep(0.1)
    end.unlink(missing_ok=True)
    return answers


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


def crc_table():
    """Of CRC32C, as worker/transport/sealed_blob.h seals with it."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


def sealed(data, magic, sizes, table):
    """What is in the sealed blobs of this kind among the data, if its size is one of these."""
    at = -1
    while (at := data.find(magic, at + 1)) >= 0:
        wanted, crc = int.from_bytes(data[at + 4:at + 8], "little"), 0xFFFFFFFF
        for size, byte in enumerate(data[at + 8:at + 8 + sizes[-1]], 1):
            crc = crc >> 8 ^ table[(crc ^ byte) & 255]
            if crc ^ 0xFFFFFFFF == wanted and size in sizes:
                yield data[at + 8:at + 8 + size]
                break


def memory_of(pid):
    """The private memory of a process that it can write, in pieces which overlap."""
    with open(PROC / str(pid) / "mem", "rb", buffering=0) as memory:
        for line in (PROC / str(pid) / "smaps").read_text().splitlines():
            if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) rw.p", line):
                begin, end = (int(number, 16) for number in found.groups())
            elif re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                begin = end = 0
            elif line.startswith("Rss:") and line.split()[1] != "0":
                for at in range(begin, end, PIECE):
                    memory.seek(at)
                    yield memory.read(min(PIECE + 4096, end - at))


def blobs(uids):
    """{"addresses", "ring secrets"}: as hexadecimal digits, out of the memory of these Pods' processes. Of an address of UCX the
    last bytes: the first ones are a number and a length, which may be anywhere."""
    table, found = crc_table(), {"addresses": set(), "ring secrets": set()}
    for pid in (pid for uid in uids for pid in processes_of(uid)):
        try:
            for piece in memory_of(pid):
                found["addresses"] |= {blob[-24:].hex() for blob in sealed(piece, b"SYUA", range(32, 2048), table)}
                # PackedKey of worker/transport/ring_exchange.cc
                found["ring secrets"] |= {blob[24:40].hex() for blob in sealed(piece, b"SYRK", range(48, 49), table)}
        except OSError:
            pass  # a client's program has ended
    return {what: sorted(each for each in values if int(each, 16)) for what, values in found.items()}


def fetch(urls):
    """{url: base64 of the answer}."""
    return {url: base64.b64encode(urllib.request.urlopen(url, timeout=5).read()).decode() for url in urls}


if __name__ == "__main__":
    print(json.dumps({"listening": listening, "sockets": sockets, "usage": usage, "end": end, "sniff": sniff, "key": key, "blobs": blobs, "fetch": fetch,
                      "flood": lambda options: Flood(options).run()}[
        sys.argv[1]](json.loads(sys.argv[2]))))
