"""Gateway client against real etcd servers: users, tokens and certificates."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operators.etcd.api.resource import API
from operators.etcd.client import responses
from operators.etcd.client.commands import AddLearner, ChangePassword, DisableAuth, EnableAuth, ReplaceUser, execute
from operators.etcd.client.errors import Denied, EtcdError, Refused, Unauthenticated, Unreachable
from operators.etcd.client.gateway import connect
from operators.etcd.client.http import Wire
from operators.etcd.client.server import Access
from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names
from operators.etcd.observe import observer
from operators.etcd.operator import clusters
from operators.etcd.security.secrets import CLIENT, CLIENT_ROLE
from operators.etcd.steps.credentials import ensure_auth
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import POD, SECRET
from shared.kubernetes.secret_provenance import RECORD
from shared.pki.certs import Pair
from simulator.api_server.server import ApiServer
from tests.etcd.unit import world
from tests.etcd.unit.world import assess
from tests.support.containers.etcd_servers import FILES, NEWEST, OPEN, Etcd, Node, eventually, leader
from tests.support.tls import Authority

pytestmark = pytest.mark.nightly

OPTIONS = parse_options("etcd-operator", "etcd", [], {})

ROOT = Access(user="root", password="first")
HOST = "demo-0.demo.test"
TLS = (f"--cert-file={FILES}/server.crt", f"--key-file={FILES}/server.key")
CLIENTS = (f"--trusted-ca-file={FILES}/authority.crt", "--client-cert-auth")


async def defragment(node: Node, access: Access, host: str = "") -> None:
    """Defragment a member, which every version restricts to root."""
    async with node.connected(access, host) as server:
        await server.defragment()


async def auth_enabled(node: Node, access: Access, host: str = "") -> bool:
    async with node.connected(access, host) as server:
        return await server.auth_enabled()


async def enable(node: Node, access: Access = ROOT) -> None:
    await execute(connect, EnableAuth((node.endpoint(),), access, access.user, access.password))


@pytest.mark.commit
async def test_authentication_is_enabled_and_passwords_are_changed(etcd: Etcd, etcd_version: str) -> None:
    wrong, second = replace(ROOT, password="wrong"), replace(ROOT, password="second")
    with etcd.cluster(etcd_version) as cluster:
        node = await leader(cluster.nodes)
        endpoints = (node.endpoint(),)
        async with node.connected(ROOT) as server:  # authentication is not enabled
            assert not await server.auth_enabled()
            await server.authenticate()
            await server.defragment()
        other_client = Wire(node.endpoint(), OPEN)
        await other_client.post("auth/user/add", {"name": "root", "password": "of another user"}, dict)
        await other_client.aclose()

        await enable(node)
        await enable(node)  # already enabled
        for access in (OPEN, wrong, ROOT):
            assert await auth_enabled(node, access)
        with pytest.raises(Unauthenticated, match="requires a user and a password, and none are configured"):
            await defragment(node, OPEN)
        with pytest.raises(Denied, match="authentication failed") as raised:
            await defragment(node, wrong)
        assert type(raised.value) is Denied
        assert "wrong" not in str(raised.value)
        async with node.connected(ROOT) as server:
            pieces = [piece async for piece in server.snapshot()]
            assert len(b"".join(pieces)) % 512 == 32
            assert (await server.status()).version == etcd_version
            assert len((await server.members()).members) == 1
            assert await server.remembered_members() == await server.members()
            assert await server.alarms() == ()
            assert not await server.is_compacted(2)

        node.stop()  # its tokens are lost
        node.start()
        await eventually(lambda: defragment(node, ROOT), Unreachable)

        change = ChangePassword(endpoints, ROOT, "root", "second")
        await execute(connect, change)
        await execute(connect, change)  # the old password is denied, the new one is accepted
        await defragment(node, second)
        with pytest.raises(Denied):
            await defragment(node, ROOT)
        with pytest.raises(Denied):
            await execute(connect, ChangePassword(endpoints, ROOT, "root", "third"))
        async with node.connected(second) as server:
            await server.authenticate()

        disable = DisableAuth(endpoints, second)
        await execute(connect, disable)
        await execute(connect, disable)
        assert not await auth_enabled(node, OPEN)
        await defragment(node, OPEN)
        await enable(node, ROOT)  # the user still exists, with another password
        await defragment(node, ROOT)


@pytest.mark.commit
async def test_user_for_applications_reads_and_writes_keys_and_nothing_else(etcd: Etcd, etcd_version: str) -> None:
    application = Access(user=CLIENT, password="of client")
    with etcd.cluster(etcd_version) as cluster:
        node = await leader(cluster.nodes)
        await enable(node)
        call = ReplaceUser((node.endpoint(),), ROOT, CLIENT, application.password, CLIENT_ROLE, None)
        async with node.connected(ROOT) as root, node.connected(application) as client:
            assert await root.roles(CLIENT) is None
            with pytest.raises(Denied, match="authentication failed"):
                await client.is_compacted(2)
            await execute(connect, call)
            await execute(connect, call)  # the response was lost
            assert await root.roles(CLIENT) == (CLIENT_ROLE,)
            assert not await client.is_compacted(2)
            await root.defragment()  # root's token is still valid

            for refused in (
                client.defragment(),
                client.disable_auth(),
                client.replace_user("other", "x", "root"),
                client.add_learner("http://other:2380"),
            ):
                with pytest.raises(Denied, match="permission denied"):
                    await refused
            may_move = etcd_version.startswith(("3.4.", "3.5."))  # there, each user may
            with pytest.raises(Refused, match="bad leader transferee" if may_move else "permission denied"):
                await client.move_leader(1)
            with pytest.raises(Denied, match="permission denied"):
                assert [piece async for piece in client.snapshot()]

        await require_keys(node, application)
        changed = replace(application, password="changed")
        await execute(connect, replace(call, password="changed", found=(CLIENT_ROLE,)))
        await require_keys(node, changed)
        async with node.connected(application) as client:
            with pytest.raises(Denied, match="authentication failed"):
                await client.authenticate()

        other = Wire(node.endpoint(), OPEN)
        token = await other.post("auth/authenticate", {"name": "root", "password": ROOT.password}, responses.token)
        await other.post("auth/user/revoke", {"name": CLIENT, "role": CLIENT_ROLE}, dict, token=token)
        await other.aclose()
        async with node.connected(ROOT) as root, node.connected(changed) as client:
            assert await root.roles(CLIENT) == ()
            with pytest.raises(Denied, match="permission denied"):
                await client.is_compacted(2)
            await client.authenticate()  # the password is still right: the user is the same


async def require_keys(node: Node, access: Access) -> None:
    """Require that a user writes and reads the first key, the last one, and all of them."""
    wire = Wire(node.endpoint(), OPEN)
    login = {"name": access.user, "password": access.password}
    token = await wire.post("auth/authenticate", login, responses.token)
    for key in (b"\0", b"any", b"\xff\xff"):
        text = base64.b64encode(key).decode()
        await wire.post("kv/put", {"key": text, "value": "eA=="}, dict, token=token)
    every: dict[str, Any] = {"key": "AA==", "range_end": "AA=="}
    found = await wire.post("kv/range", {**every, "count_only": True}, dict, token=token)
    assert int(found["count"]) >= 3
    await wire.post("kv/deleterange", every, dict, token=token)
    await wire.aclose()


async def test_removed_authentication_is_disabled_with_the_stored_password(etcd: Etcd, etcd_version: str) -> None:
    resource, api, cache = (
        world.cluster(1, recorded=[0]),
        ApiServer([API.kind]),
        clusters(OPTIONS).cache(lambda _: None),
    )
    labels = names.owner(resource, world.SETTINGS.operator).labels(names.COMPONENT)
    about = {"name": "demo-0", "namespace": "default", "uid": "p", "labels": labels, "resourceVersion": "1"}
    running = {"phase": "Running", "podIP": "127.0.0.1"}
    cache.put(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "status": running})
    with etcd.cluster(etcd_version) as cluster:
        node = await leader(cluster.nodes)
        await enable(node)
        observe = observer(lambda _, access: connect(node.endpoint(), access))

        async def observed() -> Assessment:
            kube = Kube(api, manager=world.SETTINGS.operator)
            return assess(resource, await observe(resource, cache, kube))

        assert (await observed()).denied, "nothing is stored"
        owner = {"apiVersion": "v1", "kind": "X", "name": "demo", "uid": resource.uid, "controller": True}
        metadata = {"name": "demo-operator-auth", "namespace": "default", "ownerReferences": [owner]}
        data = {"password": base64.b64encode(ROOT.password.encode()).decode()}
        made = api.actor("operator").create(SECRET, {"metadata": metadata, "data": data})
        record = {made["metadata"]["name"]: made["metadata"]["uid"]}
        resource = world.cluster(1, recorded=[0], status={RECORD: record})
        seen = await observed()
        assert (seen.denied, seen.auth_enabled, seen.former_password) == ("", True, True)
        (call,) = ensure_auth(assess(resource, seen, world.NOW)).actions
        assert isinstance(call, DisableAuth)
        await execute(connect, replace(call, endpoints=(node.endpoint(),)))
        seen = await observed()
        assert (seen.denied, seen.auth_enabled) == ("", False)
        assert not await auth_enabled(node, OPEN)


@pytest.mark.weekly
async def test_expired_token_is_replaced(etcd: Etcd) -> None:
    with etcd.cluster(NEWEST, "--auth-token-ttl=1") as cluster:
        node = await leader(cluster.nodes)
        await enable(node)
        async with node.connected(ROOT) as server:
            await server.defragment()
            await asyncio.sleep(3)
            await server.defragment()
            await asyncio.sleep(3)
            assert b"".join([piece async for piece in server.snapshot()])


async def test_learner_accepts_the_token_of_a_voter(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version) as cluster:
        first = await leader(cluster.nodes)
        await enable(first)
        second = cluster.prepare()
        await execute(connect, AddLearner((first.endpoint(),), ROOT, second.peer_url))
        await first.status(ROOT, HOST)  # the learner will not know this token
        cluster.join(second)

        async def learner_accepts_the_token() -> None:
            await first.status(ROOT, HOST)
            assert (await second.status(ROOT, "demo-1.demo.test")).learner

        await eventually(learner_accepts_the_token, Refused, Unreachable)


@pytest.mark.commit
async def test_client_and_server_authenticate_each_other(etcd: Etcd, etcd_version: str, tmp_path: Path) -> None:
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    authority.issue("server", HOST)
    pair = Pair(*(file.read_text() for file in authority.issue("client")))
    trust = authority.certificate.read_text()
    access = Access(trust, pair)

    with etcd.cluster(etcd_version, *TLS, *CLIENTS, scheme="https", files=tmp_path) as cluster:
        (node,) = cluster.nodes
        status = await eventually(lambda: node.status(access, HOST), Unreachable)
        assert status.version == etcd_version
        async with node.connected(access, HOST) as server:
            assert len((await server.members()).members) == 1
            assert (await server.progress()).member_id == status.member_id
            assert b"".join([piece async for piece in server.snapshot()])

        foreign = Pair(*(file.read_text() for file in another.issue("foreign")))
        expired = Pair(*(file.read_text() for file in authority.issue("expired", days=-1)))
        for wrong, host, why in (
            (access, "elsewhere.test", r"not valid for 'elsewhere\.test'"),
            (replace(access, authority=another.certificate.read_text()), HOST, "is not trusted"),
            (replace(access, pair=None), HOST, "certificate"),
            (replace(access, pair=foreign), HOST, "certificate"),
            (replace(access, pair=expired), HOST, "certificate"),
            (OPEN, HOST, "TLS"),
            (replace(access, authority="nonsense"), HOST, "no certificate authority found"),
            (
                replace(access, pair=Pair(pair.certificate, foreign.key)),
                HOST,
                "the key does not belong to the certificate",
            ),
        ):
            with pytest.raises(Unreachable, match=why) as raised:
                await node.status(wrong, host)
            assert "PRIVATE" not in str(raised.value)

    with etcd.cluster(etcd_version) as cluster, pytest.raises(Unreachable, match="does not use TLS"):
        await (await leader(cluster.nodes)).status(access)


async def test_with_users_the_clients_certificate_must_not_have_a_common_name(
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
        async with node.connected(named, HOST) as server:
            await server.enable_auth("root", "first")
        assert await auth_enabled(node, nameless, HOST)
        await defragment(node, nameless, HOST)
        assert await auth_enabled(node, named, HOST)
        with pytest.raises(Denied, match="issue one without it"):
            await defragment(node, named, HOST)


async def test_server_certificate_must_be_valid_for_client_auth(etcd: Etcd, etcd_version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", HOST, client=False)
    access = Access(authority.certificate.read_text(), Pair(*(file.read_text() for file in authority.issue("client"))))
    with etcd.cluster(etcd_version, *TLS, *CLIENTS, scheme="https", files=tmp_path) as cluster:

        async def status_error() -> EtcdError:
            try:
                await cluster.nodes[0].status(access, HOST)
            except EtcdError as error:
                return error
            raise AssertionError("the member must not reply")

        async def error_is_explained() -> None:
            text = str(await status_error())
            assert "issue it for client auth as well" in text or (
                etcd_version == "3.4.13" and "connection closed" in text
            )

        await eventually(error_is_explained, AssertionError)
        assert type(await status_error()) is Unreachable
