"""Authentication: the state of etcd, the passwords in the Secret, and the resulting steps."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.client.commands import ChangePassword, DisableAuth, EnableAuth, ReplaceUser
from operators.etcd.client.server import Access
from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names
from operators.etcd.security.secrets import CLIENT_ROLE, Secrets
from operators.etcd.state.observed import ClientUser
from operators.etcd.steps.credentials import (
    ensure_auth,
    ensure_client_user,
    other_credentials,
    require_access,
    store_password,
)
from shared.kubernetes.secrets import content_of
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Step, WriteSecret
from shared.status.reasons import SECRET_INVALID
from shared.status.verdict import Progress
from tests.etcd.unit.world import DOWN, SETTINGS, VOTER, At, acts, assess, cluster, plan, seen

OWN, FOR_CLIENTS = "demo-operator-auth", "demo-client-password"
LABELS = names.owner(cluster(3), SETTINGS.operator).labels(names.COMPONENT)
ENABLED = {"enabled": True, "rootSecretName": "root"}
DISABLED = {"enabled": False, "rootSecretName": "root"}


def world(
    auth: Any,
    *at: At,
    enabled: bool | None,
    password: str = "new",
    previous: str = "",
    stored: tuple[str, ...] = ("new",),
    **more: Any,
) -> Assessment:
    """Return a cluster with spec.auth, members that require users or not, and a Secret with passwords."""
    resource = cluster(3, auth=auth) if auth else cluster(3)
    texts = {"password": password, "previousPassword": previous}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items() if text}
    secret = {"metadata": {"name": "root", "uid": "r-1"}, "data": data}
    known = Secrets(access=Access(user="root" if password else "", password=password), previous_password=previous)
    own = {"metadata": {"name": OWN, "uid": "o-1"}} if stored else None
    for_clients = {"kind": "Secret", "metadata": {"name": FOR_CLIENTS, "uid": "c-1", "labels": LABELS}, "data": data}
    secrets = {"root": secret, OWN: own, FOR_CLIENTS: for_clients}
    known = replace(known, found=secrets, stored=stored, client_password="own") if auth else Secrets()
    found = seen(resource, *(at or (VOTER,) * 3), auth_enabled=enabled, secrets=known, **more)
    return assess(resource, found)


def test_authentication_is_enabled_when_the_spec_enables_it() -> None:
    step = ensure_auth(world(ENABLED, enabled=False))
    (call,) = step.actions
    assert isinstance(call, EnableAuth)
    assert (call.user, call.password, call.endpoints[0].name) == ("root", "new", "demo-0")
    assert (step.reason, step.progress) == ("EnablingAuth", Progress.WAITING)


def test_authentication_is_disabled_when_the_spec_disables_it() -> None:
    step = ensure_auth(world(DISABLED, enabled=True))
    (call,) = step.actions
    assert isinstance(call, DisableAuth)
    assert call.access.password == "new"


@pytest.mark.parametrize(("auth", "enabled"), [(ENABLED, True), (DISABLED, False), (None, False), (None, True)])
def test_authentication_is_not_changed_when_it_matches_or_is_unspecified(auth: Any, enabled: bool) -> None:
    assert ensure_auth(world(auth, enabled=enabled)) == Step()


def _with_former_password(stored: tuple[str, ...]) -> Assessment:
    facts = world(ENABLED, enabled=True, previous="old", former_password=True, stored=stored)
    [access] = other_credentials(facts.secrets, refused=facts.secrets.access)
    return replace(facts, secrets=replace(facts.secrets, access=access))


def _written(step: Step) -> dict[str, str]:
    (write,) = step.actions
    assert isinstance(write, WriteSecret)
    assert write.obj["metadata"]["name"] == OWN
    return dict(content_of(write.obj))


def test_password_changed_in_the_secret_is_changed_in_etcd_once_both_are_stored() -> None:
    step = ensure_auth(_with_former_password(("old",)))
    assert _written(step) == {"password": "new", "previousPassword": "old"}
    step = ensure_auth(_with_former_password(("new", "old")))
    (call,) = step.actions
    assert isinstance(call, ChangePassword)
    assert (call.access.password, call.user, call.password) == ("old", "root", "new")


def test_password_of_a_secret_with_a_problem_is_not_given_to_etcd() -> None:
    facts = _with_former_password(("new", "old"))
    problem = SecretProblem(SECRET_INVALID, "Secret root: password has more than 4,096 bytes. Shorten it.")
    assert ensure_auth(replace(facts, secrets=replace(facts.secrets, password_problem=problem))) == Step()


def test_password_is_stored_before_authentication_is_enabled() -> None:
    step = ensure_auth(world(ENABLED, enabled=False, stored=()))
    assert _written(step) == {"password": "new", "previousPassword": ""}
    assert step.progress is Progress.WAITING


@pytest.mark.parametrize("stored", [(), ("other",), ("new", "old")])
def test_password_that_etcd_accepts_is_stored(stored: tuple[str, ...]) -> None:
    assert _written(store_password(world(ENABLED, enabled=True, stored=stored))) == {
        "password": "new",
        "previousPassword": "",
    }
    assert store_password(world(ENABLED, enabled=True)) == Step()
    for unproven in ({"enabled": None}, {"enabled": False}, {"enabled": True, "former_password": True}):
        assert store_password(world(ENABLED, stored=stored, **unproven)) == Step()


def test_removed_spec_disables_authentication_with_the_stored_password() -> None:
    facts = world(None, enabled=True)
    found = {OWN: {"metadata": {"name": OWN, "uid": "o-1"}}}
    known = Secrets(access=Access(user="root", password="one"), stored=("one",), found=found)
    facts = replace(facts, secrets=known, former_password=True)
    step = ensure_auth(facts)
    (call,) = step.actions
    assert isinstance(call, DisableAuth)
    assert call.access.password == "one"
    assert step.message == "Disabling authentication: spec.auth was removed."
    assert ensure_auth(replace(facts, spec_applies=False)) == Step(), "a pause"


def test_no_password_appears_in_messages() -> None:
    changed = _with_former_password(("new", "old"))
    for step in (
        ensure_auth(changed),
        ensure_auth(world(ENABLED, enabled=False, password="hush")),
    ):
        texts = f"{step} {step.message} {[str(call) for call in step.actions]}"
        assert not any(f"'{word}'" in texts or f" {word} " in texts for word in ("old", "new", "hush"))


@pytest.mark.parametrize(
    ("password", "previous", "stored", "tried"),
    [
        ("new", "", (), []),
        ("new", "new", ("new",), []),
        ("new", "old", ("old",), ["old"]),
        ("", "old", (), ["old"]),
        ("new", "", ("one", "two"), ["one", "two"]),
    ],
)
def test_other_known_passwords_are_tried(
    password: str, previous: str, stored: tuple[str, ...], tried: list[str]
) -> None:
    facts = world(ENABLED, enabled=True, password=password, previous=previous, stored=stored)
    others = other_credentials(facts.secrets, refused=facts.secrets.access)
    assert [(access.user, access.password) for access in others] == [("root", text) for text in tried]


def test_cluster_is_not_ready_while_the_state_of_authentication_is_unknown() -> None:
    step = ensure_auth(world(ENABLED, enabled=None))
    assert (step.actions, step.reason, step.progress) == ((), "CheckingAuth", Progress.PROGRESSING)


def test_authentication_is_not_changed_without_a_quorum() -> None:
    assert ensure_auth(world(ENABLED, enabled=False, known=False)) == Step()


def test_operator_with_access_reports_no_problem() -> None:
    assert require_access(world(ENABLED, enabled=True)) == Step()


@pytest.mark.parametrize(
    ("auth", "previous", "words"),
    [
        (ENABLED, "", "The password of Secret root is not root's password"),
        (ENABLED, "old", "Neither password nor previousPassword of Secret root is root's password"),
        (None, "", "Set spec.auth.rootSecretName to a Secret with root's password"),
    ],
)
def test_operator_without_access_names_the_remedy_and_changes_nothing(auth: Any, previous: str, words: str) -> None:
    """Members that deny the operator count as unreachable, though their pods are healthy."""
    denying = replace(DOWN, ready=True, runs=True)
    denial = "demo-0 refuses: authentication failed."
    facts = world(auth, denying, denying, denying, enabled=None, previous=previous, known=False, denied=denial)
    step = require_access(facts)
    assert (step.actions, step.reason, step.progress) == ((), "Denied", Progress.BLOCKED)
    assert denial in step.message
    assert words in step.message
    assert step.requeue, "the operator does not watch the Secret"
    made = plan(facts.resource, facts)
    assert (acts(made.actions), made.verdict.reason) == ([], "Denied")


def test_plan_enables_authentication_once_and_then_is_ready() -> None:
    disabled = world(ENABLED, enabled=False)
    made = plan(disabled.resource, disabled)
    assert acts(made.actions) == ["enable authentication with user root"]
    enabled = world(ENABLED, enabled=True)
    assert plan(enabled.resource, enabled).verdict.done


@pytest.mark.parametrize("roles", [None, (), (CLIENT_ROLE,)])
def test_user_for_applications_is_set_with_its_own_password(roles: tuple[str, ...] | None) -> None:
    client = ClientUser(accepted=False, roles=roles)
    step = ensure_client_user(world(ENABLED, enabled=True, client=client))
    (call,) = step.actions
    assert isinstance(call, ReplaceUser)
    assert (call.access.user, call.user, call.password, call.found) == ("root", "client", "own", roles)
    assert (call.role, step.reason) == (CLIENT_ROLE, "ChangingPassword")
    for other in (None, ClientUser(accepted=True)):
        assert ensure_client_user(world(ENABLED, enabled=True, client=other)) == Step()
    as_root = ENABLED | {"connectAs": "root"}
    assert ensure_client_user(world(as_root, enabled=True, client=client)) == Step()


def test_user_that_the_operator_did_not_create_is_reported_and_kept() -> None:
    client = ClientUser(accepted=False, roles=("reports",), is_own=False)
    step = ensure_client_user(world(ENABLED, enabled=True, client=client))
    assert (step.actions, step.reason, step.progress) == ((), "ClientUserTaken", Progress.DONE)
    assert len(step.message) <= 400
