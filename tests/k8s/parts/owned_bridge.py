#!/usr/bin/python3 -I
"""CNI plugin: the bridge plugin, in a network namespace that belongs to the images' user.

Some kernels let only holders of CAP_NET_ADMIN over the network namespace attach a socket filter, which Linux otherwise
grants to everybody. On such a machine this plugin replaces a Pod's namespace, before anything is in it, by one whose user
namespace that user made. A process of that user then has this capability over the Pod's own network, and none elsewhere,
while its own set of capabilities stays empty, as Pod Security `restricted` demands.
"""
import ctypes
import os
import subprocess
import sys

BRIDGE = "/usr/lib/cni/bridge"
USER = 65532  # of all images here, and of the programs' images
NEW_USER_AND_NET = 0x10000000 | 0x40000000
MS_BIND, MNT_DETACH = 4096, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def hold_namespace(ready, done):
    """Runs in a child: makes the namespaces as USER and keeps them until `done` ends."""
    try:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        check(LIBC.unshare(NEW_USER_AND_NET), "unshare")
        os.write(ready, b"1")
        os.read(done, 1)
    finally:
        os._exit(0)


def replace(path):
    """Mounts a namespace of USER over `path`, in place of the one that the runtime made there."""
    ready, ready_end = os.pipe()
    done, done_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done_end)
        hold_namespace(ready_end, done)
    os.close(ready_end)
    try:
        if os.read(ready, 1) != b"1":
            raise OSError(f"user {USER} cannot make a user namespace")
        check(LIBC.umount2(path.encode(), MNT_DETACH), f"umount {path}")
        check(LIBC.mount(f"/proc/{child}/ns/net".encode(), path.encode(), None, MS_BIND, None), f"mount {path}")
    finally:
        os.close(done_end)
        os.waitpid(child, 0)
    subprocess.run(["nsenter", f"--net={path}", "ip", "link", "set", "lo", "up"], check=True, timeout=10)


if __name__ == "__main__":
    if os.environ.get("CNI_COMMAND") == "ADD":
        try:
            replace(os.environ["CNI_NETNS"])
        except (OSError, subprocess.SubprocessError) as error:
            # The text of a CNI error goes to standard output.
            print('{"cniVersion": "1.0.0", "code": 100, "msg": "owned-bridge: %s"}' % str(error).replace('"', "'"))
            sys.exit(1)
    os.execv(BRIDGE, [BRIDGE])
