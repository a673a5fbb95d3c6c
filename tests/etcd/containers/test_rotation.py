"""A new certificate authority on three real members, while a client writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from operators.etcd.api.versions import Version
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import Access
from shared.pki import ca, certs
from shared.pki.certs import Certificate, joined
from shared.pki.copies import TrustedCertificate, following
from tests.support.containers.etcd_servers import FILES, NEWEST, Cluster, Etcd, Node, eventually, put

pytestmark = pytest.mark.nightly

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
HOST = "demo-0.demo.default.svc"
ADDRESSES = [f"127.0.1.{number}" for number in range(2, 255)]
"""Addresses that members may get: they connect to each other by address, not by name as in pods."""


def flags(version: str) -> tuple[str, ...]:
    """Return the flags for TLS, as the operator passes them."""
    skip = "peer" if Version.parse(version) >= Version(3, 6, 0) else "experimental-peer"
    return (*FLAGS, f"--{skip}-skip-client-san-verification=true")


FLAGS = (
    *(f"--cert-file={FILES}/server/tls.crt", f"--key-file={FILES}/server/tls.key"),
    *(f"--trusted-ca-file={FILES}/server/ca.crt", "--client-cert-auth=true"),
    *(f"--peer-cert-file={FILES}/peer/tls.crt", f"--peer-key-file={FILES}/peer/tls.key"),
    *(f"--peer-trusted-ca-file={FILES}/peer/ca.crt", "--peer-client-cert-auth=true"),
    f"--peer-cert-allowed-hostname={HOST}",
)


class Issuer:
    """An issuer whose authority keeps its subject when it gets a new key, as cert-manager's."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._pair = ca.authority("team-ca", begins=NOW - DAY, ends=NOW + 30 * DAY)
        self.authority: Certificate = certs.read(self._pair.certificate)[0]

    def issue(self, *hosts: str) -> TrustedCertificate:
        pair = ca.issue(self._pair, "", begins=NOW - DAY, ends=NOW + 9 * DAY, hosts=hosts, client=True)
        return TrustedCertificate(pair, (self.authority,))


@dataclass
class Mounted:
    """Files of all members, which the kubelet replaces atomically and at once."""

    directory: Path
    count: int = 0

    def write(self, name: str, content: TrustedCertificate) -> None:
        self.count += 1
        made = self.directory / f"{name}-{self.count}"
        made.mkdir()
        texts = {"tls.crt": content.pair.certificate, "tls.key": content.pair.key, "ca.crt": joined(content.trusted)}
        for file, text in texts.items():
            (made / file).write_text(text)
            (made / file).chmod(0o644)
        link = self.directory / f"{name}.new"
        link.symlink_to(made.name)
        link.replace(self.directory / name)


@dataclass
class Client:
    """Writes a key all the time, with the certificate and the trust bundle of the copies."""

    nodes: list[Node]
    access: Access
    acknowledged: int = 0
    restarting: str = ""
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Write through every member in turn; only the one that restarts may fail."""
        while True:
            for node in self.nodes:
                restarting = self.restarting
                try:
                    await put(node, f"key-{self.acknowledged}", b"x", self.access)
                    self.acknowledged += 1
                except EtcdError as error:
                    if node.name not in (restarting, self.restarting):
                        self.failures.append(f"{node.name}: {error}")
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def restart(cluster: Cluster, node: Node, client: Client) -> None:
    """Restart a member, and wait until it and the others agree on a leader again."""
    client.restarting = node.name
    await asyncio.to_thread(node.stop)
    await asyncio.to_thread(node.start)
    await eventually(lambda: healthy(cluster, client.access), EtcdError, AssertionError)
    client.restarting = ""


async def healthy(cluster: Cluster, access: Access) -> None:
    statuses = [await node.status(access) for node in cluster.nodes]
    assert len({status.leader for status in statuses}) == 1
    assert statuses[0].leader


def hosts() -> tuple[str, ...]:
    return (HOST, *ADDRESSES)


def require_no_rejected_handshake(cluster: Cluster) -> None:
    for node in cluster.nodes:
        lines = [line for line in node.log().splitlines() if "x509" in line or "bad certificate" in line]
        assert lines == [], f"{node.name}: {lines[:3]}"


@pytest.mark.parametrize("keeps_former", [True, False], ids=["cert-manager", "Secrets replaced by hand"])
async def test_new_authority_is_rotated_without_a_rejected_connection(
    etcd: Etcd, etcd_version: str, tmp_path: Path, keeps_former: bool
) -> None:
    issuer, files = Issuer(), Mounted(tmp_path)
    copies = {"peer": issuer.issue(*hosts()), "server": issuer.issue(*hosts()), "client": issuer.issue()}
    for name, content in copies.items():
        files.write(name, content)
    first = issuer.authority

    with etcd.cluster(
        etcd_version, *flags(etcd_version), size=3, scheme="https", peer_scheme="https", files=tmp_path
    ) as cluster:
        client = Client(cluster.nodes, Access(joined(copies["server"].trusted), copies["client"].pair))
        await eventually(lambda: healthy(cluster, client.access), EtcdError, AssertionError)
        async with client.writing():
            await asyncio.sleep(0.3)
            issuer.renew()
            originals = {"peer": issuer.issue(*hosts()), "server": issuer.issue(*hosts()), "client": issuer.issue()}
            stages = []
            loaded = {name: copy.trusted for name, copy in copies.items()}
            for _ in range(8):
                informed = all(loaded[name] == copy.trusted for name, copy in copies.items())
                made = {
                    name: following(copy, originals[name], informed=informed, now=NOW, keeps_former=keeps_former)
                    for name, copy in copies.items()
                }
                if not any(desired for _, desired in made.values()) and informed:
                    break
                stages += [why for why, _ in made.values() if why]
                copies |= {name: desired for name, (_, desired) in made.items() if desired}
                for name, content in copies.items():
                    files.write(name, content)
                client.access = Access(joined(copies["server"].trusted), copies["client"].pair)
                await asyncio.sleep(0.3)  # the client and members connect with the new files
                if any(loaded[name] != copy.trusted for name, copy in copies.items()):
                    for node in cluster.nodes:
                        await restart(cluster, node, client)
                    loaded = {name: copy.trusted for name, copy in copies.items()}
            await asyncio.sleep(0.3)
        assert stages[:3] == ["trusting the new authority before it is used"] * 3
        assert stages[3:6] == ["new certificate"] * 3
        assert (first in copies["peer"].trusted) is keeps_former
        assert {copy.pair for copy in copies.values()} == {original.pair for original in originals.values()}
        assert client.failures == []
        assert client.acknowledged > 30
        await healthy(cluster, client.access)
        require_no_rejected_handshake(cluster)


async def test_without_copies_the_first_member_that_restarts_never_joins_again(etcd: Etcd, tmp_path: Path) -> None:
    """Show what the stages prevent, and that this test would notice it: members mount the Secrets of the issuer."""
    issuer, files = Issuer(), Mounted(tmp_path)
    server, access = issuer.issue(*hosts()), Access(joined((issuer.authority,)), issuer.issue().pair)
    files.write("peer", issuer.issue(*hosts()))
    files.write("server", server)
    with etcd.cluster(NEWEST, *flags(NEWEST), size=3, scheme="https", peer_scheme="https", files=tmp_path) as cluster:
        await eventually(lambda: healthy(cluster, access), EtcdError, AssertionError)
        issuer.renew()
        files.write("peer", issuer.issue(*hosts()))
        first = cluster.nodes[0]
        await asyncio.to_thread(first.stop)
        await asyncio.to_thread(first.start)
        with pytest.raises(AssertionError, match="timed out"):
            await eventually(lambda: healthy(cluster, access), EtcdError, AssertionError, seconds=5)
        with pytest.raises(AssertionError, match=r"x509|bad certificate"):
            require_no_rejected_handshake(cluster)
