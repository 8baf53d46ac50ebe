"""Certificates, keys and tokens of a node, made new for each one."""
import json
import secrets
import subprocess

from parts import layout

DAYS = "30"
# Who calls the API server, by name, user and groups (RBAC's built-in roles know these names).
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{layout.NODE_NAME}", "system:nodes"),
    "coredns": ("system:coredns", ""),
}
NAMES = ["localhost", layout.NODE_NAME, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
         "kubernetes.default.svc.cluster.local"]
ADDRESSES = ["127.0.0.1", layout.NODE_IP, layout.API_SERVICE_IP]


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


def _key(path):
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))
    path.chmod(0o600)


def _certificate(folder, name, subject, extensions, authority=None):
    """Writes name.key and name.crt, signed by `authority` or by itself."""
    _key(folder / f"{name}.key")
    config = folder / f"{name}.cnf"
    config.write_text("[req]\ndistinguished_name=dn\nx509_extensions=ext\n[dn]\n[ext]\n" +
                      "\n".join(extensions) + "\n")
    signer = ["-CA", str(folder / f"{authority}.crt"), "-CAkey", str(folder / f"{authority}.key")] \
        if authority else []
    _openssl("req", "-x509", "-new", "-config", str(config), "-subj", subject, "-days", DAYS,
             "-key", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"), *signer)
    config.unlink()


def kubeconfig(authority, token, server=layout.API_URL):
    """A kubeconfig as JSON, which is YAML too; `authority` is the PEM text of the CA."""
    import base64
    data = base64.b64encode(authority.encode()).decode()
    name = "switchyard-k8s"
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": data}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }, indent=1)


def create(folder):
    """Fills `folder`; returns the token of each user."""
    folder.mkdir(mode=0o700)
    _certificate(folder, "ca", "/CN=switchyard-k8s", [
        "basicConstraints=critical,CA:true", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
        "subjectKeyIdentifier=hash"])
    names = [f"DNS:{n}" for n in NAMES] + [f"IP:{a}" for a in ADDRESSES]
    _certificate(folder, "apiserver", "/CN=kube-apiserver", [
        "subjectAltName=" + ",".join(names), "extendedKeyUsage=serverAuth"], "ca")
    _certificate(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", [
        "extendedKeyUsage=clientAuth"], "ca")
    _key(folder / "service-accounts.key")
    _openssl("pkey", "-in", str(folder / "service-accounts.key"), "-pubout",
             "-out", str(folder / "service-accounts.pub"))

    tokens = {name: secrets.token_hex(24) for name in USERS}
    rows = [f'{tokens[name]},{user},{user},"{groups}"' for name, (user, groups) in USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    authority = (folder / "ca.crt").read_text()
    for name, token in tokens.items():
        (folder / f"{name}.kubeconfig").write_text(kubeconfig(authority, token))
    return tokens
