"""Scripted faults of the connection between an operator and the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import Unavailable

When = Callable[[str, str], bool]
"""Whether a fault applies to a request, by its method and path."""

CALL = "CALL"
"""The method under which faults and logs record a database call. It counts as a write."""

WRITES = frozenset({"POST", "PATCH", "PUT", "DELETE", CALL})
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


GARBAGE: Mapping[str, Any] = {
    "HTML": {"message": "<html><title>Welcome</title></html>"},  # as `HttpTransport` decodes what is not JSON
    "half a body": {"message": '{"kind": "Secret", "apiVers'},
    "no content": None,
    "a list": [{}],
    "an empty object": {},
    "a Status": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500},
    "another kind": {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "node-1", "uid": "00000000-0000-0000-0000-000000000001", "resourceVersion": "1"},
    },
    "metadata as text": {"kind": "Secret", "apiVersion": "v1", "metadata": "a", "items": "b", "status": "c"},
}
"""Bodies of successful responses that no API server sends, such as those of a proxy or a captive portal."""


class Crash(BaseException):
    """The operator's process ends here. A BaseException, so that no handler of the operator catches it.

    Attributes:
        request: last request of the process.
    """

    def __init__(self, message: str, request: Request) -> None:
        super().__init__(message)
        self.request = request


def writes(method: str, _: str) -> bool:
    """Match every mutating request and every database call."""
    return method in WRITES


def reads(method: str, _: str) -> bool:
    """Match every request that changes nothing."""
    return method not in WRITES


def requests(method: str, path: str = "") -> When:
    """Match requests of a method whose path contains a text, such as `requests("PATCH", "/status")`."""
    return lambda actual, actual_path: actual == method and path in actual_path


@dataclass(slots=True)
class _Fault:
    when: When
    skip: int
    times: int | None
    landed: bool
    answer: Response | None
    crash: bool = False


class Faults:
    """A script of faults. Each strikes `times` requests (None: all) that match `when`, after the first `skip` matches.

    If several faults match a request, the one that was scripted first strikes. A fault counts only the requests that no
    earlier fault struck.

    Attributes:
        on_strike: called when a fault strikes, before the request has any effect.
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
        """Answer with an error status, without carrying out the request.

        Args:
            retry_after: value of the Retry-After header, in seconds.
        """
        reason = _REASONS.get(status, "")
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status,
            "reason": reason,
        }
        body["message"] = f"injected fault: {status} {reason}".rstrip()
        self._script.append(_Fault(when, skip, times, False, Response(status, body, retry_after)))

    def garble(
        self,
        body: Any,
        *,
        status: int = 200,
        when: When = writes,
        skip: int = 0,
        times: int | None = 1,
        landed: bool = False,
    ) -> None:
        """Answer with a body that is not what was requested (`GARBAGE`).

        Args:
            landed: whether the request is carried out.
        """
        self._script.append(_Fault(when, skip, times, landed, Response(status, body)))

    def lose_request(self, *, when: When = writes, skip: int = 0, times: int | None = 1) -> None:
        """Time out before the request is carried out."""
        self._script.append(_Fault(when, skip, times, False, None))

    def lose_answer(self, *, when: When = writes, skip: int = 0, times: int | None = 1) -> None:
        """Time out after the request was carried out."""
        self._script.append(_Fault(when, skip, times, True, None))

    def crash_before(self, nth: int, *, when: When = writes) -> None:
        """Raise Crash instead of carrying out the nth request from now (the first is 1)."""
        self._script.append(_Fault(when, nth - 1, 1, False, None, crash=True))

    def crash_after(self, nth: int, *, when: When = writes) -> None:
        """Raise Crash after the nth request from now was carried out, before its response arrives."""
        self._script.append(_Fault(when, nth - 1, 1, True, None, crash=True))

    def clear(self) -> None:
        self._script.clear()

    @property
    def pending(self) -> int:
        """Number of limited faults that still have requests to strike."""
        return sum(fault.times is not None for fault in self._script)

    def next(self, request: Request) -> _Fault | None:
        """Return the fault that strikes this request, if any."""
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
    """Return the response that the client receives when a fault strikes.

    Raises:
        Crash: the fault ends the client's process.
        Unavailable: the fault drops the response.
    """
    if fault.crash:
        raise Crash(f"{'after' if fault.landed else 'before'} {request}", request)
    if fault.answer is None:
        raise Unavailable(f"no answer from the API server: timed out ({request})")
    return fault.answer
