#!/usr/bin/env python3
"""Tests of the node's parts that need neither root nor the node's programs."""
import asyncio
import os
import pathlib
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from parts import archive, cgroups, components, layout, pki, processes, snapshot  # noqa: E402
from parts.forwarder import Forwarder  # noqa: E402
from parts.waiting import Timeout, wait_until  # noqa: E402

VERSION_1 = """20 1 0:20 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
21 1 0:21 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
22 1 0:22 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
23 1 0:21 / /mnt/again rw,relatime - cgroup cgroup rw,memory
24 1 0:24 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
25 1 0:25 / /proc rw,relatime - proc proc rw
"""
VERSION_2 = "24 1 0:24 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"


class Cgroups(unittest.TestCase):
    def test_version_1_has_one_hierarchy_for_each_mount_with_controllers(self):
        found = cgroups.parse(VERSION_1, "3:cpu,cpuacct:/\n2:memory:/job/7\n1:name=systemd:/\n0::/\n")

        self.assertEqual([(str(h.mount), h.options, h.own) for h in found], [
            ("/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct", "/"), ("/sys/fs/cgroup/memory", "memory", "/job/7"),
            ("/sys/fs/cgroup/systemd", "none,name=systemd", "/")])

    def test_version_2_is_one_hierarchy_and_nodes_lie_at_its_root(self):
        (found,) = cgroups.parse(VERSION_2, "0::/user.slice/session-3.scope\n")

        self.assertEqual(found.options, "")
        self.assertEqual(str(found.folder("node")), "/sys/fs/cgroup/node")

    def test_folders_are_removed_with_what_is_below_them(self):
        with tempfile.TemporaryDirectory() as base:
            deep = pathlib.Path(base, "node/kubepods/pod1")
            deep.mkdir(parents=True)

            cgroups.remove([f"{base}/node", f"{base}/never-made"])

            self.assertFalse(pathlib.Path(base, "node").exists())

    def test_a_folder_in_use_is_an_error_after_the_deadline(self):
        with tempfile.TemporaryDirectory() as base:
            pathlib.Path(base, "file").touch()

            with self.assertRaises(Timeout):
                cgroups.remove([base], seconds=0.2)


class Archives(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "program"
        self.program.write_bytes(b"\x7fELF" + bytes(1000))

    def test_same_program_gives_the_same_bytes(self):
        for name in ("a.tar", "b.tar"):
            archive.write(self.folder / name, "localhost/x/y:1", self.program)

        self.assertEqual((self.folder / "a.tar").read_bytes(), (self.folder / "b.tar").read_bytes())

    def test_names_are_read_back(self):
        archive.write(self.folder / "a.tar", "localhost/x/y:1", self.program)

        self.assertEqual(archive.names(self.folder / "a.tar"), ["localhost/x/y:1"])

    def test_another_tar_is_refused(self):
        import tarfile
        with tarfile.open(self.folder / "other.tar", "w") as tar:
            tar.add(self.program, "program")

        with self.assertRaisesRegex(ValueError, "neither index.json nor manifest.json"):
            archive.names(self.folder / "other.tar")


class ForwarderTest(unittest.IsolatedAsyncioTestCase):
    async def forward(self, connections_max=8):
        """A forwarder to a server that answers each connection with what it got, at its end."""
        async def echo(reader, writer):
            writer.write(await reader.read())
            await writer.drain()
            writer.close()
        far = await asyncio.start_server(echo, "127.0.0.1", 0)
        listener = socket.create_server(("127.0.0.1", 0))
        near = await Forwarder(*far.sockets[0].getsockname(), connections_max).start(listener)
        self.addCleanup(near.close)
        self.addCleanup(far.close)
        return listener.getsockname()

    async def test_copies_both_directions_and_their_ends(self):
        sent = os.urandom(300_000)
        reader, writer = await asyncio.open_connection(*await self.forward())

        writer.write(sent)
        writer.write_eof()

        self.assertEqual(await asyncio.wait_for(reader.read(), 10), sent)
        writer.close()

    async def test_connections_above_the_bound_are_closed(self):
        address = await self.forward(connections_max=1)
        held_reader, held = await asyncio.open_connection(*address)
        held.write(b"x")

        second, writer = await asyncio.open_connection(*address)
        with self.assertRaises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(second.readexactly(1), 10)
        writer.close()

        held.write_eof()
        self.assertEqual(await asyncio.wait_for(held_reader.read(), 10), b"x")
        held.close()


class Identities(unittest.TestCase):
    def test_another_process_with_the_pid_is_not_killed(self):
        own = processes.identify(os.getpid())

        self.assertTrue(processes.is_alive(own))
        self.assertFalse(processes.is_alive({**own, "start": own["start"] + 1}))
        self.assertFalse(processes.kill({**own, "start": own["start"] + 1}))
        self.assertFalse(processes.is_alive(None))


class Waiting(unittest.TestCase):
    def test_gives_the_value_or_says_what_did_not_happen(self):
        values = iter([0, 0, 7])

        self.assertEqual(wait_until(lambda: next(values), 5, "seven", interval=0.001), 7)
        with self.assertRaisesRegex(Timeout, "the end did not happen"):
            wait_until(lambda: False, 0.01, "the end", interval=0.001)


class Snapshots(unittest.TestCase):
    def test_differences_name_what_came_and_what_went(self):
        before = {"links": ["lo"], "settings": {"a": "1"}, "nft rules": None}
        after = {"links": ["cni0"], "settings": {"a": "2"}, "nft rules": None}

        self.assertEqual(snapshot.differences(before, before), [])
        self.assertEqual(snapshot.differences(before, after), [
            "links: gone: lo", "links: new: cni0", "settings: a is '2', was '1'"])


class Names(unittest.TestCase):
    def test_nodes_of_two_folders_have_different_cgroups(self):
        one, two = (layout.Layout(pathlib.Path(path)) for path in ("/a/out/k8s", "/b/out/k8s"))

        self.assertNotEqual(one.name, two.name)

    def test_every_user_that_a_part_names_has_a_token(self):
        for part in (components.API_SERVER, *components.REST):
            for argument in part.arguments:
                if argument.startswith("--kubeconfig="):
                    self.assertIn(pathlib.Path(argument).stem, pki.USERS)


if __name__ == "__main__":
    unittest.main()
