"""Two Pods that generate one text after the other, each in a session of its own, and compare it with the first."""

import re
import time
from datetime import datetime

from release import reference, until

CLIENTS = ("client-a", "client-b")
# Prints "texts N errors N differ N" each time, and each error once more as it was. Repeats a step that fails for RETRY seconds:
# not at all, unless a test is about that, since a caller that has to repeat a step has seen an error. Tries PATIENCE times to open
# a session while the coordinator is away, as an engine does. The prompt is printed once a session is open: what fails
# later is an error in any case.
LOOP = """
n=0 bad=0 other=0 lost=0 want=
while [ ! -e /models/stop ] && [ $n -lt 5000 ]; do
  if text=$(/usr/bin/generate --target=moe-switchyard-coordinator:7700 --model=/models --mode=low_latency \\
      --tls-dir=/etc/switchyard-tls "--prompt=SELECT name FROM" --tokens=80 --retry-for=RETRY \\
      2>/scratch/error); then
    n=$((n + 1)) lost=0 text=$(echo "$text" | head -n 3)
    want=${want:-$text}
    [ "$text" = "$want" ] || { other=$((other + 1)); echo "OTHER $text"; }
  elif [ $lost -lt PATIENCE ] && [ -z "$text" ] && grep -q COORDINATOR_LOST /scratch/error; then
    lost=$((lost + 1)); echo "WAITS $(date +%T)"; sleep 0.2
  else
    bad=$((bad + 1)); echo "ERROR $(cat /scratch/error)"
  fi
  echo "texts $n errors $bad differ $other"
done
echo "$want"
"""


def start(release, name, script, secret="moe-switchyard-source-tls", change=lambda job: None):
    """A Pod like that of helm/client.yaml, with a script as its program and the certificate of a Secret, after `change`."""
    def with_script(job):
        container, = job["spec"]["template"]["spec"]["containers"]
        container["command"], container["args"] = ["/usr/bin/sh", "-c"], [script]
        container["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
        volumes = job["spec"]["template"]["spec"]["volumes"]
        next(each for each in volumes if each["name"] == "tls")["projected"]["sources"][0]["secret"]["name"] = secret
        volumes.append({"name": "scratch", "emptyDir": {}})
        change(job)
    release.client(name, 80, with_script)
    until(f"beginning of {name}", lambda: has_begun(release, name), 150)


def has_begun(release, name):
    """Whether its Pod runs, or has run: one that ends at once may never be seen ready."""
    pods = [pod for pod in release.get("pods") if pod["metadata"]["labels"].get("job-name") == name]
    return any(pod["status"].get("phase") in ("Running", "Succeeded", "Failed") for pod in pods)


def counts(release, name):
    """(texts, errors, others) of a client so far."""
    log = release.kubectl("logs", f"job/{name}", "-c", "generate").stdout
    found = re.findall(r"^texts (\d+) errors (\d+) differ (\d+)$", log, re.M)
    return tuple(int(number) for number in found[-1]) if found else (0, 0, 0)


def errors(release, name):
    """[(Unix time, first line)] of what a client has met so far. The time is that at which the node got the line."""
    log = release.kubectl("logs", f"job/{name}", "-c", "generate", "--timestamps").stdout
    return [(datetime.fromisoformat(when).timestamp(), text) for when, text in re.findall(r"^(\S+) ERROR (.*)$", log, re.M)]


def undisturbed(change):
    """A step in which both clients go on, see no error and no other text."""
    def step(release):
        before = [counts(release, name) for name in CLIENTS]
        change(release)
        release.wait_ready()
        time.sleep(3)  # so that what the change left behind is seen
        after = [counts(release, name) for name in CLIENTS]
        for name, old, new in zip(CLIENTS, before, after):
            assert new[0] > old[0], f"{name} stands still: {old} {new}"
            log = release.kubectl("logs", f"job/{name}", "-c", "generate").stdout
            assert new[1:] == old[1:], re.sub(r"^texts .*\n", "", log, flags=re.M)[-2000:]
    step.__name__ = change.__name__
    return step


def start_the_clients(release, patience=0, retry=0):
    release.kubectl("delete", "job", "--ignore-not-found", *CLIENTS)  # those of an earlier step, which have ended
    for name in CLIENTS:
        start(release, name, LOOP.replace("PATIENCE", str(patience)).replace("RETRY", str(retry)))
    until = time.monotonic() + 30
    while min(counts(release, name)[0] for name in CLIENTS) == 0:
        assert time.monotonic() < until, "no client has a text"
        time.sleep(1)


class LongSession:
    """A Pod that measures the checkpoint's text so many times in a single session, and repeats no step."""

    SCRIPT = """
i=0; while [ $i -lt TIMES ]; do cat /models/eval.txt; i=$((i + 1)); done >/scratch/text
/usr/bin/busybox stty ocrnl <&2 || exit 1
/usr/bin/switchyard-eval --target=moe-switchyard-coordinator:7700 --model=/models --text=/scratch/text --mode=low_latency \\
  --tls-dir=/etc/switchyard-tls --retry-for=0
"""

    def __init__(self, release, times):
        self.release = release

        def on_a_terminal(job):
            # switchyard-eval shows its progress there. `stty` makes each update a line of the log.
            container, = job["spec"]["template"]["spec"]["containers"]
            container["tty"] = True
        start(release, "long", self.SCRIPT.replace("TIMES", str(times)), change=on_a_terminal)

    def log(self):
        return self.release.kubectl("logs", "job/long", "-c", "generate").stdout

    def has_ended(self):
        job, = [job for job in self.release.get("jobs") if job["metadata"]["name"] == "long"]
        return any(condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
                   for condition in job["status"].get("conditions", []))

    def windows(self):
        """How many windows of the text it has measured so far."""
        return max(map(int, re.findall(r"^window (\d+) of ", self.log(), re.M)), default=0)

    def check(self):
        """It ends well."""
        until("end of the long session", self.has_ended, 400)
        log = self.log()
        assert re.search(r"^bits per byte 1\.3", log, re.M), log[-2000:]


def end_the_clients(release):
    for name in CLIENTS:
        pod, = [p["metadata"]["name"] for p in release.get("pods")
                if p["metadata"]["labels"].get("job-name") == name]
        release.kubectl("exec", pod, "-c", "generate", "--", "/usr/bin/sh", "-c", "echo >/models/stop")
        release.kubectl("wait", f"job/{name}", "--for", "condition=complete", "--timeout", "30s")
        log = release.kubectl("logs", f"job/{name}", "-c", "generate").stdout
        assert reference(release.options, 80).splitlines()[0] in log, log[-500:]
        print(f"  {name}: texts {counts(release, name)[0]}, errors {counts(release, name)[1]}", flush=True)
