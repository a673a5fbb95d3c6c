"""What the operator asked of an API server, as the server's own audit log tells it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

WRITES = ("create", "update", "patch", "delete")


class Call(NamedTuple):
    """One request, answered.

    Attributes:
        verb: as Kubernetes names it: get, list, watch, create, patch, …
        uri: path and query.
        resource: plural, with the subresource behind a slash.
        name: the object's name; empty for a collection.
        body: what was sent, if the log was told to keep it.
        status: HTTP status.
        began: seconds in Unix time when it was received.
        ended: when it was answered; a watch, when it began to be.
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
    """The requests of one user.

    Args:
        directory: for the policy and the log.
        user: whose requests are written down.
        bodies: whether what was sent is kept too; that costs the server a little.
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
        """What tells an API server to keep the log, in one file however long it gets."""
        return (f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}", "--audit-log-maxsize=100000")

    def news(self) -> list[Call]:
        """The requests answered since the last time this was asked."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._read)
            lines = log.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):  # half written
            lines.pop()
        self._read += sum(map(len, lines))
        return list(_calls(json.loads(line) for line in lines))


def _calls(entries: Iterable[dict[str, Any]]) -> Iterable[Call]:
    for entry in entries:
        if entry["verb"] == "watch" and entry["stage"] == "ResponseComplete":
            continue  # it was told of when it began
        about = entry.get("objectRef") or {}
        yield Call(
            verb=entry["verb"],
            uri=entry["requestURI"],
            resource="/".join(part for part in (about.get("resource"), about.get("subresource")) if part),
            name=about.get("name", ""),
            body=entry.get("requestObject"),
            status=(entry.get("responseStatus") or {}).get("code", 0),
            began=_seconds(entry["requestReceivedTimestamp"]),
            ended=_seconds(entry["stageTimestamp"]),
        )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
