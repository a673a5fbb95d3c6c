"""Versions of etcd whose images the cluster has."""

from __future__ import annotations

from tools.local.binaries import ETCD


def _of(minor: str) -> list[str]:
    """List the versions of a minor version, newest first."""
    return sorted((version for version in ETCD if version.startswith(f"{minor}.")), key=_numbers, reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


SEED = "v" + _of("3.4")[0]
"""Image tag in the manifest of the seed."""

NEWEST_35, OLD_35 = _of("3.5")
"""The newest 3.5, and one that must not be upgraded to 3.6."""

NEWEST_36, NEWEST_37 = _of("3.6")[0], _of("3.7")[0]
