"""Versions of etcd: the catalogue, and which weaknesses and bugs concern a cluster."""

from __future__ import annotations

import enum
from pathlib import Path

from operators.etcd.api.versions import Version
from shared.api.catalogue import Bug, Catalogue, Weaknesses
from shared.kubernetes.kinds import Obj


class Hazard(enum.Enum):
    """A step that some versions do not carry out safely, as `Bug.prevents` names it."""

    DEFRAGMENTING = "defragmentation"
    JOINING_WITH_AUTH = "joining with authentication"


ETCD = Catalogue.read(Path(__file__).with_name("catalogue.toml"))


def bug_of(version: Version, hazard: Hazard) -> Bug | None:
    """Return the bug of a version that makes a step unsafe; None if the step is safe."""
    release = (version.major, version.minor, version.patch)
    return next((bug for bug in ETCD.bugs if bug.prevents == hazard.value and bug.affects(release)), None)


def features_of(spec: Obj) -> frozenset[str]:
    """Return the features of an EtcdCluster on which advisories depend."""
    auth, tls = spec.get("auth"), spec.get("tls") or {}
    used = {"auth": auth is not None and auth.get("enabled", True), "tls": tls.get("mode", "none") != "none"}
    return frozenset(name for name, is_used in used.items() if is_used)


def weaknesses_of(obj: Obj) -> Weaknesses:
    """Return the advisories that apply to the oldest version that a member of an EtcdCluster runs."""
    return ETCD.weaknesses((obj.get("status") or {}).get("version") or "", features_of(obj.get("spec") or {}))
