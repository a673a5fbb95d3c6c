"""What the Secrets that a spec names hold, and whether servers can run with it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from operators.memcached.api import Memcached
from operators.memcached.template import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, USERS_KEY
from shared import pem
from shared.kube import SECRET, Kube, NotFound, Obj

USERS, LINE = 8, 255
"""Lines of a users' file, and bytes of one, that memcached reads: https://github.com/memcached/memcached authfile.c."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why servers cannot run with what the Secrets hold.

    Attributes:
        reason: SecretMissing or SecretInvalid.
        message: which Secret, which key, and what mends it; never what stands in it.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a Memcached's Secrets hold.

    Attributes:
        problem: what is wrong with them, if anything.
        users: the users' file.
        pair: the servers' certificate and its key.
        authority: certificates that vouch for clients.
        digest: of what servers read at their start alone; it changes only if that does, and tells nothing of it.
    """

    problem: Problem | None = None
    users: str = field(default="", repr=False)
    pair: pem.Pair | None = field(default=None, repr=False)
    authority: str = field(default="", repr=False)
    digest: str = ""

    @property
    def login(self) -> tuple[str, str] | None:
        """The first user and the password, if users are asked for."""
        user, found, password = self.users.partition("\n")[0].partition(":")
        return (user, password) if found else None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the servers' certificate, in hexadecimal; empty without one."""
        if self.pair is None:
            return ""
        return fingerprint(ssl.PEM_cert_to_DER_cert(pem.read(self.pair.certificate)[0].pem))


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER form, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


async def read(resource: Memcached, kube: Kube) -> Secrets:
    """The Secrets as they are now: by name, and only where the spec names one."""
    auth, tls = resource.spec.auth, resource.spec.tls
    names = sorted({part.secret_name for part in (auth, tls) if part is not None})
    found = await asyncio.gather(*(_find(kube, resource.namespace, name) for name in names))
    return judge(resource, dict(zip(names, found, strict=True)))


async def _find(kube: Kube, namespace: str, name: str) -> Obj | None:
    try:
        return await kube.get(SECRET, namespace, name)
    except NotFound:
        return None


def judge(resource: Memcached, found: Mapping[str, Obj | None]) -> Secrets:
    """What the Secrets hold, or what is wrong with them; pure.

    Args:
        found: the Secrets that the spec names, by name; None for one that does not exist.
    """
    auth, tls = resource.spec.auth, resource.spec.tls
    started: list[bytes] = []  # what servers read at their start alone
    users = authority = ""
    pair = None
    try:
        if auth is not None:
            (users,) = _texts("spec.auth", auth.secret_name, found, USERS_KEY)
            if wrong := _wrong_with_users(users):
                raise _Wrong("SecretInvalid", f"spec.auth: Secret {auth.secret_name}: {USERS_KEY}: {wrong}")
            started += [_key_of(found[auth.secret_name]), users.encode()]
        if tls is not None:
            keys = (CERTIFICATE_KEY, PRIVATE_KEY, *((AUTHORITY_KEY,) if resource.spec.needs_client_certificate else ()))
            certificate, key, *authorities = _texts("spec.tls", tls.secret_name, found, *keys)
            pair, authority = pem.Pair(certificate, key), "".join(authorities)
            if wrong := _wrong_with_pair(pair, authority):
                raise _Wrong("SecretInvalid", f"spec.tls: Secret {tls.secret_name}: {wrong}")
            if authority:
                started += [_key_of(found[tls.secret_name]), authority.encode()]
    except _Wrong as wrong_secret:
        return Secrets(Problem(*wrong_secret.args))
    return Secrets(None, users, pair, authority, _digest(started))


class _Wrong(Exception):
    """Reason and message of a problem."""


def _texts(at: str, name: str, found: Mapping[str, Obj | None], *keys: str) -> list[str]:
    secret = found[name]
    if secret is None:
        raise _Wrong(
            "SecretMissing",
            f"{at}: there is no Secret {name} in this namespace. Make it, with {' and '.join(keys)}, or name another.",
        )
    given = secret.get("data") or {}
    if missing := [key for key in keys if not given.get(key)]:
        raise _Wrong("SecretMissing", f"{at}: Secret {name} has no {' and no '.join(missing)}. Give it.")
    try:
        return [base64.b64decode(given[key]).decode() for key in keys]
    except UnicodeDecodeError:
        raise _Wrong("SecretInvalid", f"{at}: Secret {name}: it is no text. Give {', '.join(keys)}.") from None


def _wrong_with_users(text: str) -> str:
    """What keeps memcached, in any version, from reading its users as they are meant; empty if nothing."""
    *lines, rest = text.split("\n")
    if rest:  # 1.6.18 leaves out its last character
        return "the last line does not end, and memcached would cut the password. End it with a line break."
    if len(lines) > USERS:
        return f"{len(lines)} lines, and memcached reads {USERS}. Remove the others."
    for number, line in enumerate(lines, 1):
        user, _, password = line.partition(":")
        if not user or not password or re.search(r"\s", line):
            return f"line {number} is not of the form user:password, or has a blank in it. Mend it."
        if len(line.encode()) >= LINE:
            return f"line {number} is too long: memcached reads {LINE - 1} bytes. Shorten it."
    return ""


def _wrong_with_pair(pair: pem.Pair, authority: str) -> str:
    """What keeps a server from serving with a certificate, or, where it asks clients for one, from being reached."""
    try:
        pem.read(pair.certificate)
        context = pem.server_context(pair)
    except ValueError as wrong:
        return f"{CERTIFICATE_KEY} and {PRIVATE_KEY}: {wrong}. Give a certificate and its key."
    if not authority:
        return ""
    try:
        context.load_verify_locations(cadata=authority)
    except ssl.SSLError as wrong:
        return f"{AUTHORITY_KEY} holds no certificates in PEM form ({wrong.reason}). Give those that vouch for clients."
    context.verify_mode = ssl.CERT_REQUIRED
    if refusal := _refusal(context, pair):
        return (
            f"{AUTHORITY_KEY} does not vouch for {CERTIFICATE_KEY} as a client's certificate ({refusal}), and the "
            "operator and the metrics are clients. Issue it by that authority, for server auth and client auth."
        )
    return ""


def _refusal(server: ssl.SSLContext, pair: pem.Pair) -> str:
    """Why a server refuses a client with this certificate, told by a handshake in memory; empty if it does not."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client_context(pair).wrap_bio(to_client, to_server)
    try:
        for end in (asking, accepting, asking, accepting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as refusal:
        return str(getattr(refusal, "verify_message", "") or refusal.reason or refusal)
    return ""


def client_context(pair: pem.Pair) -> ssl.SSLContext:
    """A context for a client that shows this certificate if it is asked, and itself looks what the server shows."""
    context = pem.client_context(pair)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _key_of(secret: Obj | None) -> bytes:
    """The Secret's UID, which those do not know who may see pods but no Secrets: by it no password can be tried."""
    return str((secret or {"metadata": {}})["metadata"].get("uid", "")).encode()


def _digest(parts: list[bytes]) -> str:
    if not parts:
        return ""
    digest = hmac.new(b"\0".join(parts[::2]), digestmod=hashlib.sha256)
    for part in parts[1::2]:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.hexdigest()[:32]
