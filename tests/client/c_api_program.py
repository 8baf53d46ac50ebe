"""libswitchyard.so from Python, with what Python brings: opens a session on a running deployment of
models/sqlite-moe-7m, runs a step, reads status and errors, and compares the process's signal handlers
before and after. Prints "passed" and exits 0.

    c_api_program.py LIBRARY COORDINATOR [OTHER LIBRARY]

OTHER LIBRARY is loaded before, as an engine may have done.
"""

import ctypes
import faulthandler
import json
import random
import signal
import struct
import sys

HIDDEN, TOKENS, TOP_K, EXPERTS, LAYER = 256, 3, 4, 16, 1
OK, INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION = 0, 3, 5, 9


class ClientOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("abi_version", ctypes.c_uint32),
                ("coordinator", ctypes.c_char_p), ("gateway", ctypes.c_char_p),
                ("transport", ctypes.c_uint32), ("timeout_ms", ctypes.c_uint32),
                ("net_devices", ctypes.c_char_p), ("busy_poll_us", ctypes.c_uint32)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("abi_version", ctypes.c_uint32),
                ("deployment", ctypes.c_char_p), ("model", ctypes.c_char_p),
                ("phase", ctypes.c_uint32), ("mode", ctypes.c_uint32),
                ("y_dtype", ctypes.c_uint32), ("strict", ctypes.c_uint32),
                ("max_tokens", ctypes.c_int32), ("step_deadline_ms", ctypes.c_uint32)]


class SessionOptions2(SessionOptions):
    _fields_ = [("binding", ctypes.c_uint32), ("group", ctypes.c_char_p), ("source", ctypes.c_uint32),
                ("sources", ctypes.c_uint32)]


class StepRequest(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("abi_version", ctypes.c_uint32),
                ("layer", ctypes.c_int32), ("tokens", ctypes.c_int32),
                ("top_k", ctypes.c_int32), ("deadline_ms", ctypes.c_uint32),
                ("x", ctypes.c_void_p), ("x_stride", ctypes.c_int64),
                ("ids", ctypes.c_void_p), ("ids_stride", ctypes.c_int64),
                ("weights", ctypes.c_void_p), ("weights_stride", ctypes.c_int64),
                ("y", ctypes.c_void_p), ("y_stride", ctypes.c_int64)]


class ClientOptions2(ClientOptions):
    """What ABI 2 appends."""
    _fields_ = [("ring_dir", ctypes.c_char_p), ("device", ctypes.c_char_p)]


class ClientOptions3(ClientOptions2):
    """What ABI 3 appends."""
    _fields_ = [("data_ports", ctypes.c_char_p)]


class StepRequest2(StepRequest):
    _fields_ = [("stream", ctypes.c_void_p)]


class ClientOptions6(ClientOptions3):
    """What ABI 6 appends."""
    _fields_ = [("tls_dir", ctypes.c_char_p)]


class SessionOptions7(SessionOptions2):
    """What ABI 7 appends."""
    _fields_ = [("fp8_sums", ctypes.c_uint32)]


class ClientOptions8(ClientOptions6):
    """What ABI 8 appends."""
    _fields_ = [("worker", ctypes.c_void_p)]


class SessionOptions8(SessionOptions7):
    """What ABI 8 appends."""
    _fields_ = [("hosts", ctypes.c_char_p), ("in_step", ctypes.c_uint32)]


class StepRequest5(StepRequest2):
    """What ABI 5 appends."""
    _fields_ = [("y_on_stream", ctypes.c_uint32)]


class WorkerOptions(ctypes.Structure):
    """Of switchyard_worker.h."""
    _fields_ = [("size", ctypes.c_uint32), ("abi_version", ctypes.c_uint32),
                ("arguments", ctypes.POINTER(ctypes.c_char_p)), ("argument_count", ctypes.c_uint32)]


def stamped(kind, **fields):
    return kind(size=ctypes.sizeof(kind), abi_version=1, **fields)


def load(path):
    library = ctypes.CDLL(path)
    pointer, pointers = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
    library.sy_version.restype = ctypes.c_char_p
    library.sy_mode_of_step.argtypes = [ctypes.c_uint32, ctypes.c_uint32]
    library.sy_client_open.argtypes = [ctypes.POINTER(ClientOptions), pointers]
    library.sy_client_close.argtypes = [pointer]
    library.sy_session_open.argtypes = [pointer, ctypes.POINTER(SessionOptions), pointers]
    library.sy_session_close.argtypes = [pointer]
    library.sy_submit.argtypes = [pointer, ctypes.POINTER(StepRequest), pointers]
    library.sy_poll.argtypes = [pointer, ctypes.POINTER(ctypes.c_int)]
    library.sy_wait.argtypes = [pointer]
    library.sy_run.argtypes = [pointer, ctypes.POINTER(StepRequest), ctypes.c_uint32]
    for name in ("sy_session_status", "sy_last_error"):
        getattr(library, name).argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t]
        getattr(library, name).restype = ctypes.c_size_t
    request = ctypes.POINTER(StepRequest)
    for name, more in (("open", [pointers]), ("add", [request]), ("begin_launch", [pointer]),
                       ("end_launch", [pointer, pointers]), ("state", [ctypes.POINTER(ctypes.c_uint32)]), ("close", [])):
        getattr(library, "sy_graph_" + name).argtypes = [pointer, *more]
    library.sy_worker_open.argtypes = [ctypes.POINTER(WorkerOptions), pointers, ctypes.c_char_p, ctypes.c_size_t]
    library.sy_worker_status.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t]
    library.sy_worker_status.restype = ctypes.c_size_t
    library.sy_worker_close.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t]
    return library


def host_a_worker(library, coordinator):
    """One more worker, in this process; its log is silent, as the output of this program is compared."""
    def opened(*words):
        options = stamped(WorkerOptions, arguments=(ctypes.c_char_p * len(words))(*words), argument_count=len(words))
        worker, error = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        code = library.sy_worker_open(options, ctypes.byref(worker), error, len(error))
        return code, worker, error
    code, worker, error = opened(b"--cordinator", b"nowhere")
    assert code == INVALID_ARGUMENT and not worker and "--coordinator" in json.loads(error.value)["message"], error.value
    code, worker, error = opened(b"--coordinator", coordinator.encode(), b"--id", b"python", b"--net-devices", b"lo",
                                 b"--log-level", b"error")
    assert code == OK, error.value
    status = text_of(library.sy_worker_status, worker)
    assert status["state"] == "running" and status["endpoint"].startswith("127.0.0.1:"), status
    assert library.sy_worker_close(worker, error, len(error)) == OK, error.value


def text_of(function, handle):
    """What a function that copies text out has to say, as JSON."""
    buffer = ctypes.create_string_buffer(1 << 20)
    needs = function(handle, buffer, len(buffer))
    assert 0 < needs <= len(buffer), needs
    return json.loads(buffer.value)


def bf16(values):
    """The upper halves of FP32 values."""
    halves = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    return (ctypes.c_uint16 * len(halves))(*halves)


class Step:
    """One batch; it owns the memory that the library works on."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.x = bf16([rng.uniform(-1, 1) for _ in range(TOKENS * HIDDEN)])
        picks = [rng.sample(range(EXPERTS), TOP_K) for _ in range(TOKENS)]
        self.ids = (ctypes.c_int32 * (TOKENS * TOP_K))(*[i for row in picks for i in row])
        self.weights = (ctypes.c_float * (TOKENS * TOP_K))(
            *[rng.uniform(0.1, 0.5) for _ in range(TOKENS * TOP_K)])
        self.y = (ctypes.c_float * (TOKENS * HIDDEN))(*[float("nan")] * (TOKENS * HIDDEN))

    def request(self, layer=LAYER):
        address = ctypes.addressof
        return stamped(StepRequest, layer=layer, tokens=TOKENS, top_k=TOP_K,
                       x=address(self.x), x_stride=HIDDEN, ids=address(self.ids), ids_stride=TOP_K,
                       weights=address(self.weights), weights_stride=TOP_K,
                       y=address(self.y), y_stride=HIDDEN)


def signal_table():
    """What the process does on each signal: handler, the first 64 signals of the mask, flags."""
    libc = ctypes.CDLL(None)
    table = {}
    for number in range(1, 65):
        action = ctypes.create_string_buffer(256)
        if libc.sigaction(number, None, action) == 0:
            table[number] = (action.raw[:16], action.raw[136:140])  # glibc leaves the rest as it is
    return table


def main(path, coordinator, *others):
    for other in others:
        ctypes.CDLL(other)
    # Handlers of the engine: those for faults, and one that UCX would take by default.
    faulthandler.enable()
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    signals = signal_table()
    library = load(path)
    assert signal_table() == signals, "loading the library changes signal handlers"
    assert library.sy_version().count(b".") == 2

    # auto, 3: an extend, 1, is normal; the extend of a draft, 1 + 2, is low_latency.
    assert [library.sy_mode_of_step(3, flags) for flags in (1, 3)] == [1, 2]

    client, session, step = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    wrong = stamped(ClientOptions, coordinator=coordinator.encode())
    wrong.size = 8
    assert library.sy_client_open(wrong, ctypes.byref(client)) == INVALID_ARGUMENT
    assert client.value is None
    # A structure that lacks a member of its ABI would be refused for its size.
    for abi_version, kind in ((2, ClientOptions2), (3, ClientOptions3), (6, ClientOptions6)):
        newer = stamped(kind, coordinator=coordinator.encode(), net_devices=b"lo")
        newer.abi_version = abi_version
        assert library.sy_client_open(newer, ctypes.byref(client)) == OK
        library.sy_client_close(client)
    newer = stamped(ClientOptions3, coordinator=coordinator.encode(), data_ports=b"99-1")
    assert library.sy_client_open(newer, ctypes.byref(client)) == INVALID_ARGUMENT
    error = text_of(library.sy_last_error, client)
    assert error["metadata"]["field"] == "data_ports", error
    library.sy_client_close(client)
    newer = stamped(ClientOptions6, coordinator=coordinator.encode(), tls_dir=b"/nowhere")
    assert library.sy_client_open(newer, ctypes.byref(client)) == NOT_FOUND
    assert "/nowhere/identities.yaml" in text_of(library.sy_last_error, client)["message"]
    library.sy_client_close(client)
    options = stamped(ClientOptions, coordinator=coordinator.encode(), net_devices=b"lo")
    assert library.sy_client_open(options, ctypes.byref(client)) == OK
    assert text_of(library.sy_last_error, client) == {}

    # Two threads that wait release Python's lock: ctypes does that on every call.
    coarse = stamped(SessionOptions7, phase=0, mode=1, fp8_sums=1)
    assert library.sy_session_open(client, ctypes.cast(ctypes.pointer(coarse), ctypes.POINTER(SessionOptions)),
                                   ctypes.byref(session)) == INVALID_ARGUMENT
    error = text_of(library.sy_last_error, client)
    assert "as fp8 in collective sessions only" in error["message"], error
    opening = stamped(SessionOptions, phase=0, mode=1)
    code = library.sy_session_open(client, opening, ctypes.byref(session))
    assert code == OK, text_of(library.sy_last_error, client)

    first, second = Step(seed=1), Step(seed=1)
    for one in (first, second):
        assert library.sy_submit(session, one.request(), ctypes.byref(step)) == OK
        done = ctypes.c_int(7)
        assert library.sy_poll(step, ctypes.byref(done)) == OK and done.value in (0, 1)
        assert library.sy_wait(step) == OK, text_of(library.sy_last_error, client)
        assert library.sy_wait(step) == FAILED_PRECONDITION
    assert all(value == value for value in first.y), "y was not written"
    assert any(value != 0 for value in first.y)
    assert list(first.y) == list(second.y), "one batch, two answers"

    third = Step(seed=1)
    newer = StepRequest2.from_buffer_copy(bytes(third.request()) + bytes(8))
    newer.size, newer.abi_version = ctypes.sizeof(newer), 2
    code = library.sy_run(session, newer, 1000)
    assert code == OK, text_of(library.sy_last_error, client)
    assert list(third.y) == list(first.y), "one batch, two answers"

    assert library.sy_submit(session, first.request(layer=99), ctypes.byref(step)) == NOT_FOUND
    error = text_of(library.sy_last_error, client)
    assert (error["code"], error["reason"]) == ("NOT_FOUND", "UNKNOWN_LAYER"), error
    assert error["metadata"]["layer"] == "99", error

    # On a busy machine a worker may not answer within the 100 ms of a status.
    for _ in range(100):
        status = text_of(library.sy_session_status, session)
        if not any("error" in worker for worker in status["workers"]):
            break
    assert status["phase"] == "prefill" and status["mode"] == "normal", status
    assert status["supports_graphs"] is False and "normal" in status["no_graphs_because"], status
    assert len(status["plan"]["workers"]) == len(status["workers"]) == 2
    rows = sum(a["rows"] for worker in status["workers"] for a in worker["attachments"])
    hits = sum(hit["rows"] for worker in status["workers"] for a in worker["attachments"]
               for hit in a["hits"])
    assert hits == 3 * TOKENS * TOP_K and 3 * TOKENS <= rows <= 6 * TOKENS, (rows, hits)

    assert library.sy_session_close(session) == OK
    assert library.sy_session_close(session) == FAILED_PRECONDITION
    assert text_of(library.sy_last_error, client)["reason"] == "SESSION_CLOSED"
    library.sy_client_close(client)
    host_a_worker(library, coordinator)
    assert signal_table() == signals, "a session or a worker changes signal handlers"
    print("passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
