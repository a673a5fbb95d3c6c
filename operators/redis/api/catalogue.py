"""Versions of Redis and Valkey: the catalogues, and which weaknesses concern a cluster."""

from __future__ import annotations

from pathlib import Path

from operators.redis.api.engine_versions import EngineName, engine_named
from shared.api.catalogue import Catalogue, Weaknesses
from shared.kubernetes.kinds import Obj

REDIS, VALKEY = (Catalogue.read(Path(__file__).with_name(f"catalogue-{name}.toml")) for name in ("redis", "valkey"))

CATALOGUES: dict[EngineName, Catalogue] = {"redis": REDIS, "valkey": VALKEY}


def features_of(spec: Obj) -> frozenset[str]:
    """Return the features of a RedisCluster on which advisories depend."""
    config = {name.lower(): value for name, value in (spec.get("config") or {}).items()}
    used = {
        "tls": (spec.get("tls") or {}).get("mode", "none") != "none",
        "maxmemory-clients": config.get("maxmemory-clients", "0") not in ("0", "0%"),
        "io-threads": config.get("io-threads", "1") != "1",
    }
    return frozenset(name for name, is_used in used.items() if is_used)


def weaknesses_of(obj: Obj) -> Weaknesses:
    """Return the advisories that apply to the oldest version that a node of a RedisCluster runs."""
    engine, _, version = ((obj.get("status") or {}).get("version") or "").partition(" ")
    return CATALOGUES[engine_named(engine)].weaknesses(version, features_of(obj.get("spec") or {}))
