"""Certificates for the crash harness: signed in this process, and the same in every world."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from shared.pki.ca import fulfil
from shared.pki.certs import Pair
from shared.pki.rotation import CertificateOrder, Made
from shared.testing.harness.harness import NOW


async def issued(order: CertificateOrder) -> Made:
    """As `ca.make`, without a thread; the same for the same order in every world, whatever its time.

    An authority is known by a key that Secrets hold (`stores.authority_key`): worlds are compared by keys.
    """
    return _made(order.name, order.hosts, order.signer, order.ends is None)


@lru_cache
def _made(name: str, hosts: tuple[str, ...], signer: Pair | None, authority: bool) -> Made:
    begins, ends = NOW - timedelta(days=1), NOW + timedelta(days=89)
    if authority:
        return fulfil(CertificateOrder(name, (), begins, None, None, NOW + timedelta(days=1799)))
    return fulfil(CertificateOrder(name, hosts, begins, ends, signer, None, client=True))
