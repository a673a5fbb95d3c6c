"""Where replicas share what they made: a few texts by file name."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Protocol

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET


class ReplicaStore(Protocol):
    """Where replicas share what they made: text by file name, empty where there is nothing yet."""

    async def read(self) -> Mapping[str, str]: ...

    async def write(self, content: Mapping[str, str]) -> None:
        """Replace what was read; raises Conflict if somebody else did so meanwhile."""


class Memory:
    """A store that nobody shares."""

    def __init__(self) -> None:
        self._content: Mapping[str, str] = {}

    async def read(self) -> Mapping[str, str]:
        return self._content

    async def write(self, content: Mapping[str, str]) -> None:
        self._content = content


class SharedSecret:
    """A Secret as a store; made if it is missing."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._version = ""

    async def read(self) -> Mapping[str, str]:
        try:
            secret = await self._kube.get(SECRET, self._namespace, self._name)
        except NotFound:
            self._version = ""
            return {}
        self._version = secret["metadata"]["resourceVersion"]
        return {name: _decoded(text) for name, text in (secret.get("data") or {}).items()}

    async def write(self, content: Mapping[str, str]) -> None:
        data = {name: _encoded(text) for name, text in content.items()}
        if self._version:
            patch = {"metadata": {"resourceVersion": self._version}, "data": data}
            await self._kube.merge(SECRET, self._namespace, self._name, patch)
            return
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
        await self._kube.create_by_apply(SECRET, body)  # unlike a POST, RBAC can narrow it to the one name


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
