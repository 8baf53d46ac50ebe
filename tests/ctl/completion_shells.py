"""Presses TAB behind syctl's words in interactive shells, and looks at what they insert.

    completion_shells.py BIN

bash (with the package bash-completion), zsh and fish; a shell that is not installed is skipped. Names
come from a coordinator with one worker, which this test starts.
"""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT_S = 30
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"
WORKER = "zz-worker-17"


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, argv, environment):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, environment)

    def send(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, pattern):
        """What the terminal shows until `pattern`; "" after too long."""
        shown, end = "", time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if not select.select([self.terminal], [], [], 0.2)[0]:
                continue
            try:
                shown += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:
                break
            shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", shown)
            if re.search(pattern, shown):
                return shown
        print(f"  shown instead of {pattern}: {shown[-400:]!r}")
        return ""

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def first_line(process, prefix):
    for line in process.stdout:
        if line.startswith(prefix):
            return line[len(prefix):].strip()
    raise SystemExit(f"{process.args[0]} ended without {prefix}")


def check_terminal(name, argv, setup, address, environment):
    """TAB in bash and zsh: a kind, and a name from the coordinator."""
    shell = Shell(argv, environment)
    shell.send(f"{setup}; echo is-\"\"ready\n")
    passed = shell.wait_for("\nis-ready") != ""
    shell.send("syctl get wo\t")
    passed &= shell.wait_for("syctl get workers ") != ""
    shell.send(f"\x15syctl --target {address} get worker zz\t")
    passed &= shell.wait_for(f"get worker {WORKER} ") != ""
    shell.send("\x15syctl apply -f only-\t")
    passed &= shell.wait_for("only-file.yaml") != ""
    shell.close()
    print(f"{name}: {'passed' if passed else 'FAILED'}")
    return passed


def check_fish(address, environment):
    """fish answers what TAB would offer."""
    def offered(line):
        script = f"syctl completion fish | source; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], env=environment, text=True,
                              capture_output=True, timeout=LIMIT_S, check=True)
        return done.stdout.split()

    passed = (offered("syctl get wo") == ["workers"] and
              offered(f"syctl --target {address} get worker ") == [WORKER] and
              "only-file.yaml" in offered("syctl apply -f only-"))
    print(f"fish: {'passed' if passed else 'FAILED'}")
    return passed


def main():
    bin_dir = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "only-file.yaml").touch()
        environment = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": folder, "TERM": "xterm",
                       "LC_ALL": "C.UTF-8", "PS1": "> "}
        os.chdir(folder)
        start = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        coordinator = subprocess.Popen([f"{bin_dir}/switchyard-coordinator", "--listen",
                                        "127.0.0.1:0", "--store", "memory"], **start)
        address = first_line(coordinator, "ready ")
        worker = subprocess.Popen([f"{bin_dir}/switchyard-worker", "--coordinator", address, "--id",
                                   WORKER], **start)
        try:
            subprocess.run([f"{bin_dir}/syctl", "--target", address, "wait", "worker", WORKER, "--for",
                            "live"], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
            passed, ran = True, 0
            if os.path.exists(BASH_COMPLETION):
                ran += 1
                passed &= check_terminal(
                    "bash", ["bash", "--norc", "--noprofile", "-i"],
                    f"source {BASH_COMPLETION}; source <(syctl completion bash)", address, environment)
            if shutil.which("zsh"):
                ran += 1
                passed &= check_terminal(
                    "zsh", ["zsh", "-f", "-i"],
                    "autoload -U compinit; compinit -u -D; source <(syctl completion zsh)", address,
                    environment)
            if shutil.which("fish"):
                ran += 1
                passed &= check_fish(address, environment)
        finally:
            for process in (worker, coordinator):
                process.terminate()
                process.wait(LIMIT_S)
    print(f"{ran} shells")
    return 0 if passed and ran > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
