"""What the Secrets that a spec names hold, and whether servers can run with it."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import USERS_KEY
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import digest, find, key_of
from shared.pki import certs
from shared.pki.secret_checks import SecretProblem, UnusableSecret, certificate_of, texts
from shared.pki.stores import ends
from shared.status.reasons import SECRET_INVALID

MAX_USERS, MAX_LINE_BYTES = 8, 255
"""Lines of a users' file, and bytes of one, that memcached reads: https://github.com/memcached/memcached authfile.c."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a Memcached's Secrets hold.

    Attributes:
        problem: what is wrong with them, if anything.
        users: the users' file.
        pair: the servers' certificate and its key.
        authority: certificates that vouch for clients.
        digest: of what servers read at their start alone; it changes only if that does, and tells nothing of it.
        expires: when the servers' certificate ends, by its Secret's name; also where it has ended.
    """

    problem: SecretProblem | None = None
    users: str = field(default="", repr=False)
    pair: certs.Pair | None = field(default=None, repr=False)
    authority: str = field(default="", repr=False)
    digest: str = ""
    expires: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def credentials(self) -> tuple[str, str] | None:
        """The first user and the password, if users are asked for."""
        user, found, password = self.users.partition("\n")[0].partition(":")
        return (user, password) if found else None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the servers' certificate, in hexadecimal; empty without one."""
        if self.pair is None:
            return ""
        return fingerprint(ssl.PEM_cert_to_DER_cert(certs.read(self.pair.certificate)[0].pem))


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER form, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


async def read_secrets(resource: Memcached, kube: Kube) -> Secrets:
    """The Secrets as they are now: by name, and only where the spec names one."""
    names = {part.secret_name for part in (resource.spec.auth, resource.spec.tls) if part is not None}
    return parse_secrets(resource, await find(kube, resource.namespace, names))


def parse_secrets(resource: Memcached, found: Mapping[str, Obj | None]) -> Secrets:
    """What the Secrets hold, or what is wrong with them; pure.

    Args:
        found: the Secrets that the spec names, by name; None for one that does not exist.
    """
    auth, tls = resource.spec.auth, resource.spec.tls
    startup_inputs: list[tuple[bytes, bytes]] = []  # what servers read at their start alone
    users = authority = ""
    pair = None
    expires = ends(found, [tls.secret_name] if tls else [])
    try:
        if auth is not None:
            secret = found[auth.secret_name]
            (users,) = texts("spec.auth", auth.secret_name, secret, USERS_KEY)
            if problem := _users_file_problem(users):
                raise UnusableSecret(SECRET_INVALID, f"spec.auth: Secret {auth.secret_name}: {USERS_KEY}: {problem}")
            startup_inputs.append((key_of(secret), users.encode()))
        if tls is not None:
            secret, needed = found[tls.secret_name], resource.spec.needs_client_certificate
            pair, authority = certificate_of(
                "spec.tls", tls.secret_name, secret, hosts=None, is_client=needed, whenever=False
            )
            if authority:
                startup_inputs.append((key_of(secret), authority.encode()))
    except UnusableSecret as error:
        return Secrets(error.problem, expires=expires)
    return Secrets(None, users, pair, authority, digest(startup_inputs), expires)


def _users_file_problem(text: str) -> str:
    """What keeps memcached, in any version, from reading its users as they are meant; empty if nothing."""
    *lines, rest = text.split("\n")
    if rest:  # 1.6.18 leaves out its last character
        return "the last line does not end, and memcached would cut the password. End it with a line break."
    if len(lines) > MAX_USERS:
        return f"{len(lines)} lines, and memcached reads {MAX_USERS}. Remove the others."
    for number, line in enumerate(lines, 1):
        user, _, password = line.partition(":")
        if not user or not password or re.search(r"\s", line):
            return f"line {number} is not of the form user:password, or has a blank in it. Mend it."
        if len(line.encode()) >= MAX_LINE_BYTES:
            return f"line {number} is too long: memcached reads {MAX_LINE_BYTES - 1} bytes. Shorten it."
    return ""
