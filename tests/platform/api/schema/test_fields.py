"""`managed_fields.difference` predicts whether an apply changes an object that any client edited.

If it reported a field that an apply does not change, the operator would write endlessly; if it missed one, an edit
would persist.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from operators.memcached.api.resource import Memcached
from operators.memcached.database import DATABASE
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import autoscaler, deployment, stateful_set
from operators.memcached.objects import pod as template
from operators.memcached.objects.names import Mounts, owner
from operators.memcached.state.observed import Observed, Workload
from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, SERVICE, STATEFUL_SET, Kind, Obj
from shared.kubernetes.managed_fields import difference
from shared.runtime.settings import Settings
from tests.platform.api.support.world import EVERYTHING, World
from tools.local.controlplane import ControlPlane

Edit = Callable[[Obj], Any]

SPECS = st.fixed_dictionaries(
    {"size": st.integers(0, 3)},
    optional={
        "memoryMB": st.sampled_from([64, 1024]),
        "containerPort": st.sampled_from([11211, 11311]),
        "warmRestart": st.booleans(),
        "auth": st.just({"secretName": "users"}),
        "tls": st.sampled_from([{"secretName": "a"}, {"secretName": "a", "clientAuth": "required"}]),
        "metrics": st.sampled_from([{}, {"port": 9151}, {"enabled": False}]),
        "podDisruptionBudget": st.sampled_from([{"minAvailable": 1}, {"minAvailable": "50%"}]),
        "autoscaling": st.sampled_from([{"maxReplicas": 3}, {"minReplicas": 2, "maxReplicas": 4}]),
        "extraArgs": st.lists(st.sampled_from(["--disable-evictions", "-v"]), max_size=2),
        "labels": st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from(["a", "b"]), max_size=2),
        "annotations": st.dictionaries(st.sampled_from(["x/y", "z"]), st.sampled_from(["", "1"]), max_size=2),
        "env": st.lists(
            st.sampled_from([{"name": "A", "value": "1"}, {"name": "A", "value": ""}, {"name": "B", "value": "2"}]),
            max_size=2,
            unique_by=lambda variable: variable["name"],
        ),
        "nodeSelector": st.dictionaries(st.sampled_from(["disk", "zone"]), st.just("a"), max_size=2),
        "tolerations": st.lists(
            st.sampled_from([{"operator": "Exists"}, {"key": "a", "operator": "Exists"}]), max_size=2
        ),
        "topologySpread": st.lists(
            st.sampled_from([{"topologyKey": "zone"}, {"topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"}]),
            max_size=2,
            unique_by=lambda constraint: constraint["topologyKey"],
        ),
        "resources": st.sampled_from(
            [
                {"limits": {"memory": "2Gi"}},
                {"limits": {"memory": "2048Mi", "cpu": "0.5"}},
                {"limits": {"memory": "2147483648", "cpu": "500m"}, "requests": {"cpu": "1e-1"}},
                {"requests": {"cpu": "0"}},
            ]
        ),
    },
)


def container(obj: Obj) -> Obj:
    found: Obj = obj["spec"]["template"]["spec"]["containers"][0]
    return found


NOW, SETTINGS = datetime(2026, 1, 1, tzinfo=UTC), Settings("memcached-operator", "memcached")

ANYWHERE: dict[str, Edit] = {
    "foreign label": lambda obj: obj["metadata"]["labels"].update(team="other"),
    "foreign annotation": lambda obj: obj["metadata"].update(annotations={"note": "other"}),
    "operator's label changed": lambda obj: obj["metadata"]["labels"].update({"app.kubernetes.io/part-of": "other"}),
    "operator's label removed": lambda obj: obj["metadata"]["labels"].pop("app.kubernetes.io/component", None),
    "owner removed": lambda obj: obj["metadata"].pop("ownerReferences", None),
    "a finalizer": lambda obj: obj["metadata"].update(finalizers=["example.com/other"]),
}

TEMPLATE: dict[str, Edit] = ANYWHERE | {
    "replicas": lambda obj: obj["spec"].update(replicas=2),
    "an image": lambda obj: container(obj).update(image="memcached:1.6.18"),
    "arguments removed": lambda obj: container(obj).pop("args", None),
    "foreign variable": lambda obj: container(obj).setdefault("env", []).append({"name": "C", "value": "3"}),
    "all variables removed": lambda obj: container(obj).pop("env", None),
    "resources in other notation": lambda obj: container(obj)["resources"].update(requests={"cpu": "0.05"}),
    "resources removed": lambda obj: container(obj).pop("resources", None),
    "a probe removed": lambda obj: container(obj).pop("livenessProbe", None),
    "a probe changed": lambda obj: container(obj)["readinessProbe"].update(periodSeconds=7),
    "a port's name": lambda obj: container(obj)["ports"][0].pop("name", None),
    "foreign container": lambda obj: obj["spec"]["template"]["spec"]["containers"].append(
        {"name": "other", "image": "other:1"}
    ),
    "security context removed": lambda obj: container(obj).pop("securityContext", None),
    "foreign toleration": lambda obj: obj["spec"]["template"]["spec"].update(tolerations=[{"operator": "Exists"}]),
    "spread constraints removed": lambda obj: obj["spec"]["template"]["spec"].pop("topologySpreadConstraints", None),
    "foreign volume": lambda obj: (
        obj["spec"]["template"]["spec"].setdefault("volumes", []).append({"name": "other", "emptyDir": {}})
    ),
    "a mount made writable": lambda obj: (container(obj).get("volumeMounts") or [{}])[0].update(readOnly=False),
    "an annotation of the pods removed": lambda obj: obj["spec"]["template"]["metadata"].pop("annotations", None),
    "foreign field": lambda obj: obj["spec"].update(minReadySeconds=1),
}

EDITS: dict[Kind, dict[str, Edit]] = {
    DEPLOYMENT: TEMPLATE,
    STATEFUL_SET: TEMPLATE
    | {
        "a partition": lambda obj: obj["spec"]["updateStrategy"].update(rollingUpdate={"partition": 1}),
        "retention policy of volumes": lambda obj: obj["spec"]["persistentVolumeClaimRetentionPolicy"].update(
            whenDeleted="Delete"
        ),
    },
    DISRUPTION_BUDGET: ANYWHERE
    | {
        "minAvailable": lambda obj: obj["spec"].update(minAvailable=3),
        "foreign selector label": lambda obj: obj["spec"]["selector"]["matchLabels"].update(team="other"),
        "another policy": lambda obj: obj["spec"].update(unhealthyPodEvictionPolicy="IfHealthyBudget"),
    },
    AUTOSCALER: ANYWHERE
    | {
        "maxReplicas": lambda obj: obj["spec"].update(maxReplicas=9),
        "minReplicas removed": lambda obj: obj["spec"].pop("minReplicas", None),
        "foreign behaviour": lambda obj: obj["spec"].update(behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}),
        "another target": lambda obj: obj["spec"]["metrics"][0]["containerResource"]["target"].update(
            averageUtilization=5
        ),
        "another metric": lambda obj: obj["spec"]["metrics"].append(
            {
                "type": "Resource",
                "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 9}},
            }
        ),
        "another resource": lambda obj: obj["spec"]["scaleTargetRef"].update(name="other"),
    },
    SERVICE: ANYWHERE
    | {
        "selector removed": lambda obj: obj["spec"].pop("selector", None),
        "foreign selector label": lambda obj: (
            obj["spec"]["selector"].update(team="other") if "selector" in obj["spec"] else None
        ),
        "foreign port": lambda obj: obj["spec"]["ports"].append({"name": "other", "port": 80}),
        "a target port": lambda obj: obj["spec"]["ports"][0].update(targetPort=1),
        "a port's name": lambda obj: obj["spec"]["ports"][0].update(name="mine"),
        "foreign field": lambda obj: obj["spec"].update(publishNotReadyAddresses=True),
    },
}


def desired(world: World, kind: Kind, spec: Obj) -> Obj:
    """Return the object that the operator builds for a spec that requires it."""
    requiring: dict[Kind, Obj] = {
        DISRUPTION_BUDGET: {"podDisruptionBudget": {"minAvailable": 2}},
        AUTOSCALER: {"autoscaling": {"maxReplicas": 2}},
    }
    given = requiring.get(kind, {}) | spec
    resource = Memcached.parse({"metadata": world.metadata() | {"uid": "a-resource"}, "spec": given})
    own = owner(resource, "memcached-operator")
    pod = template.pod(
        resource,
        own,
        resource.spec.image_reference("memcached"),
        template.Sidecar("exporter:1", reloads=True),
        "digest",
        Mounts("cache-users", "cache-tls"),
    )
    seen = Observed(Workload(DEPLOYMENT))
    made = {
        SERVICE: DATABASE.headless_service(Assessment.of(resource, seen, SETTINGS, NOW), own),
        DISRUPTION_BUDGET: DATABASE.disruption_budget(resource, own),
        AUTOSCALER: autoscaler.autoscaler(resource, own),
    }
    build = stateful_set.stateful_set if kind == STATEFUL_SET else deployment.deployment
    return made.get(kind) or build(resource, own, pod, 60)


@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
def test_difference_is_empty_exactly_if_an_apply_changes_nothing(plane: ControlPlane, kind: Kind) -> None:
    world = World(plane)
    operator = world.actor("memcached-operator")

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        first = data.draw(SPECS, "first spec")
        edits = data.draw(st.lists(st.sampled_from(sorted(EDITS[kind])), max_size=3, unique=True), "edits by others")
        second = data.draw(st.one_of(st.just(first), SPECS), "second spec")
        world.remove(kind, "cache")
        operator.apply(kind, desired(world, kind, first), force=True)
        for edit in edits:
            obj = copy.deepcopy(world.get(kind))
            EDITS[kind][edit](obj)
            world.user_client.update(kind, obj)
        expected = desired(world, kind, second)
        observed = world.get(kind)
        paths = difference(expected, observed, "memcached-operator")
        applied = operator.apply(kind, expected, force=True)
        note(f"difference: {paths}")
        assert bool(paths) == (applied["metadata"]["resourceVersion"] != observed["metadata"]["resourceVersion"])
        assert difference(expected, applied, "memcached-operator") == []

    try:
        check()
    finally:
        world.close()
