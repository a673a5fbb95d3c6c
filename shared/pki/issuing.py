"""Issues certificates in threads of this process.

`cryptography`, which takes 7 MiB, is imported with the first order: an operator whose certificates come from elsewhere
issues none.
"""

from __future__ import annotations

from shared.pki.rotation import CertificateOrder, Made
from shared.pki.threads import in_thread


async def make(order: CertificateOrder) -> Made:
    """Fulfil an order in a thread, so that the event loop is not blocked.

    Raises:
        OSError: issuing failed; the message has the reason and no key material.
    """
    try:
        return await in_thread(_fulfil, order)
    except (TypeError, ValueError) as error:
        raise OSError(f"issuing a certificate failed: {error}") from None


def _fulfil(order: CertificateOrder) -> Made:
    from shared.pki import ca

    return ca.fulfil(order)
