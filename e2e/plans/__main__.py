"""Print the plan of a change as JSON: `python -m e2e.plans KUBECONFIG NAMESPACE KIND NAME < RESOURCE`.

It is a process of its own: a plan computes for seconds, in which clients of a scenario in the same process would wait.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys

from plugin.commands.plan import planned
from plugin.databases import named
from plugin.session import Target, connected
from shared.kubernetes.kinds import Obj
from simulator.plan import Plan
from tools.local.environment import forget_clusters


async def plan(kubeconfig: str, namespace: str, kind: str, name: str, change: Obj) -> Plan:
    """Return the plan of a change as `kubectl platform plan` makes it."""
    database = named(kind)
    async with connected(Target(kubeconfig, namespace=namespace)) as session:
        live = await session.resource(database, name)
        return await planned(session, database, live, change, "")


def main(kubeconfig: str, namespace: str, kind: str, name: str) -> None:
    """Print the plan."""
    forget_clusters()
    found = asyncio.run(plan(kubeconfig, namespace, kind, name, json.load(sys.stdin)))
    print(json.dumps(dataclasses.asdict(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
