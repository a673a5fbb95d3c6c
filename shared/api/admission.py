"""Admission webhooks: defaulting and validation, by the same functions as the reconcile.

Every replica serves them over TLS: POST /default answers with a JSON Patch, POST /validate allows or denies. A resource
that bypassed the webhook (it was down, or the rule is newer than the resource) is rejected by the reconcile with the
same messages.

A resource that is being deleted and a change that leaves the spec as it was are always allowed: a rule that is newer
than a resource must not prevent changes of its finalizers, labels and status.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

from shared.api.spec import MAX_ERRORS, Admission
from shared.kubernetes.encoding import count_values, decode, encode
from shared.kubernetes.kinds import Obj
from shared.observability import metrics
from shared.observability.http_messages import Request, Response
from shared.observability.http_server import Handler, Limits, Route
from shared.status.messages import shortened

log = logging.getLogger(__name__)

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
DEFAULT, VALIDATE = "/default", "/validate"

LIMITS = Limits(connections=256, requests=128, large_bodies=16, body_bytes=1024 * 1024)
"""A body holds two states of a resource and the envelope. A resource of the reference manifests has 20 KiB with its
managed fields and its status; kubectl apply cannot store one of more than 256 KiB, the limit of annotations."""

MAX_VALUES = 20_000
"""Maximum number of values in a body, by the separators of JSON; a parsed value needs up to 400 bytes."""


class Size(NamedTuple):
    """Size of a part of a body, as the API server wrote it.

    Attributes:
        bytes: length in UTF-8.
        values: number of separators of JSON outside strings, which is about the number of values.
    """

    bytes: int
    values: int

    def fits(self, limit: Size) -> bool:
        """Return whether neither figure is above that of a limit."""
        return self.bytes <= limit.bytes and self.values <= limit.values


MAX_CREATED = Size(448 * 1024, 8_000)
"""Size of a resource that can be created, and to which a change of the spec can enlarge one. A later change sends it
twice, and larger by the status and the managed fields that were written since: both must fit into a body."""

MAX_CHANGED = Size(480 * 1024, 9_000)
"""Size to which any other change can enlarge a resource. Twice that leaves 64 KiB and 2,000 values for the envelope,
with the groups of the user."""

INLINE_BYTES = 16 * 1024
"""Size above which a review takes more than a few milliseconds, and runs in a thread instead of the event loop."""

MAX_NAME_CHARACTERS = 253

MAX_ERROR_CHARACTERS = 1000
"""Length of an error, which may quote values of the resource."""

MAX_WARNING_CHARACTERS = 200
"""Length of a warning: kubectl prints each in one line."""

MAX_QUOTED_CHARACTERS = 100
"""Length of a part of a bad request that is repeated in the response and in the log."""

_KIND_PARTS = ("group", "version", "kind")

_LINE_SEPARATORS = (b"\xe2\x80\xa8", b"\xe2\x80\xa9")

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
        dry_run: whether nothing is stored, also if the response allows it.
    """

    uid: str
    admission: Admission
    obj: Obj
    old: Obj | None
    dry_run: bool = False

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


def routes(admissions: Iterable[Admission]) -> list[Route]:
    """Return the routes of the webhooks of an operator."""
    known = {_identity(admission): admission for admission in admissions}
    return [Route("POST", path, _webhook(path, answer, known)) for path, answer in _ANSWERS.items()]


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
    if incoming.leaving:
        return {"allowed": True}
    settled = incoming.settled
    if error := _excess(incoming, MAX_CHANGED if settled else MAX_CREATED):
        metrics.WEBHOOK_REFUSALS.labels(kind=incoming.admission.kind.name).inc()
        return {"allowed": False, "status": _refusal(incoming, [error])}
    if settled:
        return {"allowed": True}
    if not isinstance(incoming.obj.get("metadata", {}).get("name"), str):
        raise BadRequest("the resource has no metadata.name.")
    review = incoming.admission.review(incoming.obj, incoming.old)
    answer: Obj = {"allowed": not review.errors}
    warnings = review.warnings if review.errors else (*review.warnings, *_preview(incoming))
    if warnings:
        plain = dict.fromkeys(" ".join(warning.split()) for warning in warnings)
        answer["warnings"] = [shortened(warning, MAX_WARNING_CHARACTERS) for warning in plain]
    if review.errors:
        metrics.WEBHOOK_REFUSALS.labels(kind=incoming.admission.kind.name).inc()
        errors = [shortened(error, MAX_ERROR_CHARACTERS) for error in review.errors[:MAX_ERRORS]]
        answer["status"] = _refusal(incoming, errors)
    return answer


def _preview(incoming: AdmissionRequest) -> Iterator[str]:
    """Yield what a dry run shows of a change: the pods that it replaces, adds and removes (`kubectl platform plan`)."""
    old, restarts, default = incoming.old, incoming.admission.restarts, incoming.admission.default
    if old is None or not incoming.dry_run or incoming.admission.review(old, None).errors:
        return  # with an invalid spec, a change cannot be compared
    former, spec = (default(each).get("spec") or {} for each in (old, incoming.obj))
    changed = sorted(name for name in former.keys() | spec.keys() if former.get(name) != spec.get(name))
    for before, after in ((former.get(name), spec.get(name)) for name in _COUNTS if name in changed):
        if before is not None and after is not None:
            verb = "adds" if after > before else "removes"
            yield f"dry run: {verb} {abs(after - before)} pods ({before} → {after})."
    if restarts is not None:
        fields = ", ".join(f"spec.{name}" for name in changed)
        states = [{"metadata": _IDENTITY, "spec": each} for each in (former, spec)]
        replaces = "replaces the pods, one by one" if restarts(*states) else "replaces no pod"
        yield f"dry run: {replaces} ({shortened(fields, MAX_QUOTED_CHARACTERS)})."
    yield "dry run: kubectl platform plan -f FILE shows each step of this change."


_COUNTS = ("size", "replicas")
_IDENTITY = dict.fromkeys(("name", "namespace", "uid"), "any")  # of both: a body may have none, or a status of any kind


def _excess(incoming: AdmissionRequest, limit: Size) -> str | None:
    """Return why a new state is too large; None if it is not, or if it is not larger than the previous state."""
    size = _size_of(incoming.obj)
    if size.fits(limit) or size.fits(_size_of(incoming.old)):
        return None
    return (
        f"the resource has {size.bytes:,} bytes and about {size.values:,} values; use at most {limit.bytes:,} bytes "
        f"and {limit.values:,} values, because a change sends the resource twice. Shorten the resource."
    )


_REVIEWER = ThreadPoolExecutor(1, "reviews")
"""Thread of large reviews, one at a time: each may need some megabytes."""

_ANSWERS: Mapping[str, Callable[[AdmissionRequest], Obj]] = {DEFAULT: _default, VALIDATE: _validate}


def _refusal(incoming: AdmissionRequest, errors: list[str]) -> Obj:
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
            "name": str(metadata.get("name") or metadata.get("generateName", ""))[:MAX_NAME_CHARACTERS],
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

    def respond(body: bytes) -> Response:
        try:
            incoming = _read(body, known)
            response = {"uid": incoming.uid, **answer(incoming)}
            return Response.json({"apiVersion": API_VERSION, "kind": KIND, "response": response})
        except BadRequest as error:
            log.warning("%s: bad request: %s", path, error)
            return Response.text(f"{error}\n", HTTPStatus.BAD_REQUEST)
        except Exception:
            metrics.WEBHOOK_PANICS.inc()
            log.exception("%s: internal error (a bug in the operator)", path)
            return Response.text("internal error; see the operator's log\n", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def measured(request: Request) -> Response:
        started = time.perf_counter()
        code: int = HTTPStatus.INTERNAL_SERVER_ERROR
        with in_flight.track_inprogress():
            try:
                if len(request.body) <= INLINE_BYTES:
                    answered = respond(request.body)
                else:
                    answered = await asyncio.get_running_loop().run_in_executor(_REVIEWER, respond, request.body)
                code = answered.status
            finally:
                latency.observe(time.perf_counter() - started)
                metrics.WEBHOOK_REQUESTS.labels(webhook=path, code=str(int(code))).inc()
        return answered

    metrics.WEBHOOK_REQUESTS.labels(webhook=path, code="200")  # rate() needs an initial value
    return measured


def _read(body: bytes, known: Mapping[Any, Admission]) -> AdmissionRequest:
    if (values := count_values(body, MAX_VALUES)) > MAX_VALUES:
        raise BadRequest(f"the body has about {values} values; use at most {MAX_VALUES}. Shorten the resource.")
    try:
        review = decode(body)
    except ValueError as error:
        raise BadRequest(f"the body cannot be parsed: {str(error)[:MAX_QUOTED_CHARACTERS]}") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        given = _versioned(review.get("kind"), review.get("apiVersion")) if isinstance(review, dict) else "another type"
        raise BadRequest(
            f"the request must be an {KIND} of {API_VERSION}, not {given}. Set admissionReviewVersions to [v1]."
        )
    request = review.get("request")
    uid = request.get("uid") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(uid, str) or len(uid) > MAX_NAME_CHARACTERS:
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
    if not all(isinstance(part.get("metadata", {}), dict) for part in (obj, old or {})):
        raise BadRequest("metadata of a resource is not an object.")
    return AdmissionRequest(uid, admission, obj, old, request.get("dryRun") is True)


def _size_of(state: Obj | None) -> Size:
    """Return the size of a state as the API server writes it: Go escapes five characters with six bytes each."""
    text = encode(state) if state else b""
    longer = 5 * sum(map(text.count, (b"<", b">", b"&"))) + 3 * sum(map(text.count, _LINE_SEPARATORS))
    return Size(len(text) + longer, count_values(text, MAX_VALUES))


def _versioned(kind: Any, version: Any) -> str:
    """Return a kind and its version for a message. A client may have sent anything, of any length."""
    return f"{str(kind)[:MAX_QUOTED_CHARACTERS]} of {str(version)[:MAX_QUOTED_CHARACTERS]}"


def _identity(admission: Admission) -> tuple[str, str, str]:
    return admission.kind.group, admission.kind.version, admission.kind.name
