"""Users and passwords: what etcd asks for, what the Secret says, and what follows."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.client.commands import ChangePassword, DisableAuth, EnableAuth
from operators.etcd.client.server import Access
from operators.etcd.security.secrets import Secrets
from operators.etcd.steps.credentials import ensure_auth, former, require_access
from shared.runtime.plan import Step
from shared.status.verdict import Progress
from tests.unit.etcd.world import DOWN, NOW, VOTER, At, acts, cluster, plan, seen

WANTED = {"enabled": True, "rootSecretName": "root"}
UNWANTED = {"enabled": False, "rootSecretName": "root"}


def world(
    auth: Any, *at: At, enabled: bool | None, password: str = "new", previous: str = "", **more: Any
) -> tuple[EtcdCluster, Assessment]:
    """A cluster with spec.auth, whose members ask for users or not, and a Secret with these passwords."""
    resource = cluster(3, auth=auth) if auth else cluster(3)
    texts = {"password": password, "previousPassword": previous}
    secret = {"data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items() if text}}
    known = Secrets(access=Access(user="root" if password else "", password=password), previous_password=previous)
    known = replace(known, found={"root": secret}) if auth else Secrets()
    found = seen(resource, *(at or (VOTER,) * 3), auth_enabled=enabled, secrets=known, **more)
    return resource, Assessment.of(resource, found)


def test_users_are_asked_for_as_soon_as_the_spec_says_so() -> None:
    step = ensure_auth(*world(WANTED, enabled=False), NOW)
    (call,) = step.actions
    assert isinstance(call, EnableAuth)
    assert (call.user, call.password, call.endpoints[0].name) == ("root", "new", "demo-0")
    assert (step.reason, step.progress) == ("EnablingAuth", Progress.WAITING)


def test_nobody_is_asked_any_more_as_soon_as_the_spec_says_so() -> None:
    step = ensure_auth(*world(UNWANTED, enabled=True), NOW)
    (call,) = step.actions
    assert isinstance(call, DisableAuth)
    assert call.access.password == "new"


@pytest.mark.parametrize(("auth", "enabled"), [(WANTED, True), (UNWANTED, False), (None, False), (None, True)])
def test_what_is_as_wanted_or_nobodys_wish_is_left_alone(auth: Any, enabled: bool) -> None:
    assert ensure_auth(*world(auth, enabled=enabled), NOW) == Step()


def test_a_password_that_was_changed_in_the_secret_is_changed_in_etcd() -> None:
    resource, there = world(WANTED, enabled=True, previous="old", former_password=True)
    access = former(there.secrets)
    assert access is not None
    there = replace(there, secrets=replace(there.secrets, access=access))
    step = ensure_auth(resource, there, NOW)
    (call,) = step.actions
    assert isinstance(call, ChangePassword)
    assert (call.access.password, call.user, call.password) == ("old", "root", "new")


def test_no_password_appears_in_what_is_said() -> None:
    resource, there = world(WANTED, enabled=True, previous="old", former_password=True)
    for step in (ensure_auth(resource, there, NOW), ensure_auth(*world(WANTED, enabled=False, password="hush"), NOW)):
        said = f"{step} {step.message} {[str(call) for call in step.actions]}"
        assert not any(f"'{word}'" in said or f" {word} " in said for word in ("old", "new", "hush"))


@pytest.mark.parametrize(
    ("password", "previous", "tried"),
    [("new", "", None), ("new", "new", None), ("new", "old", "old"), ("", "old", "old")],
)
def test_the_former_password_is_tried_if_there_is_another(password: str, previous: str, tried: str | None) -> None:
    _, there = world(WANTED, enabled=True, password=password, previous=previous)
    access = former(there.secrets)
    assert (access and access.password) == tried
    assert access is None or access.user == "root"


def test_the_cluster_is_not_ready_while_nobody_knows_whether_users_are_asked_for() -> None:
    step = ensure_auth(*world(WANTED, enabled=None), NOW)
    assert (step.actions, step.reason, step.progress) == ((), "CheckingAuth", Progress.PROGRESSING)


def test_without_a_quorum_nothing_is_changed() -> None:
    assert ensure_auth(*world(WANTED, enabled=False, known=False), NOW) == Step()


def test_an_operator_that_is_let_in_says_nothing() -> None:
    assert require_access(*world(WANTED, enabled=True), NOW) == Step()


@pytest.mark.parametrize(
    ("auth", "previous", "words"),
    [
        (WANTED, "", "The password of Secret root is not root's password"),
        (WANTED, "old", "Neither password nor previousPassword of Secret root is root's password"),
        (None, "", "Set spec.auth.rootSecretName to a Secret with root's password"),
    ],
)
def test_an_operator_that_is_not_let_in_says_what_mends_it_and_touches_nothing(
    auth: Any, previous: str, words: str
) -> None:
    """Servers of healthy pods that turn the operator away look, to it, as if none answered."""
    shut = replace(DOWN, ready=True, runs=True)
    told = "demo-0 refuses: authentication failed."
    resource, there = world(auth, shut, shut, shut, enabled=None, previous=previous, known=False, denied=told)
    step = require_access(resource, there, NOW)
    assert (step.actions, step.reason, step.progress) == ((), "Denied", Progress.BLOCKED)
    assert told in step.message
    assert words in step.message
    assert step.requeue, "the Secret may change, and no watch tells of it"
    made = plan(resource, there)
    assert (acts(made.actions), made.verdict.reason) == ([], "Denied")


def test_the_whole_plan_enables_it_once_and_then_is_ready() -> None:
    made = plan(*world(WANTED, enabled=False))
    assert acts(made.actions) == ["enable authentication with user root"]
    assert plan(*world(WANTED, enabled=True)).verdict.done
