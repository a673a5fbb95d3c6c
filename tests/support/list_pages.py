"""Lists in pages while objects change, against the in-memory API server and against a real one.

The answers of a real kube-apiserver are recorded in `tests/recorded/kubernetes/list-pages.json`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import Request
from shared.kubernetes.kinds import CONFIG_MAP, Kind, Obj
from simulator.api_server.actor import Actor, Handler
from tests.support.api_server_scenarios import WIDGET

KINDS = {kind.plural: kind for kind in (WIDGET, CONFIG_MAP)}
OTHER = "-other"
"""End of the name of another namespace. It precedes the first one in a list, as `-` precedes the `/` after a name."""


class Reader:
    """A client that reads pages and notes what they show.

    Args:
        namespace: namespace of the lists; None for all.
    """

    def __init__(self, server: Handler, kind: Kind, namespace: str | None) -> None:
        self._server = server
        self._path = kind.path(namespace)
        self._first: int | None = None
        self.token = ""
        self.pages: list[Obj] = []

    def read(self, **query: Any) -> None:
        """Read a page and note it; the first page, and one that follows an error, begins a list."""
        answer = self._server.handle(Request("GET", self._path, {name: str(value) for name, value in query.items()}))
        metadata = answer.body.get("metadata") or {}
        self.token = metadata.get("continue") or ""
        page: Obj = {"query": sorted(query), "status": answer.status, "continues": bool(self.token)}
        self.pages.append(page)
        if answer.status >= 400:
            page |= {"reason": answer.body["reason"]}
            if answer.status == 410:  # other messages depend on the version of Kubernetes
                page["message"] = answer.body["message"]
            return
        version = resource_version(answer.body)
        if "continue" not in query:
            self._first = version
        page["items"] = [f"{each['metadata']['name']}: {_value(each)}" for each in answer.body["items"]]
        page["remaining"] = metadata.get("remainingItemCount")
        page["version of the first page"] = version == self._first

    def follow(self, **query: Any) -> None:
        self.read(**query, **{"continue": self.token})


def replay_pages(server: Handler, kind: Kind, namespace: str, compact: Callable[[], None]) -> list[Obj]:
    """Read lists in pages while objects change; return what each page shows.

    Args:
        namespace: an existing namespace without objects of the kind; that with `OTHER` exists too.
        compact: removes former versions from the store of the server.
    """
    writer = Actor(server, "test")

    def put(name: str, value: str, tier: str = "web", within: str = namespace) -> None:
        metadata = {"name": name, "namespace": within, "labels": {"tier": tier, "of": namespace}}
        content = {"data": {"value": value}} if kind == CONFIG_MAP else {"spec": {"names": [value]}}
        writer.apply(kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content})

    for name in "abcdef":
        put(name, "1", tier="web" if name in "adf" else "db")
    put("z", "1", within=namespace + OTHER)

    reader = Reader(server, kind, namespace)
    reader.read(limit=2)
    writer.delete(kind, namespace, "c")  # before the next page, as are the other changes
    put("aa", "2")
    put("ca", "2")
    put("d", "2")
    reader.follow(limit=2)
    put("e", "3")
    reader.follow(limit=2)
    reader.read()
    reader.read(limit=100)

    reader.read(limit=1, labelSelector="tier=web")
    put("f", "4", tier="db")
    while reader.token:
        reader.follow(limit=1, labelSelector="tier=web")
    reader.read(limit=1, labelSelector="tier=db")
    reader.follow(labelSelector="tier=db")

    reader.read(limit=2)
    token = reader.token
    reader.follow(limit=2, resourceVersion=1)
    reader.read(**{"limit": 2, "continue": "not a token"})
    writer.delete(kind, namespace, "b")
    put("ab", "5")
    put("da", "5")
    if kind == WIDGET:  # of a built-in kind, a real server keeps the first version in its cache
        compact()
        reader.token = aged(token)
        reader.follow(limit=2)
        writer.delete(kind, namespace, "e")
        reader.follow(limit=2)
        put("dd", "6")
        while reader.token:
            reader.follow(limit=2)

    everywhere = Reader(server, kind, None)
    everywhere.read(limit=3, labelSelector=f"of={namespace}")
    while everywhere.token:
        everywhere.follow(limit=3, labelSelector=f"of={namespace}")
    return reader.pages + everywhere.pages


def aged(token: str) -> str:
    """Return a token of the first version instead: a real server caches later ones that its store has removed."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps(content | {"rv": 1}).encode()).decode().rstrip("=")


def _value(obj: Obj) -> str:
    value: str = obj["data"]["value"] if "data" in obj else obj["spec"]["names"][0]
    return value
