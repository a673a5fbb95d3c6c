"""The client of etcd's gateway against etcd itself: users, their tokens, and certificates."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from operators.etcd.client.commands import AddLearner, ChangePassword, DisableAuth, EnableAuth, execute
from operators.etcd.client.errors import Denied, EtcdError, Refused, Unauthenticated, Unreachable
from operators.etcd.client.gateway import connect
from operators.etcd.client.http import Wire
from operators.etcd.client.server import Access
from shared.pki.certs import Pair
from tests.containers.support.etcd_servers import FILES, NEWEST, OPEN, Etcd, Node, eventually, leader
from tests.support.tls import Authority

ROOT = Access(user="root", password="first")
HOST = "demo-0.demo.test"
TLS = (f"--cert-file={FILES}/server.crt", f"--key-file={FILES}/server.key")
CLIENTS = (f"--trusted-ca-file={FILES}/authority.crt", "--client-cert-auth")


async def defragment(node: Node, access: Access, host: str = "") -> None:
    """What every version lets nobody do but root."""
    async with node.asked(access, host) as server:
        await server.defragment()


async def auth_enabled(node: Node, access: Access, host: str = "") -> bool:
    async with node.asked(access, host) as server:
        return await server.auth_enabled()


async def enable(node: Node, access: Access = ROOT) -> None:
    await execute(connect, EnableAuth((node.endpoint(),), access, access.user, access.password))


async def test_users_are_asked_for_and_their_passwords_changed(etcd: Etcd, etcd_version: str) -> None:
    wrong, second = replace(ROOT, password="wrong"), replace(ROOT, password="second")
    with etcd.cluster(etcd_version) as cluster:
        node = await leader(cluster.nodes)
        asked = (node.endpoint(),)
        async with node.asked(ROOT) as server:  # nobody asks who we are
            assert not await server.auth_enabled()
            await server.authenticate()
            await server.defragment()
        squatter = Wire(node.endpoint(), OPEN)
        await squatter.post("auth/user/add", {"name": "root", "password": "of somebody else"}, dict)
        await squatter.aclose()

        await enable(node)
        await enable(node)  # it is so already
        for access in (OPEN, wrong, ROOT):
            assert await auth_enabled(node, access)
        with pytest.raises(Unauthenticated, match="requires a user and a password, and none are configured"):
            await defragment(node, OPEN)
        with pytest.raises(Denied, match="authentication failed") as told:
            await defragment(node, wrong)
        assert type(told.value) is Denied
        assert "wrong" not in str(told.value)
        async with node.asked(ROOT) as server:
            pieces = [piece async for piece in server.snapshot()]
            assert len(b"".join(pieces)) % 512 == 32
            assert (await server.status()).version == etcd_version
            assert len((await server.members()).members) == 1
            assert await server.remembered_members() == await server.members()
            assert await server.alarms() == ()
            assert not await server.is_compacted(2)

        node.stop()  # and with it its tokens are gone
        node.start()
        await eventually(lambda: defragment(node, ROOT), Unreachable)

        change = ChangePassword(asked, ROOT, "root", "second")
        await execute(connect, change)
        await execute(connect, change)  # with the former one it is denied, with the new one it is not
        await defragment(node, second)
        with pytest.raises(Denied):
            await defragment(node, ROOT)
        with pytest.raises(Denied):
            await execute(connect, ChangePassword(asked, ROOT, "root", "third"))
        async with node.asked(second) as server:
            await server.authenticate()

        disable = DisableAuth(asked, second)
        await execute(connect, disable)
        await execute(connect, disable)
        assert not await auth_enabled(node, OPEN)
        await defragment(node, OPEN)
        await enable(node, ROOT)  # the user is still there, with another password
        await defragment(node, ROOT)


@pytest.mark.long
async def test_a_token_that_has_expired_is_replaced(etcd: Etcd) -> None:
    with etcd.cluster(NEWEST, "--auth-token-ttl=1") as cluster:
        node = await leader(cluster.nodes)
        await enable(node)
        async with node.asked(ROOT) as server:
            await server.defragment()
            await asyncio.sleep(3)
            await server.defragment()
            await asyncio.sleep(3)
            assert b"".join([piece async for piece in server.snapshot()])


async def test_a_learner_takes_the_token_that_a_voter_gave(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version) as cluster:
        first = await leader(cluster.nodes)
        await enable(first)
        second = cluster.prepare()
        await execute(connect, AddLearner((first.endpoint(),), ROOT, second.peer_url))
        await first.status(ROOT, HOST)  # this token, it will not know
        cluster.join(second)

        async def told() -> None:
            await first.status(ROOT, HOST)
            assert (await second.status(ROOT, "demo-1.demo.test")).learner

        await eventually(told, Refused, Unreachable)


async def test_both_ends_prove_who_they_are(etcd: Etcd, etcd_version: str, tmp_path: Path) -> None:
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    authority.issue("server", HOST)
    pair = Pair(*(file.read_text() for file in authority.issue("client")))
    trust = authority.certificate.read_text()
    access = Access(trust, pair)

    with etcd.cluster(etcd_version, *TLS, *CLIENTS, scheme="https", files=tmp_path) as cluster:
        (node,) = cluster.nodes
        status = await eventually(lambda: node.status(access, HOST), Unreachable)
        assert status.version == etcd_version
        async with node.asked(access, HOST) as server:
            assert len((await server.members()).members) == 1
            assert (await server.progress()).member_id == status.member_id
            assert b"".join([piece async for piece in server.snapshot()])

        stranger = Pair(*(file.read_text() for file in another.issue("stranger")))
        expired = Pair(*(file.read_text() for file in authority.issue("expired", days=-1)))
        for wrong, host, why in (
            (access, "elsewhere.test", r"not valid for 'elsewhere\.test'"),
            (replace(access, authority=another.certificate.read_text()), HOST, "not to be trusted"),
            (replace(access, pair=None), HOST, "certificate"),
            (replace(access, pair=stranger), HOST, "certificate"),
            (replace(access, pair=expired), HOST, "certificate"),
            (OPEN, HOST, "TLS"),
            (replace(access, authority="nonsense"), HOST, "no authority to trust"),
            (replace(access, pair=Pair(pair.certificate, stranger.key)), HOST, "the key does not belong to the certificate"),
        ):
            with pytest.raises(Unreachable, match=why) as told:
                await node.status(wrong, host)
            assert "PRIVATE" not in str(told.value)

    with etcd.cluster(etcd_version) as cluster, pytest.raises(Unreachable, match="does not use TLS"):
        await (await leader(cluster.nodes)).status(access)


async def test_with_users_the_clients_certificate_bears_no_common_name(
    etcd: Etcd, etcd_version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", HOST)
    trust = authority.certificate.read_text()
    named = Access(trust, Pair(*(file.read_text() for file in authority.issue("named"))), "root", "first")
    nameless = replace(named, pair=Pair(*(file.read_text() for file in authority.issue("nameless", named=False))))
    with etcd.cluster(etcd_version, *TLS, *CLIENTS, scheme="https", files=tmp_path) as cluster:
        (node,) = cluster.nodes
        await eventually(lambda: node.status(named, HOST), Unreachable)
        async with node.asked(named, HOST) as server:
            await server.enable_auth("root", "first")
        assert await auth_enabled(node, nameless, HOST)
        await defragment(node, nameless, HOST)
        assert await auth_enabled(node, named, HOST)
        with pytest.raises(Denied, match="issue one without it"):
            await defragment(node, named, HOST)


async def test_the_servers_certificate_must_be_good_for_clients(etcd: Etcd, etcd_version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", HOST, client=False)
    access = Access(authority.certificate.read_text(), Pair(*(file.read_text() for file in authority.issue("client"))))
    with etcd.cluster(etcd_version, *TLS, *CLIENTS, scheme="https", files=tmp_path) as cluster:

        async def told() -> EtcdError:
            try:
                await cluster.nodes[0].status(access, HOST)
            except EtcdError as error:
                return error
            raise AssertionError("it answers")

        async def taught() -> None:
            said = str(await told())
            assert "issue it for client auth as well" in said or (
                etcd_version == "3.4.13" and "connection closed" in said
            )

        await eventually(taught, AssertionError)
        assert type(await told()) is Unreachable
