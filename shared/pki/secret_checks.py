"""Why the Secrets that a spec names cannot be used; never what stands in them."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PASSWORD_KEY, PRIVATE_KEY
from shared.pki import certs
from shared.status.reasons import SECRET_INVALID, SECRET_MISSING, Reason

_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for


@dataclass(frozen=True, slots=True)
class SecretProblem:
    """Why nobody can run with what the Secrets hold.

    Attributes:
        reason: SecretMissing or SecretInvalid.
        message: which Secret, which key, and what mends it; never what stands in it.
    """

    reason: Reason
    message: str


class UnusableSecret(Exception):
    """A Secret does not serve."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.problem = SecretProblem(reason, message)


def texts(at: str, name: str, secret: Obj | None, *keys: str) -> list[str]:
    """What a Secret has under these keys.

    Args:
        at: the field that names it, for the message.

    Raises:
        UnusableSecret: it does not exist, or lacks one, or one of them is no text.
    """
    if secret is None:
        raise UnusableSecret(
            SECRET_MISSING,
            f"{at}: there is no Secret {name} in this namespace. Make it, with {' and '.join(keys)}, or name another.",
        )
    given = secret.get("data") or {}
    if missing := [key for key in keys if not given.get(key)]:
        raise UnusableSecret(SECRET_MISSING, f"{at}: Secret {name} has no {' and no '.join(missing)}. Give it.")
    try:
        return [base64.b64decode(given[key]).decode() for key in keys]
    except (binascii.Error, UnicodeDecodeError):
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: it is no text. Give {', '.join(keys)}.") from None


def password_of(at: str, name: str, secret: Obj | None) -> str:
    """The password that a Secret has.

    Args:
        at: the field that names it, for the message.

    Raises:
        UnusableSecret: there is none, or it is one that nobody types.
    """
    (password,) = texts(at, name, secret, PASSWORD_KEY)
    if password != password.strip("\r\n"):
        raise UnusableSecret(
            SECRET_INVALID,
            f"{at}: Secret {name}: {PASSWORD_KEY} ends or begins with a line break, which nobody types. Make it "
            "without, as by --from-literal.",
        )
    return password


def certificate_of(
    at: str,
    name: str,
    secret: Obj | None,
    *,
    hosts: tuple[str, ...] | None,
    is_client: bool,
    is_ordered: bool = False,
    whenever: bool = True,
) -> tuple[certs.Pair, str]:
    """The certificate with its key that a Secret has, and the authorities; empty where nobody needs these.

    Args:
        at: the field that names it, for the message.
        hosts: for which clients must take it; None if they see to that.
        is_client: whether its holder is a client, too, of servers that trust the same authorities.
        is_ordered: whether cert-manager fills the Secret.
        whenever: whether to leave aside when it begins and ends: for callers with a clock of their own.

    Raises:
        UnusableSecret: something is missing, or a server could not be reached with it.
    """
    if secret is None and is_ordered:
        raise UnusableSecret(
            SECRET_MISSING,
            f"spec.tls: cert-manager has not issued Secret {name} yet; kubectl describe certificate {name} says why.",
        )
    needs_authority = is_client or hosts is not None
    keys = (CERTIFICATE_KEY, PRIVATE_KEY, *((AUTHORITY_KEY,) if needs_authority else ()))
    certificate, key, *authorities = texts(at, name, secret, *keys)
    pair, authority = certs.Pair(certificate, key), "".join(authorities)
    if whenever:
        wrong = _wrong_whenever(pair, authority, hosts, is_client=is_client)
    else:
        wrong = _wrong(pair, authority, hosts, is_client=is_client, whenever=False)
    if wrong:
        raise UnusableSecret(SECRET_INVALID, f"{at}: Secret {name}: {wrong}")
    return pair, authority


def _wrong(pair: certs.Pair, authority: str, hosts: tuple[str, ...] | None, *, is_client: bool, whenever: bool) -> str:
    wrong = wrong_with_pair(pair, authority if is_client else "", whenever=whenever)
    return wrong or ("" if hosts is None else wrong_with_hosts(pair, authority, hosts, whenever=whenever))


@lru_cache(maxsize=1024)  # a handshake takes a millisecond, and the same few are looked at again and again
def _wrong_whenever(pair: certs.Pair, authority: str, hosts: tuple[str, ...] | None, *, is_client: bool) -> str:
    return _wrong(pair, authority, hosts, is_client=is_client, whenever=True)


def wrong_with_pair(pair: certs.Pair, authority: str = "", *, whenever: bool = False) -> str:
    """What keeps a server from serving with a certificate, or, where it asks clients for one, from being reached.

    Args:
        authority: PEM certificates that vouch for clients, of whom the certificate's holder is one; empty where
            nobody asks clients.
        whenever: as `certificate_of` has it.

    Returns:
        Which keys, what is wrong, and what mends it; empty if nothing is.
    """
    try:
        certs.read(pair.certificate)
        serving, asking = certs.server_context(pair), unverifying(pair)
    except ValueError as wrong:
        return f"{CERTIFICATE_KEY} and {PRIVATE_KEY}: {wrong}. Give a certificate and its key."
    if not authority:
        return ""
    try:
        serving.load_verify_locations(cadata=authority)
    except ssl.SSLError as wrong:
        return f"{AUTHORITY_KEY} holds no certificates in PEM form ({wrong.reason}). Give those that vouch for clients."
    serving.verify_mode = ssl.CERT_REQUIRED
    if refusal := _refusal(serving, asking, whenever=whenever):
        return (
            f"{AUTHORITY_KEY} does not vouch for {CERTIFICATE_KEY} as a client's certificate ({refusal}), and the "
            "operator and the metrics are clients. Issue it by that authority, for server auth and client auth."
        )
    return ""


def wrong_with_hosts(pair: certs.Pair, authority: str, hosts: Iterable[str], *, whenever: bool = False) -> str:
    """What keeps clients that trust an authority from taking a server for the one with this name.

    Args:
        pair: a certificate that can be served with.
        hosts: names of the server, each of which must do.
        whenever: as `certificate_of` has it.

    Returns:
        As `wrong_with_pair`.
    """
    try:
        asking = certs.client_context(None, authority)
    except ValueError as wrong:
        return f"{AUTHORITY_KEY}: {wrong}. Give the certificates that vouch for {CERTIFICATE_KEY}, in PEM form."
    for host in hosts:
        if refusal := _refusal(certs.server_context(pair), asking, host, whenever=whenever):
            return (
                f"clients that trust {AUTHORITY_KEY} would not take {CERTIFICATE_KEY} for {host}'s "
                f"({refusal.rstrip('.')}). Issue it by that authority, for that name, for server auth."
            )
    return ""


def unverifying(pair: certs.Pair) -> ssl.SSLContext:
    """A context for a client that shows this certificate if it is asked, and itself looks what the server shows."""
    context = certs.client_context(pair)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _refusal(serving: ssl.SSLContext, asking: ssl.SSLContext, host: str | None = None, *, whenever: bool) -> str:
    """Why one end refuses the other, told by a handshake in memory; empty if neither does."""
    if whenever:
        serving.verify_flags |= _NO_CHECK_TIME
        asking.verify_flags |= _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server, server_hostname=host)
    try:
        for end in (client, server, client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as refusal:
        return str(getattr(refusal, "verify_message", "") or refusal.reason or refusal)
    return ""
