"""Issues certificates in threads of this process.

`cryptography`, which takes 7 MiB, is imported with the first order: an operator whose certificates come from elsewhere
issues none.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from shared.pki.rotation import CertificateOrder, Made

MAX_AT_ONCE = 2
"""Maximum number of certificates issued concurrently; further orders wait."""

_makers = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="certificates")


async def make(order: CertificateOrder) -> Made:
    """Fulfil an order in a thread, so that the event loop is not blocked.

    Raises:
        OSError: issuing failed; the message has the reason and no key material.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(_makers, _fulfil, order)
    except (TypeError, ValueError) as error:
        raise OSError(f"issuing a certificate failed: {error}") from None


def _fulfil(order: CertificateOrder) -> Made:
    from shared.pki import ca

    return ca.fulfil(order)
