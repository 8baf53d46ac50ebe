"""Whether this kernel lets a process without capabilities attach a socket filter, as Linux usually does."""
import ctypes
import os
import socket
import struct

from parts.owned_bridge import USER

SO_ATTACH_FILTER = 26
ACCEPT_ALL = struct.pack("HBBI", 0x06, 0, 0, 0xFFFFFFFF)


def attach():
    """Attaches a filter that lets everything pass to a socket of its own."""
    program = ctypes.create_string_buffer(ACCEPT_ALL)
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


def are_refused():
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            attach()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
