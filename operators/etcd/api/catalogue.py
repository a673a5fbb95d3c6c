"""Versions of etcd: what is known of them, looked up in etcd's own change logs and security advisories. Pure.

3.4 has had no release since 2026-06-01, although 3.5, 3.6 and 3.7 have, and counts as not maintained. Newest releases
are those of etcd's Go modules on 2026-11-23. Not listed: weaknesses of dependencies that do not concern etcd's own
interfaces, and GHSA-3wh4-j44w-pg92 (revocation lists), because spec.extraArgs rejects the flags that it needs.
"""

from __future__ import annotations

import enum
from datetime import date

from operators.etcd.api.versions import Version
from shared.api.catalogue import Advisory, Bug, Catalogue, Line, Weaknesses
from shared.kubernetes.kinds import Obj

_LOG = "https://github.com/etcd-io/etcd/blob/main/CHANGELOG/CHANGELOG-"
_ADVISORIES = "https://github.com/etcd-io/etcd/security/advisories"
_ISSUES = "https://github.com/etcd-io/etcd/issues"


class Hazard(enum.Enum):
    """A step that some versions do not carry out safely."""

    DEFRAGMENTING = "a member that is stopped during a defragmentation may apply writes twice"
    JOINING_WITH_AUTH = "a new member may skip writes while authentication is enabled"


_NO_DEFRAGMENTATION = "The operator does not defragment these versions"
_NO_NEW_MEMBER = "The operator adds no members to these versions while authentication is enabled"

ETCD = Catalogue(
    engine="etcd",
    looked_up=date(2026, 11, 23),
    image="gcr.io/etcd-development/etcd",
    repository="https://github.com/etcd-io/etcd",
    default="3.6",
    lines=(
        Line("3.7.3", f"{_LOG}3.7.md"),
        Line("3.6.16", f"{_LOG}3.6.md"),
        Line("3.5.35", f"{_LOG}3.5.md"),
        Line("3.4.45", f"{_LOG}3.4.md", maintained=False),
    ),
    advisories=(
        Advisory(
            "CVE-2026-73499",
            "a user with the right to read one key can watch all keys after it",
            f"{_ADVISORIES}/GHSA-xg4h-6gfc-h4m8",
            fixed="3.5.33 3.6.14 3.7.1",
            needs="auth",
        ),
        Advisory(
            "GHSA-6vch-q96h-7gc3",
            "clients that never finish a TLS handshake can exhaust a member's connections",
            f"{_ADVISORIES}/GHSA-6vch-q96h-7gc3",
            fixed="3.5.33 3.6.14 3.7.1",
            needs="tls",
        ),
        Advisory(
            "CVE-2026-44283",
            "a user can read former values, and attach leases, without the permission, in a transaction",
            f"{_LOG}3.6.md#v3611-2026-05-01",
            fixed="3.4.44 3.5.30 3.6.11",
            needs="auth",
        ),
        Advisory(
            "CVE-2026-33413",
            "clients without a password can list members, raise alarms, compact the history and change leases",
            f"{_ADVISORIES}/GHSA-q8m4-xhhv-38mg",
            fixed="3.4.42 3.5.28 3.6.9",
            needs="auth",
        ),
        Advisory(
            "CVE-2026-33343",
            "a user can read and change all keys with nested transactions",
            f"{_ADVISORIES}/GHSA-rfx7-8w68-q57q",
            fixed="3.4.42 3.5.28 3.6.9",
            needs="auth",
        ),
    ),
    # Source of all: https://groups.google.com/g/etcd-dev/c/8S7u6NqW6C4, and the issues.
    bugs=(
        Bug("3.5.0", "3.5.5", Hazard.DEFRAGMENTING.value, f"{_ISSUES}/14685", "3.5.26", _NO_DEFRAGMENTATION),
        Bug("3.4.20", "3.4.21", Hazard.JOINING_WITH_AUTH.value, f"{_ISSUES}/14571", "3.4.22", _NO_NEW_MEMBER, "auth"),
        Bug("3.5.5", "3.5.5", Hazard.JOINING_WITH_AUTH.value, f"{_ISSUES}/14571", "3.5.26", _NO_NEW_MEMBER, "auth"),
        Bug("3.5.0", "3.5.2", "acknowledged writes can be lost when a member is killed", f"{_ISSUES}/13766", "3.5.26"),
    ),
)


def bug_of(version: Version, hazard: Hazard) -> Bug | None:
    """Return the bug of a version that makes a step unsafe; None if the step is safe."""
    release = (version.major, version.minor, version.patch)
    return next((bug for bug in ETCD.bugs if bug.effect == hazard.value and bug.affects(release)), None)


def features_of(spec: Obj) -> frozenset[str]:
    """Return the features of an EtcdCluster on which advisories depend."""
    auth, tls = spec.get("auth"), spec.get("tls") or {}
    used = {"auth": auth is not None and auth.get("enabled", True), "tls": tls.get("mode", "none") != "none"}
    return frozenset(name for name, is_used in used.items() if is_used)


def weaknesses_of(obj: Obj) -> Weaknesses:
    """Return the advisories that apply to the oldest version that a member of an EtcdCluster runs."""
    return ETCD.weaknesses((obj.get("status") or {}).get("version") or "", features_of(obj.get("spec") or {}))
