"""A real API server with the interface of the in-memory one, so that the same actors and controllers use both."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import POD, Kind, Obj
from tests.harness import Actor, ApiServer
from tools.local.controlplane import ControlPlane

MAX_IDLE_SECONDS = 30.0
"""Seconds without a request after which the server may have closed a connection."""


class LiveServer:
    """The server interface of `Actor`, `Workloads` and the garbage collector, over HTTP, in one namespace.

    Never waits or retries: each response answers exactly one request. Threads take turns: the simulated servers of an
    operator that runs in a thread read objects while the test does.

    Args:
        kinds: kinds that the garbage collector handles.
    """

    def __init__(self, plane: ControlPlane, namespace: str, kinds: tuple[Kind, ...] = ()) -> None:
        context = ssl.create_default_context(cafile=str(plane.authority.pair.certificate))
        context.load_cert_chain(plane.admin.certificate, plane.admin.key)
        address = urlsplit(plane.url)
        self._connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
        self._used = time.monotonic()
        self._turn = threading.Lock()
        self.namespace = namespace
        self.kinds = kinds

    def handle(self, request: Request) -> Response:
        text = None if request.body is None else json.dumps(request.body)
        url = request.path + ("?" + urlencode(request.query) if request.query else "")
        headers = {"Content-Type": request.content_type, "Accept": "application/json"}
        with self._turn:
            if time.monotonic() - self._used > MAX_IDLE_SECONDS:
                self._connection.close()  # opens again with the next request
            self._used = time.monotonic()
            self._connection.request(request.method, url, text, headers)
            with self._connection.getresponse() as response:
                content, status = response.read(), response.status
        return Response(status, json.loads(content) if content.startswith(b"{") else content.decode())

    def objects(self, kind: Kind | None = None) -> list[tuple[Kind, Obj]]:
        """Return the objects of the namespace, or those of a kind, without zero values so that they compare equal."""
        reader = self.actor("reader")
        kinds = (kind,) if kind else self.kinds
        return [(of, _without_zeros(obj)) for of in kinds for obj in reader.list(of, self.namespace)]

    def stored(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return one object; None if it does not exist."""
        try:
            return self.actor("reader").get(kind, namespace, name)
        except NotFound:
            return None

    def actor(self, name: str) -> Actor:
        actor = _Kubelet if name == "kubelet" else Actor
        return actor(self.as_server, name)

    @property
    def as_server(self) -> ApiServer:
        """The same object, typed as the in-memory server."""
        return cast("ApiServer", self)

    def now(self) -> str:
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def close(self) -> None:
        self._connection.close()


class CachedServer(LiveServer):
    """A live server that lists each kind once until `forget`, and notes its own writes: for many objects.

    What others write in the meantime is not seen, as with a controller's cache.
    """

    def __init__(self, plane: ControlPlane, namespace: str, kinds: tuple[Kind, ...] = ()) -> None:
        super().__init__(plane, namespace, kinds)
        self._known: dict[Kind, dict[str, Obj]] = {}
        self._plurals = {kind.plural: kind for kind in kinds}

    def forget(self) -> None:
        self._known.clear()

    def objects(self, kind: Kind | None = None) -> list[tuple[Kind, Obj]]:
        found = []
        for of in (kind,) if kind else self.kinds:
            if of not in self._known:
                self._known[of] = {obj["metadata"]["name"]: obj for _, obj in super().objects(of)}
            found += [(of, obj) for obj in self._known[of].values()]
        return found

    def handle(self, request: Request) -> Response:
        answer = super().handle(request)
        if request.method != "GET" and answer.status < 400:
            self._note(request, answer.body)
        return answer

    def _note(self, request: Request, body: Any) -> None:
        """Replace what was written; list a kind again after any other change of it."""
        kind = next((self._plurals[part] for part in request.path.split("/") if part in self._plurals), None)
        if kind not in self._known:
            return
        if request.method != "DELETE" and isinstance(body, dict) and body.get("kind") == kind.name:
            self._known[kind][body["metadata"]["name"]] = _without_zeros(body)
        else:
            del self._known[kind]


class _Kubelet(Actor):
    """An actor that binds pods to nodes as the scheduler does, because the API rejects patches of spec.nodeName."""

    def merge(self, kind: Kind, namespace: str | None, name: str, patch: Obj, *, subresource: str | None = None) -> Obj:
        node = patch.get("spec", {}).get("nodeName")
        if kind != POD or not node:
            return super().merge(kind, namespace, name, patch, subresource=subresource)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        return self._send(Request("POST", kind.path(namespace, name, "binding"), body=binding))


def _without_zeros(value: Any) -> Any:
    """Remove the zero values that Go encodes for unset fields."""
    if isinstance(value, list):
        return [_without_zeros(item) for item in value]
    if isinstance(value, dict):
        return {
            key: _without_zeros(part)
            for key, part in value.items()
            if part not in (None, "") and (key, part) != ("lastState", {})
        }
    return value
