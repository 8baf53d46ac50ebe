"""Steps from the tensors of PyTorch on a GPU, through libswitchyard.so and ctypes: against the same
steps from memory of the host, bit by bit; their order with a stream; what is refused; what they cost.

    torch_steps.py LIBRARY COORDINATOR GATEWAY [--device cuda:0] [--layer N] [--steps 1000]
                   [--check | --check-groups | --measure] [--json FILE] [--host-worker SPEC]

GATEWAY is the address of a worker of the deployment, or "-". --host-worker: opens a worker on that device in this
process. Prints a line for each check, and a table of figures; --check-groups and --measure take a deployment of GPU
workers only; exits 1 if a check has failed. scripts/torch_steps starts a deployment for it.
"""

import argparse
import ctypes
import json
import math
import statistics
import sys
import time
import traceback

import torch

from c_api_program import (FAILED_PRECONDITION, INVALID_ARGUMENT, OK, ClientOptions8, SessionOptions2, SessionOptions8,
                           StepRequest5, WorkerOptions, load, stamped, text_of)

UNIMPLEMENTED, UNAVAILABLE = 12, 14
PREFILL, DECODE = 0, 1
NORMAL, LOW_LATENCY = 1, 2
F32, BF16 = 0, 1
P2P, COLLECTIVE = 1, 2
MIB = 1 << 20


class Client:
    def __init__(self, library, address, device=None, gateway=False, busy_poll_us=0, worker=None, hosts=None, source=0):
        self.library, self.handle = library, ctypes.c_void_p()
        self.hosts, self.source, self.groups = hosts or ([HOSTED] if worker else []), source, 0
        where = {"gateway": address.encode()} if gateway else {"coordinator": address.encode()}
        options = stamped(ClientOptions8, net_devices=b"lo", busy_poll_us=busy_poll_us,
                          device=device.encode() if device else None, worker=worker, **where)
        options.abi_version = 8
        self.opened = library.sy_client_open(options, ctypes.byref(self.handle))

    def error(self):
        return text_of(self.library.sy_last_error, self.handle)

    def session(self, phase, mode, y_dtype=F32, binding=P2P, max_tokens=0, deadline_ms=20000, in_step=False):
        session, grouped = ctypes.c_void_p(), {}
        if binding == COLLECTIVE and self.hosts:
            self.groups += 1  # all ranks open the same sessions in the same order
            grouped = {"group": b"group-%d" % self.groups, "source": self.source, "sources": len(self.hosts),
                       "hosts": b",".join(self.hosts), "in_step": in_step}
        options = stamped(SessionOptions8, phase=phase, mode=mode, y_dtype=y_dtype, step_deadline_ms=deadline_ms,
                          binding=binding, max_tokens=max_tokens, **grouped)
        options.abi_version = 8
        code = self.library.sy_session_open(self.handle, options, ctypes.byref(session))
        assert code == OK, self.error()
        return Session(self, session, torch.bfloat16 if y_dtype == BF16 else torch.float32)

    def close(self):
        self.library.sy_client_close(self.handle)


class Session:
    def __init__(self, client, handle, y_dtype):
        self.client, self.library, self.handle, self.y_dtype = client, client.library, handle, y_dtype

    def shape(self):
        return text_of(self.library.sy_session_status, self.handle)

    def path(self):
        """How rows go to the first worker; `device`: from GPU to GPU."""
        source = text_of(self.library.sy_session_status, self.handle)["source"]["attachments"][0]
        why = source["why_no_device"] or source["why_messages"]
        return source["request_path"] + (f" ({why})" if why else "")

    def submit(self, request):
        step = ctypes.c_void_p()
        return self.library.sy_submit(self.handle, request, ctypes.byref(step)), step

    def start(self, request):
        code, step = self.submit(request)
        assert code == OK, self.client.error()
        return step

    def wait(self, step):
        code = self.library.sy_wait(step)
        assert code == OK, self.client.error()

    def run(self, request):
        self.wait(self.start(request))


HOSTED = b"hosted"  # the worker of this process


class Graph:
    """Steps of a session in a graph of PyTorch: `record(graph)` adds them while a stream is captured."""

    def __init__(self, session, record):
        self.session, self.library, self.handle = session, session.library, ctypes.c_void_p()
        self.keep(self.library.sy_graph_open(session.handle, ctypes.byref(self.handle)))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            record(self)

    def keep(self, code):
        assert code == OK, self.session.client.error()

    def add(self, batch, layer):
        self.keep(self.library.sy_graph_add(self.handle, batch.request(layer, torch.cuda.current_stream())))

    def launch(self):
        stream, step = torch.cuda.current_stream().cuda_stream, ctypes.c_void_p()
        self.keep(self.library.sy_graph_begin_launch(self.handle, stream))
        self.graph.replay()
        self.keep(self.library.sy_graph_end_launch(self.handle, stream, ctypes.byref(step)))
        return step

    def state(self):
        state = ctypes.c_uint32(99)
        self.keep(self.library.sy_graph_state(self.handle, ctypes.byref(state)))
        return state.value

    def close(self):
        self.keep(self.library.sy_graph_close(self.handle))


READY = 120  # seconds until it is placed


def open_worker(library, coordinator, device, name=HOSTED):
    """A worker of this process, once the deployment serves with it."""
    words = [word.encode() for word in ("--coordinator", coordinator, "--id", name.decode(), "--device", device, "--net-devices",
                                        "lo", "--busy-poll", "2ms")]
    options = stamped(WorkerOptions, arguments=(ctypes.c_char_p * len(words))(*words), argument_count=len(words))
    worker, error = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    code = library.sy_worker_open(options, ctypes.byref(worker), error, len(error))
    assert code == OK, error.value.decode()
    client, until = Client(library, coordinator), time.monotonic() + READY
    assert client.opened == OK, client.error()
    session, options = ctypes.c_void_p(), stamped(SessionOptions2, phase=DECODE, mode=LOW_LATENCY, step_deadline_ms=20000)
    while library.sy_session_open(client.handle, options, ctypes.byref(session)) != OK:
        assert time.monotonic() < until, client.error()
        time.sleep(0.2)
    library.sy_session_close(session)
    client.close()
    return worker


CHAIN = 48  # steps that follow each other on a stream


class Batch:
    """Tensors of one step. `gap`: elements between rows, which must stay as they are."""

    def __init__(self, shape, tokens, seed, y_dtype=torch.float32, gap=0):
        hidden, top_k, experts = shape
        random = torch.Generator().manual_seed(seed)
        self.tokens, self.top_k = tokens, top_k
        self.x = self.rows(torch.randn(tokens, hidden, generator=random).to(torch.bfloat16), gap)
        picks = torch.rand(tokens, experts, generator=random).topk(top_k, dim=1).indices
        self.ids = self.rows(picks.to(torch.int32), gap)
        self.weights = self.rows(torch.rand(tokens, top_k, generator=random) + 0.1, gap)
        self.all_y = torch.full((tokens, hidden + gap), math.nan, dtype=y_dtype)
        self.y = self.all_y[:, :hidden]

    @staticmethod
    def rows(dense, gap):
        whole = torch.full((dense.shape[0], dense.shape[1] + gap), -1, dtype=dense.dtype)
        whole[:, :dense.shape[1]] = dense
        return whole[:, :dense.shape[1]]

    def to(self, device):
        """A copy there; views stay views."""
        other = object.__new__(Batch)
        other.tokens, other.top_k = self.tokens, self.top_k
        for name in ("x", "ids", "weights"):
            view = getattr(self, name)
            whole = torch.as_strided(view, (view.shape[0], view.stride(0)), (view.stride(0), 1)) \
                if view.shape[0] > 0 else view
            setattr(other, name, whole.to(device)[:, :view.shape[1]])
        other.all_y = self.all_y.to(device)
        other.y = other.all_y[:, :self.y.shape[1]]
        return other

    def poison(self):
        self.all_y.fill_(math.nan)

    def request(self, layer, stream=None, y_on_stream=False):
        wide = self.tokens > 1
        return StepRequest5(
            size=ctypes.sizeof(StepRequest5), abi_version=5, layer=layer, tokens=self.tokens, top_k=self.top_k,
            x=self.x.data_ptr(), x_stride=self.x.stride(0) if wide else 0,
            ids=self.ids.data_ptr(), ids_stride=self.ids.stride(0) if wide else 0,
            weights=self.weights.data_ptr(), weights_stride=self.weights.stride(0) if wide else 0,
            y=self.y.data_ptr(), y_stride=self.y.stride(0) if wide else 0,
            stream=stream.cuda_stream if stream is not None else None, y_on_stream=y_on_stream)

    def gaps_are_whole(self):
        return bool(torch.isnan(self.all_y[:, self.y.shape[1]:].float()).all())


def bits(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32).cpu()


class Checks:
    def __init__(self, args, library):
        self.args, self.library = args, library
        self.device = torch.device(args.device)
        torch.cuda.set_device(self.device)
        self.host = Client(self.library, args.coordinator)
        assert self.host.opened == OK, self.host.error()
        before = time.monotonic()
        self.gpu = Client(self.library, args.coordinator, device=args.device, worker=args.worker)
        assert self.gpu.opened == OK, self.gpu.error()
        self.open_s = time.monotonic() - before
        shape = self.host.session(PREFILL, NORMAL).shape()
        self.shape = (shape["hidden"], shape["top_k"], shape["experts"])

    def pair(self, phase, mode, y_dtype=F32):
        return self.host.session(phase, mode, y_dtype), self.gpu.session(phase, mode, y_dtype)

    def expect_equal(self, sessions, batch, stream=None, what=""):
        """The batch from the host and from the GPU: the same bits, all of y and nothing beside it."""
        host, gpu = sessions
        there = batch.to(self.device)
        torch.cuda.synchronize()
        host.run(batch.request(self.args.layer))
        gpu.run(there.request(self.args.layer, stream))
        assert torch.equal(bits(there.y), bits(batch.y)), f"{what}: other bits than from the host"
        assert there.tokens == 0 or not torch.isnan(there.y.float()).any(), f"{what}: y was not written"
        assert there.gaps_are_whole(), f"{what}: written between the rows"

    def check_sizes_and_strides(self):
        for phase, mode, sizes in ((DECODE, LOW_LATENCY, (0, 1, 7, 128)), (PREFILL, NORMAL, (0, 1, 7, 128, 1001))):
            for y_dtype in (F32, BF16):
                sessions = self.pair(phase, mode, y_dtype)
                for tokens in sizes:
                    for gap in (0, 8):
                        batch = Batch(self.shape, tokens, tokens + gap, sessions[1].y_dtype, gap)
                        self.expect_equal(sessions, batch, what=f"{mode} {tokens} tokens, gap {gap}")

    def check_the_stream_orders_the_inputs(self):
        host, gpu = self.pair(DECODE, LOW_LATENCY)
        early, late = Batch(self.shape, 16, 1), Batch(self.shape, 16, 2)
        there, source = early.to(self.device), late.to(self.device)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        gpu.run(there.request(self.args.layer, stream))  # pins its memory
        there.poison()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(400_000_000)  # some 200 ms
            for name in ("x", "ids", "weights"):
                getattr(there, name).copy_(getattr(source, name))
        begin = time.monotonic()
        step = gpu.start(there.request(self.args.layer, stream))
        submitted = time.monotonic() - begin
        gpu.wait(step)
        waited = time.monotonic() - begin
        # y on a third stream, without any synchronization but sy_wait.
        with torch.cuda.stream(torch.cuda.Stream()):
            seen = there.y.clone()
            torch.cuda.current_stream().synchronize()
        host.run(late.request(self.args.layer))
        assert torch.equal(bits(seen), bits(late.y)), "the step read x before the stream had written it"
        assert waited > 0.05, f"the stream was done after {waited * 1e3:.1f} ms: the check shows nothing"
        assert submitted < waited / 5, f"sy_submit took {submitted * 1e3:.1f} ms of {waited * 1e3:.1f}"
        print(f"  sy_submit {submitted * 1e6:.0f} us with {waited * 1e3:.0f} ms of work before it")

    def check_a_submitted_step_runs_while_its_caller_is_away(self):
        _, gpu = self.pair(DECODE, LOW_LATENCY)
        there = Batch(self.shape, 16, 3).to(self.device)
        whole = median_us(lambda: gpu.run(there.request(self.args.layer)), 50)[0]
        times = []
        for _ in range(20):
            step = gpu.start(there.request(self.args.layer))
            time.sleep(0.02)
            begin = time.monotonic()
            gpu.wait(step)
            times.append(time.monotonic() - begin)
        waited = statistics.median(times) * 1e6
        print(f"  sy_wait {waited:.0f} us after 20 ms elsewhere, {whole:.0f} us for a whole step")
        assert waited < whole / 2, "the step has waited for its caller"

    def check_many_steps(self):
        sessions = [self.pair(DECODE, LOW_LATENCY), self.pair(PREFILL, NORMAL)]
        random = torch.Generator().manual_seed(5)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        for number in range(self.args.steps):
            tokens = int(torch.randint(0, 65, (1,), generator=random))
            batch = Batch(self.shape, tokens, 1000 + number, gap=number % 3)
            self.expect_equal(sessions[number % 2], batch, streams[number % 3], f"step {number}")

    def check_steps_overlap(self):
        host, gpu = self.pair(DECODE, LOW_LATENCY)
        batches = [Batch(self.shape, 1 + i, 50 + i) for i in range(16)]
        there = [batch.to(self.device) for batch in batches]
        torch.cuda.synchronize()
        steps = [gpu.start(one.request(self.args.layer, torch.cuda.current_stream())) for one in there]
        for step in reversed(steps):
            gpu.wait(step)
        for one, batch in zip(there, batches):
            host.run(batch.request(self.args.layer))
            assert torch.equal(bits(one.y), bits(batch.y)), f"{batch.tokens} tokens"

    def check_pinned_memory_of_the_host(self):
        host, gpu = self.pair(DECODE, LOW_LATENCY)
        batch = Batch(self.shape, 5, 9)
        there = batch.to(self.device)
        there.ids, there.weights = batch.ids.contiguous().pin_memory(), batch.weights.contiguous().pin_memory()
        gpu.run(there.request(self.args.layer))
        host.run(batch.request(self.args.layer))
        assert torch.equal(bits(there.y), bits(batch.y))

    def check_a_gateway(self):
        if self.args.gateway == "-":
            return
        client = Client(self.library, self.args.gateway, device=self.args.device, gateway=True)
        assert client.opened == OK, client.error()
        for phase, mode in ((DECODE, LOW_LATENCY), (PREFILL, NORMAL)):
            sessions = self.host.session(phase, mode), client.session(phase, mode)
            for tokens in (0, 1, 33):
                self.expect_equal(sessions, Batch(self.shape, tokens, tokens, gap=2), what=f"gateway, {tokens} tokens")
        client.close()

    def group_gives_the_bits_of_p2p(self):
        for y_dtype in (F32, BF16):
            direct = self.gpu.session(DECODE, LOW_LATENCY, y_dtype)
            group = self.gpu.session(DECODE, LOW_LATENCY, y_dtype, COLLECTIVE, max_tokens=128)
            summed = self.gpu.session(DECODE, NORMAL, y_dtype, COLLECTIVE, max_tokens=128)
            for tokens in (1, 2, 16, 77, 128):
                for seed in range(5):
                    batches = [Batch(self.shape, tokens, seed, group.y_dtype).to(self.device) for _ in range(3)]
                    for session, batch in zip((direct, group, summed), batches):
                        session.run(batch.request(self.args.layer, torch.cuda.current_stream()))
                    assert torch.equal(bits(batches[0].y), bits(batches[1].y)), f"{tokens} tokens: other bits than p2p"
                    worst = (batches[0].y.float() - batches[2].y.float()).abs().max().item()
                    assert worst <= 0.02 * batches[0].y.float().abs().max().item(), f"{tokens} tokens: sums off by {worst}"

    def group_takes_steps_of_any_size(self):
        most = 20000  # three rounds of what a group of GPUs takes at once
        direct = self.gpu.session(PREFILL, NORMAL, F32)
        group = self.gpu.session(PREFILL, NORMAL, F32, COLLECTIVE, max_tokens=most)
        for tokens in (1, 257, 1000, 4096, most, 3):
            batches = [Batch(self.shape, tokens, tokens).to(self.device) for _ in range(2)]
            for session, batch in zip((direct, group), batches):
                session.run(batch.request(self.args.layer, torch.cuda.current_stream()))
            largest = batches[0].y.abs().max().item()
            worst = (batches[0].y - batches[1].y).abs().max().item()
            assert worst <= 0.02 * largest, f"{tokens} tokens: sums off by {worst}, largest {largest}"
        bad = Batch(self.shape, most, 4).to(self.device)
        bad.ids[most - 1][1] = self.shape[2]
        step = ctypes.c_void_p()
        code = self.library.sy_submit(group.handle, bad.request(self.args.layer, torch.cuda.current_stream()),
                                      ctypes.byref(step))
        code = code or self.library.sy_wait(step)
        error = self.gpu.error()
        assert code == INVALID_ARGUMENT and error["reason"] == "EXPERT_OUT_OF_RANGE", error
        assert error["metadata"]["row"] == str(most - 1), error

    def group_makes_many_steps(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        direct = self.gpu.session(DECODE, LOW_LATENCY, F32)
        stream = torch.cuda.Stream()
        for step in range(self.args.steps):
            tokens = step * 7 % 128 + 1
            batch = Batch(self.shape, tokens, step).to(self.device)
            stream.wait_stream(torch.cuda.current_stream())
            batch.x.mul_(1.0)
            group.run(batch.request(self.args.layer, stream))
            if step % 10 == 0:
                expected = Batch(self.shape, tokens, step).to(self.device)
                direct.run(expected.request(self.args.layer, torch.cuda.current_stream()))
                assert torch.equal(bits(batch.y), bits(expected.y)), f"step {step}: other bits than p2p"

    def group_names_ids_that_are_wrong(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        good = Batch(self.shape, 16, 3).to(self.device)
        group.run(good.request(self.args.layer, torch.cuda.current_stream()))
        for row, k, twice, reason in ((5, 1, False, "EXPERT_OUT_OF_RANGE"), (15, 2, True, "DUPLICATE_EXPERT")):
            bad = Batch(self.shape, 16, 4).to(self.device)
            bad.ids[row][k] = bad.ids[row][0] if twice else self.shape[2]
            step = ctypes.c_void_p()
            code = self.library.sy_submit(group.handle, bad.request(self.args.layer, torch.cuda.current_stream()),
                                          ctypes.byref(step))
            code = code or self.library.sy_wait(step)
            error = self.gpu.error()
            assert code == INVALID_ARGUMENT and error["reason"] == reason, error
            assert (error["metadata"]["row"], error["metadata"]["k"]) == (str(row), str(k)), error
            again = Batch(self.shape, 16, 3).to(self.device)
            group.run(again.request(self.args.layer, torch.cuda.current_stream()))
            assert torch.equal(bits(again.y), bits(good.y)), "the group goes on"

    def chain(self, group, batches, y_on_stream):
        """Steps whose x is the y before; handles end eight steps later."""
        stream, steps = torch.cuda.current_stream(), []
        for before, batch in zip([None] + batches, batches):
            if before is not None:
                batch.x.copy_(before.y)
            steps.append(group.start(batch.request(self.args.layer, stream, y_on_stream)))
            if not y_on_stream or len(steps) > 8:
                group.wait(steps.pop(0))
        for step in steps:
            group.wait(step)
        stream.synchronize()

    def group_streams_go_on_behind_steps(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, BF16, COLLECTIVE, max_tokens=128)
        for tokens in (1, 16, 128):
            waited, ran = ([Batch(self.shape, tokens, seed, torch.bfloat16).to(self.device) for seed in range(40)]
                           for _ in range(2))
            self.chain(group, waited, False)
            self.chain(group, ran, True)
            for number, (one, other) in enumerate(zip(waited, ran)):
                assert torch.equal(bits(one.y), bits(other.y)), f"{tokens} tokens, step {number}"
        in_rings = self.gpu.session(DECODE, LOW_LATENCY)
        got, _ = in_rings.submit(Batch(self.shape, 4, 1).to(self.device).request(
            self.args.layer, torch.cuda.current_stream(), True))
        assert got == INVALID_ARGUMENT and "y_on_stream" in self.gpu.error()["message"], self.gpu.error()

    def group_takes_tensors_of_the_host(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        for tokens, gap in ((1, 0), (16, 0), (77, 3), (128, 0)):
            there = Batch(self.shape, tokens, tokens).to(self.device)
            group.run(there.request(self.args.layer, torch.cuda.current_stream()))
            here = Batch(self.shape, tokens, tokens, gap=gap)
            group.run(here.request(self.args.layer))
            assert torch.equal(bits(here.y), bits(there.y)), f"{tokens} tokens"
        mixed = Batch(self.shape, 16, 3).to(self.device)
        mixed.ids = mixed.ids.cpu()
        got, _ = group.submit(mixed.request(self.args.layer, torch.cuda.current_stream()))
        assert got == INVALID_ARGUMENT and self.gpu.error()["message"].startswith("ids: memory that"), self.gpu.error()

    def group_sums_whatever_the_routing(self):
        """R52: kernels are chosen for even routing."""
        direct = self.gpu.session(DECODE, LOW_LATENCY)
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        for tokens in (1, 16, 128):
            batches = [Batch(self.shape, tokens, 6).to(self.device) for _ in range(2)]
            for session, batch in zip((direct, group), batches):
                batch.ids[:] = torch.arange(batch.ids.shape[1], device=self.device, dtype=batch.ids.dtype)
                session.run(batch.request(self.args.layer, torch.cuda.current_stream()))
            assert torch.equal(bits(batches[0].y), bits(batches[1].y)), f"{tokens} tokens to the same experts"

    def group_steps_overlap(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        batches = [Batch(self.shape, 16, seed).to(self.device) for seed in range(8)]
        steps = [group.start(batch.request(self.args.layer, torch.cuda.current_stream())) for batch in batches]
        for step in reversed(steps):
            group.wait(step)
        for seed, batch in enumerate(batches):
            again = Batch(self.shape, 16, seed).to(self.device)
            group.run(again.request(self.args.layer, torch.cuda.current_stream()))
            assert torch.equal(bits(batch.y), bits(again.y)), f"step {seed}"

    def graph_gives_the_bits_of_single_steps(self):
        """A chain of steps, of which each reads what the one before has written, beside other sessions."""
        group = self.gpu.session(DECODE, LOW_LATENCY, BF16, COLLECTIVE, max_tokens=128)
        other = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        direct = self.gpu.session(DECODE, LOW_LATENCY, F32)
        for tokens in (1, 16, 128):
            batches = [Batch(self.shape, tokens, seed, torch.bfloat16).to(self.device) for seed in range(CHAIN)]
            single = [Batch(self.shape, tokens, seed, torch.bfloat16).to(self.device) for seed in range(CHAIN)]

            def record(graph):
                for before, batch in zip([None] + batches, batches):
                    if before is not None:
                        batch.x.copy_(before.y)
                    graph.add(batch, self.args.layer)

            graph = Graph(group, record)
            assert graph.state() == 0
            for launch in range(20):
                first = Batch(self.shape, tokens, 100 + launch, torch.bfloat16).to(self.device)
                for whole in (batches, single):
                    whole[0].x.copy_(first.x)
                for batch in batches:
                    batch.poison()
                steps = [graph.launch() for _ in range(1 + launch % 3)]
                beside = Batch(self.shape, 5, launch).to(self.device)
                beside_step = other.start(beside.request(self.args.layer, torch.cuda.current_stream()))
                for step in steps:
                    group.wait(step)
                other.wait(beside_step)
                self.chain(group, single, True)
                for number, (one, expected) in enumerate(zip(batches, single)):
                    assert torch.equal(bits(one.y), bits(expected.y)), f"{tokens} tokens, launch {launch}, step {number}"
                again = Batch(self.shape, 5, launch).to(self.device)
                direct.run(again.request(self.args.layer, torch.cuda.current_stream()))
                assert torch.equal(bits(again.y), bits(beside.y)), f"{tokens} tokens, launch {launch}: the other session"
            graph.close()
            assert self.library.sy_graph_state(graph.handle, ctypes.byref(ctypes.c_uint32())) == FAILED_PRECONDITION

    def graph_names_ids_that_are_wrong(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        batches = [Batch(self.shape, 16, seed).to(self.device) for seed in range(3)]
        graph = Graph(group, lambda graph: [graph.add(batch, self.args.layer) for batch in batches])
        group.wait(graph.launch())
        good = batches[1].ids[5][1].item()
        batches[1].ids[5][1] = self.shape[2]
        step = graph.launch()
        code, error = self.library.sy_wait(step), self.gpu.error()
        assert code == INVALID_ARGUMENT and error["reason"] == "EXPERT_OUT_OF_RANGE", error
        assert (error["metadata"]["row"], error["metadata"]["k"]) == ("5", "1"), error
        batches[1].ids[5][1] = good
        group.wait(graph.launch())
        graph.close()

    def graph_of_prefill_steps(self):
        group = self.gpu.session(PREFILL, NORMAL, F32, COLLECTIVE, max_tokens=1024)
        batches = [Batch(self.shape, 1000, seed).to(self.device) for seed in range(4)]
        graph = Graph(group, lambda graph: [graph.add(batch, self.args.layer) for batch in batches])
        for _ in range(5):
            for batch in batches:
                batch.poison()
            group.wait(graph.launch())
            for seed, batch in enumerate(batches):
                one = Batch(self.shape, 1000, seed).to(self.device)
                group.run(one.request(self.args.layer, torch.cuda.current_stream()))
                worst = (one.y - batch.y).abs().max().item()
                assert worst <= 0.02 * one.y.abs().max().item(), f"step {seed}: off by {worst}"
        graph.close()

    def graph_is_refused_where_it_cannot_be(self):
        group = self.gpu.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, max_tokens=128)
        batch, stream = Batch(self.shape, 4, 1).to(self.device), torch.cuda.current_stream()
        handle, step = ctypes.c_void_p(), ctypes.c_void_p()

        def refused(code, reason, what):
            error = self.gpu.error()
            assert code == FAILED_PRECONDITION and error["reason"] == reason and what in error["message"], (code, error)

        in_rings = self.gpu.session(DECODE, LOW_LATENCY)
        assert self.library.sy_graph_open(in_rings.handle, ctypes.byref(handle)) == UNIMPLEMENTED, self.gpu.error()
        assert self.library.sy_graph_open(group.handle, ctypes.byref(handle)) == OK, self.gpu.error()
        refused(self.library.sy_graph_add(handle, batch.request(self.args.layer, stream)), "UNSUPPORTED", "captured")
        refused(self.library.sy_graph_begin_launch(handle, stream.cuda_stream), "STAGE_ORDER", "no step")
        refused(self.library.sy_graph_end_launch(handle, stream.cuda_stream, ctypes.byref(step)), "STAGE_ORDER", "begun")
        graph = Graph(group, lambda graph: graph.add(batch, self.args.layer))
        group.wait(graph.launch())
        refused(self.library.sy_graph_add(graph.handle, batch.request(self.args.layer, stream)), "STAGE_ORDER", "launched")
        graph.close()
        assert self.library.sy_graph_close(handle) == OK
        group.run(batch.request(self.args.layer, stream))

    def check_what_is_refused(self):
        host, gpu = self.pair(DECODE, LOW_LATENCY)
        batch = Batch(self.shape, 4, 1)
        there = batch.to(self.device)

        def expect(session, request, code, reason, field=None, text=""):
            got, step = session.submit(request)
            error = session.client.error()
            assert got == code and step.value is None, (got, error)
            assert error["reason"] == reason and text in error["message"], error
            assert field is None or error["metadata"]["field"] == field, error

        for field in ("x", "ids", "weights", "y"):
            request = there.request(self.args.layer)
            setattr(request, field, getattr(batch, field).data_ptr())
            expect(gpu, request, INVALID_ARGUMENT, "BAD_REQUEST", field, "pageable")
            request = batch.request(self.args.layer)
            setattr(request, field, getattr(there, field).data_ptr())
            expect(host, request, INVALID_ARGUMENT, "BAD_REQUEST", field, "name the device")
        request = batch.request(self.args.layer, torch.cuda.Stream())
        expect(host, request, INVALID_ARGUMENT, "BAD_REQUEST", "stream")
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            there.y.add_(1)
            expect(gpu, there.request(self.args.layer, stream), FAILED_PRECONDITION, "UNSUPPORTED", text="captured")
        if torch.cuda.device_count() > 1:
            other = (self.device.index + 1) % torch.cuda.device_count()
            request = there.request(self.args.layer)
            request.x = batch.x.to(f"cuda:{other}").data_ptr()
            expect(gpu, request, INVALID_ARGUMENT, "BAD_REQUEST", text=f"CUDA device {other}")
            with torch.cuda.device(other):
                foreign = torch.cuda.Stream()
            expect(gpu, there.request(self.args.layer, foreign), INVALID_ARGUMENT, "BAD_REQUEST", "stream")
        self.expect_equal((host, gpu), Batch(self.shape, 4, 2), what="after the refusals")

        for device, code, text in (("cuda:99", FAILED_PRECONDITION, "GPU"), ("tpu", UNIMPLEMENTED, "tpu"),
                                   ("cuda:first", INVALID_ARGUMENT, "first")):
            client = Client(self.library, self.args.coordinator, device=device)
            assert client.opened == code and text in client.error()["message"], (client.opened, client.error())
            client.close()

    def check_the_current_device_stays(self):
        if torch.cuda.device_count() < 2:
            return
        _, gpu = self.pair(DECODE, LOW_LATENCY)
        there = Batch(self.shape, 4, 1).to(self.device)
        other = (self.device.index + 1) % torch.cuda.device_count()
        with torch.cuda.device(other):
            gpu.run(there.request(self.args.layer))
            assert torch.empty(1, device="cuda").device.index == other == torch.cuda.current_device()

    def run(self, kind):
        failed = 0
        for name in [name for name in dir(self) if name.startswith(kind + "_")]:
            begin = time.monotonic()
            try:
                getattr(self, name)()
                outcome = "passed"
            except Exception:  # the others still run
                traceback.print_exc(file=sys.stdout)
                outcome, failed = "FAILED", failed + 1
            print(f"{name.removeprefix('check_').replace('_', ' ')}: {outcome}, {time.monotonic() - begin:.1f} s", flush=True)
        return failed


def median_us(action, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        action()
        times.append((time.perf_counter_ns() - begin) / 1000)
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)]


def measure(checks, poll_us):
    """us of a step: from the host, from the GPU, from the GPU through rings of the host only, and from the GPU by
    copies of the engine's own."""
    args, device = checks.args, checks.device
    host = Client(checks.library, args.coordinator, busy_poll_us=poll_us)
    polling = f"cuda:index={device.index},busy_poll_us={poll_us}"
    gpu = Client(checks.library, args.coordinator, device=polling, busy_poll_us=poll_us, worker=checks.args.worker)
    rings = Client(checks.library, args.coordinator, device=f"{polling},shared_mib_max=0", busy_poll_us=poll_us)
    rows = []
    for phase, mode, sizes in ((DECODE, LOW_LATENCY, (1, 16, 128)), (PREFILL, NORMAL, (128, 1024, 4096))):
        on_host, on_gpu, in_rings = (client.session(phase, mode) for client in (host, gpu, rings))
        in_group = gpu.session(phase, mode, F32, COLLECTIVE, max_tokens=sizes[-1])
        print(f"{'low_latency' if mode == LOW_LATENCY else 'normal'}: rows of large steps go through "
              f"{on_gpu.path()}, as gpu_rings through {in_rings.path()}", flush=True)
        for tokens in sizes:
            batch = Batch(checks.shape, tokens, tokens)
            there = batch.to(device)
            pinned = [torch.empty_like(t, device="cpu").pin_memory() for t in (batch.x, batch.ids, batch.weights)]
            torch.cuda.synchronize()
            here, far = batch.request(args.layer), there.request(args.layer, torch.cuda.current_stream())

            def copies():
                for to, tensor in zip(pinned, (there.x, there.ids, there.weights)):
                    to.copy_(tensor, non_blocking=True)
                torch.cuda.current_stream().synchronize()

            y = batch.y.pin_memory()
            own = batch.request(args.layer)
            own.x, own.ids, own.weights = (t.data_ptr() for t in pinned)
            own.y = y.data_ptr()

            def by_hand():
                copies()
                on_host.run(own)
                there.y.copy_(y, non_blocking=True)
                torch.cuda.current_stream().synchronize()

            def bus():
                copies()
                there.y.copy_(y, non_blocking=True)
                torch.cuda.current_stream().synchronize()

            submits = []

            def submit_and_wait():
                begin = time.perf_counter_ns()
                step = on_gpu.start(far)
                submits.append((time.perf_counter_ns() - begin) / 1000)
                on_gpu.wait(step)

            def submit_and_wait_in_rings():
                in_rings.wait(in_rings.start(far))

            def submit_and_wait_in_group():
                in_group.wait(in_group.start(far))

            def chain_in_group():
                steps = []
                for _ in range(CHAIN):
                    steps.append(in_group.start(on_stream))
                    if len(steps) > 8:
                        in_group.wait(steps.pop(0))
                for step in steps:
                    in_group.wait(step)

            on_stream = there.request(checks.args.layer, torch.cuda.current_stream(), True)
            rounds = 400 if tokens <= 128 else 60
            for action in (lambda: on_host.run(here), submit_and_wait, submit_and_wait_in_rings, submit_and_wait_in_group, by_hand, bus):
                for _ in range(20):
                    action()
            submits.clear()
            row = {"mode": "low_latency" if mode == LOW_LATENCY else "normal", "tokens": tokens, "busy_poll_us": poll_us}
            for name, action in (("host", lambda: on_host.run(here)), ("gpu", submit_and_wait),
                                 ("gpu_rings", submit_and_wait_in_rings), ("group", submit_and_wait_in_group),
                                 ("own_copies", by_hand), ("bus", bus), ("host_again", lambda: on_host.run(here))):
                row[name], row[name + "_p99"] = median_us(action, rounds)
            if tokens <= 128:
                chain_in_group()
                row["group_chain"] = median_us(chain_in_group, 40)[0] / CHAIN
            if checks.args.worker is not None:
                graph = Graph(in_group, lambda graph: [graph.add(there, checks.args.layer) for _ in range(CHAIN)])
                row["graph"] = median_us(lambda: in_group.wait(graph.launch()), 40)[0] / CHAIN
                graph.close()
            submits.sort()
            row["submit"] = submits[len(submits) // 2]
            row["bytes"] = sum(t.numel() * t.element_size() for t in (batch.x, batch.ids, batch.weights, batch.y))
            assert torch.equal(bits(there.y), bits(batch.y)) or mode == NORMAL
            rows.append(row)
            print("%-11s %5d  poll %4d  host %7.0f %7.0f  gpu %7.0f (p99 %.0f)  gpu_rings %7.0f  group %7.0f (p99 %.0f)  chain %7.1f  graph %7.1f  submit %4.0f  own copies %7.0f  bus %6.0f" % (
                row["mode"], tokens, poll_us, row["host"], row["host_again"], row["gpu"], row["gpu_p99"], row["gpu_rings"], row["group"],
                row["group_p99"], row.get("group_chain", float("nan")), row.get("graph", float("nan")), row["submit"],
                row["own_copies"], row["bus"]), flush=True)
    host.close()
    gpu.close()
    rings.close()
    return rows


def bus_speed(device):
    """GB/s of pinned copies of 64 MiB, to the host and to the GPU."""
    there, here = torch.empty(64 * MIB, dtype=torch.uint8, device=device), torch.empty(64 * MIB, dtype=torch.uint8).pin_memory()

    def copy(to, source):
        to.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    return [round(64 * MIB / 1e3 / median_us(lambda: copy(*pair), 20)[0], 1) for pair in ((here, there), (there, here))]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("library", "coordinator", "gateway"):
        parser.add_argument(name)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--check-groups", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--host-worker")
    args = parser.parse_args()
    library = load(args.library)
    worker = open_worker(library, args.coordinator, args.host_worker) if args.host_worker else None
    args.worker = worker
    checks = Checks(args, library)
    print(f"{torch.cuda.get_device_name(checks.device)}, torch {torch.__version__}, client of a device open after "
          f"{checks.open_s:.2f} s", flush=True)
    failed = checks.run("check") if args.check else 0
    failed += checks.run("group") if args.check_groups else 0
    failed += checks.run("graph") if args.check_groups and worker is not None else 0
    figures = {}
    if args.measure:
        figures = {"device": torch.cuda.get_device_name(checks.device), "to_host_gb_s": None, "rows": []}
        figures["to_host_gb_s"], figures["to_gpu_gb_s"] = bus_speed(checks.device)
        print("pinned copies of 64 MiB, GB/s to the host and to the GPU:", figures["to_host_gb_s"], figures["to_gpu_gb_s"])
        for poll_us in (0, 2000):
            figures["rows"] += measure(checks, poll_us)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=1)
    if worker is not None:
        error = ctypes.create_string_buffer(4096)
        code = library.sy_worker_close(worker, error, len(error))
        print(f"the worker of this process has ended: {code} {error.value.decode()}", flush=True)
        failed += code != OK
    sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
