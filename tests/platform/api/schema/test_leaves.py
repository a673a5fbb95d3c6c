"""Changing any field has the same result as creating the resource with it, and reverting it leaves no trace."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest

from shared.kubernetes.kinds import NETWORK_POLICY, SECRET, Obj
from shared.kubernetes.secret_provenance import RECORD
from simulator.memcached.fake_servers import certificate, secret, tls_secret
from tests.memcached.unit.world import UNPAUSED
from tests.platform.api.support.leaf_edits import STAYING
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import EVERYTHING, MEMCACHED, World, masked
from tests.support import seeds
from tests.support.memcached.cases import CHANGES

pytestmark = pytest.mark.nightly

NEEDS_CERT_MANAGER = "tls.issuer."
"""Leaves whose resources wait for cert-manager, which does not run here (test_leaf_edits.py)."""


def named_leaves(per_field: int | None) -> dict[str, str]:
    """Return a name of a resource for each leaf: all of them, or the given number of each field."""
    fields: dict[str, list[str]] = {}
    for leaf in CHANGES:
        if leaf.startswith(NEEDS_CERT_MANAGER):
            continue
        fields.setdefault(re.split(r"[.\[]", leaf)[0], []).append(leaf)
    chance = random.Random(seeds.seed())
    drawn = [leaf for of in fields.values() for leaf in chance.sample(of, min(len(of), per_field or len(of)))]
    return {leaf: f"leaf-{number}" for number, leaf in enumerate(drawn)}


def objects(world: World) -> dict[str, Any]:
    """Return the objects of each resource by its name, with that name masked."""
    found: dict[str, list[Obj]] = {}
    for kind in (MEMCACHED, *EVERYTHING, NETWORK_POLICY):
        for obj in world.listed(kind):
            (obj.get("status") or {}).pop(RECORD, None)  # it has also Secrets that the spec no longer needs
            if ((obj.get("spec") or {}).get("tls") or {}).get("mode") == "self":
                obj["status"].pop("certificate")  # the fingerprint of a certificate that each resource has for itself
            if (obj.get("status") or {}).get("users"):
                obj["status"]["users"] = "digest with the UID of the copy that each resource has for itself"
            name = obj["metadata"]["name"].removesuffix("-network")
            text = json.dumps(masked(obj), sort_keys=True)
            for end in ('"', "-", ",", "."):
                text = text.replace(f'"{name}{end}', f'"NAME{end}').replace(f"={name}{end}", f"=NAME{end}")
            found.setdefault(name, []).append(json.loads(text))
    return found


def settled(world: World, named: Mapping[str, str], prefix: str) -> bool:
    """Whether every resource is ready, or paused if its spec requires that."""
    return all(
        world.reason(f"{prefix}{name}") == "Paused" if leaf == "paused" else world.is_ready(f"{prefix}{name}")
        for leaf, name in named.items()
    )


@pytest.mark.parametrize(
    ("per_field", "seconds"), [(1, 120), pytest.param(None, 600, marks=[pytest.mark.weekly, pytest.mark.timeout(2400)])]
)
def test_field_change_equals_creation_and_can_be_reverted(
    world: World, operator: Operator, per_field: int | None, seconds: float
) -> None:
    names = named_leaves(per_field)
    world.user_client.create(SECRET, secret("users", users="app:secret\n") | {"metadata": world.metadata("users")})
    world.user_client.create(SECRET, tls_secret(certificate()) | {"metadata": world.metadata("cache-tls")})
    for leaf, name in names.items():
        world.create(f"new-{name}", **({"size": 0} | CHANGES[leaf]))
        world.create(f"old-{name}", size=0)
    world.create("untouched", size=0)
    world.eventually(lambda: world.is_ready("untouched") and settled(world, names, "new-"), seconds=seconds)
    world.eventually(lambda: all(world.is_ready(f"old-{name}") for name in names.values()), seconds=seconds)
    for leaf, name in names.items():
        world.change(f"old-{name}", **CHANGES[leaf])
    world.eventually(lambda: settled(world, names, "old-"), seconds=seconds)
    seen = objects(world)
    differ = [
        leaf
        for leaf, name in names.items()
        # A resource paused at creation has no objects; one paused later keeps them.
        if leaf != "paused" and seen[f"old-{name}"] != seen[f"new-{name}"]
    ]
    assert differ == [], f"{seeds.VARIABLE}={seeds.seed()}"

    for leaf, name in names.items():
        world.change(f"old-{name}", **dict.fromkeys(CHANGES[leaf]) | {"size": 0} | UNPAUSED)
    world.eventually(lambda: all(world.is_ready(f"old-{name}") for name in names.values()), seconds=seconds)
    seen = objects(world)
    left = [leaf for leaf, name in names.items() if seen[f"old-{name}"] != seen["untouched"]]
    assert [leaf for leaf in left if leaf not in STAYING] == [], f"{seeds.VARIABLE}={seeds.seed()}"
