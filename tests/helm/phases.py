"""Which rows the workers of a pool have computed, from their metrics."""

import re

import node

PHASES = ("prefill", "decode")


def rows_of(text):
    """{phase: rows of all batches so far}."""
    found = dict.fromkeys(PHASES, 0)
    for phase, rows in re.findall(r'^moe_batch_rows_sum\{[^}]*phase="(\w+)"[^}]*\} (\S+)$', text, re.M):
        found[phase] += float(rows)
    return found


def stay_in_their_pools(release):
    """Every worker of the pools prefill and decode has computed rows of its phase, and none of the other."""
    seen = set()
    for pod in release.pods("worker"):
        pool = pod["metadata"]["labels"]["switchyard.pool"]
        other, = set(PHASES) - {pool}
        for name, text in node.metrics(release, pod).items():
            rows = rows_of(text)
            print(f"  {name}: {rows}", flush=True)
            assert rows[pool] > 0 and rows[other] == 0, f"{name} of {pool}: {rows}"
        seen.add(pool)
    assert seen == set(PHASES), seen
