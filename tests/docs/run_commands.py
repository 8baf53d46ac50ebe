"""Runs the commands that the pages show, and compares what appears with what the pages say.

    run_commands.py [--node] REPOSITORY PAGE...

A block that begins with "```sh run" is run by bash in the repository. When a "```text" block comes
next, each of its lines must appear in the output, in that order; "..." stands for any number of
lines, and "*" in a line for anything. A "```c" block must compile. Exit 0 when every block of every
page did what it says.

With --node it runs those that begin with "```sh node" instead, which need a Kubernetes cluster: the one of
KUBECONFIG, with kubectl and helm3 in PATH and the images of `make images` loaded.

The blocks of a page with the line "<!-- one shell -->" are run by one bash, in order, so that a later
one finds the processes of an earlier one. Its output is a terminal, because a reader's is one.

As root each block, or such a page, has a network of its own, nothing but a loopback, so that the ports
which the pages name are free whatever else runs here. A page with the line "<!-- network namespaces -->"
makes some itself: where that is not permitted it is left out, and the exit code is 77 if nothing else ran.
"""

import ctypes
import fcntl
import fnmatch
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

TIME_LIMIT_S = 120
ONE_SHELL = "<!-- one shell -->"
ONE_SHELL_LIMIT_S = 300
NODE = "--node"
NEEDS_NAMESPACES = "<!-- network namespaces -->"
SKIPPED = 77
TERMINAL_ROWS, TERMINAL_COLUMNS = 40, 120
CLONE_NEWNET, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8913, 0x8914, 1


def own_network():
    """In the child, before bash: a network namespace with its loopback up. Rights permitting."""
    if NODE in sys.argv:
        return  # the cluster is in the network of this process
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sh", b"lo", 0)
        flags = struct.unpack("16sh", fcntl.ioctl(any_socket, SIOCGIFFLAGS, name)[:18])[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP))


def blocks_of(page):
    """(line, kind, text) of each fenced block of a page."""
    blocks, kind, begin, lines = [], None, 0, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if kind is None and line.startswith("```"):
            kind, begin, lines = line[3:].strip(), number, []
        elif kind is not None and line.startswith("```"):
            blocks.append((begin, kind, lines))
            kind = None
        elif kind is not None:
            lines.append(line)
    return blocks


def missing_line(expected, output):
    """The first expected line that does not appear after the one before it, or None."""
    at = 0
    for want in (line.strip() for line in expected):
        if not want or want == "...":
            continue
        # "[" is a letter in what programs print; fnmatch takes it for a class of letters.
        pattern = want.replace("[", "[[]")
        while at < len(output) and not fnmatch.fnmatchcase(output[at].strip(), pattern):
            at += 1
        if at == len(output):
            return want
        at += 1
    return None


def end_group(leader):
    """Ends what a block has left in the background, also when the block itself was interrupted."""
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def lines_of(output):
    """The lines of what was printed, without colors; carriage returns end a line too."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output))


def run(repository, commands):
    """Exit code (124: out of time), output lines (carriage returns end them too) and seconds of a block."""
    begin = time.monotonic()
    # A file, not a pipe: what stays in the background when a command fails would keep a pipe open.
    with tempfile.TemporaryFile() as printed:
        bash = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
            cwd=repository, preexec_fn=own_network, stdin=subprocess.DEVNULL, stdout=printed,
            stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = bash.wait(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            end_group(bash)
        bash.wait()
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    seconds = time.monotonic() - begin
    return code, lines_of(output), seconds


def run_in_terminal(repository, script):
    """As run, with a terminal of its own as the output."""
    begin = time.monotonic()
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ,
                struct.pack("HHHH", TERMINAL_ROWS, TERMINAL_COLUMNS, 0, 0))
    printed = []

    def read_all():
        try:
            while piece := os.read(ours, 65536):
                printed.append(piece)
        except OSError:
            pass  # Linux's way to say that nobody has the other end open any more

    bash = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], cwd=repository, preexec_fn=own_network,
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    reader = threading.Thread(target=read_all, daemon=True)
    reader.start()
    try:
        code = bash.wait(timeout=ONE_SHELL_LIMIT_S)
    except subprocess.TimeoutExpired:
        code = 124
    finally:
        end_group(bash)
    bash.wait()
    reader.join(timeout=10)  # a process of another group may keep the terminal open
    os.close(ours)
    output = b"".join(printed).decode(errors="replace")
    return code, output, time.monotonic() - begin


def run_in_one_shell(repository, blocks):
    """Runs (line, commands) of several blocks in one bash. A result for each block that began, as run has
    it; the seconds of all are those of the last."""
    mark = "=== block of line"
    script = "\n".join("\n".join([f"echo; echo '{mark} {line}'", *commands])
                       for line, commands in blocks)
    code, output, seconds = run_in_terminal(repository, script)
    parts = re.split(rf"^{mark} \d+\r?\n", output, flags=re.MULTILINE)[1:]
    results = [(0, lines_of(part), 0.0) for part in parts]
    if results:
        results[-1] = (code, results[-1][1], seconds)
    return results


def compile_c(repository, lines):
    """What the compiler has against a C block, as lines; none when it is fine."""
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-I.", "-fsyntax-only", "-xc", "-"]
    done = subprocess.run(command, cwd=repository, input="\n".join(lines) + "\n", text=True,
                          capture_output=True, timeout=TIME_LIMIT_S, check=False)
    return [] if done.returncode == 0 else done.stderr.splitlines()


def results_of(repository, page, runnable):
    """What run says of each of the blocks, which are (line, commands)."""
    if ONE_SHELL not in page.read_text().splitlines():
        return [run(repository, commands) for _, commands in runnable]
    results = run_in_one_shell(repository, runnable)
    not_begun = (1, ["an earlier block of the page has failed"], 0.0)
    return results + [not_begun] * (len(runnable) - len(results))


def may_make_namespaces():
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def check(repository, page):
    """Runs one page's blocks; returns how many ran and what was wrong."""
    problems = []
    if NEEDS_NAMESPACES in page.read_text().splitlines() and not may_make_namespaces():
        print(f"{page}: skipped: no network namespaces here", flush=True)
        return 0, problems
    blocks = blocks_of(page)
    for line, kind, commands in blocks:
        complaints = compile_c(repository, commands) if kind == "c" else []
        if complaints:
            problems.append(f"{page}:{line}: does not compile:\n" + "\n".join(complaints))
    followers = {block[0]: after for block, after in zip(blocks, blocks[1:])}
    wanted = "sh node" if NODE in sys.argv else "sh run"
    runnable = [(line, commands) for line, kind, commands in blocks if kind == wanted]
    results = results_of(repository, page, runnable)
    for (line, _), (code, output, seconds) in zip(runnable, results):
        _, kind, expected = followers.get(line, (0, "", []))
        missing = missing_line(expected, output) if kind == "text" else None
        if code != 0 or missing is not None:
            what = f"exit {code}" if code != 0 else f"'{missing}' does not appear"
            print(f"{page}:{line}: {what} after {seconds:.1f} s", flush=True)
            problems.append(f"{page}:{line}: {what}; output:\n" + "\n".join(output[-40:]))
        else:
            print(f"{page}:{line}: ok after {seconds:.1f} s", flush=True)
    return len(runnable), problems


def main(arguments):
    arguments = [word for word in arguments if word != NODE]
    repository, pages = pathlib.Path(arguments[0]), arguments[1:]
    ran, problems = 0, []
    for name in pages:
        page_ran, page_problems = check(repository, repository / name)
        ran += page_ran
        problems += page_problems
    print("\n".join(problems))
    print(f"{ran} blocks ran, {len(problems)} failed")
    if problems:
        return 1
    return 0 if ran > 0 else SKIPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
