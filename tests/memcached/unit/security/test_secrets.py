"""Validation of the Secrets of a Memcached, and its messages."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.memcached.security.secrets import Secrets, fingerprint, parse_secrets
from shared.kubernetes.kinds import Obj
from shared.pki.certs import Pair
from simulator.memcached.fake_servers import ENDS, certificate, der, secret, signer, tls_secret
from tests.memcached.unit.world import resource

AUTH: Obj = {"auth": {"secretName": "users"}}
TLS: Obj = {"tls": {"secretName": "cache-tls"}}
MUTUAL: Obj = {"tls": {"secretName": "cache-tls", "clientAuth": "required"}}


def parsed(*secrets: Obj, **spec: Any) -> Secrets:
    referenced: Obj = {part["secretName"]: None for part in spec.values() if isinstance(part, dict)}
    return parse_secrets(resource(**spec), referenced | {found["metadata"]["name"]: found for found in secrets})


def problem_of(*secrets: Obj, **spec: Any) -> tuple[str, str]:
    problem = parsed(*secrets, **spec).problem
    return (problem.reason, problem.message) if problem else ("", "")


def test_spec_without_secrets_gives_empty_contents() -> None:
    assert parsed() == Secrets()
    assert Secrets().credentials is None
    assert Secrets().fingerprint == ""


def test_credentials_are_the_first_user_of_the_file() -> None:
    found = parsed(secret("users", users="app:se:cret\nops:other\n"), **AUTH)
    assert found.problem is None
    assert found.credentials == ("app", "se:cret")


def test_missing_secret_is_named() -> None:
    reason, message = problem_of(**AUTH)
    assert reason == "SecretMissing"
    assert message.startswith("spec.auth: Secret users does not exist. Create it with users")


def test_missing_or_empty_key_is_named() -> None:
    assert problem_of(secret("users", other="x"), **AUTH) == (
        "SecretMissing",
        "spec.auth: Secret users has no users. Add it.",
    )
    assert problem_of(secret("users", users=""), **AUTH)[0] == "SecretMissing"
    _, message = problem_of(secret("cache-tls", tls_crt="x"), **MUTUAL)
    assert "has no tls.key and no ca.crt" in message


@pytest.mark.parametrize(
    ("users", "problem"),
    [
        ("app:secret", "the last line has no line break"),
        ("app:secret\n\n", "line 2 does not have the form"),
        ("app\n", "line 1 does not have the form"),
        (":secret\n", "line 1 does not have the form"),
        ("app:\n", "line 1 does not have the form"),
        ("app:secret\r\n", "line 1 does not have the form"),
        ("app:a b\n", "or contains whitespace"),
        ("app:sec\0ret\n", "line 1 contains a control character"),
        ("app:secret\n\0app:x\n", "line 2 contains a control character"),
        ("app:se\x1bcret\n", "line 1 contains a control character"),
        ("app:secret\x7f\n", "line 1 contains a control character"),
        ("a:b\n" * 9, "9 lines, but memcached reads only 8"),
        (f"app:{'x' * 251}\n", "line 1 is too long: memcached reads at most 254 bytes"),
    ],
)
def test_invalid_users_file_is_rejected_without_revealing_it(users: str, problem: str) -> None:
    reason, message = problem_of(secret("users", users=users), **AUTH)
    assert reason == "SecretInvalid"
    assert problem in message
    assert "secret" not in message.replace("Secret", "")


def test_longest_line_and_maximum_of_users_are_accepted() -> None:
    assert problem_of(secret("users", users=f"app:{'x' * 250}\n" * 8), **AUTH) == ("", "")


def test_binary_users_file_is_rejected() -> None:
    binary = secret("users") | {"data": {"users": base64.b64encode(b"\xff\xfe").decode()}}
    assert problem_of(binary, **AUTH) == ("SecretInvalid", "spec.auth: Secret users: users must be text.")


def test_valid_certificate_gives_its_fingerprint_and_no_digest() -> None:
    pair = certificate()
    found = parsed(tls_secret(pair), **TLS)
    assert found.problem is None
    assert found.fingerprint == fingerprint(der(pair))
    assert found.startup_digest("m-1", with_users=True) == "", "a running server can reload all of it"


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (Pair("nothing", certificate().key), "no certificate in PEM format found"),
        (Pair(certificate().certificate, certificate("other").key), "the key does not belong to the certificate"),
        (Pair(certificate().certificate, "nothing"), "certificate and key"),
    ],
)
def test_unusable_certificate_is_rejected(pair: Pair, problem: str) -> None:
    reason, message = problem_of(tls_secret(pair), **TLS)
    assert reason == "SecretInvalid"
    assert problem in message


def test_server_certificate_suffices_without_client_authentication() -> None:
    assert problem_of(tls_secret(certificate(client=False)), **TLS) == ("", "")
    assert problem_of(tls_secret(certificate(by="other-ca")), **TLS) == ("", "")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (tls_secret(certificate(client=False)), "does not verify tls.crt as a client certificate (un"),
        (tls_secret(certificate(by="other-ca")), "does not verify tls.crt"),
        (
            secret("cache-tls", tls_crt=certificate().certificate, tls_key=certificate().key, ca_crt="nothing"),
            "ca.crt holds no certificates in PEM form",
        ),
    ],
)
def test_client_authentication_requires_a_client_certificate_of_the_ca(found: Obj, problem: str) -> None:
    reason, message = problem_of(found, **MUTUAL)
    assert reason == "SecretInvalid"
    assert problem in message


def test_secret_checks_ignore_the_validity_period() -> None:
    for spec in (TLS, MUTUAL):
        found = parsed(tls_secret(certificate(ended=True)), **spec)
        assert found.problem is None, "a step reports the dates, and stops only changes"
        assert found.validity["cache-tls"].ends < ENDS


def test_client_certificate_of_the_ca_is_accepted() -> None:
    found = parsed(tls_secret(certificate()), **MUTUAL)
    assert (found.problem, found.authority) == (None, signer("ca").certificate)


USERS = st.lists(st.from_regex(r"[a-z]{1,5}:[!-~]{1,9}", fullmatch=True), min_size=1, max_size=8).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@settings(max_examples=20, deadline=None)
@given(USERS, USERS)
def test_startup_digest_depends_only_on_the_content(one: str, other: str) -> None:
    def digest(users: str, uid: str = "u-1", salt: str = "m-1", **more: str) -> str:
        found = secret("users", users=users, **more)
        found["metadata"]["uid"] = uid
        return parsed(found, **AUTH).startup_digest(salt, with_users=True)

    assert (digest(one) == digest(other)) is (one == other)
    assert digest(one) == digest(one, other="x")
    assert digest(one) == digest(one, uid="u-2"), "a recreated Secret with the same content changes nothing"
    assert digest(one) != digest(one, salt="m-2"), "equal passwords are not recognized across resources"


def test_startup_digest_is_empty_if_servers_reload_the_users() -> None:
    found = parsed(secret("users", users="app:hidden\n"), **AUTH)
    assert found.startup_digest("m-1", with_users=False) == ""


def test_digest_of_the_users_in_the_status_has_a_secret_key() -> None:
    def digest(uid: str) -> str:
        found = secret("users", users="app:one\n")
        found["metadata"]["uid"] = uid
        return parsed(found, **AUTH).users_digest

    assert digest("u-1") != digest("u-2"), "a client needs the right to read the Secret to know its UID"


def test_digest_changes_with_the_ca_and_not_with_the_certificate() -> None:
    def digest(pair: Pair, by: str) -> str:
        found = tls_secret(pair, by=by)
        return parsed(found, **MUTUAL).startup_digest("m-1", with_users=False)

    first = digest(certificate(), "ca")
    assert first
    assert digest(certificate("renewed"), "ca") == first
    assert digest(certificate(by="other-ca"), "other-ca") != first


def test_repr_does_not_reveal_the_secrets() -> None:
    found = parsed(secret("users", users="app:hidden\n"), tls_secret(certificate()), **AUTH, **TLS)
    assert "hidden" not in repr(found)
    assert "PRIVATE" not in repr(found)
