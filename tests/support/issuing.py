"""Certificates for the crash harness, signed in this process and identical in every world."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

from shared.kubernetes.secrets import encoded
from shared.pki import ca
from shared.pki.ca import fulfil
from shared.pki.certs import Pair
from shared.pki.rotation import CertificateOrder, Made
from simulator.harness import NOW

BEGINS, ENDS = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""Validity of certificates of another issuer: it includes the time of every world, and the real time."""


async def issued(order: CertificateOrder) -> Made:
    """Issue a certificate as `ca.make` does, but without a thread and independent of the world's time.

    Worlds identify a certificate authority by its key in Secrets (`stores.authority_key`); keys are also compared.
    """
    return _made(order.name, order.hosts, order.signer, order.ends is None)


@lru_cache
def _made(name: str, hosts: tuple[str, ...], signer: Pair | None, authority: bool) -> Made:
    begins, ends = NOW - timedelta(days=1), NOW + timedelta(days=89)
    if authority:
        return fulfil(CertificateOrder(name, (), begins, None, None, NOW + timedelta(days=1799)))
    return fulfil(CertificateOrder(name, hosts, begins, ends, signer, None, client=True))


@cache
def authority(name: str, subject: str = "team-ca") -> Pair:
    """Return an authority of another issuer than the operator.

    Args:
        name: identifies the authority: another name is another key. cert-manager keeps the subject when it renews.
    """
    return ca.authority(subject, begins=BEGINS, ends=ENDS)


@cache
def _signed(by: str, hosts: tuple[str, ...]) -> Pair:
    return ca.issue(authority(by), "", begins=BEGINS, ends=ENDS, hosts=hosts, client=True)


def certificate_secret(by: str, *hosts: str) -> dict[str, str]:
    """Return the data of a Secret with a certificate, as cert-manager fills it: trusting only its own authority."""
    pair = _signed(by, hosts)
    return encoded({"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority(by).certificate})
