"""The Secret for clients of a Memcached, by the whole operator on the in-memory API server."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from operators.memcached.operator import controller
from operators.memcached.security.certificates import ServedCertificate
from operators.memcached.security.secrets import Secrets
from operators.memcached.state.observed import Observed
from operators.memcached.steps.connection_secret import connection
from shared.cli.options import parse_options
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secrets import content_of
from shared.steps.connection import ConnectionSecret
from simulator.harness import NAMESPACE, Harness
from simulator.memcached.fake_servers import Fleet, certificate, mounted_secrets, secret, signer
from tests.memcached.unit.world import UNPAUSED, assess, pod, resource, template, workload_of

NAME = "cache-connection"


def operator(*flags: str, fleet: Fleet | None = None) -> Harness:
    agent = "--agent-image=example.com/operator:1"
    options = parse_options("memcached-operator", "memcached", [agent, *flags], {})
    servers = fleet or Fleet()
    harness = Harness(controller(options, servers.connect, servers.attest))
    servers.volumes = partial(mounted_secrets, harness.server)
    return harness


async def applied(harness: Harness, **spec: Any) -> Obj:
    harness.apply("cache", **({"size": 2} | UNPAUSED | spec))
    await harness.settle()
    return harness.resource("cache")


async def resynced(harness: Harness) -> None:
    for key in harness.cache.keys(harness.controller.kind):
        harness.queue.add(key)
    await harness.settle()


def content(harness: Harness) -> Any:
    found = [obj for _, obj in harness.server.objects(SECRET) if obj["metadata"]["name"] == NAME]
    return content_of(found[0] if found else None)


async def test_secret_has_the_servers_and_follows_them() -> None:
    harness = operator()
    resource = await applied(harness)
    found = content(harness)
    assert (found["type"], found["host"], found["port"]) == ("memcached", "cache.default.svc", "11211")
    assert found["servers"] == ",".join(resource["status"]["servers"])
    assert "password" not in found
    assert resource["status"]["binding"] == {"name": NAME}
    await applied(harness, size=3, containerPort=11311)
    assert content(harness)["uri"] == "memcached://cache.default.svc:11311"
    assert len(content(harness)["servers"].split(",")) == 3


async def test_password_follows_once_all_servers_accept_it() -> None:
    fleet = Fleet(users={("app", "one")})
    harness = operator(fleet=fleet)
    harness.user_client.apply(SECRET, secret("users", users="app:one\n"), force=True)
    await applied(harness, auth={"secretName": "users"})
    assert (content(harness)["username"], content(harness)["password"]) == ("app", "one")
    harness.user_client.apply(SECRET, secret("users", users="app:two\n"), force=True)
    await resynced(harness)
    assert content(harness)["password"] == "one", "the servers still have the former file"
    fleet.users = {("app", "two")}
    await resynced(harness)
    assert content(harness)["password"] == "two"


async def test_content_is_removed_on_request() -> None:
    harness = operator()
    await applied(harness)
    resource = await applied(harness, connectionSecret=False)
    assert content(harness) == {}
    assert "binding" not in resource["status"]
    await applied(harness, connectionSecret=True)
    assert content(harness)["host"] == "cache.default.svc"


@pytest.mark.parametrize("is_requested", [True, False])
async def test_secret_of_a_user_is_reported_and_not_changed(is_requested: bool) -> None:
    harness = operator()
    before = harness.user_client.apply(SECRET, secret(NAME, password="theirs"), force=True)
    resource = await applied(harness, connectionSecret=is_requested)
    ready = resource["status"]["conditions"][0]
    assert ready["status"] == "True"
    assert ready["reason"] == ("ConnectionSecretTaken" if is_requested else "Ready")
    assert harness.user_client.get(SECRET, NAMESPACE, NAME) == before
    assert "binding" not in resource["status"]


async def test_deleted_secret_is_created_again_at_the_next_reconcile() -> None:
    harness = operator()
    await applied(harness)
    harness.user_client.delete(SECRET, NAMESPACE, NAME)
    await resynced(harness)
    assert content(harness)["host"] == "cache.default.svc"


async def test_operator_without_the_right_writes_none() -> None:
    harness = operator("--no-write-secrets")
    resource = await applied(harness)
    assert content(harness) == {}
    assert resource["status"]["conditions"][0]["reason"] == "Ready"


async def test_paused_resource_keeps_its_secret_unchanged() -> None:
    harness = operator()
    await applied(harness)
    before = content(harness)
    await applied(harness, paused=True, containerPort=11311)
    assert content(harness) == before


USERS = Secrets(users="app:secret\n", users_digest="d")
ENCRYPTED = Secrets(pair=certificate(), issuers=signer("ca").certificate)


@pytest.mark.parametrize(
    ("spec", "secrets", "running", "unknown"),
    [
        ({"auth": {"secretName": "u"}}, USERS, {}, ["username", "password"]),
        ({}, Secrets(), {"users": "u"}, ["username", "password"]),
        ({"tls": {"secretName": "t"}}, ENCRYPTED, {}, ["ca.crt", "tls.crt", "tls.key"]),
        ({}, Secrets(), {"tls": "t"}, ["ca.crt", "tls.crt", "tls.key"]),
    ],
    ids=["users are added", "users are removed", "TLS is added", "TLS is removed"],
)
def test_content_stays_while_a_server_runs_with_the_former_spec(
    spec: Obj, secrets: Secrets, running: Obj, unknown: list[str]
) -> None:
    """A server without authentication stores the password that a client sends, as an item that everyone can read."""
    observed = Observed(workload_of("StatefulSet", pod(0), made=template(**running)), secrets=secrets)
    made = connection(assess(resource(size=1, phase="Running", generation=2, observed=1, **spec), observed))
    assert [key for key, text in made.content.items() if text is None] == unknown


def test_port_stays_while_a_server_listens_on_it() -> None:
    observed = Observed(workload_of("StatefulSet", pod(0), pod(1)))
    assert connection(assess(resource(containerPort=11311), observed)).port == 11211


@pytest.mark.parametrize("both", [True, False])
def test_former_authority_is_trusted_until_no_server_presents_its_certificate(both: bool) -> None:
    former, own = signer("former").certificate, {"uid": "u-1"}
    present = ConnectionSecret(secret(NAME, ca_crt=former) | {"metadata": own}, is_proven=True)
    workload = workload_of("StatefulSet", pod(0), made=template(tls="t"))
    workload.obj["spec"]["template"] = template(tls="t")  # type: ignore[index]
    observed = Observed(
        workload,
        secrets=ENCRYPTED,
        served_certificates={"cache-0": ServedCertificate("former" if both else ENCRYPTED.fingerprint)},
        connection=present,
    )
    parsed = resource(size=1, phase="Running", observed=1, status={"certificate": "former"}, tls={"secretName": "t"})
    trusted = connection(assess(parsed, observed)).content["ca.crt"] or ""
    assert ENCRYPTED.issuers in trusted
    assert (former in trusted) == both
