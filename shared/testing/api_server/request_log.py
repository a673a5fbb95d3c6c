"""The record of what was asked of the in-memory API server, so that tests can tell what an operator cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.kubernetes.client import Response
from shared.runtime.plan import Call
from shared.testing.api_server.requests import Aimed
from shared.testing.faults import CALL, WRITES


class Write(NamedTuple):
    """A mutating request and what came of it.

    Attributes:
        verb: CREATE, APPLY, PATCH, UPDATE or DELETE; CALL is a step on the database, whose name is what it says.
        manager: the field manager; empty for deletions.
        changed: whether the server's state changed: not by a no-op, nor by a request that was refused or lost.
        resource_version: of the object afterwards; 0 where the request failed or the object is gone.
        status: HTTP status of the server's answer, even if a fault kept it back; 0 if it was never asked.
        pinned: whether it named the UID or the resourceVersion of the object that it meant.
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
        """Short enough to list in an assertion: `APPLY Deployment cache/orders`."""
        if self.verb == CALL:
            return f"CALL {self.name}"
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.verb} {self.kind} {place}" + (f"/{self.subresource}" if self.subresource else "")


@dataclass(slots=True)
class RequestLog:
    """What was asked of the server through its transport, since the last `reset`.

    Attributes:
        all_writes: mutating requests in order, those that failed too.
        reads: how often something was read, by verb (GET, LIST).
    """

    all_writes: list[Write] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)

    def writes(self, kind: str = "", *, changed: bool | None = None) -> list[Write]:
        """Mutating requests, of one kind if given, and only those that changed something (or nothing) if asked."""
        return [
            write
            for write in self.all_writes
            if kind in ("", write.kind) and (changed is None or write.changed == changed)
        ]

    @property
    def silent(self) -> bool:
        """Whether nothing at all was asked."""
        return not self.all_writes and not self.reads.total()

    def enter(self, asked: Aimed, answer: Response | None, *, changed: bool) -> None:
        """Note a request.

        Args:
            answer: the server's; None if the request never reached it.
            changed: whether its state changed.
        """
        if asked.request.method not in WRITES:
            self.reads[asked.verb] += 1
            return
        made = answer.body.get("metadata", {}) if answer is not None and answer.status < 400 else {}
        name = asked.name or made.get("name") or asked.request.body["metadata"].get("name", "")
        version = int(made.get("resourceVersion") or 0)
        manager = "" if asked.request.method == "DELETE" else asked.manager
        status = answer.status if answer is not None else 0
        place = (asked.kind.name, asked.namespace, name, asked.subresource)
        body = asked.request.body or {}
        pins = body.get("metadata", {}) | body.get("preconditions", {})
        pinned = bool(pins.get("uid") or pins.get("resourceVersion"))
        self.all_writes.append(Write(asked.verb, *place, manager, changed, version, status, pinned))

    def enter_call(self, call: Call, *, landed: bool) -> None:
        """Note a step on the database.

        Args:
            landed: whether it was carried out.
        """
        self.all_writes.append(Write(CALL, type(call).__name__, "", str(call), "", "", landed, 0, 200 if landed else 0))

    def reset(self) -> None:
        self.all_writes.clear()
        self.reads.clear()
