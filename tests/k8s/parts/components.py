"""The parts of the node: what each is started with, and how it tells that it works."""
import dataclasses
import json
import pathlib

from parts import filters, layout
from parts.layout import BIN, CONFIG, PKI

CONTAINERD = f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{layout.CONTAINERD}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{layout.PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE no process may lower an oom_score_adj.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni", "/etc/cni/bin"]
  conf_dir = "/etc/cni/net.d"
  # The loopback plugin has to be done before owned-bridge replaces the namespace.
  setup_serially = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""

CNI = {
    "cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
         "ipam": {"type": "host-local", "dataDir": "/run/cni/networks",
                  "ranges": [[{"subnet": layout.POD_SUBNET}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                       "x509": {"clientCAFile": f"{PKI}/ca.crt"}},
    "authorization": {"mode": "Webhook"},
    "clusterDomain": "cluster.local", "clusterDNS": [layout.DNS_SERVICE_IP],
    "containerRuntimeEndpoint": f"unix://{layout.CONTAINERD}",
    "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False,
    "enforceNodeAllocatable": ["pods"],
    "resolvConf": "/etc/resolv.conf", "readOnlyPort": 0, "oomScoreAdj": 0,
    "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    # A disk that is nearly full because of other work must not evict Pods, and images that were loaded stay.
    "evictionHard": {"memory.available": "64Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
    # A changed Secret reaches a Pod's volume within this time and not within a minute.
    "syncFrequency": "10s",
}

PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
    "clientConnection": {"kubeconfig": f"{PKI}/kube-proxy.kubeconfig"},
    "clusterCIDR": layout.POD_SUBNET, "hostnameOverride": layout.NODE_NAME, "oomScoreAdj": 0,
    # These limits belong to the whole machine; the node leaves them alone.
    "conntrack": {"maxPerCore": 0, "min": 0},
    "iptables": {"minSyncPeriod": "100ms"},
}

# Who made or changed what makes Pods, and what Pod Security said of it. Nothing else, so that the log stays small.
MAKES_PODS = {"": ["pods", "pods/ephemeralcontainers", "replicationcontrollers"], "batch": ["jobs", "cronjobs"],
              "apps": ["deployments", "replicasets", "statefulsets", "daemonsets"]}
AUDIT = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "omitManagedFields": True,
    "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch"],
               "resources": [{"group": group, "resources": names} for group, names in MAKES_PODS.items()]},
              {"level": "None"}],
}
AUDIT_MIB = 64

# Read before the root changes, after which the repository is out of sight.
OWNED_BRIDGE = pathlib.Path(__file__).with_name("owned_bridge.py").read_text(encoding="utf-8")

COREFILE = f""".:53 {{
    bind {layout.NODE_IP}
    errors
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {PKI}/coredns.kubeconfig
        pods insecure
        ttl 2
    }}
}}
"""

# CoreDNS is a process of the node and not a Pod; its Service has the usual name and address.
OBJECTS = {"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Service",
     "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
     "spec": {"clusterIP": layout.DNS_SERVICE_IP, "ports": [
         {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
     "metadata": {"name": "kube-dns-node", "namespace": "kube-system",
                  "labels": {"kubernetes.io/service-name": "kube-dns"}},
     "endpoints": [{"addresses": [layout.NODE_IP], "conditions": {"ready": True}}],
     "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"},
     "rules": [{"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"],
                "verbs": ["list", "watch"]},
               {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "system:coredns"},
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
     "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:coredns"}]},
]}


def write_configs():
    folder = pathlib.Path(CONFIG)
    (folder / "containerd.toml").write_text(CONTAINERD)
    (folder / "kubelet.json").write_text(json.dumps(KUBELET))
    (folder / "kube-proxy.json").write_text(json.dumps(PROXY))
    (folder / "audit.json").write_text(json.dumps(AUDIT))
    (folder / "Corefile").write_text(COREFILE)
    (folder / "objects.json").write_text(json.dumps(OBJECTS))
    _write_cni(filters.are_refused())


def _write_cni(own_namespaces):
    network = json.loads(json.dumps(CNI))
    if own_namespaces:
        plugin = pathlib.Path("/etc/cni/bin/owned-bridge")
        plugin.parent.mkdir()
        plugin.write_text(OWNED_BRIDGE)
        plugin.chmod(0o755)
        network["plugins"][0]["type"] = plugin.name
    pathlib.Path("/etc/cni/net.d/10-pods.conflist").write_text(json.dumps(network))


@dataclasses.dataclass(frozen=True)
class Component:
    name: str
    arguments: tuple
    healthy: str   # a URL that answers 200 when the part works; empty for one that has none


def _kubeconfig(name):
    return f"--kubeconfig={PKI}/{name}.kubeconfig"


CONTAINERD_PART = Component("containerd", ("--config", f"{CONFIG}/containerd.toml"), "")

ETCD = Component("etcd", (
    # In memory, and of one node: there is nothing that a flush to the disk would save.
    "--data-dir=/run/etcd", "--unsafe-no-fsync", "--name=node", "--log-level=warn",
    "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
    "--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
    "--initial-cluster=node=http://127.0.0.1:2380"), "http://127.0.0.1:2379/health")

API_SERVER = Component("kube-apiserver", (
    "--etcd-servers=http://127.0.0.1:2379", f"--secure-port={layout.API_PORT}",
    f"--advertise-address={layout.NODE_IP}", "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
    f"--tls-cert-file={PKI}/apiserver.crt", f"--tls-private-key-file={PKI}/apiserver.key",
    f"--client-ca-file={PKI}/ca.crt", f"--token-auth-file={PKI}/tokens.csv",
    f"--kubelet-client-certificate={PKI}/kubelet-client.crt", f"--kubelet-client-key={PKI}/kubelet-client.key",
    "--kubelet-preferred-address-types=InternalIP",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    f"--service-account-key-file={PKI}/service-accounts.pub",
    f"--service-account-signing-key-file={PKI}/service-accounts.key",
    f"--audit-policy-file={CONFIG}/audit.json", f"--audit-log-path={layout.LOGS}/audit.log",
    f"--audit-log-maxsize={AUDIT_MIB}", "--audit-log-maxbackup=1",
    f"--service-cluster-ip-range={layout.SERVICE_SUBNET}"), f"{layout.API_URL}/readyz")

REST = (
    Component("kube-controller-manager", (
        _kubeconfig("kube-controller-manager"), "--leader-elect=false", "--use-service-account-credentials=true",
        f"--service-account-private-key-file={PKI}/service-accounts.key", f"--root-ca-file={PKI}/ca.crt",
        f"--cluster-signing-cert-file={PKI}/ca.crt", f"--cluster-signing-key-file={PKI}/ca.key"), ""),
    Component("kube-scheduler", (_kubeconfig("kube-scheduler"), "--leader-elect=false"), ""),
    Component("kubelet", (
        _kubeconfig("kubelet"), f"--config={CONFIG}/kubelet.json", f"--hostname-override={layout.NODE_NAME}",
        f"--node-ip={layout.NODE_IP}", "--cert-dir=/var/lib/kubelet/pki"), "http://127.0.0.1:10248/healthz"),
    Component("kube-proxy", (f"--config={CONFIG}/kube-proxy.json",), "http://127.0.0.1:10256/healthz"),
    Component("coredns", ("-conf", f"{CONFIG}/Corefile"), "http://127.0.0.1:8181/ready"),
)


def command(component):
    return [f"{BIN}/{component.name}", *component.arguments]
