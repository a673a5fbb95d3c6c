"""The Kubernetes API as plain dicts.

Objects are what the API server speaks: JSON as dicts. `Transport` is the one seam where a fake plugs in
(`shared.testing`): everything above it runs the same in a test and in a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from shared.kubernetes.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Refused,
    Unavailable,
)
from shared.kubernetes.kinds import Kind, Obj
from shared.observability import tracing

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its credentials and its namespace."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to an API server.

    Attributes:
        path: URL path on the server, as `Kind.path` makes it.
        query: URL parameters.
        body: what is sent, as JSON; None for nothing.
        content_type: how the server should read the body.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Response(NamedTuple):
    """An answer of the API server.

    Attributes:
        status: HTTP status.
        body: decoded JSON, or None where there was none.
        retry_after: seconds of a Retry-After header, if any.
    """

    status: int
    body: Any
    retry_after: float | None = None


class Transport(Protocol):
    """Carries one request to an API server and its answer back.

    Raises Unavailable where no answer came; any HTTP status is an answer.
    """

    async def request(self, request: Request) -> Response: ...


class Kube:
    """Reads and writes objects; every failure is a `KubeError`.

    Args:
        transport: how requests reach the API server.
        manager: field manager of every write (server-side apply's owner of fields).
    """

    def __init__(self, transport: Transport, *, manager: str) -> None:
        self._transport = transport
        self.manager = manager

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        return await self._ask(Request("GET", kind.path(namespace, name)))

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", limit: int = 0, after: str = ""
    ) -> Obj:
        """The list object: `items`, each completed with apiVersion and kind, and `metadata.resourceVersion`.

        Args:
            namespace: None lists all namespaces.
            labels: a label selector in text form.
            limit: items at most; 0 for all.
            after: `metadata.continue` of the page before.
        """
        query = {"labelSelector": labels, "limit": str(limit) if limit else "", "continue": after}
        found = await self._ask(Request("GET", kind.path(namespace), {k: v for k, v in query.items() if v}))
        return complete(kind, found)

    async def create(self, kind: Kind, obj: Obj) -> Obj:
        path = kind.path(obj["metadata"].get("namespace"))
        return await self._ask(Request("POST", path, {"fieldManager": self.manager}, obj))

    async def apply(self, kind: Kind, obj: Obj) -> Obj:
        """Server-side apply: create the object, or make the fields we own what `obj` says.

        Fields we owned and no longer send are removed; fields of others stay, unless `obj` sets them: what we own is
        ours (force), as the API's documentation advises controllers.
        """
        path = kind.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])
        query = {"fieldManager": self.manager, "force": "true"}
        return await self._ask(Request("PATCH", path, query, obj, APPLY_PATCH))

    async def create_by_apply(self, kind: Kind, obj: Obj) -> Obj:
        """Create an object by server-side apply, so that its fields are recorded as applied; never change one.

        Raises:
            Conflict: an object of that name exists.
        """
        # A resourceVersion makes an apply fail on an object at any other version, and is ignored on creation.
        return await self.apply(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": "1"}})

    async def merge(
        self, kind: Kind, namespace: str | None, name: str, patch: Obj, *, subresource: str | None = None
    ) -> Obj:
        """JSON merge patch (RFC 7386): null removes, lists are replaced whole."""
        path = kind.path(namespace, name, subresource)
        return await self._ask(Request("PATCH", path, {"fieldManager": self.manager}, patch, MERGE_PATCH))

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str = "Background",
    ) -> Obj | None:
        """Delete exactly the object that was seen.

        Args:
            uid: the UID seen: a later object of the same name is left alone (Conflict).
            resource_version: give it where the decision rests on the object's content.
            propagation: Background, Foreground or Orphan (what becomes of its dependents).

        Returns:
            The object where it lives on for a while (a grace period, finalizers); None where it is gone.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body = {"propagationPolicy": propagation, "preconditions": preconditions}
        answer = await self._ask(Request("DELETE", kind.path(namespace, name), body=body))
        # The answer may be a Status, the object's last state, or the object as it waits for its end.
        return answer if (answer.get("metadata") or {}).get("deletionTimestamp") else None

    async def _ask(self, request: Request) -> Obj:
        with tracing.span(request.method, path=request.path):
            answer = await self._transport.request(request)
            if answer.status >= 400:
                raise error_of(answer, request)
        return answer.body if isinstance(answer.body, dict) else {}


def error_of(answer: Response, request: Request) -> KubeError:
    """The exception that says what an unsuccessful answer means."""
    status = answer.body if isinstance(answer.body, dict) else {}
    code, reason = answer.status, status.get("reason", "")
    kind: type[KubeError] = Refused
    if code == 429 or code >= 500:
        kind = Unavailable
    elif code == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif code in (400, 422):
        causes = (status.get("details") or {}).get("causes") or ()
        # An apply with the UID of an object that was since replaced is answered as a change of an immutable field.
        kind = Conflict if any(cause.get("field") == "metadata.uid" for cause in causes) else Invalid
    elif code in (401, 403):
        kind = Forbidden
    elif code == 404:
        kind = NotFound
    message = status.get("message") or f"HTTP {code}"
    return kind(f"{message} ({request})", status=code, retry_after=answer.retry_after)


def complete(kind: Kind, listing: Obj) -> Obj:
    """A list whose items say what they are: the API server leaves that to the list itself."""
    for item in listing.get("items") or ():
        item.setdefault("apiVersion", kind.api_version)
        item.setdefault("kind", kind.name)
    return listing
