"""Reads of objects within this process.

A kubectl process takes 0.2 s of CPU time. Scenarios read several times a second while they wait, on a machine that also
runs the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, NamedTuple

import urllib3
from kubernetes import config

TIMEOUT_SECONDS = 30

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Failed(Exception):
    """The API server refused a request, or did not respond; the message has the reason."""


class _Collection(NamedTuple):
    """A collection of the API server.

    Attributes:
        path: path of the group version, such as /apis/apps/v1.
        namespaced: whether its objects belong to namespaces.
    """

    path: str
    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def of(self, namespace: str | None) -> str:
        """Return the path of the objects in a namespace, or (None) in all."""
        within = f"/namespaces/{namespace}" if self.namespaced and namespace is not None else ""
        return f"{self.path}{within}/{self.plural}"


class Reader:
    """Reads objects by the names of kinds that kubectl accepts: plural, singular, short, or with the group.

    Args:
        kubeconfig: path of the kubeconfig.
    """

    def __init__(self, kubeconfig: str) -> None:
        self._api = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]
        self._collections: dict[str, _Collection] = {}

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Return an object.

        Raises:
            Failed: the object does not exist, or the API server does not respond.
        """
        found: dict[str, Any] = self._request(f"{self._collection(kind).of(namespace)}/{name}", {})
        return found

    def list(self, kinds: str, namespace: str | None, selectors: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the objects of one or several kinds, separated by commas.

        Args:
            namespace: namespace of the objects; None for all.
            selectors: query parameters labelSelector and fieldSelector.

        Raises:
            Failed: a kind does not exist, or the API server does not respond.
        """
        found = []
        for collection in map(self._collection, kinds.split(",")):
            named = {"apiVersion": collection.api_version, "kind": collection.kind}
            items = self._request(collection.of(namespace), selectors)["items"]
            found += [named | each for each in items]
        return found

    def _collection(self, kind: str) -> _Collection:
        known = kind.lower()
        if known not in self._collections:  # a CRD may have been installed since
            self._collections = dict(self._discover())
        if known not in self._collections:
            raise Failed(f"the API server has no resource type {kind!r}")
        return self._collections[known]

    def _discover(self) -> Iterator[tuple[str, _Collection]]:
        """Yield all collections by their names; of several with the same name, kubectl's choice comes last."""
        discovered: list[tuple[str, _Collection]] = []
        for root in ("/api", "/apis"):
            for group in self._request(root, {}, accept=_DISCOVERY)["items"]:
                named, preferred = group["metadata"].get("name", ""), group["versions"][0]
                api_version = f"{named}/{preferred['version']}" if named else preferred["version"]
                for each in preferred.get("resources", ()):
                    collection = _Collection(
                        path=f"{root}/{api_version}",
                        api_version=api_version,
                        kind=each["responseKind"]["kind"],
                        plural=each["resource"],
                        namespaced=each["scope"] == "Namespaced",
                    )
                    names = (each["resource"], each.get("singularResource", ""), *each.get("shortNames", ()))
                    discovered += [(name, collection) for name in names if name]
                    discovered.append((f"{each['resource']}.{named}", collection))
        yield from reversed(discovered)

    def _request(self, path: str, query: Mapping[str, str], *, accept: str = "application/json") -> Any:
        parameters = self._api.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
        try:
            response = self._api.call_api(*parameters, _request_timeout=TIMEOUT_SECONDS)
            content = response.read()
        except urllib3.exceptions.HTTPError as error:
            raise Failed(f"GET {path}: {error}") from None
        if response.status != HTTPStatus.OK:
            raise Failed(f"GET {path}: {response.status} {content.decode(errors='replace')}")
        return json.loads(content)


@cache
def reader(kubeconfig: str) -> Reader:
    """Return the reader of a kubeconfig, whose connections all scenarios share."""
    return Reader(kubeconfig)
