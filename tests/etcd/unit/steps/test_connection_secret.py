"""The Secret for clients of an EtcdCluster: what etcd accepts now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.client.server import Access
from operators.etcd.database import DATABASE
from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names
from operators.etcd.security.secrets import Secrets
from operators.etcd.state.observed import ClientUser
from operators.etcd.steps.connection_secret import connection
from shared.kubernetes.kinds import SERVICE
from shared.kubernetes.secrets import content_of, encoded
from shared.runtime.plan import PASS, WriteSecret
from shared.steps.connection import ConnectionSecret
from tests.etcd.unit.world import SETTINGS, VOTER, assess, cluster, seen

ENDPOINTS = ",".join(f"http://demo-{number}.demo.default.svc:2379" for number in range(3))


def facts(*, secrets: Secrets | None = None, spec: Any = None, **more: Any) -> Assessment:
    resource = cluster(3, **(spec or {}))
    service = names.owner(resource, SETTINGS.operator).object(SERVICE, resource.name, component=names.COMPONENT)
    published = ConnectionSecret(service=service)
    found = seen(resource, *[VOTER] * 3, secrets=secrets or Secrets(), connection=published, **more)
    return assess(resource, found)


def test_open_cluster_needs_no_user() -> None:
    found = connection(facts(auth_enabled=False))
    assert found.content == {
        "type": "etcd",
        "provider": "platform.ydzs.io",
        "host": "demo-client.default.svc",
        "port": "2379",
        "uri": "http://demo-client.default.svc:2379",
        "username": "",
        "password": "",
        "ca.crt": "",
        "tls.crt": "",
        "tls.key": "",
        "endpoints": ENDPOINTS,
    }


def test_password_is_the_one_that_etcd_accepts() -> None:
    accepted = Secrets(access=Access(user="root", password="old"), client_password="its own")
    more: Any = {"auth_enabled": True, "secrets": accepted, "former_password": True}
    found = connection(facts(spec={"auth": {"connectAs": "root"}}, **more)).content
    assert (found["username"], found["password"]) == ("root", "old")
    found = connection(facts(spec={"auth": {}}, client=ClientUser(accepted=True), **more)).content
    assert (found["username"], found["password"]) == ("client", "its own")


@pytest.mark.parametrize(
    "world",
    [
        {"auth_enabled": None},
        {"auth_enabled": True, "denied": "no"},
        {"auth_enabled": True},
        {"auth_enabled": True, "client": ClientUser(accepted=False)},
    ],
)
def test_password_is_unknown_until_etcd_accepts_it(world: Any) -> None:
    known = Secrets(access=Access(user="root", password="guess"))
    found = connection(facts(secrets=known, **world)).content
    assert (found["username"], found["password"]) == (None, None)
    assert DATABASE.ensure_connection(facts(secrets=known, **world)) == PASS


def test_client_certificate_is_the_one_for_clients() -> None:
    data = encoded({"ca.crt": "CA", "tls.crt": "CERT", "tls.key": "KEY"})
    secrets = Secrets(found={"demo-client-tls": {"data": data}})
    spec: Any = {"tls": {"mode": "self"}}
    found = connection(facts(auth_enabled=False, secrets=secrets, spec=spec)).content
    assert (found["ca.crt"], found["tls.crt"], found["tls.key"]) == ("CA", "CERT", "KEY")
    assert str(found["uri"]).startswith("https://")
    spec = {"tls": {"mode": "self", "client": {"auth": "none"}}}
    found = connection(facts(auth_enabled=False, secrets=secrets, spec=spec)).content
    assert (found["ca.crt"], found["tls.crt"], found["tls.key"]) == ("CA", "", "")


def test_operator_without_the_right_to_write_secrets_writes_none() -> None:
    assert (
        DATABASE.ensure_connection(replace(facts(auth_enabled=False), settings=replace(SETTINGS, write_secrets=False)))
        == PASS
    )
    (write,) = DATABASE.ensure_connection(facts(auth_enabled=False)).actions
    assert isinstance(write, WriteSecret)
    assert content_of(write.obj)["endpoints"] == ENDPOINTS
