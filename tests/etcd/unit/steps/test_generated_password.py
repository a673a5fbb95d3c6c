"""The generated password of root (spec.auth without a Secret): never lost, and never one that etcd rejects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.facts.assessment import Assessment
from operators.etcd.security.secrets import Secrets
from operators.etcd.steps.credentials import provide_password
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import controller_of
from shared.kubernetes.secrets import content_of
from shared.runtime.plan import PASS, Step, WriteSecret
from shared.steps.passwords import ROTATE
from tests.etcd.unit.world import SETTINGS, VOTER, assess, cluster, seen

NAME = "demo-auth"


def world(found: Obj | None = None, *, stored: tuple[str, ...] = (), request: str = "", **more: Any) -> Assessment:
    spec = {"auth": {}, **more.pop("spec", {})}
    resource = cluster(3, **spec)
    if request:
        resource.obj["metadata"]["annotations"] = {ROTATE: request}
    secrets = Secrets(stored=stored, found={NAME: found})
    return assess(resource, seen(resource, *[VOTER] * 3, secrets=secrets, **more))


def written(step: Step) -> WriteSecret:
    assert step.reason == "GeneratingPassword"
    (action,) = step.actions
    assert isinstance(action, WriteSecret)
    return action


def present(password: str = "one", **more: Any) -> Obj:
    made = written(provide_password(world(stored=(password,), **more))).obj
    return {**made, "metadata": made["metadata"] | {"uid": "s"}}


def test_password_is_generated_when_etcd_requires_none() -> None:
    write = written(provide_password(world(auth_enabled=False)))
    assert (write.obj["metadata"]["name"], write.token, write.seen) == (NAME, "password", None)


@pytest.mark.parametrize("enabled", [True, None])
def test_nothing_is_generated_while_etcd_may_have_an_unknown_password(enabled: bool | None) -> None:
    step = provide_password(world(auth_enabled=enabled))
    assert (step.actions, step.reason, step.warning) == ((), "GeneratingPassword", True)


def test_deleted_secret_is_restored_with_the_password_that_etcd_accepted() -> None:
    write = written(provide_password(world(auth_enabled=True, stored=("one", "former"))))
    assert (content_of(write.obj), write.token) == ({"password": "one"}, "")


def test_secret_lasts_as_long_as_the_volumes() -> None:
    """`keep_owners` changes the owner of a present one (tests/platform/unit/test_secret_provenance.py)."""
    assert controller_of(present()) is None
    assert controller_of(present(spec={"storage": {"retain": False}})) is not None


def test_present_password_is_replaced_only_on_request_and_only_if_it_is_stored() -> None:
    assert provide_password(world(present(), stored=("one",))) == PASS
    assert provide_password(world(present(), stored=(), request="a")) == PASS
    write = written(provide_password(world(present(), stored=("one",), request="a")))
    assert (write.token, write.obj["metadata"]["annotations"][ROTATE]) == ("password", "a")
    done = {**present(), "metadata": write.obj["metadata"] | {"uid": "s"}}
    assert provide_password(world(done, stored=("one",), request="a")) == PASS


def test_operator_without_the_right_refuses() -> None:
    step = provide_password(replace(world(auth_enabled=False), settings=replace(SETTINGS, write_secrets=False)))
    assert step.reason == "PasswordNotGenerated"
