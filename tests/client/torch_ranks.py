"""Expert parallelism of several engine processes, one for each GPU, through libswitchyard.so and ctypes: each is a worker
and a source of the same rank, with tensors of PyTorch.

    torch_ranks.py LIBRARY COORDINATOR [--ranks 2] [--layer N] [--json FILE] [--kill]

The deployment has --ranks workers and serves with one fewer. Checks steps one by one and from graphs against p2p, bit by bit,
with other tokens on each rank, ranks that do not call, and graphs that differ; measures; --kill: at last a rank ends in
the middle of launches. Prints a line for each check; exits 1 if one has failed. scripts/torch_ranks starts a deployment.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import queue
import sys
import time
import traceback

import torch

from c_api_program import OK, load
from torch_steps import (BF16, CHAIN, COLLECTIVE, DECODE, F32, LOW_LATENCY, NORMAL, PREFILL, Batch, Client, Graph, bits,
                         median_us, open_worker)

WAIT = 120  # seconds, of one rank for the others
DEADLINE = 2000  # ms, where a rank is about to be missed


class Rank:
    def __init__(self, args, number, barrier, results):
        self.args, self.number, self.barrier, self.results = args, number, barrier, results
        self.library, self.device = load(args.library), torch.device(f"cuda:{number}")
        torch.cuda.set_device(self.device)
        hosts = [b"rank-%d" % rank for rank in range(args.ranks)]
        self.worker = open_worker(self.library, args.coordinator, f"cuda:{number}", hosts[number])
        self.client = Client(self.library, args.coordinator, f"cuda:{number}", worker=self.worker, hosts=hosts, source=number)
        assert self.client.opened == OK, self.client.error()
        until = time.monotonic() + WAIT
        while True:  # the plan with all of them
            self.direct = self.client.session(DECODE, LOW_LATENCY)
            shape = self.direct.shape()
            if len(shape["source"]["attachments"]) == args.ranks:
                break
            assert time.monotonic() < until, shape["source"]
            time.sleep(0.2)
        self.shape = (shape["hidden"], shape["top_k"], shape["experts"])
        self.meet()

    def meet(self):
        self.barrier.wait(WAIT)

    def batch(self, tokens, seed, y_dtype=torch.float32):
        """Other data on each rank."""
        return Batch(self.shape, tokens, 1000 * self.number + seed, y_dtype).to(self.device)

    def group(self, mode=LOW_LATENCY, y_dtype=F32, max_tokens=128, **more):
        phase = DECODE if mode == LOW_LATENCY else PREFILL
        session = self.client.session(phase, mode, y_dtype, COLLECTIVE, max_tokens, **more)
        self.meet()
        return session

    def run(self, session, batch):
        session.run(batch.request(self.args.layer, torch.cuda.current_stream()))
        return batch

    def check_steps_of_other_tokens_on_each_rank(self):
        group = self.group()
        for step in range(300):
            tokens = (step * 7 + self.number * 31) % 129
            got = self.run(group, self.batch(tokens, step))
            if step % 10 == 0:
                expected = self.run(self.direct, self.batch(tokens, step))
                assert torch.equal(bits(got.y), bits(expected.y)), f"step {step}, {tokens} tokens"

    def check_ranks_that_do_not_call(self):
        group = self.group()
        for step in range(40 if self.number == 0 else 10):
            got = self.run(group, self.batch(9, step))
            expected = self.run(self.direct, self.batch(9, step))
            assert torch.equal(bits(got.y), bits(expected.y)), f"step {step}"
        self.meet()

    def check_prefill(self):
        group = self.group(NORMAL, F32, 4096)
        for tokens in (4096, 1 + self.number, 2000, 700):
            got = self.run(group, self.batch(tokens, tokens))
            expected = self.run(self.direct if tokens <= 128 else self.prefill(), self.batch(tokens, tokens))
            worst, largest = (got.y - expected.y).abs().max().item(), expected.y.abs().max().item()
            assert worst <= 0.02 * largest, f"{tokens} tokens: off by {worst}, largest {largest}"

    def prefill(self):
        return self.client.session(PREFILL, NORMAL)

    def check_graphs(self):
        """Between them steps of another group, which all ranks make in the same order."""
        group, other = self.group(y_dtype=BF16), self.group(in_step=True)
        for tokens in (1, 16, 128):
            batches = [self.batch(tokens, seed, torch.bfloat16) for seed in range(CHAIN)]
            graph = Graph(group, lambda graph: [graph.add(batch, self.args.layer) for batch in batches])
            self.meet()
            for launch in range(30):
                for batch in batches:
                    batch.poison()
                steps = [graph.launch() for _ in range(1 + launch % 4)]
                beside = self.run(other, self.batch(5 + launch, launch)) if launch % 3 == 0 else None
                for step in steps:
                    group.wait(step)
                if launch % 15 == 0:
                    self.compare(batches, tokens, beside, launch)
            self.meet()
            graph.close()

    def compare(self, batches, tokens, beside, launch):
        """Alone: kernels of a launch that waits for another rank would hold the GPU that p2p needs."""
        self.meet()
        for number, batch in enumerate(batches):
            one = self.run(self.direct, self.batch(tokens, number))
            assert torch.equal(bits(one.y.to(torch.bfloat16)), bits(batch.y)), f"{tokens} tokens, step {number}"
        expected = self.run(self.direct, self.batch(5 + launch, launch))
        assert torch.equal(bits(beside.y), bits(expected.y)), f"launch {launch}: the other group"
        self.meet()

    def check_graphs_that_differ_are_an_error_on_all_ranks(self):
        group = self.group(deadline_ms=DEADLINE)
        batches = [self.batch(4, seed) for seed in range(3)]
        mine = batches[:2] if self.number == 0 else batches
        graph = Graph(group, lambda graph: [graph.add(batch, self.args.layer) for batch in mine])
        self.meet()
        stream, step = torch.cuda.current_stream().cuda_stream, ctypes.c_void_p()
        code = self.library.sy_graph_begin_launch(graph.handle, stream)
        if code == OK:
            graph.graph.replay()
            code = self.library.sy_graph_end_launch(graph.handle, stream, ctypes.byref(step)) or self.library.sy_wait(step)
        assert code != OK, "the graphs have two and three steps"
        print(f"  rank {self.number}: {self.client.error()['reason']}: {self.client.error()['message'][:150]}", flush=True)
        self.meet()
        graph.close()
        again = self.batch(4, 0)
        assert self.library.sy_run(group.handle, again.request(self.args.layer, torch.cuda.current_stream()), 20000) == OK, \
            self.client.error()
        expected = self.run(self.direct, self.batch(4, 0))
        assert torch.equal(bits(again.y), bits(expected.y)), "the group that was formed again"
        self.meet()

    def check_a_rank_that_ends_in_launches(self):
        """Not a check of the rank that ends."""
        group = self.group(deadline_ms=DEADLINE)
        batches = [self.batch(16, seed) for seed in range(CHAIN)]
        graph = Graph(group, lambda graph: [graph.add(batch, self.args.layer) for batch in batches])
        self.meet()
        begun = time.monotonic()
        while time.monotonic() < begun + WAIT:
            if self.number == self.args.ranks - 1 and time.monotonic() > begun + 0.5:
                os._exit(7)
            last, stream, step = time.monotonic(), torch.cuda.current_stream().cuda_stream, ctypes.c_void_p()
            code = self.library.sy_graph_begin_launch(graph.handle, stream)
            if code == OK:
                graph.graph.replay()
                code = (self.library.sy_graph_end_launch(graph.handle, stream, ctypes.byref(step)) or
                        self.library.sy_wait(step))
            if code != OK:
                break
        error, late = self.client.error(), time.monotonic() - last
        graph.close()
        # The ranks that are left make a group of their own once the plan is without the other.
        self.client.hosts, again, back = self.client.hosts[:-1], self.batch(16, 0), time.monotonic()
        before = self.batch(16, 0)
        while time.monotonic() < back + WAIT:
            try:
                session = self.client.session(DECODE, LOW_LATENCY, F32, COLLECTIVE, 128)
                if len(session.shape()["source"]["attachments"]) == self.args.ranks - 1:
                    self.run(session, again)
                    break
            except AssertionError as why:
                print(f"  rank {self.number}: not yet: {str(why)[:200]}", flush=True)
            time.sleep(0.05)
        back = time.monotonic() - back
        self.run(self.client.session(DECODE, LOW_LATENCY), before)
        assert torch.equal(bits(again.y), bits(before.y)), "with the ranks that are left"
        print(f"  rank {self.number}: {error['reason']} after {late * 1e3:.0f} ms, steps again after {back:.2f} s", flush=True)

    def measure(self):
        """us of a step: alone, in chains whose waits are behind, and from graphs."""
        figures = {}
        for mode, y_dtype, sizes in ((LOW_LATENCY, BF16, (1, 16, 128)), (NORMAL, BF16, (1024, 4096))):
            session = self.group(mode, y_dtype, sizes[-1])
            for tokens in sizes:
                batches = [self.batch(tokens, seed, torch.bfloat16) for seed in range(CHAIN if tokens <= 128 else 8)]
                stream = torch.cuda.current_stream()

                def chain():
                    steps = []
                    for batch in batches:
                        steps.append(session.start(batch.request(self.args.layer, stream, True)))
                        if len(steps) > 8:
                            session.wait(steps.pop(0))
                    for step in steps:
                        session.wait(step)

                graph = Graph(session, lambda graph: [graph.add(batch, self.args.layer) for batch in batches])
                for name, action, count in (("step", lambda: self.run(session, batches[0]), 1), ("chain", chain, len(batches)),
                                            ("graph", lambda: session.wait(graph.launch()), len(batches))):
                    self.meet()
                    for _ in range(5):
                        action()
                    figures[f"{tokens}: {name}"] = round(median_us(action, 60)[0] / count, 1)
                self.meet()
                graph.close()
        return figures

    def all(self):
        names = [name for name in dir(self) if name.startswith("check_") and "ends" not in name]
        for name in names + (["check_a_rank_that_ends_in_launches"] if self.args.kill else []):
            if name.endswith("in_launches"):  # what follows is without a rank
                self.results.put((self.number, "figures", self.measure()))
            begun, why = time.monotonic(), ""
            try:
                getattr(self, name)()
            except Exception:
                why = traceback.format_exc()
                self.barrier.abort()
            self.results.put((self.number, name[6:].replace("_", " "), why or round(time.monotonic() - begun, 1)))
            if why:
                return
        if not self.args.kill:
            self.results.put((self.number, "figures", self.measure()))
            self.meet()
            error = ctypes.create_string_buffer(4096)
            code = self.library.sy_worker_close(self.worker, error, len(error))
            self.results.put((self.number, "the worker has left", error.value.decode() if code != OK else 0.0))


def run_rank(args, number, barrier, results):
    try:
        Rank(args, number, barrier, results).all()
    except Exception:
        results.put((number, "opening", traceback.format_exc()))
        barrier.abort()
    results.close()
    results.join_thread()
    sys.stdout.flush()
    os._exit(0)  # an engine that just ends


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("library", "coordinator"):
        parser.add_argument(name)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--json")
    parser.add_argument("--kill", action="store_true")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(args.ranks), context.Queue()
    ranks = [context.Process(target=run_rank, args=(args, number, barrier, results)) for number in range(args.ranks)]
    for rank in ranks:
        rank.start()
    figures, failed = [], 0
    while any(rank.is_alive() for rank in ranks) or not results.empty():
        try:
            number, name, what = results.get(timeout=1)
        except queue.Empty:
            continue
        if name == "figures":
            figures.append(what)
            continue
        failed += isinstance(what, str)
        print(f"rank {number}: {name}: {'FAILED' if isinstance(what, str) else 'passed'}, {what if what else 0} s", flush=True)
    slowest = {name: max(of[name] for of in figures) for name in figures[0]} if figures else {}
    for name, us in slowest.items():
        print(f"{args.ranks} ranks, tokens of each {name}: {us:.1f} us", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": args.ranks, "device": torch.cuda.get_device_name(0), "us": slowest}, file, indent=1)
    return 1 if failed or len(figures) != args.ranks else 0


if __name__ == "__main__":
    sys.exit(main())
