"""Changing any field has the same result as creating the resource with it, and reverting it leaves no trace."""

from __future__ import annotations

import json
from typing import Any

from shared.kubernetes.kinds import NETWORK_POLICY, SECRET, Obj
from tests.api.support.running import Operator
from tests.api.support.world import EVERYTHING, MEMCACHED, World, masked
from tests.support.memcached.cases import CHANGES
from tests.unit.memcached.fake_servers import certificate, secret, tls_secret

NAMES = {leaf: f"leaf-{number}" for number, leaf in enumerate(CHANGES)}


def objects(world: World) -> dict[str, Any]:
    """Return the objects of each resource by its name, with that name masked."""
    found: dict[str, list[Obj]] = {}
    for kind in (MEMCACHED, *EVERYTHING, NETWORK_POLICY):
        for obj in world.listed(kind):
            name = obj["metadata"]["name"].removesuffix("-network")
            text = json.dumps(masked(obj), sort_keys=True)
            found.setdefault(name, []).append(
                json.loads(
                    text.replace(f'"{name}"', '"NAME"')
                    .replace(f"={name},", "=NAME,")
                    .replace(f'"{name}-network"', '"NAME-network"')
                )
            )
    return found


def settled(world: World, *prefixes: str) -> bool:
    """Whether every resource is ready, or paused if its spec requires that."""
    names = [f"{prefix}{name}" for prefix in prefixes for name in NAMES.values()]
    paused = {f"{prefix}{NAMES['paused']}" for prefix in prefixes}
    return all(world.reason(name) == "Paused" if name in paused else world.is_ready(name) for name in names)


def test_field_change_equals_creation_and_can_be_reverted(world: World, operator: Operator) -> None:
    world.user_client.create(SECRET, secret("users", users="app:secret\n") | {"metadata": world.metadata("users")})
    world.user_client.create(SECRET, tls_secret(certificate()) | {"metadata": world.metadata("cache-tls")})
    for leaf, name in NAMES.items():
        world.create(f"new-{name}", **({"size": 0} | CHANGES[leaf]))
        world.create(f"old-{name}", size=0)
    world.create("untouched", size=0)
    world.eventually(lambda: world.is_ready("untouched") and settled(world, "new-"), seconds=60)
    world.eventually(lambda: all(world.is_ready(f"old-{name}") for name in NAMES.values()), seconds=60)
    for leaf, name in NAMES.items():
        world.change(f"old-{name}", **CHANGES[leaf])
    world.eventually(lambda: settled(world, "old-"), seconds=60)
    seen = objects(world)
    differ = [
        leaf
        for leaf, name in NAMES.items()
        # A resource paused at creation has no objects; one paused later keeps them.
        if leaf != "paused" and seen[f"old-{name}"] != seen[f"new-{name}"]
    ]
    assert differ == []

    for leaf, name in NAMES.items():
        world.change(f"old-{name}", **dict.fromkeys(CHANGES[leaf]) | {"size": 0})
    world.eventually(lambda: all(world.is_ready(f"old-{name}") for name in NAMES.values()), seconds=60)
    seen = objects(world)
    assert [leaf for leaf, name in NAMES.items() if seen[f"old-{name}"] != seen["untouched"]] == []
