#!/usr/bin/python3 -B
"""Runs all tests of the chart on one node, some beside each other, and prints a table of what each step took.

    everything.py [--build FOLDER] [--report FILE]

The node is one of tests/k8s/cluster; it starts it, loads the images once, and ends it. Each test has a namespace of its own.
`--report` writes the table as a page, with the date, the commit and the machine. Exit 0 when every test passed.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import threading
import time

import another_build
from release import CLUSTER, ROOT, call, start_cluster, timed

STATE = ROOT / "out/k8s-all"
# Rounds, one after the other; in each, lanes beside each other; in each lane, tests one after the other. Floods and searches
# of what is told wait most of their time, and so does a rotation; those of life have bounds in seconds, and while there are other machines
# the real one takes no Pods of other tests.
ROTATION = "rotate_the_authority"
ROUNDS = [
    [[("k8s-drills", "drills_test.py")],
     [(f"k8s-life, {ROTATION}", "life_test.py", "--only", f"install,{ROTATION},end_the_clients"),
      ("k8s-doctor", "doctor_test.py"), ("k8s-scrape", "scrape_test.py")],
     [("k8s-smoke", "smoke_test.py"),
      ("k8s-smoke, Helm 4", "smoke_test.py", "--helm", "4", "--only",
       "install,helm_test,upgrade_to_the_same,change_and_roll_back,uninstall"),
      ("k8s-models", "models_test.py"), ("k8s-groups", "groups_test.py")]],
    [[("k8s-life", "life_test.py", "--without", ROTATION), ("k8s-examples", "examples_test.py")]],
]
LIMIT_S = 1800  # of a test
STEP = re.compile(r"^(\w+) +(\d+\.\d) s$")


class Memory:
    """The most memory that the processes of the node had, with files in memory and without the kernel's cache."""

    def __init__(self):
        self.most, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        files = ("/sys/fs/cgroup/memory/memory.stat", "/sys/fs/cgroup/memory.stat")  # of version 1 and 2
        while not self.over.wait(2):
            done = call(CLUSTER, "--state", STATE, "enter", "cat", *files, check=False)
            counts = {key: int(value) for key, value in (line.split() for line in done.stdout.splitlines())}
            self.most = max(self.most, counts.get("total_rss", counts.get("anon", 0)) +
                            counts.get("total_shmem", counts.get("shmem", 0)))

    def end(self):
        self.over.set()
        self.thread.join()
        return self.most / 2**20


class Lane(threading.Thread):
    """Runs its tests one after the other; prints their lines, and keeps how long each step took."""

    def __init__(self, tests, build):
        super().__init__()
        self.tests, self.build = tests, build
        self.kubectl = pathlib.Path(call(CLUSTER, "tools").stdout.strip()) / "kubectl"
        self.rows = []  # (test, step, seconds)
        self.failed = [name for name, *_ in tests]  # until they have passed
        self.start()

    def run(self):
        for name, *words in self.tests:
            begin = time.monotonic()
            if self.run_one(name, words):
                self.failed.remove(name)
            self.rows.append((name, "", time.monotonic() - begin))

    def run_one(self, name, words):
        script = str(ROOT / "tests/helm" / words[0])
        command = [sys.executable, "-B", script, *words[1:], "--node", str(STATE), "--build", str(self.build)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as process:
            # With all that it started, which has this pipe as well.
            limit = threading.Timer(LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
            limit.start()
            for line in process.stdout:
                print(f"{name}: {line.rstrip()}", flush=True)
                if found := STEP.match(line):
                    self.rows.append((name, found.group(1), float(found.group(2))))
            code = process.wait()
            limit.cancel()
        # The next one is to find the machine at rest.
        call(self.kubectl, "wait", f"namespace/chart-{process.pid}", "--for", "delete", "--timeout", "120s", check=False)
        return code == 0


def disk_mib():
    return int(call("du", "-sm", STATE).stdout.split()[0])


def sources():
    """What runs, as it is now."""
    commit = call("git", "-C", ROOT, "rev-parse", "--short", "HEAD").stdout.strip()
    dirty = call("git", "-C", ROOT, "status", "--porcelain").stdout.strip()
    return f"{commit}{', and changes' if dirty else ''}"


def page(rows, facts):
    """The report, as Markdown."""
    text = ["# A run of all tests of the chart", "",
            "`make k8s-test` wrote this page. Steps of tests that ran beside each other took longer than alone.", "",
            "| | |", "|---|---|",
            f"| date | {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC |",
            f"| machine | {os.cpu_count()} cores, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB, "
            f"Linux {platform.release()} |"]
    text += [f"| {what} | {value} |" for what, value in facts]
    text += ["", "| test | step | seconds |", "|---|---|---|"]
    text += [f"| {test} | {step or '**all**'} | {seconds:.1f} |" for test, step, seconds in rows]
    return "\n".join(text) + "\n"


def run_rounds(options):
    """(rows, failed)."""
    rows, failed = [], []
    for number, lanes in enumerate(ROUNDS, 1):
        begin = time.monotonic()
        running = [Lane(tests, options.build) for tests in lanes]
        for lane in running:
            lane.join()
            rows += lane.rows
            failed += lane.failed
        print(f"round {number} of {len(ROUNDS)}: {time.monotonic() - begin:.0f} s, {disk_mib()} MiB of disk", flush=True)
    return rows, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    os.environ.pop("KUBECONFIG", None)
    begin, commit = time.monotonic(), sources()
    timed("another build", another_build.build)
    built = time.monotonic()
    try:
        start_cluster(options, STATE)
        memory = Memory()
        rows, failed = run_rounds(options)
        most, disk = memory.end(), disk_mib()
    finally:
        timed("cluster down", call, CLUSTER, "--state", STATE, "down")
    took = time.monotonic() - built
    facts = [("commit", commit),
             ("result", f"failed: {', '.join(failed)}" if failed else "all passed"),
             ("time", f"{took / 60:.1f} minutes, and {(built - begin) / 60:.1f} for the other build that drills upgrade to"),
             ("most memory of the node", f"{most:.0f} MiB"), ("its disk", f"{disk} MiB")]
    if options.report:
        options.report.write_text(page(rows, facts))
    for what, value in facts:
        print(f"{what}: {value}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
