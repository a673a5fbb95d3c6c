"""Parsing of requests to the in-memory API server, and its error responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.kubernetes.client import APPLY_PATCH, Request, Response
from shared.kubernetes.kinds import POD, Kind, Obj
from simulator.api_server.clone import clone
from simulator.api_server.kinds import Served


class Failure(Exception):
    """A request that is answered with an error.

    Attributes:
        code: HTTP status.
        reason: machine-readable reason of the API, such as Conflict.
        causes: invalid fields, each with its problem.
        metadata: metadata of the answer, such as a token that continues a list.
    """

    def __init__(
        self, code: int, reason: str, message: str, causes: list[Obj] | None = None, *, metadata: Obj | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes or []
        self.metadata = metadata or {}

    def response(self) -> Response:
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": {"causes": self.causes} if self.causes else {},
            "code": self.code,
        }
        return Response(self.code, body)


@dataclass(frozen=True, slots=True)
class TargetedRequest:
    """A request with the resource that its path addresses.

    Attributes:
        namespace: empty for cluster-scoped kinds, and for lists over all namespaces.
        name: empty for a collection.
    """

    request: Request
    served: Served
    namespace: str
    name: str
    subresource: str

    @property
    def kind(self) -> Kind:
        return self.served.kind

    @property
    def resource(self) -> str:
        """The resource as messages name it: `deployments.apps`."""
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural

    @property
    def what(self) -> str:
        return f'{self.resource} "{self.name}"'

    @property
    def manager(self) -> str:
        return self.request.query.get("fieldManager") or "unknown"

    @property
    def verb(self) -> str:
        """The verb under which logs and counters record the request."""
        if self.subresource == "eviction":
            return "EVICT"
        if self.request.method == "GET":
            return "GET" if self.name else "LIST"
        if self.request.method == "PATCH":
            return "APPLY" if self.request.content_type == APPLY_PATCH else "PATCH"
        return {"POST": "CREATE", "PUT": "UPDATE"}.get(self.request.method, self.request.method)

    @property
    def stops_pod(self) -> bool:
        """Whether the request deletes or evicts a pod."""
        return self.kind == POD and self.verb in ("DELETE", "EVICT")

    @classmethod
    def at(cls, kinds: Mapping[tuple[str, str, str], Served], request: Request) -> TargetedRequest:
        """Resolve the URL path of a request.

        Args:
            kinds: served kinds by group, version and plural.

        Raises:
            Failure: the path addresses nothing that this server serves.
        """
        parts = request.path.strip("/").split("/")
        group, version, rest = (
            ("", parts[1:2], parts[2:]) if parts[0] == "api" else ("".join(parts[1:2]), parts[2:3], parts[3:])
        )
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "", "")[:3]
        served = kinds.get((group, "".join(version), plural))
        if served is not None:
            kind = served.kind
            subresources = {"": True, "status": served.status, "scale": bool(served.replicas)}
            known = (subresources | {"eviction": kind == POD, "resize": served.resizes}).get(subresource, False)
            lacks_namespace = kind.namespaced and bool(name) and not namespace
            if known and len(rest) <= 3 and not lacks_namespace and (kind.namespaced or not namespace):
                own = request if request.body is None else dataclasses.replace(request, body=clone(request.body))
                return cls(own, served, namespace, name, subresource)
        raise Failure(404, "NotFound", f"the server could not find the requested resource ({request.path})")

    def not_found(self) -> Failure:
        return Failure(404, "NotFound", f"{self.what} not found")

    def conflict(self, why: str) -> Failure:
        return Failure(409, "Conflict", f"Operation cannot be fulfilled on {self.what}: {why}")

    def invalid(self, message: str) -> Failure:
        """Return a 422 error for a message that begins with the field's path and a colon."""
        field, _, rest = message.partition(": ")
        cause = {"reason": "FieldValueInvalid", "field": field, "message": rest}
        return Failure(422, "Invalid", f'{self.kind.name} "{self.name}" is invalid: {message}', [cause])


def selects(selector: str) -> Callable[[Mapping[str, str]], bool]:
    """Parse a label selector into a predicate of labels: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Raises:
        Failure: the selector is malformed.
    """
    terms, depth, start = [], 0, 0
    for end, char in enumerate(selector + ","):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and not depth:
            terms.append(selector[start:end].strip())
            start = end + 1
    tests = [_term(term) for term in terms if term]
    return lambda labels: all(test(labels) for test in tests)


def named(selector: str) -> str:
    """Return the name that a field selector requires; empty without a selector. No other field is supported.

    Raises:
        Failure: the selector has another field.
    """
    field, _, name = selector.partition("=")
    if selector and field != "metadata.name":
        raise Failure(400, "BadRequest", f"field label not supported: {field}")
    return name


def _term(term: str) -> Callable[[Mapping[str, str]], bool]:
    for word, expected in ((" notin ", False), (" in ", True)):
        key, found, values = term.partition(word)
        if found:
            allowed = {value.strip() for value in values.strip().removeprefix("(").removesuffix(")").split(",")}
            return lambda labels: (labels.get(key.strip()) in allowed) is expected
    for sign, expected in (("!=", False), ("==", True), ("=", True)):
        key, found, value = term.partition(sign)
        if found:
            return lambda labels: (labels.get(key.strip()) == value.strip()) is expected
    if " " in term:
        raise Failure(400, "BadRequest", f"unable to parse requirement: {term}")
    return lambda labels: (term.removeprefix("!") in labels) is not term.startswith("!")


def strategic_patch(pod: Any, patch: Any) -> Any:
    """Apply a strategic merge patch to a pod: containers are merged by name."""
    changes = {each["name"]: each for each in patch["spec"]["containers"]}
    containers = [merge_patch(each, changes.get(each["name"], {})) for each in pod["spec"]["containers"]]
    return merge_patch(pod, patch | {"spec": {"containers": containers}})


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386): null removes, maps merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def value_at(obj: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj
