"""A manifest as `kubectl apply` would apply it, which the API server only judges: nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from plugin.databases import SERVERS, Database
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.client import APPLY_PATCH, MERGE_PATCH, Request
from shared.kubernetes.errors import Conflict, Forbidden, KubeError, Refused
from shared.kubernetes.kinds import Obj

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CLIENT_SIDE, SERVER_SIDE = "kubectl-client-side-apply", "kubectl"
"""Field managers of kubectl apply, and of kubectl apply --server-side."""


class ManifestRefused(Exception):
    """The API server refuses the manifest; the message has its words."""


def read(path: str, text: str | None = None) -> tuple[Database, Obj]:
    """Return the one resource of a database in a file of manifests, and its kind.

    Args:
        path: path of the file.
        text: content of the file, if it was read already.

    Raises:
        Problem: the file is not valid, or has none or several of them.
    """
    try:
        documents = list(yaml.safe_load_all(text if text is not None else Path(path).read_text("utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Problem(f"{path} is not valid YAML: {error}") from None
    manifests = [each for each in documents if isinstance(each, dict)]
    found = [(database, each) for each in manifests for database in SERVERS if _is(database, each)]
    if len(found) != 1:
        names = ", ".join(database.kind.name for database in SERVERS)
        raise Problem(f"{path} has {len(found)} resources with a plan", f"name a file with one of {names}")
    if not isinstance(found[0][1].get("metadata"), dict) or not found[0][1]["metadata"].get("name"):
        raise Problem(f"{path}: metadata.name is missing")
    return found[0]


def _is(database: Database, document: Mapping[str, Any]) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == (database.kind.api_version, database.kind.name)


async def judged(session: Session, database: Database, manifest: Obj, live: Obj | None) -> Obj:
    """Return the resource as the API server would store it, from validation and admission.

    Raises:
        ManifestRefused: the API server refuses it.
        KubeError: the API server gave no judgement.
    """
    metadata = manifest["metadata"]
    path = database.kind.path(metadata["namespace"], metadata["name"])
    query = {"dryRun": "All", "fieldManager": CLIENT_SIDE, "fieldValidation": "Strict"}
    if live is not None and _is_server_side(live):
        request = Request("PATCH", path, query | {"fieldManager": SERVER_SIDE}, manifest, APPLY_PATCH)
    elif live is not None:
        request = Request("PATCH", path, query, patch(manifest, live), MERGE_PATCH)
    else:
        request = Request("POST", database.kind.path(metadata["namespace"]), query, manifest)
    try:
        found: Obj = await session.send(request)
    except KubeError as error:
        if _is_refusal(error):
            raise ManifestRefused(str(error)) from None
        raise
    return {"apiVersion": database.kind.api_version, "kind": database.kind.name} | found


def _is_refusal(error: KubeError) -> bool:
    """Whether the manifest is refused, rather than the user."""
    if isinstance(error, Forbidden):
        return "admission webhook" in str(error) or "ValidatingAdmissionPolicy" in str(error)
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
    found.setdefault("metadata", {}).setdefault("annotations", {})[LAST_APPLIED] = json.dumps(manifest)
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
