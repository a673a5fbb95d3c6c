"""Versions of memcached: the catalogue, and which weaknesses concern a resource."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from shared.api.catalogue import Catalogue, Weaknesses, release_of
from shared.api.image import Image
from shared.kubernetes.kinds import Obj

MEMCACHED = Catalogue.read(Path(__file__).with_name("catalogue.toml"))


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
