"""Every change of a spec is applied, also where the API server's object holds more than the spec requires.

A value that server-side apply treats as one whole (a toleration, an affinity term, a secretKeyRef) may hold defaults of
the API server next to what was applied. A removed field looks like such a default.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.status import conditions
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import World

TOLERATION = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
TERMS = [
    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
]
NODE_TERM = {"matchExpressions": TERMS[0]["matchExpressions"], "matchFields": TERMS[1]["matchFields"]}
SOURCE = {"secretKeyRef": {"name": "users", "key": "a", "optional": True}}


def node_affinity(*terms: Obj) -> Obj:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


REMOVALS: dict[str, tuple[str, Any, Any]] = {
    "tolerationSeconds": (
        "tolerations",
        [TOLERATION],
        [{key: value for key, value in TOLERATION.items() if key != "tolerationSeconds"}],
    ),
    "matchFields of a term": ("affinity", node_affinity(NODE_TERM), node_affinity(TERMS[0])),
    "optional of a secretKeyRef": (
        "env",
        [{"name": "A", "valueFrom": SOURCE}],
        [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "users", "key": "a"}}}],
    ),
}


def in_pods(obj: Obj, field: str) -> Any:
    """Return a field of the spec as the pods of a StatefulSet have it."""
    pod: Obj = obj["spec"]["template"]["spec"]
    return pod["containers"][0][field] if field == "env" else pod[field]


@pytest.mark.parametrize("removal", REMOVALS)
def test_field_removed_inside_an_atomic_value_is_removed_from_the_pods(
    world: World, operator: Operator, removal: str
) -> None:
    field, before, after = REMOVALS[removal]
    world.create(**{field: before})
    world.eventually(world.is_ready)
    assert in_pods(world.get(STATEFUL_SET), field) == before
    world.change(**{field: after})
    world.eventually(world.is_ready)
    assert in_pods(world.get(STATEFUL_SET), field) == after


DIVISOR = {"containerName": "exporter", "resource": "limits.cpu", "divisor": "1m2"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"affinity": {"nodeAffinty": {}}}, "nodeAffinty"),
        ({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": DIVISOR}}]}, "unable to parse quantity"),
    ],
    ids=["unknown field", "malformed quantity"],
)
def test_malformed_opaque_part_is_the_users_to_fix(world: World, operator: Operator, spec: Obj, words: str) -> None:
    world.create(**spec)
    world.eventually(lambda: world.condition(of=conditions.STALLED).get("status") == "True", seconds=30)
    stalled = world.condition(of=conditions.STALLED)
    assert (stalled["reason"], words in stalled["message"]) == ("Rejected", True)
