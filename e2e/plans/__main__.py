"""Print the plan of a change as JSON: `python -m e2e.plans NAMESPACE KIND NAME`, with the changed resource as input.

It is a process of its own: a plan computes for seconds, in which clients of a scenario in the same process would wait.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys

from plugin.commands.plan import planned
from plugin.databases import named
from plugin.session import Target, connected
from shared.kubernetes.kinds import Obj
from simulator.plan import Plan


async def plan(namespace: str, kind: str, name: str, change: Obj) -> Plan:
    """Return the plan of a change as `kubectl platform plan` makes it."""
    database = named(kind)
    async with connected(Target(os.environ["KUBECONFIG"], namespace=namespace)) as session:
        live = await session.resource(database, name)
        return await planned(session, database, live, change, "")


if __name__ == "__main__":
    namespace, kind, name = sys.argv[1:]
    found = asyncio.run(plan(namespace, kind, name, json.load(sys.stdin)))
    print(json.dumps(dataclasses.asdict(found)))
