"""Versions of Redis and Valkey: what is known of them, looked up in the projects' release notes and advisories. Pure.

Redis: the lines are those of Docker's official image, which the project itself maintains; 7.0 and 8.0 get no more
fixes. The newest releases of 8.6 to 8.10 are those of 2026-09-17. For 8.4, 8.2, 7.4, 7.2 and 6.2 no release after those
of 2026-08-21 could be looked up; there may be newer ones. The fixes of May 2026 could not be looked up for 7.2 and 6.2.
Fixes without an identifier are not listed, such as those of 2026-09-17.

The default of Redis is 8.2: the newest line that moves slots key by key, as the versions of Redis do that most tests
run. docs/reference/compatibility.md has the release of each default line that the tests run.

Valkey: releases of 2026-11-18. Not listed: GHSA-jcj7-v34w-v9vv, which concerns RDMA only. The fixes of May 2026 could
not be looked up for 8.0 and 7.2, and those of July 2026 not for 7.2. The bug with slot moves was reported for 9.0.5 to
9.1.1. No release notes that were read name its fix (valkey#4104), so that all known releases of 9 are listed.

Advisories of 2024 and before are left out: later ones apply to the same versions in any configuration. Debian and other
distributors add fixes to earlier versions without a change of the version.
"""

from __future__ import annotations

from datetime import date

from operators.redis.api.engine_versions import EngineName, engine_named
from shared.api.catalogue import Advisory, Bug, Catalogue, Line, Weaknesses
from shared.kubernetes.kinds import Obj

_REDIS = "https://github.com/redis/redis"
_VALKEY = "https://github.com/valkey-io/valkey"
_LUA = "a user with the right to run scripts can execute code on the server"

REDIS = Catalogue(
    engine="redis",
    looked_up=date(2026, 11, 23),
    image="redis",
    repository="https://github.com/redis/redis",
    default="8.2",
    lines=(
        Line("8.10.2", f"{_REDIS}/releases/tag/8.10.2"),
        Line("8.8.3", f"{_REDIS}/releases/tag/8.8.3"),
        Line("8.6.7", f"{_REDIS}/releases/tag/8.6.7"),
        Line("8.4.6", f"{_REDIS}/releases/tag/8.4.6"),
        Line("8.2.9", f"{_REDIS}/releases/tag/8.2.9"),
        Line("8.0.6", f"{_REDIS}/releases/tag/8.0.6", maintained=False),
        Line("7.4.11", f"{_REDIS}/releases/tag/7.4.11"),
        Line("7.2.16", f"{_REDIS}/releases/tag/7.2.16"),
        Line("7.0.15", f"{_REDIS}/releases/tag/7.0.15", maintained=False),
        Line("6.2.24", f"{_REDIS}/releases/tag/6.2.24"),
    ),
    advisories=(
        Advisory(
            "CVE-2026-81934",
            "a client can execute code on a server with TLS",
            "https://redis.io/blog/security-advisory-cve-2026-81934/",
            fixed="6.2.24 7.2.16 7.4.11 8.2.9 8.4.6 8.6.6 8.8.2 8.10.1",
            needs="tls",
        ),
        Advisory(
            "CVE-2026-23479",
            "a user with a blocking command can execute code on the server",
            f"{_REDIS}/security/advisories/GHSA-93m2-935m-8rj3",
            fixed="7.4.9 8.2.6 8.4.3 8.6.3",
            introduced="7.2.0",
            unknown="7.2",
        ),
        Advisory(
            "CVE-2026-25243",
            "a user with the right to run RESTORE can execute code on the server",
            f"{_REDIS}/security/advisories/GHSA-c8h9-259x-jff4",
            fixed="7.4.9 8.2.6 8.4.3 8.6.3",
            unknown="6.2 7.2",
        ),
        Advisory(
            "CVE-2026-23631",
            _LUA,
            f"{_REDIS}/security/advisories/GHSA-8ghh-qpmp-7826",
            fixed="7.4.9 8.2.6 8.4.3 8.6.3",
            unknown="6.2 7.2",
        ),
        Advisory(
            "CVE-2025-62507",
            "a user with the right to run XACKDEL can execute code on the server",
            f"{_REDIS}/releases/tag/8.2.3",
            fixed="8.2.3",
            introduced="8.2.0",
        ),
        Advisory(
            "CVE-2025-49844",
            _LUA,
            f"{_REDIS}/security/advisories/GHSA-4789-qfc9-5f9q",
            fixed="6.2.20 7.2.11 7.4.6 8.0.4 8.2.2",
        ),
        Advisory(
            "CVE-2025-32023",
            "a user with the right to run the commands of HyperLogLog can execute code on the server",
            f"{_REDIS}/releases/tag/8.0.3",
            fixed="6.2.19 7.2.10 7.4.5 8.0.3",
        ),
    ),
)

VALKEY = Catalogue(
    engine="valkey",
    looked_up=date(2026, 11, 23),
    image="valkey/valkey",
    repository="https://github.com/valkey-io/valkey",
    default="8.1",
    lines=(
        Line("9.1.4", f"{_VALKEY}/releases/tag/9.1.4"),
        Line("9.0.8", f"{_VALKEY}/releases/tag/9.0.8"),
        Line("8.1.12", f"{_VALKEY}/releases/tag/8.1.12"),
        Line("8.0.13", f"{_VALKEY}/releases/tag/8.0.13"),
        Line("7.2.16", f"{_VALKEY}/releases/tag/7.2.16"),
    ),
    advisories=(
        Advisory(
            "CVE-2026-130822",
            "a client can crash a server that limits the memory of clients",
            f"{_VALKEY}/releases/tag/9.1.4",
            fixed="7.2.16 8.0.13 8.1.12 9.0.8 9.1.4",
            needs="maxmemory-clients",
        ),
        Advisory(
            "GHSA-f4q9-j22m-xqq9",
            "a user with the right to publish can crash a node of a cluster, or execute code on it",
            f"{_VALKEY}/releases/tag/9.1.3",
            fixed="7.2.15 8.0.12 8.1.11 9.0.7 9.1.3",
        ),
        Advisory(
            "GHSA-fq2f-crmw-q97r",
            "a client that is not logged in can make the server use freed memory",
            f"{_VALKEY}/releases/tag/9.1.2",
            fixed="9.1.2",
            introduced="9.1.0",
        ),
        Advisory(
            "CVE-2026-56684",
            "a user with the right to run CLIENT KILL can execute code on a server with TLS",
            f"{_VALKEY}/releases/tag/9.1.1",
            fixed="8.0.10 8.1.9 9.0.5 9.1.1",
            needs="tls",
            unknown="7.2",
        ),
        Advisory(
            "CVE-2026-63639",
            "a user with the right to run RESTORE can execute code on the server",
            f"{_VALKEY}/releases/tag/9.1.1",
            fixed="8.0.10 8.1.9 9.0.5 9.1.1",
            unknown="7.2",
        ),
        Advisory(
            "CVE-2026-23479",
            "a user with a blocking command can execute code on the server",
            f"{_VALKEY}/releases/tag/9.0.4",
            fixed="8.1.7 9.0.4",
            unknown="7.2 8.0",
        ),
        Advisory(
            "CVE-2026-21863",
            "any host that reaches the cluster bus can crash a node",
            f"{_VALKEY}/security/advisories/GHSA-c677-q3wr-gggq",
            fixed="7.2.12 8.0.7 8.1.6 9.0.3",
        ),
        Advisory(
            "CVE-2025-49844",
            _LUA,
            f"{_VALKEY}/releases/tag/8.1.4",
            fixed="7.2.11 8.0.6 8.1.4",
        ),
    ),
    bugs=(
        Bug(
            "9.0.0",
            "9.1.4",
            "moves of slots fail while clients write much to these slots, and are then repeated",
            f"{_VALKEY}/issues/4545",
            needs="io-threads",
            avoided="No data is lost, but scaling may not finish. Set io-threads to 1 in spec.config meanwhile",
        ),
    ),
)

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
