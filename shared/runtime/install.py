"""CRDs on the API server: installing them, and whether they are there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from shared.api import crd
from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Forbidden, KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import CRD, Kind

log = logging.getLogger(__name__)


async def install_crds(kube: Kube, resources: Iterable[crd.Resource]) -> None:
    """Apply CRDs and wait until the API server serves them."""
    for resource in resources:
        applied = await kube.apply(CRD, crd.to_dict(resource))
        name = applied["metadata"]["name"]
        for _ in range(100):
            if accessors.is_true(applied, "Established") and await _is_served(kube, resource.kind):
                log.info("CRD %s is served", name)
                break
            await asyncio.sleep(0.1)
            applied = await kube.get(CRD, None, name)
        else:
            raise Unavailable(f"CRD {name} was applied, but the API server does not serve it")


async def _is_served(kube: Kube, kind: Kind) -> bool:
    """An established CRD's storage still starts for a moment: 404 first, then 429 (to a list without a limit)."""
    try:
        await kube.list(kind)
    except (NotFound, Unavailable):
        return False
    except Forbidden:
        pass  # served, though not to us
    return True


async def require_served(kube: Kube, kind: Kind, namespace: str | None) -> None:
    """Make sure that the API server serves a kind.

    Args:
        namespace: where we may list it; None for everywhere.

    Raises:
        KubeError: its CRD is not installed; the message says how to.
    """
    try:
        await kube.list(kind, namespace, limit=1)
    except NotFound:
        raise KubeError(
            f"the API server serves no {kind.plural}.{kind.group}/{kind.version}: its CRD is not installed. "
            "Install the chart, run `make install`, or start with --install-crds."
        ) from None
