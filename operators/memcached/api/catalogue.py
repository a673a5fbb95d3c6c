"""Versions of memcached: what is known of them, looked up in memcached's own tags and release notes. Pure.

The project fixes only the newest release and requests no CVE identifiers, so that its release notes represent its many
fixes, CVE-2026-47783 (SASL, 1.6.42) among them; `make upstream-fixes` lists the commits that look like one. CVE records
by others are listed if the version with the fix is known. Not listed: weaknesses of the proxy and of UDP
(CVE-2023-46852, CVE-2023-46853, CVE-2018-1000115), because spec.extraArgs rejects their flags. The newest release is
that of the newest copies that could be read on 2026-11-23: the tags until 2026-08, and Debian's suites.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

from shared.api.catalogue import Advisory, Catalogue, Line, Weaknesses, release_of
from shared.api.image import Image
from shared.kubernetes.kinds import Obj

_NOTES = "https://github.com/memcached/memcached/wiki/ReleaseNotes"
_RECORDS = "https://www.cve.org/CVERecord?id="

MEMCACHED = Catalogue(
    engine="memcached",
    looked_up=date(2026, 11, 23),
    image="memcached",
    repository="https://github.com/memcached/memcached",
    default="1.6",
    lines=(
        Line("1.6.45", f"{_NOTES}1645"),
        Line("1.5.22", f"{_NOTES}1522", maintained=False),
        Line("1.4.39", f"{_NOTES}1439", maintained=False),
    ),
    advisories=(
        Advisory(
            "ReleaseNotes1645",
            "a client can make the server read beyond a buffer, or free an item that is in use",
            f"{_NOTES}1645",
            fixed="1.6.45",
        ),
        Advisory(
            "ReleaseNotes1644",
            "a client that dumps keys can make the server write beyond a buffer",
            f"{_NOTES}1644",
            fixed="1.6.44",
        ),
        Advisory(
            "ReleaseNotes1643",
            "a client of the binary protocol can overflow the references of an item, and perhaps run code",
            f"{_NOTES}1643",
            fixed="1.6.43",
        ),
        Advisory(
            "CVE-2026-90698",
            "a client that is not logged in yet can make the server read beyond a buffer",
            f"{_RECORDS}CVE-2026-90698",
            fixed="1.6.44",
            introduced="1.6.41",
            needs="auth",
        ),
        Advisory(
            "ReleaseNotes1642",
            "any client that reaches a server can crash it or corrupt its memory",
            f"{_NOTES}1642",
            fixed="1.6.42",
        ),
    ),
)


def features_of(spec: Obj) -> frozenset[str]:
    """Return the features of a Memcached on which advisories depend."""
    return frozenset(("auth",) if spec.get("auth") is not None else ())


def version_of(image: str) -> str:
    """Return the version that the tag of an image names; empty if only the server itself knows it.

    A tag such as 1.6 moves from release to release. A digest names no version, and the tag of an image of another name
    may be anything.
    """
    try:
        found = Image.parse(image)
    except ValueError:  # rejected by the rules
        return ""
    is_memcached = found.repository.rpartition("/")[2] == MEMCACHED.engine
    return found.tag if is_memcached and not found.digest and re.match(r"\d+\.\d+\.\d+", found.tag) else ""


def lowest(versions: Iterable[str]) -> str:
    """Return the lowest of the versions that servers report; empty if none is a version."""
    return min((each for each in versions if release_of(each)), key=lambda each: release_of(each) or (), default="")


def weaknesses_of(obj: Obj) -> Weaknesses:
    """Return the advisories that apply to what the servers of a Memcached run, or else to the version in its image."""
    status = obj.get("status") or {}
    version = status.get("serverVersion") or version_of(status.get("image") or "")
    return MEMCACHED.weaknesses(version, features_of(obj.get("spec") or {}))
