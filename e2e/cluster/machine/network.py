"""The cluster's network: a bridge of the host that no other interface joins, and one cable from it to each node.

    host, API server 10.240.0.1 ── plat0 ──┬── plat-1 ⇆ eth0 of platform-1, 10.240.0.11, pods 10.241.1.0/24
                                           └── plat-2 ⇆ eth0 of platform-2, 10.240.0.12, pods 10.241.2.0/24

Nothing leaves the machine: nodes have no default route, and on the host what no node takes ends in a blackhole. Every
route of ours carries a protocol number of our own, so that they are all found again.
"""

import ipaddress
import json
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.commands import run, succeeds

BRIDGE = "plat0"
CABLE = "plat-"  # and the node's number: the host's end of its cable
NODE_NETWORK = ipaddress.ip_network("10.240.0.0/24")
POD_RANGE = "10.241.0.0/16"
SERVICE_RANGE = "10.242.0.0/16"
HOST_ADDRESS = "10.240.0.1"
API_PORT = 6443
ROUTE_PROTOCOL = "241"
LAST_RESORT = "9000"  # metric of the blackholes: any other route goes before them
OWN_PORTS = range(12000, 30000)

_given: list[socket.socket] = []
"""Names on this machine, one a port, that nobody else can have until this process ends."""


@dataclass(frozen=True)
class NodeAddress:
    """What belongs to node `number` (from 1): its names and its ranges."""

    number: int

    @property
    def name(self) -> str:
        """The node's name in Kubernetes, and of its cgroup."""
        return f"platform-{self.number}"

    @property
    def cable(self) -> str:
        """The host's end of its cable."""
        return f"{CABLE}{self.number}"

    @property
    def address(self) -> str:
        """Its own address."""
        return str(NODE_NETWORK[10 + self.number])

    @property
    def pods(self) -> str:
        """The range its pods get addresses from."""
        return f"10.241.{self.number}.0/24"


def first_address(network: str) -> str:
    """The first usable address of a range: a gateway's, or the API's own Service."""
    return str(next(ipaddress.ip_network(network).hosts()))


def free_ports(count: int) -> list[int]:
    """Ports nothing listens on at 127.0.0.1 now, all different, and none of them given to anybody else who still runs.

    They lie below NodePorts (30000 and up) and those that the kernel gives to connections by itself (32768 and up): one
    of these may be taken again before it is listened on.
    """
    ports: list[int] = []
    while len(ports) < count:
        port, name = secrets.choice(OWN_PORTS), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            name.bind(f"\0platform-port-{port}")
            _given.append(name)
            ports.append(port)
    return ports


def make_bridge(nodes: list[NodeAddress]) -> None:
    """Make the bridge, and the host's routes to pods and Services."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{HOST_ADDRESS}/{NODE_NETWORK.prefixlen}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for wanted in (POD_RANGE, SERVICE_RANGE):
        _route("blackhole", wanted, "metric", LAST_RESORT)
    for node in nodes:
        _route(node.pods, "via", node.address)
    _route(SERVICE_RANGE, "via", nodes[0].address)  # its kube-proxy finds the pods
    if _host_drops_forwarded():
        run("iptables", "-I", "FORWARD", *_PASS_BRIDGE)


def plug_in(node: NodeAddress, pid: int) -> None:
    """Lay the cable from the bridge to the network namespace of a process; there it is called eth0."""
    run("ip", "link", "add", node.cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "link", "set", node.cable, "master", BRIDGE, "up")


def remove() -> None:
    """Remove every interface, route and rule of ours; those that are not there are no error."""
    for link in _links():
        if link == BRIDGE or link.startswith(CABLE):
            succeeds("ip", "link", "delete", link)  # a cable whose node just ended goes by itself meanwhile
    succeeds("ip", "route", "flush", "table", "main", "proto", ROUTE_PROTOCOL)
    while _host_drops_forwarded() and succeeds("iptables", "-D", "FORWARD", *_PASS_BRIDGE):
        pass


def routes_in_the_way() -> list[str]:
    """Routes of others that overlap our ranges, as `ip route` shows them."""
    ours = [NODE_NETWORK, ipaddress.ip_network(POD_RANGE), ipaddress.ip_network(SERVICE_RANGE)]
    found = []
    for route in json.loads(run("ip", "-json", "-4", "route", "show")):
        if route["dst"] == "default" or route.get("dev") == BRIDGE or route.get("protocol") == ROUTE_PROTOCOL:
            continue
        if any(ipaddress.ip_network(route["dst"], strict=False).overlaps(network) for network in ours):
            found.append(f"{route['dst']} dev {route.get('dev', '-')}")
    return found


_PASS_BRIDGE = ("-i", BRIDGE, "-o", BRIDGE, "-m", "comment", "--comment", "platform-cluster", "-j", "ACCEPT")


def _host_drops_forwarded() -> bool:
    """Whether the host's firewall drops what it has no rule for (Docker sets it so), bridged packets included."""
    try:
        return ":FORWARD DROP" in run("iptables-save", "-t", "filter")
    except ClusterError:  # no iptables, no rules
        return False


def _route(*route: str) -> None:
    run("ip", "route", "add", *route, "proto", ROUTE_PROTOCOL)


def _links() -> list[str]:
    links: list[dict[str, Any]] = json.loads(run("ip", "-json", "link", "show"))
    return [str(link["ifname"]) for link in links]
