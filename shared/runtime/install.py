"""Installation of CRDs, and the check that the API server serves them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

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
    """Whether the API server serves a kind. A new CRD first returns 404, then 429 to a list without a limit."""
    try:
        await kube.list(kind, labels="platform.ydzs.io/none")  # the resources that exist already may be large
    except (NotFound, Unavailable):
        return False
    except Forbidden:
        pass  # served, but RBAC does not allow a list
    return True


async def require_served(kube: Kube, kind: Kind, namespaces: Sequence[str]) -> None:
    """Raise an error unless the API server serves a kind.

    One namespace that may be listed is enough: the others are then lost alone.

    Args:
        namespaces: the namespaces that the operator watches; empty for all.

    Raises:
        KubeError: the CRD is not installed; the message explains how to install it.
        Forbidden: RBAC does not allow a list in any of the namespaces.
    """
    forbidden: Forbidden | None = None
    for namespace in namespaces or (None,):
        try:
            await anext(kube.pages(kind, namespace))
            return
        except Forbidden as error:
            forbidden = forbidden or error
        except Unavailable as error:  # the watches find out, and readiness reports it
            log.warning("cannot check whether %s.%s is served: %s", kind.plural, kind.group, error)
            return
        except NotFound:
            raise KubeError(
                f"the API server does not serve {kind.plural}.{kind.group}/{kind.version}: the CRD is not installed. "
                "Install the chart, run `make install`, or start with --install-crds."
            ) from None
    if forbidden:
        raise forbidden
