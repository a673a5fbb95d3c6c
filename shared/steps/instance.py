"""The part of a database instance that shared steps read: pod and volume."""

from __future__ import annotations

from typing import Protocol

from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod


class Instance(Protocol):
    """An instance of a database, identified by the ordinal of its pod in the StatefulSet."""

    @property
    def name(self) -> str: ...

    @property
    def pod(self) -> Pod | None: ...

    @property
    def pod_obj(self) -> Obj | None: ...

    @property
    def volume(self) -> Obj | None: ...

    @property
    def runs(self) -> bool: ...
