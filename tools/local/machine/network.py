"""Network of the cluster: a separate bridge on the host, and one veth pair from it to each node.

    host, API server 10.240.0.1 ── plat0 ──┬── plat-1 ⇆ eth0 of platform-1, 10.240.0.11, pods 10.241.1.0/24
                                           └── plat-2 ⇆ eth0 of platform-2, 10.240.0.12, pods 10.241.2.0/24

No packet leaves the machine: nodes have no default route, and the host drops packets for addresses of no node. Every
route of the cluster carries its own protocol number, by which `remove` finds it.
"""

import ipaddress
import json
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tools.local.errors import ClusterError
from tools.local.machine.commands import run, succeeds

BRIDGE = "plat0"
VETH_PREFIX = "plat-"  # followed by the node's number: the host's end of the veth pair
NODE_NETWORK = ipaddress.ip_network("10.240.0.0/24")
POD_RANGE = "10.241.0.0/16"
SERVICE_RANGE = "10.242.0.0/16"
HOST_ADDRESS = "10.240.0.1"
API_PORT = 6443
ROUTE_PROTOCOL = "241"
BLACKHOLE_METRIC = "9000"  # every other route takes precedence
OWN_PORTS = range(12000, 30000)

_reserved: list[socket.socket] = []
"""Abstract socket names, one per port, which reserve the ports for this process until it ends."""


@dataclass(frozen=True)
class NodeAddress:
    """Names and address ranges of node `number` (from 1)."""

    number: int

    @property
    def name(self) -> str:
        """Name of the node in Kubernetes and of its cgroup."""
        return f"platform-{self.number}"

    @property
    def veth(self) -> str:
        """Name of the host's end of the veth pair."""
        return f"{VETH_PREFIX}{self.number}"

    @property
    def address(self) -> str:
        """Address of the node."""
        return str(NODE_NETWORK[10 + self.number])

    @property
    def pods(self) -> str:
        """Address range of the pods on the node."""
        return f"10.241.{self.number}.0/24"


def first_address(network: str) -> str:
    """Return the first usable address of a range: that of a gateway, or of the API's Service."""
    return str(next(ipaddress.ip_network(network).hosts()))


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1, reserved until this process ends: no other call on this machine returns them.

    They are below NodePorts (30000 and up) and the kernel's ephemeral ports (32768 and up), which a connection could
    take before the caller listens on them.
    """
    ports: list[int] = []
    while len(ports) < count:
        port, name = secrets.choice(OWN_PORTS), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            name.bind(f"\0platform-port-{port}")
            _reserved.append(name)
            ports.append(port)
    return ports


def make_bridge(nodes: list[NodeAddress]) -> None:
    """Create the bridge and the host's routes to pods and Services."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{HOST_ADDRESS}/{NODE_NETWORK.prefixlen}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for network in (POD_RANGE, SERVICE_RANGE):
        _route("blackhole", network, "metric", BLACKHOLE_METRIC)
    for node in nodes:
        _route(node.pods, "via", node.address)
    _route(SERVICE_RANGE, "via", nodes[0].address)  # the node's kube-proxy forwards to the pods
    if _host_drops_forwarded():
        run("iptables", "-I", "FORWARD", *_PASS_BRIDGE)


def connect(node: NodeAddress, pid: int) -> None:
    """Connect the bridge to the network namespace of a process, in which the interface is called eth0."""
    run("ip", "link", "add", node.veth, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "link", "set", node.veth, "master", BRIDGE, "up")


def remove() -> None:
    """Remove every interface, route and firewall rule of the cluster; missing ones are ignored."""
    for link in _links():
        if link == BRIDGE or link.startswith(VETH_PREFIX):
            succeeds("ip", "link", "delete", link)  # the kernel may have removed it with its node
    succeeds("ip", "route", "flush", "table", "main", "proto", ROUTE_PROTOCOL)
    while _host_drops_forwarded() and succeeds("iptables", "-D", "FORWARD", *_PASS_BRIDGE):
        pass


def overlapping_routes() -> list[str]:
    """Return the machine's other routes that overlap the cluster's ranges, as `ip route` shows them."""
    ranges = [NODE_NETWORK, ipaddress.ip_network(POD_RANGE), ipaddress.ip_network(SERVICE_RANGE)]
    found = []
    for route in json.loads(run("ip", "-json", "-4", "route", "show")):
        if route["dst"] == "default" or route.get("dev") == BRIDGE or route.get("protocol") == ROUTE_PROTOCOL:
            continue
        if any(ipaddress.ip_network(route["dst"], strict=False).overlaps(network) for network in ranges):
            found.append(f"{route['dst']} dev {route.get('dev', '-')}")
    return found


_PASS_BRIDGE = ("-i", BRIDGE, "-o", BRIDGE, "-m", "comment", "--comment", "platform-cluster", "-j", "ACCEPT")


def _host_drops_forwarded() -> bool:
    """Return whether the host's firewall drops forwarded packets by default, bridged ones included (as Docker sets)."""
    try:
        return ":FORWARD DROP" in run("iptables-save", "-t", "filter")
    except ClusterError:  # no iptables, no rules
        return False


def _route(*route: str) -> None:
    run("ip", "route", "add", *route, "proto", ROUTE_PROTOCOL)


def _links() -> list[str]:
    links: list[dict[str, Any]] = json.loads(run("ip", "-json", "link", "show"))
    return [str(link["ifname"]) for link in links]
