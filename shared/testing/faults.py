"""What can go wrong between an operator and the API server, as a script; and the record of what was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.kube import Response, Unavailable

When = Callable[[str, str], bool]
"""Whether a fault concerns a request, by its method and path."""

WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Crash(BaseException):
    """The operator's process ends here: nothing of its code runs on (so this is no Exception)."""


def writes(method: str, path: str) -> bool:
    """Every mutating request."""
    return method in WRITES


def reads(method: str, path: str) -> bool:
    """Every request that changes nothing."""
    return method not in WRITES


def requests(method: str, path: str = "") -> When:
    """Requests of a method whose path contains a text, such as `requests("PATCH", "/status")`."""
    return lambda asked, at: asked == method and path in at


@dataclass(slots=True)
class _Fault:
    when: When
    skip: int
    times: int | None
    landed: bool
    answer: Response | None
    crash: bool = False


class Faults:
    """A script of faults. Each strikes `times` requests (None: all) among those that `when` tells, after `skip`.

    Where several concern a request, the one that was scripted first strikes; only those asked count it.
    """

    def __init__(self) -> None:
        self._script: list[_Fault] = []

    def answer(
        self, status: int, *, when: When = writes, skip: int = 0, times: int | None = 1, retry_after: float | None = None
    ) -> None:
        """Answer with an error status; nothing was done."""
        reason = _REASONS.get(status, "")
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
        body["message"] = f"fault of the test: {status} {reason}".rstrip()
        self._script.append(_Fault(when, skip, times, False, Response(status, body, retry_after)))

    def lose_request(self, *, when: When = writes, skip: int = 0, times: int | None = 1) -> None:
        """Time out before the request was carried out."""
        self._script.append(_Fault(when, skip, times, False, None))

    def lose_answer(self, *, when: When = writes, skip: int = 0, times: int | None = 1) -> None:
        """Time out after the request was carried out."""
        self._script.append(_Fault(when, skip, times, True, None))

    def crash_before(self, nth: int, *, when: When = writes) -> None:
        """Raise Crash in place of the nth request from now (the first is 1)."""
        self._script.append(_Fault(when, nth - 1, 1, False, None, crash=True))

    def crash_after(self, nth: int, *, when: When = writes) -> None:
        """Raise Crash once the nth request from now was carried out, before its answer is seen."""
        self._script.append(_Fault(when, nth - 1, 1, True, None, crash=True))

    def clear(self) -> None:
        self._script.clear()

    @property
    def pending(self) -> int:
        """Faults that have not struck as often as they should."""
        return sum(fault.times is not None for fault in self._script)

    def next(self, method: str, path: str) -> _Fault | None:
        """The fault that strikes this request, if any."""
        for fault in self._script:
            if not fault.when(method, path):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.times is not None:
                fault.times -= 1
                if not fault.times:
                    self._script.remove(fault)
            return fault
        return None


def strike(fault: _Fault, method: str, path: str) -> Response:
    """What the one who asks gets to see of a fault.

    Raises:
        Crash: its process ends.
        Unavailable: no answer comes.
    """
    if fault.crash:
        raise Crash(f"{'after' if fault.landed else 'before'} {method} {path}")
    if fault.answer is None:
        raise Unavailable(f"no answer from the API server: timed out ({method} {path})")
    return fault.answer


class Write(NamedTuple):
    """A mutating request and what came of it.

    Attributes:
        verb: CREATE, APPLY, PATCH, UPDATE or DELETE.
        manager: the field manager; empty for deletions.
        changed: whether the server's state changed: not by a no-op, nor by a request that was refused or lost.
        resource_version: of the object afterwards; 0 where the request failed or the object is gone.
        status: HTTP status of the server's answer, even if a fault kept it back; 0 if it was never asked.
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

    def __str__(self) -> str:
        """Short enough to list in an assertion: `APPLY Deployment cache/orders`."""
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

    def reset(self) -> None:
        self.all_writes.clear()
        self.reads.clear()
