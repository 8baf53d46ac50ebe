"""The node's network: a namespace without a link to the outside, with one address and a default route that leads nowhere."""
import pathlib

from parts import layout
from parts.rootfs import run

SETTINGS = {
    "net/ipv4/ip_forward": 1,
    # Packets between Pods of one bridge pass iptables, where Services are translated.
    "net/bridge/bridge-nf-call-iptables": 1,
    "net/ipv4/conf/all/route_localnet": 1,
}


def set_up():
    run("hostname", layout.NODE_NAME)
    run("ip", "link", "set", "lo", "up")
    # The kubelet and kube-proxy want an address with a route; both ends of this pair stay in the namespace.
    run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "outside")
    run("ip", "link", "set", "outside", "up")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "address", "add", f"{layout.NODE_IP}/24", "dev", "eth0")
    run("ip", "route", "add", "default", "via", layout.GATEWAY_IP)
    for name, value in SETTINGS.items():
        path = pathlib.Path("/proc/sys") / name
        if path.exists():
            path.write_text(f"{value}\n")
