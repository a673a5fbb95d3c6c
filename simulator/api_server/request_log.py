"""A log of the requests to the in-memory API server, from which tests measure the cost of an operator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.kubernetes.client import Response
from shared.runtime.plan import Call
from simulator.api_server.requests import TargetedRequest
from simulator.faults import CALL, WRITES


class Write(NamedTuple):
    """A mutating request and its result.

    Attributes:
        verb: CREATE, APPLY, PATCH, UPDATE, DELETE or EVICT; CALL is a database call, and `name` its description.
        manager: field manager; empty for deletions.
        changed: whether the server's state changed. A no-op, a rejected request and a lost request change nothing.
        resource_version: resourceVersion of the resulting object; 0 if the request failed or deleted the object.
        status: HTTP status of the server's response, even if a fault dropped it; 0 if the request never arrived.
        pinned: whether the request carried the UID or the resourceVersion of its object.
    """

    verb: str
    kind: str
    namespace: str
    name: str
    subresource: str
    manager: str
    changed: bool
    resource_version: int
    status: int
    pinned: bool = False

    def __str__(self) -> str:
        """Render briefly enough for an assertion message: `APPLY Deployment cache/orders`."""
        if self.verb == CALL:
            return f"CALL {self.name}"
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.verb} {self.kind} {where}" + (f"/{self.subresource}" if self.subresource else "")


def is_pinned(target: TargetedRequest) -> bool:
    """Return whether a request carries the UID or the resourceVersion of its object."""
    body = target.request.body or {}
    options = body.get("deleteOptions") or body
    preconditions = body.get("metadata", {}) | options.get("preconditions", {})
    return bool(preconditions.get("uid") or preconditions.get("resourceVersion"))


@dataclass(slots=True)
class RequestLog:
    """The requests of the operator under test since the last `reset`.

    Attributes:
        all_writes: mutating requests in order, including failed ones.
        reads: number of reads by verb (GET, LIST).
        changes: number of writes that changed something.
    """

    all_writes: list[Write] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)
    changes: int = 0

    def writes(self, kind: str = "", *, changed: bool | None = None) -> list[Write]:
        """Return mutating requests: optionally of one kind, or only those that changed something (or nothing)."""
        return [
            write
            for write in self.all_writes
            if kind in ("", write.kind) and (changed is None or write.changed == changed)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether there was no request at all."""
        return not self.all_writes and not self.reads.total()

    def record(self, target: TargetedRequest, answer: Response | None, *, changed: bool) -> None:
        """Record a request.

        Args:
            answer: response of the server; None if the request never reached it.
            changed: whether the server's state changed.
        """
        if target.request.method not in WRITES or target.request.query.get("dryRun"):
            self.reads[target.verb] += 1
            return
        stored = answer.body.get("metadata", {}) if answer is not None and answer.status < 400 else {}
        name = target.name or stored.get("name") or target.request.body["metadata"].get("name", "")
        version = int(stored.get("resourceVersion") or 0)
        manager = "" if target.verb in ("DELETE", "EVICT") else target.manager
        status = answer.status if answer is not None else 0
        where = (target.kind.name, target.namespace, name, target.subresource)
        self._add(Write(target.verb, *where, manager, changed, version, status, is_pinned(target)))

    def record_call(self, call: Call, *, landed: bool) -> None:
        """Record a database call.

        Args:
            landed: whether the call was carried out.
        """
        self._add(Write(CALL, type(call).__name__, "", str(call), "", "", landed, 0, 200 if landed else 0))

    def _add(self, write: Write) -> None:
        self.all_writes.append(write)
        self.changes += write.changed

    def reset(self) -> None:
        self.all_writes.clear()
        self.reads.clear()
        self.changes = 0
