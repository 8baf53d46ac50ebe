"""Identity of processes: a pid alone may be another process by the time it is used."""
import os
import signal


def start_time(pid):
    """The start of a process in ticks since boot, or None if there is no such process or it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def identify(pid):
    return {"pid": pid, "start": start_time(pid)}


def is_alive(identity):
    return bool(identity) and identity["start"] is not None and \
        start_time(identity["pid"]) == identity["start"]


def kill(identity, number=signal.SIGKILL):
    """Sends a signal if the process is still the one that was recorded."""
    if not is_alive(identity):
        return False
    try:
        os.kill(identity["pid"], number)
    except ProcessLookupError:
        return False
    return True


def only_child(pid):
    """The child of a process that has one, or None."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            pids = children.read().split()
    except OSError:
        return None
    return int(pids[0]) if pids else None
