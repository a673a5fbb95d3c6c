"""Requests of the operator, from the audit log of the API server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

WRITES = ("create", "update", "patch", "delete")


class Call(NamedTuple):
    """A request with its response.

    Attributes:
        verb: Kubernetes verb: get, list, watch, create, patch, …
        uri: path and query.
        resource: plural name, followed by a slash and the subresource if any.
        name: name of the object; empty for a collection.
        body: request body, if the log contains bodies.
        status: HTTP status.
        began: time of receipt, in Unix seconds.
        ended: time of the response, in Unix seconds; for a watch, its start.
    """

    verb: str
    uri: str
    resource: str
    name: str
    body: Any
    status: int
    began: float
    ended: float

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


class Audit:
    """Audit log with the requests of one user.

    Args:
        directory: directory for the policy and the log.
        user: name of the user.
        bodies: log request bodies too, at a small cost for the API server.
    """

    def __init__(self, directory: Path, user: str, *, bodies: bool) -> None:
        self._log = directory / "audit.log"
        self._policy = directory / "audit-policy.json"
        self._read = 0
        self._policy.parent.mkdir(parents=True, exist_ok=True)
        level = "Request" if bodies else "Metadata"
        rules: list[dict[str, Any]] = [
            {"level": level, "users": [user], "verbs": list(WRITES)},
            {"level": "Metadata", "users": [user]},
            {"level": "None"},
        ]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
        self._policy.write_text(json.dumps(policy))

    @property
    def flags(self) -> Sequence[str]:
        """Flags of the API server that enable the log, without rotation."""
        return (f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}", "--audit-log-maxsize=100000")

    def new_calls(self) -> list[Call]:
        """Return the requests completed since the previous call of this method."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._read)
            lines = log.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):  # incomplete
            lines.pop()
        self._read += sum(map(len, lines))
        return list(_calls(json.loads(line) for line in lines))


def _calls(entries: Iterable[dict[str, Any]]) -> Iterable[Call]:
    for entry in entries:
        if entry["verb"] == "watch" and entry["stage"] == "ResponseComplete":
            continue  # its ResponseStarted entry was counted
        ref = entry.get("objectRef") or {}
        yield Call(
            verb=entry["verb"],
            uri=entry["requestURI"],
            resource="/".join(part for part in (ref.get("resource"), ref.get("subresource")) if part),
            name=ref.get("name", ""),
            body=entry.get("requestObject"),
            status=(entry.get("responseStatus") or {}).get("code", 0),
            began=_seconds(entry["requestReceivedTimestamp"]),
            ended=_seconds(entry["stageTimestamp"]),
        )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
