"""What the notes of a release say that `helm uninstall` leaves, and whether that is so."""

import re

from release import call, until

# What a namespace has by itself.
OWN = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
# Kinds that nobody has made: a record of what happened, and measurements.
PASSING = r"events(\..*)?|.*\.metrics\.k8s\.io"
SECONDS = 60  # in which Kubernetes removes what belonged to an object that is gone


def objects(release):
    """{"kind/name"} of all kinds that the namespace can have."""
    kinds = call(release.kubectl_path, "api-resources", "--namespaced", "--verbs=list", "-o", "name").stdout.split()
    wanted = ",".join(kind for kind in kinds if not re.fullmatch(PASSING, kind))
    return set(release.kubectl("get", wanted, "-o", "name").stdout.split()) - OWN


def labeled(release, label):
    return set(release.kubectl("get", "secret", "-l", label, "-o", "name").stdout.split())


def said_to_be_left(release):
    """({"kind/name"}, the label of Secrets), as somebody who reads the notes finds them."""
    notes = call(release.helm_path, "-n", release.namespace, "get", "notes", "moe").stdout
    text = notes[notes.index("Uninstalling leaves"):]
    label = re.search(r"Secrets of certificates and authority \(label (\S+)\)", text).group(1)
    names = set(re.findall(r"\s([a-z]+/[a-z0-9-]+)", text))
    tested = re.search(r"(pod/\S+) if `helm test` ran", text).group(1)
    if tested not in objects(release):
        names.remove(tested)
    return names, label


def uninstall(release):
    """Exactly what the notes name is left, and once that is deleted nothing is."""
    release.delete_jobs()
    names, label = said_to_be_left(release)
    secrets = labeled(release, label)
    strangers = {name for name in secrets if not name.endswith(("-tls", "-authority"))}
    assert len(secrets) >= 3 and not strangers, f"no Secrets of certificates and authority: {strangers or secrets}"
    release.helm("uninstall", "--wait")
    until(f"end of all but {names | secrets}", lambda: objects(release) == names | secrets, SECONDS)
    if names:
        release.kubectl("delete", *names)
    release.kubectl("delete", "secret", "-l", label)
    until("empty namespace", lambda: not objects(release), SECONDS)
    print(f"  left as the notes say: {len(names)} objects and {len(secrets)} Secrets", flush=True)
