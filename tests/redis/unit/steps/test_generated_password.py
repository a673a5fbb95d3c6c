"""The generated password (spec.auth without a Secret): it follows the path of a password that a user provides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.facts.assessment import Assessment
from operators.redis.security.users import Passwords
from operators.redis.steps.provisioning import provide_password
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import content_of
from shared.runtime.plan import PASS, Step, WriteSecret
from shared.steps.passwords import ROTATE
from tests.redis.unit.world import assess, formed, world

NAME = "demo-auth"


def facts(found: Obj | None, passwords: Passwords, *, desired: str | None = None, request: str = "") -> Assessment:
    resource, seen = world(*formed())
    metadata = resource.obj["metadata"] | ({"annotations": {ROTATE: request}} if request else {})
    resource = RedisCluster.parse({**resource.obj, "metadata": metadata, "spec": resource.obj["spec"] | {"auth": {}}})
    secrets = replace(seen.secrets, passwords=passwords, desired=desired, found={**seen.secrets.found, NAME: found})
    return assess(resource, replace(seen, secrets=secrets))


def written(step: Step) -> WriteSecret:
    assert step.reason == "GeneratingPassword"
    (action,) = step.actions
    assert isinstance(action, WriteSecret)
    return action


def test_password_is_generated_for_a_cluster_without_one() -> None:
    write = written(provide_password(facts(None, Passwords(""))))
    assert (write.obj["metadata"]["name"], write.token) == (NAME, "password")


@pytest.mark.parametrize(("passwords", "expected"), [(Passwords("one"), "one"), (Passwords("one", next="two"), "two")])
def test_deleted_secret_is_restored_without_a_rotation(passwords: Passwords, expected: str) -> None:
    write = written(provide_password(facts(None, passwords)))
    assert (content_of(write.obj), write.token) == ({"password": expected}, "")


def test_present_password_is_replaced_only_on_request_and_only_if_nodes_accept_it() -> None:
    made = written(provide_password(facts(None, Passwords("one")))).obj
    found = {**made, "metadata": made["metadata"] | {"uid": "s"}}
    assert provide_password(facts(found, Passwords("one"), desired="one")) == PASS
    early = facts(found, Passwords("former"), desired="one", request="a")
    assert provide_password(early) == PASS, "the former rotation has not begun"
    write = written(provide_password(facts(found, Passwords("one"), desired="one", request="a")))
    assert (write.token, write.seen) == ("password", found)
