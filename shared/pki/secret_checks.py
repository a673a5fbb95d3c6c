"""Checks of the Secrets that a spec references. Messages never contain the content of a Secret."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from shared.api.memo import remembered
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import (
    AUTHORITY_KEY,
    CERTIFICATE_KEY,
    MAX_BYTES,
    MAX_TEXT_BYTES,
    PASSWORD_KEY,
    PRIVATE_KEY,
    TOO_LONG,
    content_of,
    excess,
)
from shared.pki import certs
from shared.status.reasons import SECRET_INVALID, SECRET_MISSING, Reason

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that a password must not have: C programs cut it at NUL, configuration files at a line break."""

_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, not defined in Python's ssl module


@dataclass(frozen=True, slots=True)
class SecretProblem:
    """Reason why servers cannot use the content of a Secret.

    Attributes:
        reason: SecretMissing or SecretInvalid.
        message: names of the Secret and the key, and how to fix it; never the content.
    """

    reason: Reason
    message: str


class UnusableSecret(Exception):
    """A Secret is missing or invalid."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.problem = SecretProblem(reason, message)


def texts(at: str, name: str, secret: Obj | None, *keys: str) -> list[str]:
    """Return the values of a Secret for these keys.

    Args:
        at: field that references the Secret, for the message.

    Raises:
        UnusableSecret: the Secret does not exist, lacks a key, or has too many, or a value is too long or no text.
    """
    if secret is None:
        raise UnusableSecret(
            SECRET_MISSING,
            f"{at}: Secret {name} does not exist. Create it with {' and '.join(keys)}, or name another Secret.",
        )
    given = secret.get("data") or {}
    if wrong := excess(secret, keys):
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: {wrong}")
    if long := [key for key in (*keys, AUTHORITY_KEY) if given.get(key) == TOO_LONG]:
        wrong = f"{long[0]} has more than {MAX_BYTES.get(long[0], MAX_TEXT_BYTES):,} bytes. Shorten it."
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: {wrong}")
    if missing := [key for key in keys if not given.get(key)]:
        raise UnusableSecret(SECRET_MISSING, f"{at}: Secret {name} has no {' and no '.join(missing)}. Add it.")
    try:
        return [base64.b64decode(given[key]).decode() for key in keys]
    except (binascii.Error, UnicodeDecodeError):
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: {', '.join(keys)} must be text.") from None


def password_of(at: str, name: str, secret: Obj | None, key: str = PASSWORD_KEY) -> str:
    """Return the password in a Secret.

    Args:
        at: field that references the Secret, for the message.
        key: key of the password.

    Raises:
        UnusableSecret: there is no password, it is too long, or it has control characters.
    """
    (password,) = texts(at, name, secret, key)
    if len(password.encode()) > MAX_TEXT_BYTES:
        wrong = f"{key} has more than {MAX_TEXT_BYTES:,} bytes. Shorten it."
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: {wrong}")
    if password != password.strip("\r\n"):
        raise UnusableSecret(
            SECRET_INVALID,
            f"{at}: Secret {name}: {key} begins or ends with a line break, which is probably not intended. "
            "Remove it, for example by creating the Secret with --from-literal.",
        )
    if CONTROL_CHARACTER.search(password):
        raise UnusableSecret(
            SECRET_INVALID,
            f"{at}: Secret {name}: {key} contains a control character, such as NUL or a line break. Files, "
            "environment variables and C programs cut a password there. Use another password.",
        )
    return password


def certificate_of(
    at: str, name: str, secret: Obj | None, *, hosts: tuple[str, ...] | None, is_client: bool, is_ordered: bool = False
) -> tuple[certs.Pair, str]:
    """Return the certificate with its key from a Secret, and the authorities; the latter are empty if not needed.

    The validity period is not checked (shared/pki/validity.py).

    Args:
        at: field that references the Secret, for the message.
        hosts: names for which clients must accept the certificate; None to skip the check.
        is_client: whether the certificate is also used as a client of servers that trust the same authorities.
        is_ordered: whether cert-manager fills the Secret.

    Raises:
        UnusableSecret: something is missing, or clients would reject the server.
    """
    if secret is None and is_ordered:
        raise UnusableSecret(
            SECRET_MISSING,
            f"spec.tls: cert-manager has not issued Secret {name} yet. See kubectl describe certificate {name}.",
        )
    needs_authority = is_client or hosts is not None
    keys = (CERTIFICATE_KEY, PRIVATE_KEY, *((AUTHORITY_KEY,) if needs_authority else ()))
    certificate, key, *authorities = texts(at, name, secret, *keys)
    pair, authority = certs.Pair(certificate, key), "".join(authorities)
    bundle = content_of(secret).get(AUTHORITY_KEY, "")  # also one that servers do not need: the operator trusts it
    if wrong := wrong_with_bundle(bundle) or _wrong(pair, authority, hosts, is_client=is_client):
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: {wrong}")
    return pair, authority


@remembered(len)  # a handshake takes 1 ms, and the same few pairs are checked repeatedly
def _wrong(pair: certs.Pair, authority: str, hosts: tuple[str, ...] | None, *, is_client: bool) -> str:
    wrong = wrong_with_pair(pair, authority if is_client else "")
    return wrong or ("" if hosts is None else wrong_with_hosts(pair, authority, hosts))


def wrong_with_bundle(authority: str) -> str:
    """Return why a text has too many authorities; empty if it has not, or if it cannot be parsed.

    Each of them costs time and memory, and so does each handshake with one that has the name of an issuer.
    """
    if excess := certs.excess_of(authority):
        return f"{AUTHORITY_KEY}: {excess}. Clients need only the authorities that issue their certificates."
    try:
        subjects = Counter(each.subject for each in dict.fromkeys(certs.read(authority)))
    except ValueError:  # reported where the authorities are used
        return ""
    most = max(subjects.values())
    if most > certs.MAX_SAME_NAME:
        return (
            f"{AUTHORITY_KEY}: {most} certificates have the same subject, and at most {certs.MAX_SAME_NAME} are "
            "accepted: remove those that have been replaced."
        )
    return ""


def wrong_with_pair(pair: certs.Pair, authority: str = "") -> str:
    """Return why a server cannot use a certificate, or cannot be reached with it if it requires client certificates.

    The dates of certificates do not count (shared/pki/validity.py).

    Args:
        authority: PEM certificates that verify clients, including the owner of the certificate; empty if the server
            does not request client certificates.

    Returns:
        The keys of the Secret, the problem and how to fix it; empty if there is no problem.
    """
    try:
        certs.loadable(pair)
        certs.read(pair.certificate)
        serving, connecting = certs.server_context(pair), unverifying(pair)
    except ValueError as wrong:
        return f"{CERTIFICATE_KEY} and {PRIVATE_KEY}: {wrong}. Provide a certificate and its key."
    if not authority:
        return ""
    try:
        serving.load_verify_locations(cadata=authority)
    except ssl.SSLError as wrong:
        return f"{AUTHORITY_KEY} holds no certificates in PEM form ({wrong.reason}). Provide the CA of the clients."
    serving.verify_mode = ssl.CERT_REQUIRED
    if why := refusal(serving, connecting):
        return (
            f"{AUTHORITY_KEY} does not verify {CERTIFICATE_KEY} as a client certificate ({why}), and the operator "
            "and the metrics exporter are clients. Issue it from that CA, for server auth and client auth."
        )
    return ""


def wrong_with_hosts(pair: certs.Pair, authority: str, hosts: Iterable[str]) -> str:
    """Return why clients that trust an authority reject a server with one of these names.

    Args:
        pair: usable certificate and key.
        hosts: names of the server, all of which are checked.

    Returns:
        See `wrong_with_pair`.
    """
    try:
        connecting = certs.client_context(None, authority)
    except ValueError as wrong:
        return f"{AUTHORITY_KEY}: {wrong}. Provide the CA of {CERTIFICATE_KEY} in PEM format."
    for host in hosts:
        if why := refusal(certs.server_context(pair), connecting, host):
            return (
                f"clients that trust {AUTHORITY_KEY} reject {CERTIFICATE_KEY} for {host} "
                f"({why.rstrip('.')}). Issue it from that CA, for that name, for server auth."
            )
    return ""


def unverifying(pair: certs.Pair) -> ssl.SSLContext:
    """Return a client context that presents a certificate if requested; the caller verifies the server."""
    context = certs.client_context(pair)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def verifying_signatures(pair: certs.Pair, authority: str) -> ssl.SSLContext | None:
    """Return a client context that verifies the signature of a certificate, but neither its names nor its dates.

    A client can then make a server with an expired certificate load the next one.

    Returns:
        None if the authority holds no certificate.
    """
    try:
        context = certs.client_context(pair, authority) if authority else None
    except ValueError:
        return None
    if context is not None:
        context.check_hostname = False
        context.verify_flags |= _NO_CHECK_TIME
    return context


def refusal(serving: ssl.SSLContext, connecting: ssl.SSLContext, host: str | None = None) -> str:
    """Return why one side rejects the other in a TLS handshake in memory, with any dates; empty if neither does."""
    serving.verify_flags |= _NO_CHECK_TIME
    connecting.verify_flags |= _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = connecting.wrap_bio(to_client, to_server, server_hostname=host)
    try:
        for end in (client, server, client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        return str(getattr(error, "verify_message", "") or error.reason or error)
    return ""
