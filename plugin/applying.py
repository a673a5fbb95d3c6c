"""A manifest as `kubectl apply` would apply it, which the API server only judges: nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plugin.databases import SERVERS, Database
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.client import APPLY_PATCH, MERGE_PATCH, Request
from shared.kubernetes.errors import Conflict, Forbidden, KubeError, Refused
from shared.kubernetes.kinds import Kind, Obj

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CLIENT_SIDE, SERVER_SIDE = "kubectl-client-side-apply", "kubectl"
"""Field managers of kubectl apply, and of kubectl apply --server-side."""


class ManifestRefused(Exception):
    """The API server refuses the manifest; the message has its words."""


class _Loader(yaml.SafeLoader):
    """A loader that reads dates as texts, as kubectl does: JSON has none."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class Manifest:
    """A file of manifests.

    Attributes:
        database: kind of the resource.
        resource: manifest of the resource.
        others: other manifests of the file.
    """

    database: Database
    resource: Obj
    others: tuple[Obj, ...] = ()


def read(path: str, text: str | None = None) -> Manifest:
    """Return the one resource of a database in a file of manifests, and the others.

    Args:
        path: path of the file.
        text: content of the file, if it was read already.

    Raises:
        Problem: the file is not valid, or has none or several resources of a database.
    """
    try:
        given = text if text is not None else Path(path).read_text("utf-8")
        documents = list(yaml.load_all(given, _Loader))
    except (yaml.YAMLError, ValueError) as error:
        raise Problem(f"{path} is not valid YAML: {error}") from None
    except RecursionError:
        raise Problem(f"{path} is nested too deeply") from None
    manifests = [each for document in documents for each in _listed(document)]
    found = [(database, each) for each in manifests for database in SERVERS if _is(database, each)]
    if len(found) != 1:
        names = ", ".join(database.kind.name for database in SERVERS)
        raise Problem(f"{path} has {len(found)} resources with a plan", f"name a file with one of {names}")
    [(database, resource)] = found
    _require_form(path, resource)
    return Manifest(database, resource, tuple(each for each in manifests if each is not resource))


def _listed(document: Any) -> list[Obj]:
    """Return the manifests of a document: a List has several."""
    if not isinstance(document, dict):
        return []
    items = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(items, list):
        return [each for each in items if isinstance(each, dict)]
    return [document]


def _is(database: Database, document: Mapping[str, Any]) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == (database.kind.api_version, database.kind.name)


def _require_form(path: str, resource: Obj) -> None:
    """Require the types that the API server requires of any object.

    Raises:
        Problem: a field has another one.
    """
    metadata = resource.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") in (None, ""):
        raise Problem(f"{path}: metadata.name is missing")
    for name in ("name", "namespace"):
        if not isinstance(metadata.get(name) or "", str):
            raise Problem(f"{path}: metadata.{name} is {metadata[name]}, not a text", "quote it")
    for name, value in (
        ("spec", resource.get("spec")),
        ("metadata.labels", metadata.get("labels")),
        ("metadata.annotations", metadata.get("annotations")),
    ):
        if not isinstance(value or {}, dict):
            what = "a list" if isinstance(value, list) else repr(value)
            raise Problem(f"{path}: {name} is {what}, not a mapping")


def set_namespace(manifest: Manifest, namespace: str, given: str) -> None:
    """Give the manifests without a namespace that of the user.

    Args:
        namespace: namespace of manifests without one.
        given: namespace that the user gave as a flag; empty without one.

    Raises:
        Problem: the resource has another namespace than the flag.
    """
    own = manifest.resource["metadata"].get("namespace")
    if own and given and own != given:
        raise Problem(
            f"the namespace of the manifest is {own}, and --namespace is {given}", f"repeat it with --namespace {own}"
        )
    for each in (manifest.resource, *manifest.others):
        metadata = each.get("metadata")
        if isinstance(metadata, dict) and not metadata.get("namespace"):
            metadata["namespace"] = namespace


def warnings(live: Obj) -> Iterator[str]:
    """Yield what differs between `kubectl apply` and the tool that applied the resource."""
    metadata = live["metadata"]
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        return
    for entry in metadata.get("managedFields") or ():
        manager, applies = entry.get("manager"), entry.get("operation") == "Apply" and not entry.get("subresource")
        if applies and manager != SERVER_SIDE and not str(manager).endswith("-operator"):
            yield (
                f"{manager} applied the resource, and this is the plan of `kubectl apply`: fields that the manifest no "
                f"longer has stay here, and {manager} removes them."
            )


async def judged(session: Session, kind: Kind, manifest: Obj, live: Obj | None) -> Obj:
    """Return an object as the API server would store it, from validation and admission.

    Raises:
        ManifestRefused: the API server refuses it.
        KubeError: the API server gave no judgement.
    """
    metadata = manifest["metadata"]
    path = kind.path(metadata["namespace"], metadata["name"])
    query = {"dryRun": "All", "fieldManager": CLIENT_SIDE, "fieldValidation": "Strict"}
    if live is not None and _is_server_side(live):
        request = Request("PATCH", path, query | {"fieldManager": SERVER_SIDE}, manifest, APPLY_PATCH)
    elif live is not None:
        request = Request("PATCH", path, query, patch(manifest, live), MERGE_PATCH)
    else:
        request = Request("POST", kind.path(metadata["namespace"]), query, manifest)
    try:
        found: Obj = await session.send(request)
    except KubeError as error:
        if _is_refusal(error):
            raise ManifestRefused(str(error)) from None
        raise
    return {"apiVersion": kind.api_version, "kind": kind.name} | found


def _is_refusal(error: KubeError) -> bool:
    """Whether the manifest is refused, rather than the user."""
    if isinstance(error, Forbidden):
        return any(part in str(error) for part in ("admission webhook", "ValidatingAdmissionPolicy", "exceeded quota"))
    return isinstance(error, Refused | Conflict) or error.status == 400


def _is_server_side(live: Obj) -> bool:
    """Whether the resource is applied on the server: by kubectl, and not with the annotation of client-side apply."""
    metadata = live["metadata"]
    managers = metadata.get("managedFields") or ()
    return LAST_APPLIED not in (metadata.get("annotations") or {}) and any(
        (each.get("manager"), each.get("operation")) == (SERVER_SIDE, "Apply") for each in managers
    )


def patch(manifest: Obj, live: Obj) -> Obj:
    """Return the merge patch of `kubectl apply`: fields of the manifest, and nulls for those that it no longer has.

    Source: CreateThreeWayJSONMergePatch in jsonmergepatch of k8s.io/apimachinery.
    """
    annotations = live["metadata"].get("annotations") or {}
    try:
        former = json.loads(annotations.get(LAST_APPLIED) or "{}")  # noqa: TID251 (kubectl wrote it from a manifest)
    except (ValueError, RecursionError):
        former = {}
    found = _merged(former if isinstance(former, dict) else {}, manifest)
    metadata = found.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), LAST_APPLIED: json.dumps(manifest)}
    return found


def _merged(former: Mapping[str, Any], manifest: Mapping[str, Any]) -> Obj:
    found: Obj = {key: None for key in former if key not in manifest}
    for key, value in manifest.items():
        if isinstance(value, dict):
            before = former.get(key)
            found[key] = _merged(before if isinstance(before, dict) else {}, value)
        else:
            found[key] = value
    return found
