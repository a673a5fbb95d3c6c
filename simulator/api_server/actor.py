"""A client of the API server other than the operator under test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from shared.kubernetes.client import APPLY_PATCH, MERGE_PATCH, Request, Response, error_of
from shared.kubernetes.kinds import POD, Kind, Obj


class Handler(Protocol):
    """The part of a server that an actor needs."""

    def handle(self, request: Request) -> Response:
        """Answer a request synchronously."""


class Actor:
    """A user with kubectl, or a controller of Kubernetes: synchronous, not logged, and not subject to faults.

    Error responses raise a KubeError, as in `shared.kubernetes.client.Kube`.

    Args:
        name: field manager of the actor's writes.
    """

    def __init__(self, server: Handler, name: str) -> None:
        self._server = server
        self.name = name

    def get(self, kind: Kind, namespace: str | None, name: str, subresource: str | None = None) -> Obj:
        return self._send(Request("GET", kind.path(namespace, name, subresource)))

    def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> list[Obj]:
        """List objects, with apiVersion and kind filled in."""
        found = self._send(Request("GET", kind.path(namespace), query={"labelSelector": labels}))
        return [{"apiVersion": kind.api_version, "kind": kind.name} | item for item in found["items"]]

    def create(self, kind: Kind, obj: Obj) -> Obj:
        return self._send(Request("POST", kind.path(obj["metadata"].get("namespace")), body=obj))

    def apply(self, kind: Kind, obj: Obj, *, force: bool = False, subresource: str | None = None) -> Obj:
        metadata = obj["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"], subresource)
        query = {"force": "true"} if force else {}
        return self._send(Request("PATCH", path, query=query, body=obj, content_type=APPLY_PATCH))

    def merge(self, kind: Kind, namespace: str | None, name: str, patch: Obj, *, subresource: str | None = None) -> Obj:
        path = kind.path(namespace, name, subresource)
        return self._send(Request("PATCH", path, body=patch, content_type=MERGE_PATCH))

    def update(self, kind: Kind, obj: Obj, *, subresource: str | None = None) -> Obj:
        metadata = obj["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"], subresource)
        return self._send(Request("PUT", path, body=obj))

    def delete(self, kind: Kind, namespace: str | None, name: str, **options: Any) -> Obj:
        """Delete, with DeleteOptions as the API names them (preconditions, propagationPolicy, gracePeriodSeconds)."""
        return self._send(Request("DELETE", kind.path(namespace, name), body=options))

    def evict(self, namespace: str, name: str, **options: Any) -> Obj:
        """Evict a pod within its PodDisruptionBudget, as `kubectl drain` does, with DeleteOptions."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        return self._send(
            Request("POST", POD.path(namespace, name, "eviction"), body=body | {"deleteOptions": options})
        )

    def _send(self, request: Request) -> Obj:
        answer = self._server.handle(replace(request, query={"fieldManager": self.name} | dict(request.query)))
        if answer.status >= 400:
            raise error_of(answer, request)
        found: Obj = answer.body
        return found
