"""RBAC rules of the chart: exactly what the operator writes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest
import yaml

from shared.kubernetes.kinds import Obj
from simulator.api_server.kinds import STORAGE_CLASS
from simulator.api_server.request_log import Write
from simulator.faults import CALL
from tests.harness.scenario import Scenario, ScenarioStep
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import REDIS, SCENARIOS, cluster
from tools.local.paths import REPOSITORY

RULES = REPOSITORY / "charts" / "redis-operator" / "files" / "rules.yaml"

VERBS = {
    "APPLY": "patch",
    "PATCH": "patch",
    "DELETE": "delete",
    "EVICT": "create",
    "CREATE": "create",
    "UPDATE": "update",
}
READING = {"get", "list", "watch"}

ELSEWHERE = {
    ("redisclusters/finalizers", "update"),  # required to set blockOwnerDeletion, where admission checks it
    ("events", "create"),  # the harness records events without an API request
    ("events", "patch"),
    ("pods/resize", "patch"),  # tests/platform/unit/test_resize.py
}

PLAYED = {
    "scale out and in",
    "scale-in reverted",
    "unpullable image reverted",
    "upgrade",
    "change settings at runtime",
    "password Secret appears after creation",
}

GROWING = {"metadata": {"name": "fast"}, "provisioner": "example.com/disks", "allowVolumeExpansion": True}


def on_disks(size: str, **spec: Any) -> ScenarioStep:
    return cluster(storage={"size": size, "storageClassName": "fast"}, **spec)


GROWN = Scenario(
    "larger volumes, another budget, and no NetworkPolicy",
    given=(
        ScenarioStep("a class that grows", lambda stage: stage.user_client.create(STORAGE_CLASS, GROWING)),
        on_disks("1Gi", podDisruptionBudget={"maxUnavailable": 1}),
    ),
    steps=(
        on_disks("2Gi", podDisruptionBudget={"maxUnavailable": 2}),
        on_disks("2Gi", podDisruptionBudget={"minAvailable": 4}),
        on_disks("2Gi", network={"enabled": False}),
    ),
)


def right(write: Write) -> set[tuple[str, str]]:
    """Return the rules that a write requires, as (resource, verb)."""
    plural = "redisclusters" if write.kind == "RedisCluster" else f"{write.kind.lower()}s".replace("ys", "ies")
    resource = "/".join(filter(None, (plural, write.subresource)))
    made = {(resource, "create")} if write.status == HTTPStatus.CREATED else set()
    return {(resource, VERBS[write.verb])} | made


async def sent(scenario: Scenario) -> set[tuple[str, str]]:
    play = ScenarioRun(World(REDIS))
    await play.run_steps((*scenario.given, *scenario.steps))
    writes = [write for write in play.world.server.log.all_writes if write.verb != CALL]
    return set().union(*(right(write) for write in writes if write.status < HTTPStatus.BAD_REQUEST))


@pytest.fixture(scope="module")
def given() -> set[tuple[str, str]]:
    """Rules of the chart, as (resource, verb)."""
    rules: list[Obj] = yaml.safe_load(RULES.read_text())
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.nightly
async def test_role_allows_exactly_what_the_operator_writes(given: set[tuple[str, str]]) -> None:
    played = [scenario for scenario in SCENARIOS if scenario.name in PLAYED]
    assert len(played) == len(PLAYED)
    needed = set().union(*[await sent(scenario) for scenario in (*played, GROWN)])
    allowed = {(resource, verb) for resource, verb in given if verb not in READING} - ELSEWHERE
    assert needed - allowed == set(), "missing rules"
    assert allowed - needed == set(), "unused rules"
