"""The Secret for clients of a RedisCluster: what every node accepts now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.database import DATABASE
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names
from operators.redis.security.users import Passwords
from operators.redis.steps.connection_secret import connection
from shared.kubernetes.kinds import SERVICE
from shared.kubernetes.secrets import content_of
from shared.runtime.plan import PASS, WriteSecret
from shared.steps.connection import ConnectionSecret
from tests.redis.unit.world import SETTINGS, assess, formed, planned, world

NODES = ",".join(f"demo-{number}.demo.default.svc:6379" for number in range(6))


def facts(passwords: Passwords | None, **spec: Any) -> Assessment:
    resource, seen = world(*formed())
    resource = RedisCluster.parse({**resource.obj, "spec": resource.obj["spec"] | spec})
    service = names.owner(resource, SETTINGS.operator).object(SERVICE, resource.name, component=names.COMPONENT)
    published = ConnectionSecret(service=service)
    seen = replace(seen, secrets=replace(seen.secrets, passwords=passwords), connection=published)
    return assess(resource, seen)


def test_open_cluster_needs_no_user() -> None:
    found = connection(facts(Passwords("")))
    assert found.content == {
        "type": "redis",
        "provider": "platform.ydzs.io",
        "host": "demo-client.default.svc",
        "port": "6379",
        "uri": "redis://demo-client.default.svc:6379",
        "username": "",
        "password": "",
        "ca.crt": "",
        "tls.crt": "",
        "tls.key": "",
        "nodes": NODES,
    }


def test_password_is_the_one_that_every_node_accepts_now() -> None:
    found = connection(facts(Passwords("o/ne", next="two"), auth={"secretName": "given"})).content
    assert (found["username"], found["password"]) == ("default", "o/ne")
    assert found["uri"] == "redis://default:o%2Fne@demo-client.default.svc:6379"


@pytest.mark.parametrize("field", ["username", "password", "uri"])
def test_unknown_passwords_are_unknown(field: str) -> None:
    assert connection(facts(None, auth={"secretName": "given"})).content[field] is None


def test_tls_without_certificates_yet_is_unknown() -> None:
    found = connection(facts(Passwords(""), tls={"mode": "self"})).content
    assert (found["ca.crt"], found["tls.crt"], found["uri"]) == (None, None, "rediss://demo-client.default.svc:6379")


def test_operator_without_the_right_to_write_secrets_writes_none() -> None:
    assert (
        DATABASE.ensure_connection(replace(facts(Passwords("")), settings=replace(SETTINGS, write_secrets=False)))
        == PASS
    )
    (write,) = DATABASE.ensure_connection(facts(Passwords(""))).actions
    assert isinstance(write, WriteSecret)
    assert content_of(write.obj)["nodes"] == NODES


def test_plan_writes_nothing_if_the_secret_was_not_read() -> None:
    assert not [action for action in planned(*formed()).actions if isinstance(action, WriteSecret)]
