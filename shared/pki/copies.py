"""The operator's copy of certificates that others issue, which servers mount instead of the original. Pure.

cert-manager, or a user, replaces a certificate and its authority in one write. Servers that do not trust the new
authority yet would reject the new certificate. So the copy follows the original in stages:

| stage | servers present | servers trust | precondition |
|---|---|---|---|
| introduce | the old certificate | both authorities | the original has a new authority |
| replace | the new certificate | both authorities | every server trusts both |
| remove | the new certificate | the new authority | every server presents the new certificate |

A certificate of the same authority is copied at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self, TypeVar

from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import CERTIFICATE_KEY, PRIVATE_KEY
from shared.pki import certs
from shared.pki.certs import Certificate, Pair
from shared.pki.stores import certificates_in, issued_in, trust_content
from shared.pki.validity import Validity, signers, validity_of


@dataclass(frozen=True, slots=True)
class TrustedCertificate:
    """A certificate and a trust bundle, as servers mount them.

    Attributes:
        pair: certificate and its key.
        trusted: authorities trusted for peers and clients; in a copy, the one that was introduced last is the first.
    """

    pair: Pair = field(repr=False)
    trusted: tuple[Certificate, ...]

    @classmethod
    def of(cls, secret: Obj | None) -> Self | None:
        """Parse a Secret; None if a server could not use it."""
        issued, trusted = issued_in(secret), certificates_in(secret)
        return cls(issued.pair, trusted) if issued and trusted else None

    @property
    def certificate(self) -> Certificate:
        return certs.read(self.pair.certificate)[0]

    @property
    def validity(self) -> Validity:
        """Period in which servers and clients with the same trust bundle accept the certificate."""
        return validity_of(self.pair, self.trusted)

    def content(self) -> Mapping[str, str]:
        """Return the content of the Secret, by key; `stores.trust_content` explains the keys of the bundle."""
        leaf = {CERTIFICATE_KEY: self.pair.certificate, PRIVATE_KEY: self.pair.key}
        return trust_content(self.trusted) | leaf


@dataclass(frozen=True, slots=True)
class CopiedCertificate:
    """A certificate of another issuer, and its copy.

    Attributes:
        source: name of the Secret that the issuer fills.
        name: name of the Secret with the copy.
        original: content of the source; None if servers or clients could not use it.
        copy: content of the copy; None if there is none yet.
    """

    source: str
    name: str
    original: TrustedCertificate | None
    copy: TrustedCertificate | None

    @property
    def in_use(self) -> TrustedCertificate | None:
        """The certificate that servers use; None if there is none that they can use."""
        return self.copy or self.original

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        """Authorities of everything that a server may present, now or after the next stage."""
        known = [each.trusted for each in (self.copy, self.original) if each is not None]
        return tuple(dict.fromkeys(each for bundle in known for each in bundle))

    def withheld(self, now: datetime) -> tuple[Validity, Validity] | None:
        """Return when the original and the copy are valid, if servers keep the copy because only it is valid now."""
        if self.copy and self.original and _is_withheld(self.copy, self.original, now):
            return self.original.validity, self.copy.validity
        return None

    def trusting(self, trusted: tuple[Certificate, ...]) -> CopiedCertificate:
        """Return the certificate with another desired trust bundle."""
        return replace(self, original=replace(self.original, trusted=trusted)) if self.original else self


CopyT = TypeVar("CopyT", bound=TrustedCertificate)


def following(
    copy: CopyT | None, original: CopyT | None, *, informed: bool, now: datetime, keeps_former: bool = False
) -> tuple[str, CopyT | None]:
    """Return why the copy changes, and what it changes to.

    A certificate that has ended, or is not valid yet, never replaces a valid one: every client would reject it.

    Args:
        copy: the certificate that servers mount; None if there is none that they can use.
        original: the desired certificate and authorities; None if they cannot be used: then nothing changes.
        informed: whether every running server applied the copy, and new ones will.
        keeps_former: whether authorities that the original no longer has stay trusted until they expire, because
            certificates that they signed are still in use.

    Returns:
        None as the second value if nothing changes now.
    """
    if original is None:
        return "", None
    if copy is None:
        return "first certificate", original
    added = tuple(each for each in original.trusted if each not in copy.trusted)
    both = (*added, *copy.trusted)
    end = both if keeps_former else original.trusted
    if (copy.pair, set(copy.trusted)) == (original.pair, set(end)):
        return "", None
    if _is_withheld(copy, original, now):
        return "", None
    if keeps_former and added:  # expired authorities are dropped now: their removal alone restarts no server
        both = end = tuple(each for each in both if each.ends > now or each in original.trusted)
    is_over = copy.validity.ends <= now  # peers reject it anyway: there is nothing to wait for
    if added and not is_over:
        return "trusting the new authority before it is used", replace(copy, trusted=both)
    is_trusted = bool(set(signers(copy.pair, copy.trusted)) & set(signers(original.pair, copy.trusted)))
    if copy.pair != original.pair and (informed or is_over or is_trusted):
        return "new certificate", replace(original, trusted=both)
    if copy.pair == original.pair and (informed or is_over):
        return "updating the trusted authorities", replace(original, trusted=end)
    return "", None


def _is_withheld(copy: TrustedCertificate, original: TrustedCertificate, now: datetime) -> bool:
    return copy.pair != original.pair and not original.validity.includes(now) and copy.validity.includes(now)
