"""An API server with objects that only answers what helm's `lookup` asks, for renderings that go by a live release."""

import contextlib
import http.server
import json
import pathlib
import tempfile
import threading

import yaml

NAMESPACE = "default"
# Those that helm asks for, and others that it looks up before it renders for a cluster.
KINDS = {(api, kind): kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s") for api, kinds in {
    "v1": "ConfigMap PersistentVolumeClaim Pod Secret Service ServiceAccount", "apps/v1": "StatefulSet", "batch/v1": "Job",
    "autoscaling/v2": "HorizontalPodAutoscaler", "networking.k8s.io/v1": "NetworkPolicy", "policy/v1": "PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding", "cert-manager.io/v1": "Certificate",
    "leaderworkerset.x-k8s.io/v1": "LeaderWorkerSet",
    "disaggregatedset.x-k8s.io/v1": "DisaggregatedSet"}.items() for kind in kinds.split()}
APIS = sorted({api for api, _ in KINDS})


def root_of(api):
    return "/api/v1" if api == "v1" else f"/apis/{api}"


def answers(objects):
    """{path: what is there}."""
    groups = [api.split("/") for api in APIS if "/" in api]
    versions = [(group, {"groupVersion": f"{group}/{version}", "version": version}) for group, version in groups]
    found = {"/version": {"major": "1", "minor": "35", "gitVersion": "v1.35.0"},
             "/api": {"kind": "APIVersions", "versions": ["v1"]},
             "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                 {"name": group, "versions": [version], "preferredVersion": version} for group, version in versions]}}
    for api in APIS:
        found[root_of(api)] = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": [
            {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
            for (its, kind), plural in KINDS.items() if its == api]}
    for each in objects:
        folder = f"{root_of(each['apiVersion'])}/namespaces/{NAMESPACE}/{KINDS[each['apiVersion'], each['kind']]}"
        found[f"{folder}/{each['metadata']['name']}"] = each
    return found


@contextlib.contextmanager
def cluster(objects):
    """The path of a kubeconfig of a cluster that has these objects."""
    known = answers(objects)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # pylint: disable=invalid-name; the base class wants it so
            path = self.path.split("?")[0]
            code, answer = (200, known[path]) if path in known else (404, {
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {}}],
              "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
              "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": NAMESPACE}}]}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "config")
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            server.shutdown()
            server.server_close()
