"""Engine images that the test cluster has, as spec fields."""

from __future__ import annotations

from typing import Any

from tools.databases import redis_programs

Spec = dict[str, Any]


def _of(engine: str, series: str) -> Spec:
    repository = {"redis": "library/redis", "valkey": "valkey/valkey"}[engine]
    return {"repository": repository, "version": redis_programs.exact(engine, series)}


REDIS_7, REDIS_8 = _of("redis", "7.0"), _of("redis", "8.0")
VALKEY_8, VALKEY_9 = _of("valkey", "8.1"), _of("valkey", "9.1")

KEY_BY_KEY, ATOMIC = REDIS_7, VALKEY_9
"""Engines of the two ways to migrate slots."""


def engine(spec: Spec) -> str:
    """Return the engine of a spec of these scenarios."""
    return "valkey" if "valkey" in spec.get("repository", "") else "redis"
