"""The zones of Kubernetes nodes, from the labels of pods, or from the Node objects.

Since Kubernetes 1.35 a pod has the label of its node when it is bound. Before, the Node is read, and its zone is
remembered for a while: no reconcile of a cluster that does not change sends a request for it. An operator that is not
allowed to read Nodes uses the labels of pods only.

Source: https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone, KEP-4742.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Forbidden, KubeError, NotFound
from shared.kubernetes.kinds import NODE, Obj

log = logging.getLogger(__name__)

LABEL = "topology.kubernetes.io/zone"
"""Label of Nodes and pods."""

REMEMBERED_SECONDS = 600.0
"""Time for which the zone of a Node is remembered: a user may label Nodes later."""

MAX_REMEMBERED = 10_000
"""Maximum number of Nodes whose zones are remembered."""


class Zones:
    """Reads the zones of Kubernetes nodes, and remembers them.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._remembered: dict[str, tuple[float, str]] = {}  # time of the read, and zone, by host
        self._refused = False

    async def of(self, pods: Iterable[Obj], kube: Kube) -> Mapping[str, str | None]:
        """Return the zone of each node that runs one of the pods, by name.

        A zone is empty if the node has none, or if the operator may not read Nodes; None if it could not be read now.
        """
        zones: dict[str, str | None] = {}
        for pod in pods:
            host = pod["spec"]["nodeName"]
            zones[host] = zones.get(host) or (pod["metadata"].get("labels") or {}).get(LABEL, "")
        unlabelled = [host for host, zone in zones.items() if not zone]
        found = await asyncio.gather(*(self._read(host, kube) for host in unlabelled))
        return zones | dict(zip(unlabelled, found, strict=True))

    async def _read(self, host: str, kube: Kube) -> str | None:
        known = self._remembered.get(host)
        if known and self._clock() - known[0] < REMEMBERED_SECONDS:
            return known[1]
        try:
            labels = (await kube.get(NODE, None, host))["metadata"].get("labels") or {}
            zone = str(labels.get(LABEL, ""))
        except NotFound:
            zone = ""
        except Forbidden as error:
            self._report_once(error)
            zone = known[1] if known else ""
        except KubeError as error:
            log.debug("cannot read the zone of node %s: %s", host, error)
            return known[1] if known else None
        self._remembered.pop(host, None)
        self._remembered[host] = (self._clock(), zone)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        return zone

    def _report_once(self, error: Forbidden) -> None:
        if not self._refused:
            self._refused = True
            log.info(
                "the operator may not read Nodes (%s): nodes of clusters are spread over zones only if their pods have "
                "the label %s (Kubernetes 1.35), else over hosts. Set rbac.nodes of the chart to true to allow it",
                error,
                LABEL,
            )
