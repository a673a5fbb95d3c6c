"""Versions of the Secrets whose content is in effect on every server: what a rotation can wait for. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shared.kubernetes.kinds import Obj

FIELD = "observedSecrets"


def report(before: Obj, versions: Mapping[str, str | None], *, spec_is_met: bool) -> Obj:
    """Return the field of the status; empty for a resource that names no Secret.

    Args:
        before: the present status. A version that is not known to be in effect everywhere leaves the former one.
        versions: for each Secret that the spec requires, the resourceVersion of the content that servers have if the
            spec is met; None if servers may still have an earlier one.
        spec_is_met: whether every server matches the spec and the Secrets.
    """
    known = {entry["name"]: entry["resourceVersion"] for entry in before.get(FIELD) or ()}
    found = {name: (version if spec_is_met else None) or known.get(name) for name, version in versions.items()}
    entries = [{"name": name, "resourceVersion": version} for name, version in sorted(found.items()) if version]
    return {FIELD: entries} if entries else {}


def versions_of(secrets: Mapping[str, Obj | None]) -> dict[str, str | None]:
    """Return the resourceVersions of Secrets, by name; None for one that does not exist."""
    return {name: secret["metadata"].get("resourceVersion") if secret else None for name, secret in secrets.items()}
