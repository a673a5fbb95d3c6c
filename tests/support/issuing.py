"""Certificates for the crash harness, signed in this process and identical in every world."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from shared.pki.ca import fulfil
from shared.pki.certs import Pair
from shared.pki.rotation import CertificateOrder, Made
from shared.testing.harness.harness import NOW


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
