"""When which certificate of a database is made anew, and who signs it, where the operator makes them itself. Pure.

Servers take up a certificate of their own without a restart. When they take up whom to trust is theirs: etcd at its
start alone, Redis when it is told. So who knows of a new authority is given (`Issuing.informed`).

- A certificate is replaced when two thirds of its life are over. Nobody restarts.
- An authority has a successor when two thirds of its life are over. Each step is one write of its Secret, and from each
  the next follows by what is seen:

  | step | then |
  |---|---|
  | introduce | the successor stands beside it (next.crt), and every Secret tells to trust both; servers take it up |
  | promote | all of them did, and others had their time (`LONGEST_SETTLING`): it signs from now on; the key of the one before is gone |
  | forget | one that has ended is trusted no more; nobody is asked to take that up |

- An authority whose Secret was deleted cannot sign; what it signed is trusted until it ends. It gets a successor, too,
  which meanwhile signs what is missing altogether, and nothing else.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.ownership import Owner, require_ours
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY, content_of, encoded
from shared.pki import rotation
from shared.pki.certs import Certificate
from shared.pki.keyring import (
    SIGNER,
    SUCCESSOR,
    Authorities,
    CertificateRequest,
    IssuedCertificate,
    authorities_in,
    fingerprint,
    trust,
)
from shared.pki.rotation import CertificateOrder
from shared.runtime.plan import WriteSecret

AUTHORITY_LIVES = 20
"""An authority's life, in lives of what it signs: with these of 90 days, servers are asked every three years
to trust another."""

LONGEST_SETTLING = timedelta(days=1)
"""What clients get at most to hear of a new authority before it signs: whoever mounts a Secret has it within two
minutes, but not everybody reads files again."""

SETTLINGS = 20
"""Such times in the life of a certificate: they are shorter where it is."""


@dataclass(frozen=True)
class Issuing:
    """What the Secrets with a resource's certificates are to become.

    Attributes:
        own: whose they are.
        component: of what their objects are parts.
        authority: name of the Secret of who signs; nobody mounts it.
        leaves: what is signed.
        found: the Secrets as they are, by name; None for one that does not exist.
        informed: fingerprint of the newest authority that every server trusts, and would after a restart; empty if they
            differ.
        life: how long a certificate is valid.
    """

    own: Owner
    component: str
    authority: str
    leaves: tuple[CertificateRequest, ...]
    found: Mapping[str, Obj | None] = field(repr=False)
    informed: str
    now: datetime
    life: timedelta = rotation.LIFETIME

    def next(self) -> tuple[str, tuple[WriteSecret, ...]]:
        """Why, and what, is to be written now; nothing if all is as it is to be.

        Raises:
            NotOurs: a Secret in the way is somebody else's.
        """
        for name in (self.authority, *(leaf.secret for leaf in self.leaves)):
            if secret := self.found.get(name):
                require_ours(self._secret(name, {}), secret, self.own.uid)
        why, write = self._authority_next()
        if write is not None:
            return why, (write,)
        causes = {leaf: self._cause(leaf) for leaf in self.leaves}
        writes = tuple(write for leaf, cause in causes.items() if (write := self._write(leaf, cause)))
        whys = [f"{leaf.secret}: {cause}" for leaf, cause in causes.items() if cause]
        return "; ".join(whys) or "whom to trust is told", writes

    @property
    def due(self) -> datetime | None:
        """When there may be something to do again; None if there is nothing yet."""
        held, times = self._authorities, [former.ends for former in self._authorities.former]
        if held.successor is not None:
            times.append(self._settled(held.successor.certificate))
        elif held.signer is not None:
            times.append(rotation.due(held.signer.certificate))
        times += [rotation.due(leaf.certificate) for leaf in self._held.values() if leaf is not None]
        return min(times, default=None)

    # The authority.

    def _authority_next(self) -> tuple[str, WriteSecret | None]:
        """The next step in its life, if it is time for one."""
        held, signer, successor, now = self._authorities, self._signer, self._authorities.successor, self.now
        if signer is None and successor is None:
            return self._begin()
        if successor is not None and self._known(successor.certificate):
            before = () if signer is None else (signer.certificate,)
            promoted = Authorities(successor, None, (*before, *held.former))
            return "the new authority is known, and signs from now on", self._content(promoted)
        if signer is not None and successor is None and rotation.due(signer.certificate) <= now:
            return "two thirds of the authority's life are over, and it gets a successor", self._ordered(
                held, SUCCESSOR
            )
        if any(former.ends <= now for former in held.former):
            left = tuple(former for former in held.former if former.ends > now)
            return "an authority has ended", self._content(Authorities(held.signer, successor, left))
        return "", None

    def _begin(self) -> tuple[str, WriteSecret]:
        """There is nobody who could sign."""
        told = (authorities_in(self.found.get(leaf.secret)) for leaf in self.leaves)
        trusted = tuple(known for known in next(filter(None, told), ()) if known.ends > self.now)
        held = Authorities(former=trusted)
        if trusted:
            return "the authority is gone, and gets a successor", self._ordered(held, SUCCESSOR)
        return "there is no authority yet", self._ordered(held, SIGNER)

    def _known(self, newest: Certificate) -> bool:
        """Whether all whom it concerns know a new authority, so that it may sign."""
        told = all(newest in authorities_in(self.found.get(leaf.secret)) for leaf in self.leaves)
        return told and self.informed == fingerprint(newest) and self._settled(newest) <= self.now

    def _settled(self, newest: Certificate) -> datetime:
        return newest.begins + rotation.BACKDATED + min(LONGEST_SETTLING, self.life / SETTLINGS)

    def _ordered(self, held: Authorities, under: tuple[str, str]) -> WriteSecret:
        """Their Secret, with a new one among them."""
        begins, ends = self.now - rotation.BACKDATED, self.now + AUTHORITY_LIVES * self.life
        order = CertificateOrder(self.own.name, (), begins, None, None, ends)
        name = self.authority
        return WriteSecret(self._secret(name, held.content()), self.found.get(name), order, under)

    def _content(self, held: Authorities) -> WriteSecret:
        name = self.authority
        return WriteSecret(self._secret(name, held.content()), self.found.get(name))

    # What it signs.

    def _cause(self, leaf: CertificateRequest) -> str:
        """Why a certificate is made; empty if it is not."""
        held, signer = self._held[leaf], self._signer
        if held is None:
            return "there is none that can be used"
        if held.certificate.ends <= self.now:
            return "it has ended"
        if signer is None:
            return ""
        if held.certificate.issuer != signer.certificate.subject:
            return "another authority signs now"
        if held.certificate.hosts != frozenset(leaf.hosts):
            return "it is for other names"
        return "two thirds of its life are over" if rotation.due(held.certificate) <= self.now else ""

    def _write(self, leaf: CertificateRequest, cause: str) -> WriteSecret | None:
        seen, told = self.found.get(leaf.secret), trust(self._authorities.trusted)
        signer = self._signer or self._authorities.successor
        if cause and signer is not None:
            begins, ends = self.now - rotation.BACKDATED, min(self.now + self.life, signer.certificate.ends)
            order = CertificateOrder(leaf.name, leaf.hosts, begins, ends, signer.pair, None, client=True)
            return WriteSecret(self._secret(leaf.secret, told), seen, order)
        held = content_of(seen)
        content = told | {key: held.get(key, "") for key in (CERTIFICATE_KEY, PRIVATE_KEY)}
        return WriteSecret(self._secret(leaf.secret, content), seen) if held != content else None

    @cached_property
    def _held(self) -> Mapping[CertificateRequest, IssuedCertificate | None]:
        return {leaf: IssuedCertificate.under(self.found.get(leaf.secret)) for leaf in self.leaves}

    @cached_property
    def _authorities(self) -> Authorities:
        return Authorities.of(self.found.get(self.authority))

    @property
    def _signer(self) -> IssuedCertificate | None:
        signer = self._authorities.signer
        return signer if signer is not None and signer.certificate.ends > self.now else None

    def _secret(self, name: str, content: Mapping[str, str]) -> Obj:
        kind = "Opaque" if name == self.authority else "kubernetes.io/tls"
        return self.own.object(SECRET, name, component=self.component, data=encoded(content)) | {"type": kind}
