"""Admission webhooks: defaulting and validation, by the same functions as the reconcile.

Every replica serves them over TLS: POST /default answers with a JSON Patch, POST /validate allows or denies. A resource
that bypassed the webhook (it was down, or the rule is newer than the resource) is rejected by the reconcile with the
same messages.

A resource that is being deleted and a change that leaves the spec as it was are always allowed: a rule that is newer
than a resource must not prevent changes of its finalizers, labels and status.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web

from shared.api.spec import Admission
from shared.kubernetes.kinds import Obj
from shared.observability import metrics
from shared.observability.endpoints import Handler
from shared.observability.http_server import Limits

log = logging.getLogger(__name__)

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
DEFAULT, VALIDATE = "/default", "/validate"

LIMITS = Limits(connections=512, requests=512, body_bytes=4 * 1024 * 1024)
"""An API server handles up to 600 requests at once, over one connection each. A body holds two objects of the largest
size that etcd stores by default, and the envelope; parsed, 4 MiB of JSON can take 100 MiB."""

MAX_QUOTED_CHARACTERS = 100
"""Length of a part of a bad request that is repeated in the response and in the log."""

_KIND_PARTS = ("group", "version", "kind")

_FIELD = re.compile(r"([a-z]\w*(?:[.\[][\w\]*/-]+)*): (.+)", re.DOTALL)


class BadRequest(Exception):
    """The request is not one that a webhook can answer; the message explains why and how to fix it."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request of the API server.

    Attributes:
        uid: UID of the request, which the response repeats.
        admission: defaulting and validation of this kind.
        obj: the new state of the resource; empty for a deletion.
        old: the previous state of the resource; None for a creation.
    """

    uid: str
    admission: Admission
    obj: Obj
    old: Obj | None

    @property
    def leaving(self) -> bool:
        """Whether the resource is being deleted."""
        return not self.obj or "deletionTimestamp" in self.obj.get("metadata", {})

    @property
    def settled(self) -> bool:
        """Whether the spec is unchanged."""
        if self.old is None:
            return False
        # Both sides are defaulted: a default that is newer than the resource is not a change by the user.
        default = self.admission.default
        return bool(default(self.obj).get("spec") == default(self.old).get("spec"))


def routes(admissions: Iterable[Admission]) -> list[web.RouteDef]:
    """Return the routes of the webhooks of an operator."""
    known = {_identity(admission): admission for admission in admissions}
    return [web.post(path, _webhook(path, answer, known)) for path, answer in _ANSWERS.items()]


def json_patch(before: Any, after: Any, at: str = "") -> Iterator[Obj]:
    """Yield the operations of a JSON Patch (RFC 6902) that turns `before` into `after`; lists are replaced whole."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        if before != after:
            yield {"op": "replace", "path": at, "value": after}
        return
    for key in sorted(before.keys() | after.keys()):
        path = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            yield {"op": "remove", "path": path}
        elif key not in before:
            yield {"op": "add", "path": path, "value": after[key]}
        else:
            yield from json_patch(before[key], after[key], path)


def _default(incoming: AdmissionRequest) -> Obj:
    patch = [] if incoming.leaving else list(json_patch(incoming.obj, incoming.admission.default(incoming.obj)))
    if not patch:
        return {"allowed": True}
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}


def _validate(incoming: AdmissionRequest) -> Obj:
    if incoming.leaving or incoming.settled:
        return {"allowed": True}
    review = incoming.admission.review(incoming.obj, incoming.old)
    answer: Obj = {"allowed": not review.errors}
    if review.warnings:
        answer["warnings"] = [" ".join(warning.split()) for warning in dict.fromkeys(review.warnings)]
    if review.errors:
        metrics.WEBHOOK_REFUSALS.labels(kind=incoming.admission.kind.name).inc()
        answer["status"] = _refusal(incoming, review.errors)
    return answer


_ANSWERS: Mapping[str, Callable[[AdmissionRequest], Obj]] = {DEFAULT: _default, VALIDATE: _validate}


def _refusal(incoming: AdmissionRequest, errors: tuple[str, ...]) -> Obj:
    """Return a Status in the form of the API server's own validation: kubectl lists the fields with their errors."""
    kind, metadata = incoming.admission.kind, incoming.obj.get("metadata", {})
    return {
        "status": "Failure",
        "code": HTTPStatus.UNPROCESSABLE_ENTITY,
        "reason": "Invalid",
        "message": " ".join(errors),
        "details": {
            "group": kind.group,
            "kind": kind.name,
            "name": metadata.get("name") or metadata.get("generateName", ""),
            "causes": [_cause(kind.name.lower(), error) for error in errors],
        },
    }


def _cause(whole: str, error: str) -> Obj:
    """Split an error into its leading field and message; an error without a field is about the whole resource."""
    found = _FIELD.fullmatch(error)
    field, message = found.groups() if found else (whole, error)
    return {"reason": "FieldValueInvalid", "field": field, "message": message}


def _webhook(path: str, answer: Callable[[AdmissionRequest], Obj], known: Mapping[Any, Admission]) -> Handler:
    """Return the handler of a webhook; a defect of the operator is answered with 500 and never allows a request."""
    in_flight, latency = metrics.WEBHOOK_IN_FLIGHT.labels(webhook=path), metrics.WEBHOOK_LATENCY.labels(webhook=path)

    async def respond(request: web.Request) -> web.Response:
        try:
            incoming = _read(await request.read(), known)
        except BadRequest as error:
            log.warning("%s: bad request: %s", path, error)
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=f"{error}\n")
        try:
            response = {"uid": incoming.uid, **answer(incoming)}
        except Exception:
            metrics.WEBHOOK_PANICS.inc()
            log.exception("%s: internal error (a bug in the operator)", path)
            return web.Response(
                status=HTTPStatus.INTERNAL_SERVER_ERROR, text="internal error; see the operator's log\n"
            )
        return web.json_response({"apiVersion": API_VERSION, "kind": KIND, "response": response})

    async def measured(request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        code = HTTPStatus.INTERNAL_SERVER_ERROR.value
        with in_flight.track_inprogress():
            try:
                answered = await respond(request)
                code = answered.status
            except web.HTTPException as refusal:
                code = refusal.status
                raise
            finally:
                latency.observe(time.perf_counter() - started)
                metrics.WEBHOOK_REQUESTS.labels(webhook=path, code=str(code)).inc()
        return answered

    metrics.WEBHOOK_REQUESTS.labels(webhook=path, code="200")  # rate() needs an initial value
    return measured


def _read(body: bytes, known: Mapping[Any, Admission]) -> AdmissionRequest:
    try:
        review = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        given = _versioned(review.get("kind"), review.get("apiVersion")) if isinstance(review, dict) else "another type"
        raise BadRequest(
            f"the request must be an {KIND} of {API_VERSION}, not {given}. Set admissionReviewVersions to [v1]."
        )
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise BadRequest("the AdmissionReview has no request with a uid.")
    kind = request.get("kind")
    group, version, name = (str(kind.get(part)) if isinstance(kind, dict) else "" for part in _KIND_PARTS)
    admission = known.get((group, version, name))
    if admission is None:
        served = ", ".join(_versioned(name, f"{group}/{version}") for group, version, name in known)
        raise BadRequest(
            f"this operator does not serve {_versioned(name, f'{group}/{version}')}; it serves {served}. "
            "Correct the rules of its WebhookConfigurations."
        )
    obj, old = request.get("object") or {}, request.get("oldObject") or None
    if not isinstance(obj, dict) or not isinstance(old, dict | None):
        raise BadRequest("request.object and request.oldObject are not objects.")
    return AdmissionRequest(request["uid"], admission, obj, old)


def _versioned(kind: Any, version: Any) -> str:
    """Return a kind and its version for a message. A client may have sent anything, of any length."""
    return f"{str(kind)[:MAX_QUOTED_CHARACTERS]} of {str(version)[:MAX_QUOTED_CHARACTERS]}"


def _identity(admission: Admission) -> tuple[str, str, str]:
    return admission.kind.group, admission.kind.version, admission.kind.name
