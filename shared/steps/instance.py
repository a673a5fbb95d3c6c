"""An instance of a database, as far as all databases with a StatefulSet have it: pod and volume. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod, container_status


@dataclass(frozen=True)
class Instance:
    """A number of the StatefulSet, with its pod and its volume.

    Attributes:
        container: name of the container of the server.
        number: ordinal of the StatefulSet; the pod is named RESOURCE-NUMBER.
        name: name of the pod.
        pod: running or starting pod; None if there is none. A pod that has ended counts as none.
        pod_obj: pod as in the API server, also one that has ended.
        volume: PersistentVolumeClaim; None if there is none.
        disk: UID of the volume, or without volumes of the pod; empty if there is none.
        error: why the server did not answer; empty if it did, or was not queried.
        hidden: why the operator does not see an existing pod, as a predicate; empty if it sees it.
    """

    container: ClassVar[str]

    number: int
    name: str
    pod: Pod | None = None
    pod_obj: Obj | None = None
    volume: Obj | None = None
    disk: str = ""
    error: str = ""
    hidden: str = ""

    @property
    def ready(self) -> bool:
        """Whether the kubelet reports the pod as ready, which needs no connection from the operator to the pod."""
        return self.pod is not None and self.pod.ready

    @property
    def runs(self) -> bool:
        """Whether the kubelet reports the server's process as running; it may be unreachable all the same."""
        return self.ready or "running" in (container_status(self.pod_obj, self.container).get("state") or {})
