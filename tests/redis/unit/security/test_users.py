"""Valid passwords over time, in the operator's Secret and in the users file of the nodes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from operators.redis.client.responses import AclUser
from operators.redis.objects.redis_conf import USERS_KEY
from operators.redis.security.users import Former, Passwords, SpecUser
from shared.kubernetes.secrets import encoded
from tests.redis.unit.world import NOW

LATER = NOW + timedelta(minutes=10)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def sha(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


@given(
    TEXT | st.just(""),
    st.none() | TEXT | st.just(""),
    st.lists(st.builds(Former, TEXT, st.datetimes().map(lambda at: at.replace(tzinfo=NOW.tzinfo)))),
    TEXT,
    TEXT | st.just(""),
    st.booleans(),
)
def test_passwords_survive_a_round_trip(
    current: str, following: str | None, former: list[Former], own: str, replication: str, uses: bool
) -> None:
    assume(following != current)  # that is no next one
    written = Passwords(current, following, tuple(former), own, replication, uses and bool(replication))
    assert Passwords.of({"data": encoded(written.content())}) == written


@pytest.mark.parametrize("former", ["nonsense", "[{}]", "[1]", '[{"password": "x", "until": 7}]'])
def test_invalid_content_is_ignored(former: str) -> None:
    content = {USERS_KEY: "", "password": "x", "former": former}
    assert Passwords.of({"data": encoded(content)}) is None
    assert Passwords.of(None) is None
    assert Passwords.of({"data": {}}) is None


def test_users_file_has_digests_and_the_replication_password() -> None:
    state = Passwords("one", exporter="e").introduce("two", LATER)
    user, reader, gives = state.text.splitlines()
    one, two = sorted([sha("one"), sha("two")])
    assert user == f"user default on #{one} #{two} ~* &* +@all"
    assert reader.startswith(f"user exporter on #{sha('e')} -@all +ping ")
    assert gives == "masterauth one"
    assert state.promote(LATER).text.splitlines()[2] == "masterauth two"


@pytest.mark.parametrize("current", ["", "one"])
def test_replicas_use_their_user_after_it_is_in_the_file(current: str) -> None:
    admits = Passwords(current, exporter="e", replication="r")
    *_, user = admits.text.splitlines()[: 3 if current else None]
    accepted = " ".join(sorted(f"#{sha(each)}" for each in ("r", current) if each))
    assert user == f"user replication on {accepted} ~* &* +@all"
    assert "masteruser" not in admits.text
    assert ("masterauth one" in admits.text) is bool(current)
    assert admits.use_replication().text.splitlines()[-2:] == ["masteruser replication", "masterauth r"]
    assert admits.use_replication().introduce("two", LATER).promote(LATER).link == ("replication", "r")


def test_file_with_another_password_of_replicas_uses_none() -> None:
    content = dict(Passwords("", exporter="e", replication="r").use_replication().content())
    content["replicationPassword"] = "another"
    found = Passwords.of({"data": encoded(content)})
    assert found == Passwords("", exporter="e", replication="another")


def test_users_file_without_password() -> None:
    user, _ = Passwords("", exporter="e").text.splitlines()
    assert user == "user default on nopass ~* &* +@all"


def test_no_password_is_required_while_auth_is_enabled_or_disabled() -> None:
    begins = Passwords("").introduce("one", LATER)
    assert begins.digests == ()
    assert begins.promote(LATER) == Passwords("one"), "there is no former password"
    ends = Passwords("one", former=(Former("zero", LATER),)).introduce("", LATER)
    assert ends.digests == ()
    assert ends.promote(LATER) == Passwords("")


def test_former_password_is_valid_until_it_expires_or_is_not_listed() -> None:
    state = Passwords("one").introduce("two", LATER).promote(LATER)
    assert state.digests == tuple(sorted([sha("one"), sha("two")]))
    assert state.expire(NOW, "") == state
    assert state.expire(LATER, "one") == state
    assert state.expire(LATER, "") == Passwords("two")


def test_password_in_use_again_is_not_a_former_one() -> None:
    state = Passwords("one").introduce("two", LATER).promote(LATER).introduce("one", LATER)
    assert (state.current, state.next, state.former) == ("two", "one", ())
    assert state.promote(LATER).former == (Former("two", LATER),)


def test_withdrawn_password_is_valid_for_a_while() -> None:
    state = Passwords("one").introduce("two", LATER).introduce("three", LATER)
    assert (state.next, state.former) == ("three", (Former("two", LATER),))
    assert Passwords("one").introduce("two", LATER).withdraw(LATER).former == (Former("two", LATER),)


def test_later_expiry_wins() -> None:
    state = Passwords("one", former=(Former("zero", NOW),)).admit("zero", LATER)
    assert state.former == (Former("zero", LATER),)
    assert state.admit("zero", NOW) == state


def test_representation_has_no_password() -> None:
    state = (
        Passwords("hunter2", replication="tr0ub4dor")
        .introduce("correct horse", LATER)
        .promote(LATER)
        .introduce("battery staple", LATER)
    )
    assert "hunter2" not in repr(state)
    assert "tr0ub4dor" not in repr(state)
    assert "horse" not in repr(state)
    assert "staple" not in repr(state)


APP = SpecUser("one", name="app", rules="~app:* +@read")
REVISION = (sha(APP.rules),)
ON, OFF = AclUser(True, (sha("one"),), "rights"), AclUser(False, REVISION, "rights")


@given(st.lists(st.builds(SpecUser, TEXT, st.none() | TEXT, name=TEXT, rules=TEXT, enabled=st.booleans())))
def test_users_of_the_spec_survive_a_round_trip(users: list[SpecUser]) -> None:
    aged = [user.admit("former", LATER) for user in users]
    generated = {"generated.app": "x", "request.app": "1"}
    written = Passwords("", exporter="e", users=(*users, *aged), generated=generated)
    assert Passwords.of({"data": encoded(written.content())}) == written


@pytest.mark.parametrize(
    ("user", "found", "is_applied"),
    [
        (APP, {"app": ON, "app:revision": OFF}, True),
        (APP, {}, False),
        (APP, {"app": ON}, False),
        (APP, {"app": replace(ON, rights="other"), "app:revision": OFF}, False),
        (APP, {"app": replace(ON, enabled=False), "app:revision": OFF}, False),
        (APP, {"app": replace(ON, passwords=(sha("two"),)), "app:revision": OFF}, False),
        (APP, {"app": ON, "app:revision": replace(OFF, enabled=True)}, False),
        (APP, {"app": ON, "app:revision": replace(OFF, passwords=(sha("+@all"),))}, False),
        (APP, {"app": ON, "app:revision": replace(OFF, passwords=(sha("+tried"),), rights="tried")}, True),
        (replace(APP, enabled=False), {"app": replace(ON, enabled=False), "app:revision": OFF}, True),
        (replace(APP, removed=True), {}, True),
        (replace(APP, removed=True), {"app": ON}, False),
        (replace(APP, removed=True), {"app:revision": OFF}, False),
    ],
)
def test_server_has_exactly_the_user(user: SpecUser, found: dict[str, AclUser], is_applied: bool) -> None:
    assert user.is_applied(found, "+tried") is is_applied


def test_users_file_has_users_of_the_spec_with_their_revisions() -> None:
    users = (APP, replace(APP, name="gone", removed=True), replace(APP, name="off", enabled=False, rules='~"#a'))
    *_, first, second, third, fourth = Passwords("", exporter="e", users=users).text.splitlines()
    assert first == f"user app:revision reset off #{REVISION[0]} ~app:* +@read"
    assert second == f"user app reset on #{sha('one')} ~app:* +@read"
    assert third == f'user off:revision reset off #{sha(users[2].rules)} "~\\"#a"'
    assert fourth == f'user off reset off #{sha("one")} "~\\"#a"'
