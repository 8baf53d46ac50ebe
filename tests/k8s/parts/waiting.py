"""Waits for a condition, with a deadline."""
import time


class Timeout(Exception):
    pass


def wait_until(condition, seconds, what, interval=0.1):
    """Returns the first true value of condition(); raises Timeout with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Timeout(f"{what} did not happen within {seconds} s")
        time.sleep(interval)
