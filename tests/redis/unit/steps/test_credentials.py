"""Rotation of passwords and certificates without an interruption, wherever the operator stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.redis.client.commands import Configure, SetPasswords
from operators.redis.client.server import REPLICATION_USER
from operators.redis.objects import names
from operators.redis.objects.names import CERTIFICATE_MARK, USERS_MARK
from operators.redis.reasons import RENEWING_CERTIFICATES, ROTATING_PASSWORD
from operators.redis.security.users import Passwords
from operators.redis.state.observed import Observed
from operators.redis.steps import credentials, provisioning
from operators.redis.steps.credentials import MOUNTING
from shared.kubernetes.kinds import SECRET
from shared.kubernetes.secrets import encoded
from shared.runtime.plan import PASS, Patch, WriteSecret
from shared.status.verdict import Progress
from tests.redis.unit.security.rotation import GIVEN, OVERLAP, OWN, Lab, certificate, wished
from tests.redis.unit.world import SETTINGS, assess

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


# Any events, in any order.

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


# Passwords.


def test_no_password_is_set_on_nodes_that_started_with_it() -> None:
    lab = with_password()
    assert credentials.rotate_password(assess(lab.resource, lab.seen(), lab.now)) == PASS
    assert all(node.takes("one") and not node.takes("two") for node in lab.nodes)


def test_rotation_applies_three_changes_of_the_secret_to_every_node() -> None:
    lab = with_password()
    lab.give("two")
    steps = []
    for _ in range(6):
        lab.apply()
        step = credentials.rotate_password(assess(lab.resource, lab.seen(), lab.now))
        steps.append((step.message, [type(action) for action in step.actions]))
        for action in step.actions:
            lab.do(action)
        if not step.actions:
            lab.wait(OVERLAP)
    each = [SetPasswords, Patch] * 3
    applied = "demo-0, demo-1, demo-2: updating the valid passwords."
    assert steps == [
        ("The password in the Secret changed: both passwords are valid during the rotation.", [WriteSecret]),
        (applied, each),
        ("Every node accepts the new password: switching to it.", [WriteSecret]),
        ("", []),
        ("Removing the former password.", [WriteSecret]),
        (applied, each),
    ]
    assert all(node.takes("two") and not node.takes("one") for node in lab.nodes)


def test_plans_and_pod_annotations_contain_no_password() -> None:
    lab = with_password("hunter2hunter2")
    lab.give("correct horse")
    for _ in range(6):
        lab.apply()
        shown = repr(lab.pending_actions()) + str([node.annotations for node in lab.nodes]) + str(lab.template)
        shown += " ".join(map(str, lab.pending_actions())) + repr(lab.seen().secrets)
        assert "hunter2" not in shown
        assert "correct" not in shown
        lab.step(100)


def test_new_password_is_not_used_before_every_node_accepts_it() -> None:
    lab = with_password()
    lab.give("two")
    lab.step()
    lab.apply()
    for action in lab.pending_actions()[:4]:  # the operator stops before demo-2
        lab.do(action)
    passwords = lab.judged().passwords
    assert passwords is not None
    assert passwords.current == "one"
    step = credentials.rotate_password(assess(lab.resource, lab.seen(), lab.now))
    assert {action.at.name for action in step.actions if isinstance(action, SetPasswords)} == {"demo-2"}


@pytest.mark.parametrize(
    "changes",
    [
        *({"gives": "one"}, {"gives_as": "default"}, {"gives_as": "default", "gives": "two"}, {"admits": ()}),
        *({"admits": Passwords("one").digests}, {"digests": Passwords("one").digests}, {"digests": ()}),
    ],
)
def test_passwords_of_a_node_are_restored_after_a_foreign_change(changes: dict[str, Any]) -> None:
    lab = with_password()
    lab.give("two")
    lab.settle()
    lab.wait(3 * OVERLAP)
    lab.settle()
    for name, value in changes.items():  # a manual change, or a late command of a former leader
        setattr(lab.nodes[1], name, value)
    step = credentials.rotate_password(assess(lab.resource, lab.seen(), lab.now))
    assert step.message == "demo-1: updating the valid passwords."
    lab.settle()
    assert all(node.takes("two") and not node.takes("one") for node in lab.nodes)


def test_rotation_waits_for_an_unreachable_node_and_names_it() -> None:
    lab = with_password()
    lab.give("two")
    lab.step()
    seen = lab.seen()
    unreachable = replace(seen.instances[1], report=None)
    step = credentials.rotate_password(
        assess(lab.resource, replace(seen, instances=(seen.instances[0], unreachable)), lab.now)
    )
    assert len(step.actions) == 2
    for action in step.actions:
        lab.do(action)
    seen = lab.seen()
    seen = replace(seen, instances=(seen.instances[0], replace(seen.instances[1], report=None)))
    step = credentials.rotate_password(assess(lab.resource, seen, lab.now))
    assert (step.progress, step.reason, step.actions) == (Progress.PROGRESSING, ROTATING_PASSWORD, ())
    assert step.message == "demo-1: must accept the new password before it is used."


def test_former_password_is_valid_while_the_secret_contains_it() -> None:
    lab = with_password()
    lab.give("two", previous="one")
    lab.settle()
    lab.wait(3 * OVERLAP)
    lab.settle()
    assert all(node.takes("one") and node.takes("two") for node in lab.nodes)
    lab.give("two")
    lab.settle()
    assert not any(node.takes("one") for node in lab.nodes)


def test_password_stays_valid_if_its_rotation_is_reverted() -> None:
    lab = with_password()
    lab.give("two")
    lab.step()
    lab.give("one")
    lab.settle()
    assert all(node.takes("one") for node in lab.nodes)
    lab.wait(OVERLAP)
    lab.settle()
    assert not any(node.takes("two") for node in lab.nodes)


def test_short_lived_password_stays_valid_for_the_overlap() -> None:
    lab = with_password()
    for password in ("two", "three"):
        lab.give(password)
        lab.step()
    lab.settle()
    assert all(node.takes("two") and node.takes("three") for node in lab.nodes)


@pytest.mark.parametrize("enabled", [True, False])
def test_authentication_is_turned_on_and_off_without_a_restart(enabled: bool) -> None:
    lab = with_password() if not enabled else Lab(resource=wished()).begin()
    lab.resource = wished(auth={"secretName": GIVEN}) if enabled else wished()
    lab.give("one")
    lab.settle()
    assert all(bool(node.digests) is enabled and node.restarts == 0 for node in lab.nodes)


def test_deleted_secret_changes_nothing() -> None:
    lab = with_password()
    lab.found[GIVEN] = None
    assert not lab.step()
    assert lab.judged().access.password == "one"
    step = provisioning.require_secrets(assess(lab.resource, lab.seen(), lab.now))
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "SecretMissing")
    assert "Nodes continue with the last valid content." in step.message


def test_reconcile_is_scheduled_for_the_end_of_the_overlap() -> None:
    lab = with_password()
    lab.give("two")
    lab.settle()
    step = credentials.rotate_password(assess(lab.resource, lab.seen(), lab.now))
    assert step.progress is Progress.DONE
    assert step.requeue == OVERLAP.total_seconds()


def test_refused_authentication_is_reported_with_its_fix() -> None:
    lab = with_password()
    seen = lab.seen()
    denied = replace(seen.instances[0], report=None, denied=True, error="demo-0 refuses AUTH: WRONGPASS.")
    step = credentials.require_authentication(
        assess(lab.resource, replace(seen, instances=(denied, *seen.instances[1:])))
    )
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "Denied")
    assert "previousPassword of Secret given" in step.message
    alone = replace(seen, instances=(denied,))
    assert credentials.require_authentication(assess(lab.resource, alone)).progress is Progress.BLOCKED
    assert credentials.require_authentication(assess(lab.resource, seen)) == PASS


# The user of replicas.


def of_earlier_release(password: str = "") -> Lab:
    """Return a cluster without the user of replicas."""
    lab = Lab(resource=wished(auth={"secretName": GIVEN}) if password else wished())
    lab.give(password or "unused")
    own, content = names.owner(lab.resource, SETTINGS.operator), Passwords(password, exporter="reader").content()
    name = names.users_secret(lab.resource)
    lab.write(WriteSecret(own.object(SECRET, name, component=names.COMPONENT, data=encoded(content)), None))
    return lab.begin(settles=False)


def users_of(lab: Lab) -> Passwords:
    found = lab.judged().passwords
    assert found is not None
    return found


def interrupted(lab: Lab) -> Iterator[None]:
    """Reconcile with an operator that stops after each number of actions; yield after each action."""
    for most in (*range(1, 14), *range(1, 14)):
        lab.apply()
        for action in lab.pending_actions()[:most]:
            lab.do(action)
            yield


def are_protected(lab: Lab) -> bool:
    """Whether every node authenticates as the user of replicas, whose only password is the cluster's own."""
    users = users_of(lab)
    return all(
        (node.gives_as, node.gives, node.admits) == (REPLICATION_USER, users.replication, users.admitted)
        for node in lab.nodes
    )


@pytest.mark.parametrize("password", ["", "one"])
def test_replicas_of_a_new_cluster_authenticate_with_a_password_of_its_own(password: str) -> None:
    labs = [with_password(password) if password else Lab(resource=wished()).begin() for _ in range(2)]
    assert all(map(are_protected, labs))
    assert not any(lab.pending_actions() for lab in labs)
    for lab in labs:
        lab.nodes[0].gives = "of another cluster"
        assert not any(node.admits_replica(lab.nodes[0]) for node in lab.nodes)


@pytest.mark.parametrize("password", ["", "one"])
def test_replicas_get_their_user_without_a_moment_in_which_a_primary_refuses_one(password: str) -> None:
    lab = of_earlier_release(password)
    assert {(node.gives_as, node.gives, node.admits) for node in lab.nodes} == {("default", password, ())}
    for _ in interrupted(lab):
        lab.check()
    assert are_protected(lab)
    assert all(node.restarts == 0 for node in lab.nodes)
    assert credentials.rotate_password(assess(lab.resource, lab.seen(), lab.now)) == PASS


def test_no_replica_uses_its_user_before_every_node_has_it() -> None:
    lab = of_earlier_release()
    for _ in range(12):
        lab.apply()
        seen = lab.seen()
        hidden = replace(seen, instances=(*seen.instances[:2], replace(seen.instances[2], report=None)))
        for step in (
            provisioning.ensure_secrets(assess(lab.resource, hidden, lab.now)),
            credentials.rotate_password(assess(lab.resource, hidden, lab.now)),
        ):
            for action in step.actions:
                lab.do(action)
        lab.check()
    assert (step.progress, step.reason) == (Progress.PROGRESSING, ROTATING_PASSWORD)
    assert step.message == "demo-2: must accept the new password before it is used."
    assert {node.gives_as for node in lab.nodes} == {"default"}


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["", "password-0"]), st.lists(EVENTS, max_size=60))
def test_no_replica_is_ever_refused_while_its_user_is_introduced(password: str, events: list[tuple[str, int]]) -> None:
    lab = of_earlier_release(password)
    play(lab, events)
    lab.settle()
    lab.wait(OVERLAP)
    lab.settle()
    assert are_protected(lab)


def lose_secret(lab: Lab) -> None:
    lab.found[names.users_secret(lab.resource)] = None


def lose_password(lab: Lab) -> None:
    secret = lab.found[names.users_secret(lab.resource)]
    assert secret is not None
    del secret["data"]["replicationPassword"]


@pytest.mark.parametrize("lose", [lose_secret, lose_password])
@pytest.mark.parametrize("password", ["", "one"])
def test_lost_password_of_replicas_is_replaced_while_they_keep_their_own(
    password: str, lose: Callable[[Lab], None]
) -> None:
    lab = with_password(password) if password else Lab(resource=wished()).begin()
    before = users_of(lab).replication
    lose(lab)
    for _ in interrupted(lab):
        assert all(node.admits_replica(other) for node in lab.nodes for other in lab.nodes)
        assert {node.gives_as for node in lab.nodes} == {REPLICATION_USER}, "never without protection"
    assert users_of(lab).replication != before
    assert are_protected(lab)


@pytest.mark.parametrize("password", ["", "one"])
def test_password_of_replicas_from_a_restored_secret_is_used_once_all_nodes_accept_it(password: str) -> None:
    """The user adopts a copy of the Secret from before its password was replaced."""
    lab = with_password(password) if password else Lab(resource=wished()).begin()
    name = names.users_secret(lab.resource)
    copied = lab.found[name]
    lose_secret(lab)
    lab.settle()
    assert copied is not None
    lab.found[name] = copied
    for _ in interrupted(lab):
        assert all(node.admits_replica(other) for node in lab.nodes for other in lab.nodes)
    assert are_protected(lab)


def test_replica_whose_password_a_restarted_node_lacks_authenticates_as_before() -> None:
    lab = Lab(resource=wished()).begin()
    lose_secret(lab)
    for _ in range(3):  # the Secret exists again, and a new pod mounts it
        lab.step()
    lab.apply()
    lab.replace(0)
    assert not lab.nodes[0].admits_replica(lab.nodes[1])
    lab.step(100)
    assert lab.nodes[0].admits_replica(lab.nodes[1])
    lab.settle()
    assert are_protected(lab)


@pytest.mark.parametrize("password", ["", "one"])
def test_operator_of_an_earlier_release_interrupts_no_link(password: str) -> None:
    """Such an operator sets masterauth to the password of `default`, and leaves masteruser and the user of replicas."""
    lab = with_password(password) if password else Lab(resource=wished()).begin()
    for node in lab.nodes:
        node.gives = password
        assert all(one.admits_replica(other) for one in lab.nodes for other in lab.nodes)
    lab.settle()
    assert are_protected(lab)


# Certificates.


def test_new_certificate_is_mounted_and_then_loaded() -> None:
    lab = with_certificate()
    lab.put(OWN, certificate("b", "old"))
    lab.step()
    step = credentials.renew_certificates(assess(lab.resource, lab.seen(), lab.now))
    assert (step.progress, step.reason) == (Progress.PROGRESSING, RENEWING_CERTIFICATES)
    assert all(isinstance(action, Patch) for action in step.actions), "the kubelet first updates the mounted files"
    for action in step.actions:
        lab.do(action)
    assert credentials.renew_certificates(assess(lab.resource, lab.seen(), lab.now)).actions == ()
    lab.wait(MOUNTING)
    step = credentials.renew_certificates(assess(lab.resource, lab.seen(), lab.now))
    assert [type(action) for action in step.actions] == [Configure, Patch] * 3
    lab.settle()
    assert {node.holds for node in lab.nodes} == {lab.judged().original}
    assert all(node.restarts == 0 for node in lab.nodes)
    assert credentials.renew_certificates(assess(lab.resource, lab.seen(), lab.now)) == PASS


@pytest.mark.parametrize("edited", ["{now}", "2099-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_time_of_a_mark_that_was_edited_is_written_again(edited: str) -> None:
    lab = with_certificate()
    lab.put(OWN, certificate("b", "old"))
    lab.step()
    for action in credentials.renew_certificates(assess(lab.resource, lab.seen(), lab.now)).actions:
        lab.do(action)
    for node in lab.nodes:
        mark, _, since = node.annotations[CERTIFICATE_MARK].partition(" at ")
        node.annotations[CERTIFICATE_MARK] = f"{mark} at {edited.format(now=since.removesuffix('Z'))}"
    step = credentials.renew_certificates(assess(lab.resource, lab.seen(), lab.now))
    assert [type(action) for action in step.actions] == [Patch] * 3


def test_new_authority_is_trusted_before_its_certificates_are_used() -> None:
    lab = with_certificate()
    lab.put(OWN, certificate("b", "new"))
    lab.step()
    judged = lab.judged()
    assert judged.mounted is not None
    assert len(judged.mounted.trusted) == 2
    assert judged.mounted.pair.certificate == certificate("a", "old")["tls.crt"]
    assert not [action for action in lab.pending_actions() if isinstance(action, WriteSecret)], (
        "every node must trust both authorities first"
    )
    lab.settle()
    assert {node.holds for node in lab.nodes} == {lab.judged().original}


def test_unusable_certificate_is_never_mounted() -> None:
    lab = with_certificate()
    before = lab.judged().mounted
    lab.put(OWN, certificate("b", "new") | {"tls.key": "nonsense"})
    assert lab.judged().problem is not None
    lab.settle()
    assert lab.judged().mounted == before
    assert {node.holds for node in lab.nodes} == {before}


def test_no_certificates_are_renewed_without_tls() -> None:
    assert credentials.renew_certificates(assess(wished(), Observed())) == PASS


# Any events, in any order.


@settings(max_examples=80, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_no_client_is_ever_refused_while_passwords_change(events: list[tuple[str, int]]) -> None:
    """The operator stops anywhere, servers restart with the last mounted files, and pods are recreated."""
    lab = with_password("password-0")
    play(lab, events)
    lab.settle()
    lab.wait(OVERLAP)
    lab.settle()
    desired = lab.judged().desired
    assert desired is not None
    assert all(len(node.digests) == 1 and node.takes(desired) for node in lab.nodes)


@settings(max_examples=40, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_no_peer_ever_receives_a_certificate_that_it_does_not_trust(events: list[tuple[str, int]]) -> None:
    """Certificates of two authorities replace each other, with the same events."""
    lab = with_certificate("c0", "authority-0")
    play(lab, events)
    lab.settle()
    assert {node.holds for node in lab.nodes} == {lab.judged().original}


def test_self_signed_authority_is_renewed_without_a_restart() -> None:
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
