"""The Kubernetes API as plain dicts.

`Transport` is the one interface that tests replace with a fake (`simulator`); everything above it is the same code
in a test and in a cluster.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.encoding import MAX_PARSED_BYTES, MAX_PARSED_VALUES
from shared.kubernetes.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NamespaceTerminating,
    NotEvictable,
    NotFound,
    Refused,
    TooLarge,
    Unavailable,
    Undiscovered,
)
from shared.kubernetes.kinds import DISRUPTION_BUDGET, POD, Kind, Obj
from shared.observability import metrics, tracing

log = logging.getLogger(__name__)

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_MALFORMED = ("failed to create typed patch object", "unable to convert unstructured object to ")
"""Messages of a status 500 if an apply has a field that the schema does not declare, or one of another type, or a value
that cannot be parsed (a quantity without a number, in the opaque parts of a spec).

Source: staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/structuredmerge.go and
staging/src/k8s.io/apimachinery/pkg/runtime/scheme.go in kubernetes/kubernetes.
"""

_UNDISCOVERED = "cannot find RESTMapping for APIVersion"
"""Message of a status 403 of the plugin OwnerReferencesPermissionEnforcement, which is on in OpenShift, while it does
not know the kind of an owner. It looks for new kinds every 30 seconds.

Source: plugin/pkg/admission/gc/gc_admission.go and pkg/kubeapiserver/admission/config.go in kubernetes/kubernetes.
"""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Media type of objects without their content; the API server removes spec, status and data."""

METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The same of a list."""

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
"""Media type of a list as kubectl prints it: in cells of which the first has the name, without namespaces."""

FIRST_PAGE_ITEMS, MAX_PAGE_ITEMS = 32, 250
"""Number of objects in the first page of a list, and largest number in a page."""

PAGE_SHARE = 0.7
"""Share of what may be parsed at once that the next page should take, if its objects cost what those before do."""

MAX_QUOTED = 100
"""Maximum number of characters that a message quotes of an unexpected response."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory in a pod with the credentials and the namespace of its service account."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to an API server.

    Attributes:
        path: URL path on the server, from `Kind.path`.
        query: URL parameters.
        body: request body, sent as JSON; None for an empty body.
        content_type: media type of the body.
        accept: media type of the response.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Response(NamedTuple):
    """A response of the API server.

    Attributes:
        status: HTTP status.
        body: decoded JSON, or None if the body is empty.
        retry_after: seconds in the Retry-After header, if any.
        share: share of what may be parsed at once that the body takes.
    """

    status: int
    body: Any
    retry_after: float | None = None
    share: float = 0.0


class Transport(Protocol):
    """Sends a request to an API server and returns its response.

    Raises Unavailable if there is no response, and TooLarge for one that may not be parsed at once
    (`encoding.parsed_share` above 1), or cannot be parsed. Another response, with any HTTP status, is returned.
    """

    async def request(self, request: Request) -> Response: ...


class Kube:
    """Reads and writes objects; every failure is a `KubeError`.

    Args:
        transport: transport to the API server.
        manager: field manager of every write (owner of fields in server-side apply).
    """

    def __init__(self, transport: Transport, *, manager: str) -> None:
        self._transport = transport
        self.manager = manager
        # The API server would look for unknown and duplicate fields to warn of them: 9 % of its time for an apply.
        self._write = {"fieldManager": manager, "fieldValidation": "Ignore"}

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        return await self._object(Request("GET", kind.path(namespace, name)), kind, name)

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Obj | None:
        """Return an object; None if it does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except NotFound:
            return None

    async def metadata(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        """Return the metadata of an object, with any content; if they are too large, the names and the version.

        The UID is empty then.
        """
        request = Request("GET", kind.path(namespace, name), accept=METADATA_ONLY)
        try:
            found = await self._send(request)
        except TooLarge:
            request = Request("GET", kind.path(namespace, name), {"includeObject": "None"}, accept=TABLE)
            found = await self._send(request)
            if isinstance(found, dict) and isinstance(found.get("metadata"), dict):  # of the table: with the version
                found = {"metadata": found["metadata"] | {"name": name, "namespace": namespace, "uid": ""}}
        if not _is_stored(found) or found["metadata"]["name"] != name:
            raise _unexpected(found, f"metadata of {kind.name} {name}", request)
        metadata: Obj = found["metadata"]
        return metadata

    async def find_own(self, kind: Kind, namespace: str, name: str, *, is_new: bool) -> Obj | None:  # noqa: ARG002
        """Return an object that the operator itself writes: changes by others may be noticed later than by `find`.

        They differ while a reconcile observes a resource (runtime/dependencies.py).

        Args:
            is_new: whether the object is missing unless something unusual has happened. It may then be reported as
                missing without a read: a creation fails if it exists, and the next reconcile reads it.
        """
        return await self.find(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> Obj:
        """Return the list object: `items`, each with apiVersion and kind, and `metadata.resourceVersion`.

        It has all objects at once, so that its cost has no limit: see `pages`.

        Args:
            namespace: namespace to list; None for all.
            labels: label selector as text.
        """
        return (await self._page(kind, namespace, {"labelSelector": labels}))[0]

    async def pages(self, kind: Kind, namespace: str | None = None, *, labels: str = "") -> AsyncIterator[Obj]:
        """Yield the list object page by page; none costs much, with any objects.

        The size of a page follows what the one before costs. An object that costs too much alone, or that cannot be
        parsed, is left out. The caller frees a page (`del`, or its items) before it takes the next one.
        """
        limit, after = FIRST_PAGE_ITEMS, ""
        while True:
            query = {"labelSelector": labels, "limit": str(limit), "continue": after}
            try:
                page, share = await self._page(kind, namespace, query)
            except TooLarge:
                if limit > 1:
                    limit = max(1, limit // 4)
                    continue
                page, share = await self._page_without_content(kind, namespace, query), 0.0
            fitting = int(PAGE_SHARE * len(page["items"]) / share) if share else MAX_PAGE_ITEMS
            limit = max(1, min(4 * limit, fitting, MAX_PAGE_ITEMS))
            after = page["metadata"].get("continue") or ""
            yield page
            del page
            if not after:
                return

    async def _page_without_content(self, kind: Kind, namespace: str | None, query: Obj) -> Obj:
        """Return a page without its objects, and report them as left out."""
        try:
            page, _ = await self._page(kind, namespace, query, accept=METADATA_LIST)
            found = [item["metadata"] for item in page["items"]]
        except TooLarge:  # the metadata, too
            page, _ = await self._page(kind, namespace, query | {"includeObject": "None"}, accept=TABLE)
            found = [{"name": str(row["cells"][0])} for row in page.get("rows") or ()]
        for metadata in found:
            leave_out(kind, metadata)
        return page | {"items": []}

    async def _page(
        self, kind: Kind, namespace: str | None, query: Obj, *, accept: str = "application/json"
    ) -> tuple[Obj, float]:
        query = {key: value for key, value in query.items() if value}
        request = Request("GET", kind.path(namespace), query, accept=accept)
        answer = await self._answer(request)
        if not _is_list(kind, answer.body):
            raise _unexpected(answer.body, f"{kind.name}List", request)
        return complete(kind, answer.body), answer.share

    async def create(self, kind: Kind, obj: Obj) -> Obj:
        path = kind.path(obj["metadata"].get("namespace"))
        return await self._object(Request("POST", path, self._write, obj), kind, obj["metadata"].get("name", ""))

    async def review(self, kind: Kind, spec: Obj) -> Obj:
        """Return the status of a review (TokenReview, SubjectAccessReview): an object that is answered, not stored."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}, "spec": spec}
        request = Request("POST", kind.path(), body=body)
        found = await self._send(request)
        if not _is_of(kind, found) or not isinstance(found.get("status"), dict):
            raise _unexpected(found, f"{kind.name} with a status", request)
        status: Obj = found["status"]
        return status

    async def apply(self, kind: Kind, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Create the object, or set the owned fields of an existing object to those of `obj` (server-side apply).

        Fields that this manager owned and no longer sends are removed. Fields of other managers stay unless `obj` sets
        them: conflicts are forced, as the Kubernetes documentation advises controllers.

        Args:
            dry_run: whether nothing is stored: the response is that of the write, from validation and admission.
        """
        name = obj["metadata"]["name"]
        path = kind.path(obj["metadata"].get("namespace"), name)
        query = {**self._write, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        return await self._object(Request("PATCH", path, query, obj, APPLY_PATCH), kind, name)

    async def create_by_apply(self, kind: Kind, obj: Obj) -> Obj:
        """Create an object by server-side apply, which records its fields as applied; never change an existing one.

        Raises:
            Conflict: an object of that name exists.
        """
        # With a resourceVersion, apply fails on an existing object of another version; for a creation it is ignored.
        return await self.apply(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": "1"}})

    async def merge(
        self, kind: Kind, namespace: str | None, name: str, patch: Obj, *, subresource: str | None = None
    ) -> Obj:
        """Apply a JSON merge patch (RFC 7386): null removes a field, lists are replaced whole.

        The patch of the subresource `resize` changes the containers that it names.
        """
        content_type = STRATEGIC_PATCH if subresource == "resize" else MERGE_PATCH
        path = kind.path(namespace, name, subresource)
        return await self._object(Request("PATCH", path, self._write, patch, content_type), kind, name)

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> Obj | None:
        """Delete exactly the observed object.

        Args:
            uid: observed UID: a later object of the same name is not deleted (Conflict).
            resource_version: observed version, to pass if the decision depends on the content of the object.
            propagation: Background, Foreground or Orphan (handling of dependents).
            grace_seconds: time that a pod has to stop; None for its own. That of a pod that is being deleted can only
                become shorter.

        Returns:
            The object if it is still terminating (grace period, finalizers); None if it is deleted.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body: Obj = {"propagationPolicy": propagation, "preconditions": preconditions}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        request = Request("DELETE", kind.path(namespace, name), body=body)
        answer = await self._send(request)
        # The response is a Status, the last state of the object, or the terminating object.
        if _is_success(answer):
            return None
        if not _is_object(kind, name, answer):
            raise _unexpected(answer, f"{kind.name} {name} or a Status", request)
        return answer if is_terminating(answer) else None

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Evict exactly the observed pod: delete it if its disruption budget allows that now.

        Args:
            uid: observed UID: a later pod of the same name is not evicted (Conflict).

        Raises:
            NotEvictable: the budget allows no eviction now, or several budgets select the pod.
        """
        body = {
            "apiVersion": DISRUPTION_BUDGET.api_version,
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        request = Request("POST", POD.path(namespace, name, "eviction"), body=body)
        answer = await self._send(request)
        if not _is_success(answer):
            raise _unexpected(answer, "Status", request)

    async def _object(self, request: Request, kind: Kind, name: str) -> Obj:
        """Send a request that is answered with an object of this kind and name."""
        found: Obj = await self._send(request)
        if not _is_object(kind, name, found):
            raise _unexpected(found, f"{kind.name} {name}", request)
        return found

    async def _send(self, request: Request) -> Any:
        """Return the body of a successful response, of any content."""
        return (await self._answer(request)).body

    async def _answer(self, request: Request) -> Response:
        with tracing.http_span(request.method):
            answer = await self._transport.request(request)
            tracing.received(answer.status)
        if answer.status >= 400:
            raise error_of(answer, request)
        return answer


# What the API server, or a proxy in front of it, answers with the status 200 is not always what was requested.


def _is_of(kind: Kind, found: Any) -> bool:
    return isinstance(found, dict) and found.get("kind") == kind.name and found.get("apiVersion") == kind.api_version


def _is_object(kind: Kind, name: str, found: Any) -> bool:
    """Whether something is a stored object of a kind, and of a name unless that is empty (`generateName`)."""
    return _is_of(kind, found) and _is_stored(found) and name in ("", found["metadata"]["name"])


def _is_stored(found: Any) -> bool:
    """Whether an object has the metadata of a stored one."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and _has_version(metadata)


def _has_version(metadata: Obj) -> bool:
    version = metadata.get("resourceVersion")
    return isinstance(version, str) and version.isdecimal()


def _is_list(kind: Kind, found: Any) -> bool:
    kinds = (f"{kind.name}List", "PartialObjectMetadataList", "Table")
    if not isinstance(found, dict) or found.get("kind") not in kinds:
        return False
    metadata, items = found.get("metadata"), found.get("items") or []
    is_versioned = isinstance(metadata, dict) and _has_version(metadata)
    return is_versioned and isinstance(items, list) and all(map(_is_stored, items))


def _is_success(found: Any) -> bool:
    return isinstance(found, dict) and found.get("kind") == "Status" and found.get("status") == "Success"


def _unexpected(found: Any, requested: str, request: Request) -> Unavailable:
    """Return the error about a successful response that is not what was requested."""
    if isinstance(found, dict) and "kind" in found:
        metadata = found.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else ""
        what = " ".join(filter(None, (str(found["kind"]), str(name or ""), str(found.get("message") or ""))))
    elif isinstance(found, dict) and "message" in found:
        what = f"text: {found['message']}"
    else:
        what = "no content" if found is None else f"JSON that is no object: {found}"
    return Unavailable(
        f"the API server answered with {what[:MAX_QUOTED]!r} instead of {requested} ({request}). Check what is between "
        "the operator and the API server, such as a proxy."
    )


def error_of(answer: Response, request: Request) -> KubeError:
    """Return the exception for an unsuccessful response."""
    status = answer.body if isinstance(answer.body, dict) else {}
    code, reason, causes = answer.status, status.get("reason", ""), _causes(status)
    kind: type[KubeError] = Refused
    if budget := _budget_refusal(code, status):
        return NotEvictable(budget, status=code, retry_after=answer.retry_after)
    if code == 500 and any(part in str(status.get("message", "")) for part in _MALFORMED):
        kind = Invalid
    elif code == 429 or code >= 500:
        kind = Unavailable
    elif code == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif code in (400, 422):
        # An apply with the UID of an object that was replaced fails as a change of an immutable field.
        kind = Conflict if any(cause.get("field") == "metadata.uid" for cause in causes) else Invalid
    elif code in (401, 403):
        kind = Undiscovered if _UNDISCOVERED in str(status.get("message", "")) else Forbidden
        if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
            kind = NamespaceTerminating
    elif code == 404:
        kind = NotFound
    message = status.get("message") or f"HTTP {code}"
    return kind(f"{message} ({request})", status=code, retry_after=answer.retry_after)


def _budget_refusal(code: int, status: Obj) -> str:
    """Return why a disruption budget does not allow an eviction; empty for any other response.

    Source: pkg/registry/core/pod/storage/eviction.go in kubernetes/kubernetes.
    """
    message = str(status.get("message", ""))
    if code == 500 and "more than one PodDisruptionBudget" in message:
        return message
    if code == 429:
        return " ".join(
            str(cause.get("message")) for cause in _causes(status) if cause.get("reason") == "DisruptionBudget"
        )
    return ""


def _causes(status: Obj) -> list[Obj]:
    """Return the causes in a Status; none in the error of a proxy, whose fields of the same names have other types."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


def leave_out(kind: Kind, metadata: Obj) -> None:
    """Report an object that is not observed, because it cannot be parsed, or costs more than may be parsed at once."""
    metrics.OVERSIZED_OBJECTS.labels(kind.name).inc()
    name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    log.error(
        "%s %s is left out as if it did not exist: it has more than %d bytes, %d values or 1,024 levels, or is not "
        "text. Shorten or delete it.",
        *(kind, name, MAX_PARSED_BYTES, MAX_PARSED_VALUES),
    )


def complete(kind: Kind, listing: Obj) -> Obj:
    """Add the items, if there are none, and to each apiVersion and kind, which the API server sets only on the list."""
    listing["items"] = listing.get("items") or []
    for item in listing["items"]:
        item.setdefault("apiVersion", kind.api_version)
        item.setdefault("kind", kind.name)
    return listing
