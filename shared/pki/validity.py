"""The authorities that signed a certificate, and the period in which clients accept it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from shared.api.memo import remembered
from shared.pki import certs
from shared.pki.certs import Certificate, Pair
from shared.pki.secret_checks import refusal, unverifying

WARNING = timedelta(days=7)
"""Time before the end of a certificate from which on it is reported."""

WARNING_SHARE = 6
"""Of a certificate that lives for less than six weeks, the last sixth of its life is reported instead: cert-manager and
the operator renew at two thirds."""


@dataclass(frozen=True, slots=True)
class Validity:
    """The period in which clients accept a certificate.

    Attributes:
        begins, ends: first and last instant, in UTC.
        issued: start of the certificate's own life, of which renewals use a share. It is earlier than `begins` if the
            trusted authority is newer than the certificate; None if it is `begins`.
    """

    begins: datetime
    ends: datetime
    issued: datetime | None = None

    @property
    def lives_from(self) -> datetime:
        """Start of the certificate's own life."""
        return self.issued or self.begins

    @property
    def warns(self) -> datetime:
        """Time from which on the end is reported."""
        return self.ends - min(WARNING, (self.ends - self.lives_from) / WARNING_SHARE)

    def includes(self, now: datetime) -> bool:
        """Return whether clients accept the certificate at a time."""
        return self.begins <= now < self.ends

    def next_change(self, now: datetime) -> datetime | None:
        """Return the next time at which the period begins, its end is reported, or it ends; None after that."""
        return min((each for each in (self.begins, self.warns, self.ends) if each > now), default=None)


def validity_of(pair: Pair, trusted: Iterable[Certificate]) -> Validity:
    """Return the period in which clients that trust these authorities accept a certificate.

    The period is that of the certificate, limited by its intermediate authorities, and by the trusted authority that
    lasts longest. An authority that did not sign it is ignored.

    Raises:
        ValueError: there is no certificate, or one cannot be parsed.
    """
    chain = certs.chain(pair.certificate)
    issued, begins, ends = chain[0].begins, max(each.begins for each in chain), min(each.ends for each in chain)
    if roots := signers(pair, tuple(trusted)):
        longest = max(roots, key=lambda root: root.ends)
        begins, ends = max(begins, longest.begins), min(ends, longest.ends)
    return Validity(begins, ends, None if issued == begins else issued)


def signers(pair: Pair, trusted: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """Return those authorities that verify a certificate, regardless of the time.

    A name alone is not sufficient: an authority that is renewed with a new key usually keeps its name. Of those with
    the name, at most twice `certs.MAX_SAME_NAME` are tried: a copy has those of two Secrets.

    Raises:
        ValueError: see `validity_of`.
    """
    issuers = {each.issuer for each in certs.read(pair.certificate)}
    named = dict.fromkeys(each for each in trusted if each.subject in issuers)
    return tuple(each for each in islice(named, 2 * certs.MAX_SAME_NAME) if _verifies(each.pem, pair))


@remembered(lambda _: 0)  # a handshake takes 1 ms, and the same few pairs are checked repeatedly
def _verifies(authority: str, pair: Pair) -> bool:
    """Whether clients or servers that trust an authority accept a certificate from the other side."""
    try:
        client = certs.client_context(None, authority)
        client.check_hostname = False
        if not refusal(certs.server_context(pair), client):
            return True
        serving = certs.server_context(pair)
        serving.load_verify_locations(cadata=authority)
        serving.verify_mode = client.verify_mode
        return not refusal(serving, unverifying(pair))
    except ValueError:
        return False
