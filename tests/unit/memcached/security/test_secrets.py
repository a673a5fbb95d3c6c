"""What Secrets must hold, and what is said of those that do not."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.memcached.security.secrets import Secrets, fingerprint, judge
from shared.kubernetes.kinds import Obj
from shared.pki.certs import Pair
from tests.unit.memcached.fake_servers import certificate, der, secret, signer, tls_secret
from tests.unit.memcached.world import resource

AUTH: Obj = {"auth": {"secretName": "users"}}
TLS: Obj = {"tls": {"secretName": "cache-tls"}}
MUTUAL: Obj = {"tls": {"secretName": "cache-tls", "clientAuth": "required"}}


def judged(*secrets: Obj, **spec: Any) -> Secrets:
    asked: Obj = {part["secretName"]: None for part in spec.values() if isinstance(part, dict)}
    return judge(resource(**spec), asked | {found["metadata"]["name"]: found for found in secrets})


def complaint(*secrets: Obj, **spec: Any) -> tuple[str, str]:
    problem = judged(*secrets, **spec).problem
    return (problem.reason, problem.message) if problem else ("", "")


def test_without_secrets_in_the_spec_there_is_nothing_to_know() -> None:
    assert judged() == Secrets()
    assert Secrets().login is None
    assert Secrets().fingerprint == ""


def test_a_users_file_gives_the_first_user() -> None:
    found = judged(secret("users", users="app:se:cret\nops:other\n"), **AUTH)
    assert found.problem is None
    assert found.login == ("app", "se:cret")


def test_a_secret_that_is_missing_is_named() -> None:
    reason, message = complaint(**AUTH)
    assert reason == "SecretMissing"
    assert message.startswith("spec.auth: Secret users does not exist. Create it with users")


def test_a_key_that_is_missing_or_empty_is_named() -> None:
    assert complaint(secret("users", other="x"), **AUTH) == (
        "SecretMissing",
        "spec.auth: Secret users has no users. Give it.",
    )
    assert complaint(secret("users", users=""), **AUTH)[0] == "SecretMissing"
    _, message = complaint(secret("cache-tls", tls_crt="x"), **MUTUAL)
    assert "has no tls.key and no ca.crt" in message


@pytest.mark.parametrize(
    ("users", "says"),
    [
        ("app:secret", "the last line does not end"),
        ("app:secret\n\n", "line 2 is not of the form"),
        ("app\n", "line 1 is not of the form"),
        (":secret\n", "line 1 is not of the form"),
        ("app:\n", "line 1 is not of the form"),
        ("app:secret\r\n", "line 1 is not of the form"),
        ("app:a b\n", "or has a blank in it"),
        ("a:b\n" * 9, "9 lines, and memcached reads 8"),
        (f"app:{'x' * 251}\n", "line 1 is too long: memcached reads 254 bytes"),
    ],
)
def test_users_that_memcached_would_read_otherwise_are_refused_and_not_told(users: str, says: str) -> None:
    reason, message = complaint(secret("users", users=users), **AUTH)
    assert reason == "SecretInvalid"
    assert says in message
    assert "secret" not in message.replace("Secret", "")


def test_the_longest_line_and_the_most_users_are_taken() -> None:
    assert complaint(secret("users", users=f"app:{'x' * 250}\n" * 8), **AUTH) == ("", "")


def test_what_is_no_text_is_refused() -> None:
    binary = secret("users") | {"data": {"users": base64.b64encode(b"\xff\xfe").decode()}}
    assert complaint(binary, **AUTH) == ("SecretInvalid", "spec.auth: Secret users: it is no text. Give users.")


def test_a_certificate_and_its_key_are_taken_and_told_by_their_fingerprint() -> None:
    pair = certificate()
    found = judged(tls_secret(pair), **TLS)
    assert found.problem is None
    assert found.fingerprint == fingerprint(der(pair))
    assert found.digest == "", "nothing that a running server cannot read anew"


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (Pair("nothing", certificate().key), "no certificate in PEM format found"),
        (Pair(certificate().certificate, certificate("other").key), "the key does not belong to the certificate"),
        (Pair(certificate().certificate, "nothing"), "certificate and key"),
    ],
)
def test_a_certificate_that_cannot_be_served_with_is_refused(pair: Pair, says: str) -> None:
    reason, message = complaint(tls_secret(pair), **TLS)
    assert reason == "SecretInvalid"
    assert says in message


def test_a_certificate_that_serves_but_is_no_clients_does_where_none_is_asked() -> None:
    assert complaint(tls_secret(certificate(client=False)), **TLS) == ("", "")
    assert complaint(tls_secret(certificate(by="theirs")), **TLS) == ("", "")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (tls_secret(certificate(client=False)), "does not verify tls.crt as a client certificate (un"),
        (tls_secret(certificate(by="theirs")), "does not verify tls.crt"),
        (tls_secret(certificate(ended=True)), "certificate has expired"),
        (
            secret("cache-tls", tls_crt=certificate().certificate, tls_key=certificate().key, ca_crt="nothing"),
            "ca.crt holds no certificates in PEM form",
        ),
    ],
)
def test_where_clients_need_a_certificate_the_servers_own_must_be_one(found: Obj, says: str) -> None:
    reason, message = complaint(found, **MUTUAL)
    assert reason == "SecretInvalid"
    assert says in message


def test_where_clients_need_a_certificate_one_of_that_authority_does() -> None:
    found = judged(tls_secret(certificate()), **MUTUAL)
    assert (found.problem, found.authority) == (None, signer("ours").certificate)


USERS = st.lists(st.from_regex(r"[a-z]{1,5}:[!-~]{1,9}", fullmatch=True), min_size=1, max_size=8).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@given(USERS, USERS)
def test_the_digest_tells_users_apart_and_nothing_else(one: str, other: str) -> None:
    def digest(users: str, uid: str = "u-1", **more: str) -> str:
        found = secret("users", users=users, **more)
        found["metadata"]["uid"] = uid
        return judged(found, **AUTH).digest

    assert (digest(one) == digest(other)) is (one == other)
    assert digest(one) == digest(one, beside="x")
    assert digest(one) != digest(one, uid="u-2"), "whoever does not know the UID can try no password by it"


def test_a_renewed_certificate_is_no_cause_to_replace_servers_and_a_new_authority_is() -> None:
    def digest(pair: Pair, by: str) -> str:
        found = tls_secret(pair, by=by)
        return judged(found, **MUTUAL).digest

    first = digest(certificate(), "ours")
    assert first
    assert digest(certificate("renewed"), "ours") == first
    assert digest(certificate(by="theirs"), "theirs") != first


def test_nothing_shows_what_the_secrets_hold() -> None:
    found = judged(secret("users", users="app:hidden\n"), tls_secret(certificate()), **AUTH, **TLS)
    assert "hidden" not in repr(found)
    assert "PRIVATE" not in repr(found)
