"""Passwords and certificates change while everybody goes on, wherever the operator stops."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.redis.client.commands import Configure, SetPasswords
from operators.redis.objects.names import CERTIFICATE_MARK, USERS_MARK
from operators.redis.observe import Observed
from operators.redis.reasons import RENEWING_CERTIFICATES, ROTATING_PASSWORD
from operators.redis.security.users import Passwords
from operators.redis.steps import credentials, provisioning
from operators.redis.steps.credentials import MOUNTING
from shared.runtime.plan import PASS, Patch, WriteSecret
from shared.status.verdict import Progress
from tests.unit.redis.security.rotation import GIVEN, OVERLAP, OWN, Lab, certificate, wished
from tests.unit.redis.world import NOW, SETTINGS

SECURE: Any = {"tls": {"mode": "secret", "secretName": OWN}}
SELF: Any = {"tls": {"mode": "self"}}


def with_password(password: str = "one") -> Lab:
    lab = Lab()
    lab.give(password)
    return lab.begin()


def with_certificate(name: str = "a", by: str = "old") -> Lab:
    lab = Lab(resource=wished(**SECURE))
    lab.put(OWN, certificate(name, by))
    return lab.begin()


# Passwords.


def test_nodes_that_started_with_a_password_are_told_nothing() -> None:
    lab = with_password()
    assert credentials.rotate_password(SETTINGS, lab.resource, lab.seen(), lab.now) == PASS
    assert all(node.takes("one") and not node.takes("two") for node in lab.nodes)


def test_a_change_is_three_writes_and_each_is_told_to_every_node() -> None:
    lab = with_password()
    lab.give("two")
    told = []
    for _ in range(7):
        lab.apply()
        step = credentials.rotate_password(SETTINGS, lab.resource, lab.seen(), lab.now)
        told.append((step.message, [type(action) for action in step.actions]))
        for action in step.actions:
            lab.do(action)
        if not step.actions:
            lab.wait(OVERLAP)
    each = [SetPasswords, Configure, Patch] * 3
    tells = "demo-0, demo-1, demo-2: told which passwords are good."
    assert told == [
        ("The Secret has another password: at first, both are good.", [WriteSecret]),
        (tells, each),
        ("Every node takes the new password: it is used from now on.", [WriteSecret]),
        (tells, each),
        ("", []),
        ("The former password is good no more.", [WriteSecret]),
        (tells, each),
    ]
    assert all(node.takes("two") and not node.takes("one") and node.gives == "two" for node in lab.nodes)


def test_no_secret_is_in_what_is_planned_nor_in_what_pods_are_marked_with() -> None:
    lab = with_password("hunter2hunter2")
    lab.give("correct horse")
    for _ in range(6):
        lab.apply()
        shown = repr(lab.pending_actions()) + str([node.annotations for node in lab.nodes]) + str(lab.template)
        shown += " ".join(map(str, lab.pending_actions())) + repr(lab.seen().secrets)
        assert "hunter2" not in shown
        assert "correct" not in shown
        lab.step(100)


def test_the_new_one_is_not_used_before_the_last_node_has_heard_of_it() -> None:
    lab = with_password()
    lab.give("two")
    lab.step()
    lab.apply()
    for action in lab.pending_actions()[:6]:  # demo-2 is not told: the operator died
        lab.do(action)
    passwords = lab.judged().passwords
    assert passwords is not None
    assert passwords.current == "one"
    step = credentials.rotate_password(SETTINGS, lab.resource, lab.seen(), lab.now)
    assert {action.at.name for action in step.actions if isinstance(action, SetPasswords)} == {"demo-2"}


@pytest.mark.parametrize("told", [{"gives": "one"}, {"digests": Passwords("one").digests}, {"digests": ()}])
def test_a_node_that_was_told_otherwise_since_is_told_again(told: dict[str, Any]) -> None:
    lab = with_password()
    lab.give("two")
    lab.settle()
    lab.wait(3 * OVERLAP)
    lab.settle()
    for name, value in told.items():  # by hand, or by a former leader whose last words came late
        setattr(lab.nodes[1], name, value)
    step = credentials.rotate_password(SETTINGS, lab.resource, lab.seen(), lab.now)
    assert step.message == "demo-1: told which passwords are good."
    lab.settle()
    assert all(node.takes("two") and not node.takes("one") and node.gives == "two" for node in lab.nodes)


def test_a_node_that_does_not_answer_is_named_and_waited_for() -> None:
    lab = with_password()
    lab.give("two")
    lab.step()
    seen = lab.seen()
    silent = replace(seen.instances[1], report=None)
    step = credentials.rotate_password(
        SETTINGS, lab.resource, replace(seen, instances=(seen.instances[0], silent)), lab.now
    )
    assert len(step.actions) == 3
    for action in step.actions:
        lab.do(action)
    seen = lab.seen()
    seen = replace(seen, instances=(seen.instances[0], replace(seen.instances[1], report=None)))
    step = credentials.rotate_password(SETTINGS, lab.resource, seen, lab.now)
    assert (step.progress, step.reason, step.actions) == (Progress.PROGRESSING, ROTATING_PASSWORD, ())
    assert step.message == "demo-1: must know the new password before it is used."


def test_a_former_password_is_good_for_as_long_as_the_secret_names_it() -> None:
    lab = with_password()
    lab.give("two", previous="one")
    lab.settle()
    lab.wait(3 * OVERLAP)
    lab.settle()
    assert all(node.takes("one") and node.takes("two") for node in lab.nodes)
    lab.give("two")
    lab.settle()
    assert not any(node.takes("one") for node in lab.nodes)


def test_a_password_that_is_taken_back_in_the_middle_stays() -> None:
    lab = with_password()
    lab.give("two")
    lab.step()
    lab.give("one")
    lab.settle()
    assert all(node.gives == "one" for node in lab.nodes)
    lab.wait(OVERLAP)
    lab.settle()
    assert not any(node.takes("two") for node in lab.nodes)


def test_who_enters_by_a_password_that_came_and_went_is_not_sent_away_at_once() -> None:
    lab = with_password()
    for password in ("two", "three"):
        lab.give(password)
        lab.step()
    lab.settle()
    assert all(node.takes("two") and node.gives == "three" for node in lab.nodes)


@pytest.mark.parametrize("asked", [True, False])
def test_passwords_are_asked_for_or_not_without_a_restart(asked: bool) -> None:
    lab = with_password() if not asked else Lab(resource=wished()).begin()
    lab.resource = wished(auth={"secretName": GIVEN}) if asked else wished()
    lab.give("one")
    lab.settle()
    assert [node.gives for node in lab.nodes] == ["one" if asked else ""] * 3
    assert all(bool(node.digests) is asked and node.restarts == 0 for node in lab.nodes)


def test_a_secret_that_is_gone_changes_nothing() -> None:
    lab = with_password()
    lab.found[GIVEN] = None
    assert not lab.step()
    assert lab.judged().access.password == "one"
    step = provisioning.require_secrets(lab.resource, lab.seen(), lab.now)
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "SecretMissing")
    assert "Nodes go on with what they have." in step.message


def test_when_the_former_one_ends_it_is_looked_at() -> None:
    lab = with_password()
    lab.give("two")
    lab.settle()
    step = credentials.rotate_password(SETTINGS, lab.resource, lab.seen(), lab.now)
    assert step.progress is Progress.DONE
    assert step.requeue == OVERLAP.total_seconds()


def test_a_node_that_lets_nobody_in_is_told_with_what_mends_it() -> None:
    lab = with_password()
    seen = lab.seen()
    denied = replace(seen.instances[0], report=None, denied=True, error="demo-0 refuses AUTH: WRONGPASS.")
    step = credentials.require_authentication(lab.resource, replace(seen, instances=(denied, *seen.instances[1:])), NOW)
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "Denied")
    assert "previousPassword of Secret given" in step.message
    alone = replace(seen, instances=(denied,))
    assert credentials.require_authentication(lab.resource, alone, NOW).progress is Progress.BLOCKED
    assert credentials.require_authentication(lab.resource, seen, NOW) == PASS


# Certificates.


def test_a_new_certificate_is_brought_and_then_taken_up() -> None:
    lab = with_certificate()
    lab.put(OWN, certificate("b", "old"))
    lab.step()
    step = credentials.renew_certificates(lab.resource, lab.seen(), lab.now)
    assert (step.progress, step.reason) == (Progress.PROGRESSING, RENEWING_CERTIFICATES)
    assert all(isinstance(action, Patch) for action in step.actions), "first the kubelet"
    for action in step.actions:
        lab.do(action)
    assert credentials.renew_certificates(lab.resource, lab.seen(), lab.now).actions == ()
    lab.wait(MOUNTING)
    step = credentials.renew_certificates(lab.resource, lab.seen(), lab.now)
    assert [type(action) for action in step.actions] == [Configure, Patch] * 3
    lab.settle()
    assert {node.holds for node in lab.nodes} == {lab.judged().original}
    assert all(node.restarts == 0 for node in lab.nodes)
    assert credentials.renew_certificates(lab.resource, lab.seen(), lab.now) == PASS


def test_another_authority_is_trusted_before_anything_of_its_is_shown() -> None:
    lab = with_certificate()
    lab.put(OWN, certificate("b", "new"))
    lab.step()
    judged = lab.judged()
    assert judged.mounted is not None
    assert len(judged.mounted.trusted) == 2
    assert judged.mounted.pair.certificate == certificate("a", "old")["tls.crt"]
    assert not [action for action in lab.pending_actions() if isinstance(action, WriteSecret)], "until all trust both"
    lab.settle()
    assert {node.holds for node in lab.nodes} == {lab.judged().original}


def test_what_nobody_can_serve_with_never_comes_to_the_nodes() -> None:
    lab = with_certificate()
    before = lab.judged().mounted
    lab.put(OWN, certificate("b", "new") | {"tls.key": "nonsense"})
    assert lab.judged().problem is not None
    lab.settle()
    assert lab.judged().mounted == before
    assert {node.holds for node in lab.nodes} == {before}


def test_without_encryption_there_is_nothing_to_renew() -> None:
    assert credentials.renew_certificates(wished(), Observed(), NOW) == PASS


# Whatever comes, in whatever order.

EVENTS = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("apply"), st.just(0)),
    st.tuples(st.just("bring"), st.integers(0, 2)),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(st.just("replace"), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.integers(1, 400)),
    st.tuples(st.just("give"), st.integers(0, 3)),
)


def play(lab: Lab, events: list[tuple[str, int]]) -> None:
    lab.check()
    for event, number in events:
        match event:
            case "step":
                lab.step(number)
            case "settle":
                lab.settle()
            case "apply":
                lab.apply()
            case "bring":
                lab.bring(lab.nodes[number])
            case "restart":
                lab.restart(number)
            case "replace":
                lab.apply()
                lab.replace(number)
            case "wait":
                lab.wait(timedelta(seconds=number))
            case "give" if lab.resource.spec.auth:
                lab.give(f"password-{number}")
            case "give":
                lab.put(OWN, certificate(f"c{number}", f"authority-{number % 2}"))
        lab.check()


@settings(max_examples=80, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_nobody_is_ever_sent_away_while_passwords_change(events: list[tuple[str, int]]) -> None:
    """An operator that dies anywhere, servers that restart with what the kubelet last brought, pods made anew."""
    lab = with_password("password-0")
    play(lab, events)
    lab.settle()
    lab.wait(OVERLAP)
    lab.settle()
    wanted = lab.judged().desired
    assert wanted is not None
    assert all(node.gives == wanted and len(node.digests) == 1 and node.takes(wanted) for node in lab.nodes)


@settings(max_examples=40, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_nobody_is_ever_shown_a_certificate_that_they_do_not_trust(events: list[tuple[str, int]]) -> None:
    """The same for certificates of two authorities."""
    lab = with_certificate("c0", "authority-0")
    play(lab, events)
    lab.settle()
    assert {node.holds for node in lab.nodes} == {lab.judged().original}


def test_an_authority_of_our_own_is_succeeded_without_a_restart() -> None:
    lab = Lab(resource=wished(**SELF)).begin()
    first = lab.judged().original
    assert first is not None
    for _ in range(140):
        lab.wait(timedelta(days=14))
        lab.settle()
        lab.check()
    last = lab.judged().original
    assert last is not None
    assert last.certificate.issuer != first.certificate.issuer
    assert {node.holds for node in lab.nodes} == {last}
    assert {node.restarts for node in lab.nodes} == {0}
    assert {USERS_MARK, CERTIFICATE_MARK} <= lab.nodes[0].annotations.keys()
