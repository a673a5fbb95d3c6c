"""The rules of the chart's role are what the operator sends: each is needed, and no other is.

That a service account with these rules alone suffices is shown by `test_charts.py`.
"""

from __future__ import annotations

import yaml

from e2e.cluster.paths import REPOSITORY
from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, SECRET, SERVICE, STATEFUL_SET
from tests.api.support.gate import Gate, Passed
from tests.api.support.running import Operator
from tests.api.support.world import EVERYTHING, World
from tests.api.test_taken import ASKING, put_in_the_way
from tests.unit.memcached.fake_servers import secret

RULES = REPOSITORY / "charts" / "memcached-operator" / "files" / "rules.yaml"

NOT_SENT = {("memcacheds/finalizers", "update")}
"""Asked of whoever sets blockOwnerDeletion where the admission plugin OwnerReferencesPermissionEnforcement is on."""


def rights(passed: Passed) -> set[tuple[str, str]]:
    """Which rights a request needs, as (resource, verb)."""
    _, in_namespace, place = passed.path.partition("/namespaces/")
    if not in_namespace:
        return set()  # discovery: everybody who is authenticated may
    _, resource, *rest = place.split("/")
    name, subresource = rest[:1], rest[1:]
    resource = "/".join([resource, *subresource])
    if passed.watch:
        return {(resource, "watch")}
    if passed.method == "PATCH":
        return {(resource, "patch")} | ({(resource, "create")} if passed.status == 201 else set())
    if passed.method == "GET":
        return {(resource, "get" if name else "list")}
    return {(resource, {"POST": "create", "DELETE": "delete", "PUT": "update"}[passed.method])}


def test_the_role_is_exactly_what_the_operator_sends(world: World, gate: Gate, gated: Operator) -> None:
    world.create(size=1)
    world.eventually(world.is_ready)
    world.change(size=2)
    world.eventually(lambda: world.is_ready() and world.get(DEPLOYMENT)["spec"]["replicas"] == 2)
    world.person.create(SECRET, secret("users", users="app:secret\n") | {"metadata": world.metadata("users")})
    world.change(
        workload="StatefulSet", auth={"secretName": "users"}, **ASKING[DISRUPTION_BUDGET], **ASKING[AUTOSCALER]
    )
    world.eventually(lambda: world.is_ready() and world.find(DEPLOYMENT) is None and world.find(AUTOSCALER))
    world.change(workload="Deployment", auth=None, podDisruptionBudget=None, autoscaling=None)
    world.eventually(lambda: world.is_ready() and not any(map(world.find, (STATEFUL_SET, *ASKING))))
    taken = {kind: f"taken-{kind.plural}" for kind in EVERYTHING}
    for kind, name in taken.items():
        put_in_the_way(world, kind, name=name)
        world.create(name, **ASKING.get(kind, {}))
    world.eventually(lambda: all(world.reason(name) == "NotOurs" for name in taken.values()))
    for _ in range(2):  # what is told again after a restart is counted on
        world.edit(SERVICE, {"spec": {"ports": None}})
        world.eventually(lambda: world.get(SERVICE)["spec"].get("ports"))
        world.eventually(lambda: world.events(reason="Restored"))
        gated.restart()
    world.eventually(lambda: world.events(reason="Restored")[0]["count"] == 2)

    sent = set().union(*(rights(passed) for passed in gate.passed))
    rules = yaml.safe_load(RULES.read_text())
    given = {(name, verb) for rule in rules for name in rule["resources"] for verb in rule["verbs"]}
    assert sent - given == set(), "not allowed by the chart's role"
    assert given - sent == NOT_SENT, "allowed, and never used"
