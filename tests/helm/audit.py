"""What the API server's audit log says of a release: whether Pod Security found anything in what makes Pods."""

import json
import pathlib
import time

VIOLATIONS = "pod-security.kubernetes.io/audit-violations"
ENFORCED = "pod-security.kubernetes.io/enforce-policy"
CONTROL = "control"
WRITTEN_SECONDS = 10


def events(release):
    """Each accepted request that made or changed a Pod of the namespace, or what makes Pods there. Only a node of
    tests/k8s/cluster has its log at hand."""
    for file in sorted((pathlib.Path(release.options.own_cluster) / "logs").glob("audit*.log")):
        *lines, _ = file.read_text().split("\n")  # the last one may be half written
        for event in map(json.loads, lines):
            accepted = event.get("responseStatus", {}).get("code", 500) < 300
            if accepted and event["objectRef"].get("namespace") == release.namespace:
                yield event


def title(event):
    """What it was and who asked. A Pod whose name the API server makes up has none there."""
    what = event["objectRef"]
    return f"{event['verb']} {what['resource']}/{what.get('name', '')} by {event['user']['username']}"


def pods_made(release):
    """The titles of those events that made Pods under enforcement."""
    return [title(event) for event in events(release) if event["verb"] == "create" and event["objectRef"]["resource"] == "pods"
            and event.get("annotations", {}).get(ENFORCED) == f"{release.level}:latest"]


def violations(release):
    """{title of the event: what Pod Security wrote}."""
    return {title(event): event["annotations"][VIOLATIONS] for event in events(release)
            if VIOLATIONS in event.get("annotations", {})}


def check(release):
    """Nothing of the release violates the level of its namespace; the control, which create_namespace() sends, does."""
    until = time.monotonic() + WRITTEN_SECONDS
    while not (found := violations(release)) and time.monotonic() < until:
        time.sleep(0.2)  # the log is written after the answer
    control = [each for each in found if f"deployments/{CONTROL} " in each]
    assert len(control) == 1, f"the control is not in the audit log, so that it tells nothing: {found}"
    del found[control[0]]
    assert not found, f"Pod Security has found violations: {found}"
    made = sum(1 for event in events(release) if event["verb"] == "create" and event["objectRef"]["resource"] == "pods")
    enforced = len(pods_made(release))
    assert enforced == made, f"{made - enforced} of {made} Pods were made without enforcement"
    print(f"  the audit log has no violation in {sum(1 for _ in events(release))} requests, which made {made} Pods", flush=True)
