"""Admission webhooks: defaults and refusals at the door, by the functions that the reconcile runs, too.

Served by every replica over TLS: POST /default answers a JSON Patch, POST /validate allows or refuses. What
comes past a webhook (it was down, the resource is older than the rule) the reconcile refuses in the same words.

Nothing is refused to a resource that is being deleted, nor to a change that leaves the spec as it was: a rule that came
after a resource must not keep its finalizers, labels and status from changing.

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

log = logging.getLogger(__name__)

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
DEFAULT, VALIDATE = "/default", "/validate"

LARGEST = 7 * 1024 * 1024
"""Bytes that a request may have: two of the largest objects that etcd takes, and what is around them."""

_FIELD = re.compile(r"([a-z]\w*(?:[.\[][\w\]*/-]+)*): (.+)", re.DOTALL)


class BadRequest(Exception):
    """The request is none that a webhook answers; the message says why, and what mends it."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What the API server asks.

    Attributes:
        uid: of the request; the answer repeats it.
        admission: what the operator says of resources of this kind.
        obj: the resource as it is to be; empty for a deletion.
        old: the resource as it was; None where it is new.
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
        """Whether the spec stays as it was."""
        if self.old is None:
            return False
        # Defaults that are younger than the resource were added on the way here; they are no change of anybody's.
        default = self.admission.default
        return bool(default(self.obj).get("spec") == default(self.old).get("spec"))


def routes(admissions: Iterable[Admission]) -> list[web.RouteDef]:
    """The webhooks of an operator."""
    known = {_identity(admission): admission for admission in admissions}
    return [web.post(path, _webhook(path, answer, known)) for path, answer in _ANSWERS.items()]


def json_patch(before: Any, after: Any, at: str = "") -> Iterator[Obj]:
    """What makes one of the other, as operations of a JSON Patch (RFC 6902); lists are replaced whole."""
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


def _default(asked: AdmissionRequest) -> Obj:
    patch = [] if asked.leaving else list(json_patch(asked.obj, asked.admission.default(asked.obj)))
    if not patch:
        return {"allowed": True}
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}


def _validate(asked: AdmissionRequest) -> Obj:
    if asked.leaving or asked.settled:
        return {"allowed": True}
    review = asked.admission.review(asked.obj, asked.old)
    answer: Obj = {"allowed": not review.errors}
    if review.warnings:
        answer["warnings"] = [" ".join(warning.split()) for warning in dict.fromkeys(review.warnings)]
    if review.errors:
        metrics.WEBHOOK_REFUSALS.labels(kind=asked.admission.kind.name).inc()
        answer["status"] = _refusal(asked, review.errors)
    return answer


_ANSWERS: Mapping[str, Callable[[AdmissionRequest], Obj]] = {DEFAULT: _default, VALIDATE: _validate}


def _refusal(asked: AdmissionRequest, errors: tuple[str, ...]) -> Obj:
    """A Status as the API server's own validation gives: kubectl shows it as a list of fields and what is wrong."""
    kind, metadata = asked.admission.kind, asked.obj.get("metadata", {})
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
    """A sentence by the field that it begins with; one that begins with none is about the whole resource."""
    found = _FIELD.fullmatch(error)
    field, message = found.groups() if found else (whole, error)
    return {"reason": "FieldValueInvalid", "field": field, "message": message}


def _webhook(path: str, answer: Callable[[AdmissionRequest], Obj], known: Mapping[Any, Admission]) -> Handler:
    """A handler with all that webhooks have in common; a defect answers 500, and never lets anything pass."""
    in_flight, latency = metrics.WEBHOOK_IN_FLIGHT.labels(webhook=path), metrics.WEBHOOK_LATENCY.labels(webhook=path)

    async def respond(request: web.Request) -> web.Response:
        try:
            asked = _read(await request.clone(client_max_size=LARGEST).read(), known)
        except BadRequest as error:
            log.warning("%s: a request that cannot be answered: %s", path, error)
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=f"{error}\n")
        try:
            response = {"uid": asked.uid, **answer(asked)}
        except Exception:
            metrics.WEBHOOK_PANICS.inc()
            log.exception("%s: a defect of the operator", path)
            return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="a defect of the operator; see its log\n")
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

    metrics.WEBHOOK_REQUESTS.labels(webhook=path, code="200")  # a rate needs a first value
    return measured


def _read(body: bytes, known: Mapping[Any, Admission]) -> AdmissionRequest:
    try:
        review = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        given = f"{review.get('kind')} of {review.get('apiVersion')}" if isinstance(review, dict) else "something else"
        raise BadRequest(
            f"a webhook is asked by an {KIND} of {API_VERSION}; this is {given}. Set admissionReviewVersions to [v1]."
        )
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise BadRequest("the AdmissionReview has no request with a uid.")
    kind = request.get("kind") or {}
    admission = known.get((kind.get("group"), kind.get("version"), kind.get("kind")))
    if admission is None:
        served = ", ".join(f"{name} of {group}/{version}" for group, version, name in known)
        raise BadRequest(
            f"this operator says nothing of {kind.get('kind')} of {kind.get('group')}/{kind.get('version')}; it serves "
            f"{served}. Mend the rules of its WebhookConfigurations."
        )
    obj, old = request.get("object") or {}, request.get("oldObject") or None
    if not isinstance(obj, dict) or not isinstance(old, dict | None):
        raise BadRequest("request.object and request.oldObject are not objects.")
    return AdmissionRequest(request["uid"], admission, obj, old)


def _identity(admission: Admission) -> tuple[str, str, str]:
    return admission.kind.group, admission.kind.version, admission.kind.name
