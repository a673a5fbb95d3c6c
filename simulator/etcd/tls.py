"""TLS of simulated members: authorities are read at start, certificates and the time at each handshake.

Source: TLSInfo.ServerConfig and ClientConfig in client/pkg/transport/listener.go of etcd 3.6; etcd issue 11555.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

from operators.etcd.client.errors import Unreachable
from operators.etcd.client.server import Access
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import content_of
from shared.pki.certs import Pair
from shared.pki.stores import parsed
from shared.pki.validity import Validity, signers, validity_of
from simulator.api_server.store import ByIdentity
from simulator.etcd.command_line import Command

if TYPE_CHECKING:
    from simulator.etcd.database import Process, SimulatedEtcd

Files = Mapping[str, str]


def files_of(pod: Obj, mounted: Mapping[str, Obj]) -> Files | None:
    """Return the content of a pod's files by path; None if a Secret or a key is missing: the kubelet writes nothing.

    Args:
        mounted: Secrets by the name of the volume.
    """
    return _files.of(pod["spec"], *mounted, *mounted.values())


def _files_of(spec: Obj, *secrets: Any) -> Files | None:
    mounted = dict(zip(secrets[: len(secrets) // 2], secrets[len(secrets) // 2 :], strict=True))
    sources = {volume["name"]: volume["secret"] for volume in spec.get("volumes", ()) if "secret" in volume}
    found: dict[str, str] = {}
    for mount in spec["containers"][0].get("volumeMounts", ()):
        if mount["name"] not in sources:
            continue
        content = content_of(mounted.get(mount["name"]))
        for item in sources[mount["name"]].get("items") or [{"key": key, "path": key} for key in content]:
            if item["key"] not in content:
                return None
            found[f"{mount['mountPath']}/{item['path']}"] = content[item["key"]]
    return found


_files = ByIdentity(_files_of)


@dataclass
class Tls:
    """Certificates of a process.

    Attributes:
        command: flags with the paths of the files.
        files: files as the kubelet last wrote them.
        peers, clients: PEM certificates of the authorities, as they were at the start.
    """

    command: Command
    files: Files
    peers: str
    clients: str

    @classmethod
    def started(cls, command: Command, files: Files) -> Tls:
        """Read the files as etcd does when it starts."""
        paths = command.files
        peers, clients = (files.get(paths.get(flag, ""), "") for flag in ("peer-trusted-ca-file", "trusted-ca-file"))
        return cls(command, files, peers, clients)

    @property
    def peer(self) -> Pair:
        """Certificate for the next handshake with a peer."""
        return self._pair("peer-")

    @property
    def server(self) -> Pair:
        """Certificate for the next handshake with a client."""
        return self._pair("")

    def _pair(self, prefix: str) -> Pair:
        certificate, key = (self.files[self.command.files[f"{prefix}{name}-file"]] for name in ("cert", "key"))
        return Pair(certificate, key)

    def accepts(self, other: Tls, now: datetime) -> bool:
        """Whether a handshake with a peer succeeds, as far as this side decides it."""
        return verifies(self.peers, other.peer, now)

    def require_client(self, name: str, access: Access, now: datetime) -> None:
        """Complete a handshake with a client.

        Raises:
            Unreachable: one side rejects the certificate of the other.
        """
        if not verifies(access.authority or "", self.server, now):
            raise Unreachable(f"{name}: the certificate of the server is not trusted")
        if not self.command.requires_client_certificate:
            return
        if access.pair is None:
            raise Unreachable(f"{name}: tls: client didn't provide a certificate")
        if not verifies(self.clients, access.pair, now):
            raise Unreachable(f"{name}: the server does not trust the client certificate")


def verifies(authorities: str, pair: Pair, now: datetime) -> bool:
    """Whether a certificate is signed by one of the authorities, and both are valid: Go verifies the whole chain."""
    validity = _validity(authorities, pair)
    return validity is not None and validity.includes(now)


@lru_cache(maxsize=1024)  # each request is a handshake, of few certificates
def _validity(authorities: str, pair: Pair) -> Validity | None:
    trusted = signers(pair, parsed(authorities))
    return validity_of(pair, trusted) if trusted else None


def trusting(one: Process, other: Process, now: datetime) -> bool:
    """Whether two members accept each other's certificates now."""
    if one.tls is None or other.tls is None:
        return True
    return one.tls.accepts(other.tls, now) and other.tls.accepts(one.tls, now)


def reconnect(etcd: SimulatedEtcd) -> None:
    """Connect members that are not connected. Established connections outlast a change of the files.

    A handshake that would fail is a violation, unless the test expects it.
    """
    running = [process for process in etcd.running if etcd.disks[process.command.disk].cluster]
    uids = {process.uid for process in running}
    etcd.links = {link for link in etcd.links if link <= uids}
    for one, other in combinations(running, 2):
        if etcd.disks[one.command.disk].cluster != etcd.disks[other.command.disk].cluster:
            continue
        if trusting(one, other, etcd.clock()):
            etcd.links.add(frozenset({one.uid, other.uid}))
        else:
            etcd.guard.rejected(one.pod, other.pod)


def connected(etcd: SimulatedEtcd, processes: Iterable[Process]) -> list[Process]:
    """Return the largest group of members that are connected with each other; ties by their order."""
    left, groups = list(processes), []
    while left:
        group = [left.pop(0)]
        for process in group:  # grows while it is traversed
            reached = [other for other in left if frozenset({process.uid, other.uid}) in etcd.links]
            group += reached
            left = [other for other in left if other not in reached]
        groups.append(group)
    largest = max(groups, key=len, default=[])
    return sorted(largest, key=lambda process: (len(process.pod), process.pod))
