"""The chart's role grants exactly the permissions that the operator uses.

`test_charts.py` verifies that a service account with only these rules suffices.
"""

from __future__ import annotations

import yaml

from shared.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    STATEFUL_SET,
)
from simulator.memcached.fake_servers import secret
from tests.platform.api.support.gate import Gate, Passed
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import EVERYTHING, World
from tests.platform.api.test_taken import SPECS_REQUIRING, create_conflicting_object
from tools.local.paths import REPOSITORY

FILES = REPOSITORY / "charts" / "memcached-operator" / "files"
RULES = (FILES / "rules.yaml", FILES / "rules-writeSecrets.yaml")

OPTIONAL = {("secrets", "watch")}
"""Granted by the chart's value rbac.watchSecrets; without it the operator reads Secrets by name instead."""

NOT_SENT = {("memcacheds/finalizers", "update"), ("pods/resize", "patch"), ("pods", "patch"), ("pods", "get")}
"""The first: to set blockOwnerDeletion if the admission plugin OwnerReferencesPermissionEnforcement is enabled. The
others: to resize pods, and to read large ones; no pods run here (e2e/scenarios/memcached/test_resize.py).
"""


def rights(passed: Passed) -> set[tuple[str, str]]:
    """Return the permissions that a request requires, as (resource, verb)."""
    _, in_namespace, location = passed.path.partition("/namespaces/")
    if not in_namespace:
        return set()  # discovery is open to every authenticated client
    _, resource, *rest = location.split("/")
    name, subresource = rest[:1], rest[1:]
    resource = "/".join([resource, *subresource])
    if passed.watch:
        return {(resource, "watch")}
    if passed.method == "PATCH":
        return {(resource, "patch")} | ({(resource, "create")} if passed.status == 201 else set())
    if passed.method == "GET":
        return {(resource, "get" if name else "list")}
    return {(resource, {"POST": "create", "DELETE": "delete", "PUT": "update"}[passed.method])}


def test_role_grants_exactly_the_permissions_in_use(world: World, gate: Gate, gated: Operator) -> None:
    world.create(size=1, workload="Deployment")
    world.eventually(world.is_ready)
    world.change(size=2)
    world.eventually(lambda: world.is_ready() and world.get(DEPLOYMENT)["spec"]["replicas"] == 2)
    world.user_client.create(SECRET, secret("users", users="app:secret\n") | {"metadata": world.metadata("users")})
    world.change(
        workload="StatefulSet",
        auth={"secretName": "users"},
        **SPECS_REQUIRING[DISRUPTION_BUDGET],
        **SPECS_REQUIRING[AUTOSCALER],
    )
    world.eventually(lambda: world.is_ready() and world.find(DEPLOYMENT) is None and world.find(AUTOSCALER))
    world.change(
        workload="Deployment", auth=None, podDisruptionBudget=None, autoscaling=None, network={"enabled": False}
    )
    world.eventually(
        lambda: world.is_ready() and not any(map(world.find, (STATEFUL_SET, DISRUPTION_BUDGET, AUTOSCALER)))
    )
    conflicting = {kind: f"taken-{kind.plural}" for kind in EVERYTHING}
    for kind, name in conflicting.items():
        create_conflicting_object(world, kind, name=name)
        world.create(name, **SPECS_REQUIRING.get(kind, {}))
    world.eventually(lambda: all(world.reason(name) == "ForeignObject" for name in conflicting.values()))
    world.user_client.create(NETWORK_POLICY, {"metadata": world.metadata("taken-network"), "spec": {"podSelector": {}}})
    world.create("taken")
    world.eventually(lambda: world.reason("taken") == "ForeignObject")
    for _ in range(2):  # repeated events after a restart are patched
        world.edit(SERVICE, {"spec": {"ports": None}})
        world.eventually(lambda: world.get(SERVICE)["spec"].get("ports"))
        world.eventually(lambda: world.events(reason="Restored"))
        gated.restart()
    world.eventually(lambda: world.events(reason="Restored")[0]["count"] == 2)

    sent = set().union(*(rights(passed) for passed in gate.passed))
    rules = [rule for file in RULES for rule in yaml.safe_load(file.read_text())]
    given = {(name, verb) for rule in rules for name in rule["resources"] for verb in rule["verbs"]}
    assert sent - given == OPTIONAL, "used, but not granted by the chart's role"
    assert given - sent == NOT_SENT, "granted, but never used"
