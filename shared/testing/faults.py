"""What can go wrong between an operator and the API server, as a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import Unavailable

When = Callable[[str, str], bool]
"""Whether a fault concerns a request, by its method and path."""

CALL = "CALL"
"""The method by which faults and logs know a step on the database, which is a write like any other."""

WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE", CALL})
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Crash(BaseException):
    """The operator's process ends here: nothing of its code runs on (so this is no Exception).

    Attributes:
        request: what it asked last.
    """

    def __init__(self, message: str, request: Request) -> None:
        super().__init__(message)
        self.request = request


def writes(method: str, _: str) -> bool:
    """Every mutating request, and every step on the database."""
    return method in WRITES


def reads(method: str, _: str) -> bool:
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

    Attributes:
        on_strike: is told when a fault strikes, before anything comes of the request.
    """

    def __init__(self) -> None:
        self._script: list[_Fault] = []
        self.on_strike: Callable[[], None] = lambda: None

    def answer(
        self,
        status: int,
        *,
        when: When = writes,
        skip: int = 0,
        times: int | None = 1,
        retry_after: float | None = None,
    ) -> None:
        """Answer with an error status; nothing was done.

        Args:
            retry_after: seconds of a Retry-After header.
        """
        reason = _REASONS.get(status, "")
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status,
            "reason": reason,
        }
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

    def next(self, request: Request) -> _Fault | None:
        """The fault that strikes this request, if any."""
        for fault in self._script:
            if not fault.when(request.method, request.path):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.times is not None:
                fault.times -= 1
                if not fault.times:
                    self._script.remove(fault)
            self.on_strike()
            return fault
        return None


def strike(fault: _Fault, request: Request) -> Response:
    """What the one who asks gets to see of a fault.

    Raises:
        Crash: its process ends.
        Unavailable: no answer comes.
    """
    if fault.crash:
        raise Crash(f"{'after' if fault.landed else 'before'} {request}", request)
    if fault.answer is None:
        raise Unavailable(f"no answer from the API server: timed out ({request})")
    return fault.answer
