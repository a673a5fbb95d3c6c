"""Independent check of a cluster by `redis-cli --cluster check` or `valkey-cli --cluster check`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from e2e.scenarios.redis.session import Access, Address
from e2e.scenarios.support.commands import Refused, run
from tools.databases import redis_programs

REQUIRED_LINES = ("[OK] All nodes agree about slots configuration.", "[OK] All 16384 slots covered.")


@dataclass(frozen=True)
class Verdict:
    """Result of the check.

    Attributes:
        primaries, replicas: number of nodes that the check connected to.
        problems: complaints, and expected lines that are missing; empty if the cluster is healthy.
    """

    primaries: int
    replicas: int
    problems: tuple[str, ...]


def parse(output: str) -> Verdict:
    """Parse the output of a check. Pure."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in output.splitlines()]
    complaints = [line for line in lines if line.startswith(("[ERR]", "[WARNING]", "Could not connect", "*** "))]
    missing = [f"missing: {line}" for line in REQUIRED_LINES if line not in lines]
    primaries, replicas = (sum(line.startswith(kind) for line in lines) for kind in ("M: ", "S: "))
    return Verdict(primaries, replicas, (*complaints, *missing))


def check(address: Address, access: Access, engine: str) -> Verdict:
    """Check a cluster with the newest CLI of an engine, starting with the node at this address."""
    host, port = address
    tls = {"--cacert": access.authority, "--cert": access.certificate, "--key": access.key}
    options = [part for name, path in tls.items() if path for part in (name, path)]
    newest = max(version for name, version in redis_programs.WITH_IMAGE if name == engine)
    command = [*redis_programs.cli(engine, newest), *(["--tls"] if options else []), *options]
    # A password among the arguments would be visible to all local users.
    environment = {**os.environ, "REDISCLI_AUTH": access.password} if access.password else dict(os.environ)
    try:
        return parse(run([*command, "--cluster", "check", f"{host}:{port}"], environment))
    except Refused as refused:
        return parse(refused.output)
