"""Accessors of common fields of Kubernetes objects: versions, annotations, conditions, times."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.kubernetes.kinds import Obj


def resource_version(obj: Obj) -> int:
    """Return an object's resourceVersion as a number: larger is newer (comparable since Kubernetes 1.35, KEP-5504).

    Before that, resourceVersions were documented as opaque, but every released API server ordered them.
    """
    return int(obj["metadata"].get("resourceVersion") or 0)


def annotation(obj: Obj | None, name: str, default: str = "") -> str:
    """Return the value of an annotation, or `default` if there is none."""
    return str((((obj or {}).get("metadata") or {}).get("annotations") or {}).get(name, default))


def label(obj: Obj | None, name: str) -> str:
    """Return the value of a label; empty if there is none."""
    return str((((obj or {}).get("metadata") or {}).get("labels") or {}).get(name, ""))


def is_terminating(obj: Obj | None) -> bool:
    """Return whether an object is being deleted; it stays while it has finalizers, as a claim that a pod uses."""
    return obj is not None and "deletionTimestamp" in obj["metadata"]


def rfc3339(moment: datetime) -> str:
    """Return a time in the format of Kubernetes, in UTC and whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Latest time that `time_in` returns by default: seconds and days can be added to it."""


def time_in(text: str, latest: datetime = LATEST) -> datetime | None:
    """Return the time in a text that users can edit, such as an annotation.

    None if the text is not a time with a time zone, or one after `latest`: of something that has happened, that is now.
    """
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo and found <= latest else None
    except (ValueError, OverflowError):
        return None


def now_rfc3339() -> str:
    """Return the current time in the format of Kubernetes."""
    return rfc3339(datetime.now(UTC))


def status_of(resource: Obj) -> Obj:
    """Return the status of a resource; empty if it has none. Any client with the permission may write any content."""
    found = resource.get("status")
    return found if isinstance(found, dict) else {}


def conditions_of(status: Obj) -> list[Obj]:
    """Return the entries under `conditions` of a status, without those that are no objects."""
    found = status.get("conditions")
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def condition(resource: Obj, name: str) -> Obj:
    """Return the condition of a resource with this type; empty if there is none."""
    return condition_in(conditions_of(status_of(resource)), name)


def condition_in(conditions: list[Obj], name: str) -> Obj:
    return next((found for found in conditions if found.get("type") == name), {})


def is_true(resource: Obj, name: str) -> bool:
    return condition(resource, name).get("status") == "True"


def is_current(resource: Obj) -> bool:
    """Whether the status of a resource describes its current spec."""
    observed = status_of(resource).get("observedGeneration")
    return bool(observed == resource["metadata"].get("generation"))
