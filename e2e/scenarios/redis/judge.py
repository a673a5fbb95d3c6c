"""An independent judge of a cluster: what redis-cli's or valkey-cli's own check says of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from e2e.databases import redis_programs
from e2e.scenarios.redis.session import Access, Address
from e2e.scenarios.support.commands import Refused, run

MUST_SAY = ("[OK] All nodes agree about slots configuration.", "[OK] All 16384 slots covered.")


@dataclass(frozen=True)
class Verdict:
    """What the check found.

    Attributes:
        masters, replicas: how many nodes it spoke with.
        wrong: what it complains of, and what it should have said and did not; empty if all is well.
    """

    masters: int
    replicas: int
    wrong: tuple[str, ...]


def read(said: str) -> Verdict:
    """What a check says that was run to its end, well or not. Pure."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in said.splitlines()]
    complaints = [line for line in lines if line.startswith(("[ERR]", "[WARNING]", "Could not connect", "*** "))]
    unsaid = [f"not said: {line}" for line in MUST_SAY if line not in lines]
    masters, replicas = (sum(line.startswith(kind) for line in lines) for kind in ("M: ", "S: "))
    return Verdict(masters, replicas, (*complaints, *unsaid))


def check(address: Address, access: Access, engine: str) -> Verdict:
    """Have a cluster checked by the newest tool of an engine's own, beginning with the node at this address."""
    host, port = address
    tls = {"--cacert": access.authority, "--cert": access.certificate, "--key": access.key}
    options = [part for name, path in tls.items() if path for part in (name, path)]
    newest = max(version for name, version in redis_programs.VERSIONS if name == engine)
    command = [*redis_programs.cli(engine, newest), *(["--tls"] if options else []), *options]
    # A password among the arguments would be everybody's to read.
    environment = {**os.environ, "REDISCLI_AUTH": access.password} if access.password else dict(os.environ)
    try:
        return read(run([*command, "--cluster", "check", f"{host}:{port}"], environment))
    except Refused as refused:
        return read(refused.output)
