"""Nodes without persistence: no member may have the identity that its next process would read."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from operators.redis.client.responses import Node
from operators.redis.objects import redis_conf
from operators.redis.objects.names import CONTAINER, FILES, LAST_RUN
from operators.redis.objects.pod import LAST_RUN_VARIABLE
from operators.redis.objects.redis_conf import CONFIG_KEY
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.steps.configuration import ensure_config_map
from operators.redis.steps.fresh_identity import prepare_restarts
from operators.redis.steps.provisioning import ensure_stateful_set
from shared.kubernetes.kinds import POD
from shared.runtime.plan import PASS, Apply, Patch
from tests.redis.unit.world import NEW_RECORDED, At, acts, assess, cluster, formed, node_id, of, plan, seen, world

VOLATILE: Any = {"config": {"appendonly": "no", "save": ""}}
VARIABLE = {"name": LAST_RUN_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{LAST_RUN}']"}}}


def volatile(instance: Instance, last_run: str = "") -> Instance:
    """The instance with a pod whose server has another identity after each start."""
    pod = copy.deepcopy(instance.pod_obj)
    assert pod is not None
    pod["spec"]["containers"] = [{"name": CONTAINER, "env": [VARIABLE]}]
    pod["metadata"]["annotations"] |= {LAST_RUN: last_run} if last_run else {}
    return replace(instance, pod_obj=pod)


def started_with_files(instance: Instance, number: int) -> Instance:
    """The instance with a pod whose server started with numbered files."""
    pod = copy.deepcopy(instance.pod_obj)
    assert pod is not None
    args = ["--cluster-config-file", f"nodes-u.{number}.conf"] if number else []
    pod["spec"]["containers"] = [{"name": CONTAINER, "args": args}]
    return replace(instance, pod_obj=pod)


def prepared(found: Observed) -> Observed:
    """The nodes whose processes are recorded."""
    instances = (volatile(one, one.report.run_id) if one.report else one for one in found.instances)
    return replace(found, instances=tuple(instances))


def test_new_node_joins_only_after_its_process_is_recorded() -> None:
    resource, found = world(*formed(), NEW_RECORDED, **VOLATILE)
    found = prepared(found)
    *others, new = found.instances
    made = plan(resource, replace(found, instances=(*others, volatile(new, "an earlier process"))))
    (patch,) = (each for each in of(made.actions, "Patch") if each.kind == POD)
    assert patch.change["metadata"]["annotations"] == {LAST_RUN: "run-6"}
    assert made.verdict.reason == "PreparingRestart"
    assert not acts(made.actions), "no MEET yet"
    assert any("meet demo-6" in act for act in acts(plan(resource, found).actions))


def test_process_that_started_since_is_recorded_again() -> None:
    resource, found = world(*formed(), **VOLATILE)
    instances = (volatile(found.instances[0], "an earlier process"), *prepared(found).instances[1:])
    step = prepare_restarts(assess(resource, replace(found, instances=instances)))
    (patch,) = step.actions
    assert isinstance(patch, Patch)
    assert patch.obj["metadata"]["name"] == "demo-0"


@pytest.mark.parametrize("change", [{"report": None}, {"pod_obj": None}])
def test_unreachable_node_is_not_recorded(change: dict[str, Any]) -> None:
    resource, found = world(*formed(), **VOLATILE)
    first, *others = prepared(found).instances
    instances = (replace(volatile(first), **change), *others)
    assert prepare_restarts(assess(resource, replace(found, instances=instances))) == PASS


def test_pod_that_keeps_its_identity_is_not_recorded() -> None:
    resource, found = world(*formed())
    assert prepare_restarts(assess(resource, found)) == PASS


def switching(found: Observed) -> Observed:
    """The cluster while persistence is being switched off: new pods ignore the files that the others still write."""
    made = copy.deepcopy(found.stateful_set)
    assert made is not None
    made["spec"]["template"]["spec"]["containers"] = [{"name": CONTAINER, "env": [VARIABLE]}]
    file = {
        "kind": "ConfigMap",
        "metadata": {"name": "demo-config"},
        "data": {CONFIG_KEY: redis_conf.render(cluster(*formed()))},
    }
    return replace(found, stateful_set=made, config_map=file)


def failed_owner() -> Node:
    return Node(node_id(0), "10.0.0.1", 6379, frozenset({"master", "fail"}), epoch=1, slots=Slots.parse("0-5460"))


def test_volumes_that_may_have_the_data_are_named_before_it_counts_as_lost() -> None:
    """Both pods of a shard were deleted before their turn in the rolling update, which switches persistence off."""
    at = list(formed())
    at[0] = At(incarnation=1, member=False, knows=False, epoch=0)
    at[3] = At(incarnation=1, recorded=1, epoch=0)
    resource, found = world(*at, **VOLATILE)
    instances = [
        volatile(each, each.report.run_id)
        if each.number in (0, 3)
        else replace(each, report=replace(each.report, nodes=(*each.report.nodes, failed_owner())))
        for each in found.instances
        if each.report
    ]
    made = plan(resource, switching(replace(found, instances=tuple(instances))))
    assert made.verdict.reason == "SlotsLost"
    assert (
        "The volumes of demo-0 may have the data, which they ignore with the persistence of spec.config: to use "
        "it, switch persistence on again, and delete these pods." in made.verdict.message
    )


def test_cluster_whose_volumes_may_have_keys_is_not_created_again() -> None:
    lost = At(incarnation=1, member=False, knows=False, epoch=0)
    resource, found = world(*(lost for _ in range(6)), **VOLATILE)
    found = prepared(found)
    made = plan(resource, switching(found))
    assert (made.status["formed"], made.verdict.reason) == (True, "DataAway")
    assert "started without the files on their volumes, as spec.config requests" in made.verdict.message
    assert "recovery" not in made.status


@pytest.mark.parametrize(("keeps", "acted"), [(True, ["delete Pod demo-0"]), (False, [])])
def test_server_that_does_not_run_keeps_its_pod_if_the_next_one_ignores_its_files(
    *, keeps: bool, acted: list[str]
) -> None:
    """The replica of this primary is lost, and only its volume has the data."""
    at = [replace(each, old=True) for each in formed()]
    at[0] = replace(at[0], up=False, failed=True, ready=False, runs=False, problem="CrashLoopBackOff: it ends")
    at[3] = At(incarnation=1, member=False, knows=False, epoch=0)
    resource, found = world(*at, **({} if keeps else VOLATILE))
    made = plan(resource, found if keeps else switching(found))
    assert [act for act in acts(made.actions) if act.startswith("delete Pod demo-0")] == acted


def test_pod_whose_data_ended_with_its_process_is_replaced() -> None:
    """A faulty change is corrected: nothing is lost with a server that keeps no files."""
    at = [replace(each, old=True, up=False, runs=False, problem="CrashLoopBackOff: it ends") for each in formed()]
    resource, found = world(*at, **VOLATILE)
    found = switching(replace(found, instances=tuple(map(volatile, found.instances))))
    assert acts(plan(resource, found).actions) == [f"delete Pod demo-{number}" for number in range(6)]


# Files of the time before.


def switched_on(
    *afresh: bool,
    template: bool = True,
    pods: bool = True,
    number: int = 0,
    claims: int | str = 0,
    used: int | None = None,
    file: int | str = 0,
    leaving: int | None = None,
) -> tuple[str, str, list[str]]:
    """Return the files of the next pods, and the records on the claims, once a cluster shall have snapshots again.

    Args:
        afresh: whether the pods, and with `template` that of the StatefulSet, have no persistence yet.
        template, pods: whether the StatefulSet, and the pods, exist.
        number: number of the files in the template; of the claims, `claims`; of the ConfigMap, `file`.
        used: number of the files with which pods started that have persistence; by default that of the template.
        leaving: number of a pod that is being deleted.
    """
    at = [replace(each, leaving=number_of == leaving) for number_of, each in enumerate(formed())]
    resource, found = cluster(*at, config={"appendonly": "no"}), seen(cluster(*at), *at)
    marks = {FILES: str(number)} if number else {}
    container = {"name": CONTAINER, "env": [VARIABLE] if afresh[-1] else []}
    made = {**(found.stateful_set or {}), "spec": {"replicas": 6, "template": {"metadata": {"annotations": marks}}}}
    made["spec"]["template"]["spec"] = {"containers": [container]}
    instances = []
    for one, is_afresh in zip(found.instances, (*afresh, *[afresh[-1]] * 6), strict=False):
        volume = copy.deepcopy(one.volume)
        assert volume
        volume["metadata"]["annotations"] = {FILES: str(claims)} if claims else {}
        one = replace(one, volume=volume)
        instances.append(volatile(one) if is_afresh else started_with_files(one, number if used is None else used))
    if not pods:
        instances = [replace(one, pod_obj=None, pod=None, report=None) for one in instances]
    config_map = {"kind": "ConfigMap", "metadata": {"name": "demo-config", "annotations": {FILES: str(file)}}}
    found = replace(
        found,
        instances=tuple(instances),
        stateful_set=made if template else None,
        config_map=config_map if file else None,
    )
    applied, *records = ensure_stateful_set(assess(resource, found)).actions
    assert isinstance(applied, Apply)
    args = applied.obj["spec"]["template"]["spec"]["containers"][0]["args"]
    given = dict(pairwise(args))
    numbers = [each.change["metadata"]["annotations"][FILES] for each in records if isinstance(each, Patch)]
    return given.get("--cluster-config-file", ""), given.get("--dbfilename", ""), numbers


def test_nodes_that_have_persistence_again_do_not_start_with_the_files_of_the_time_before() -> None:
    assert switched_on(True) == ("nodes-.1.conf", "dump-.1.rdb", ["1"] * 6)
    assert switched_on(True, number=1, claims=2) == ("nodes-.2.conf", "dump-.2.rdb", [])
    assert switched_on(True, claims=3)[0] == "nodes-.3.conf", "the claims are adopted ones"


@pytest.mark.parametrize("claims", ["9" * 5_000, "9" * 250, "-1", "\u0664"], ids=["5,000", "250", "minus", "other"])
def test_edited_number_of_a_claim_prevents_neither_the_plan_nor_the_start(claims: str) -> None:
    assert switched_on(True, claims=claims) == ("nodes-.1.conf", "dump-.1.rdb", ["1"] * 6)
    assert switched_on(True, claims=999_999_999, number=4)[0] == "nodes-.999999.conf", "the next ones are numbers too"


def test_nodes_that_kept_their_files_start_with_them() -> None:
    assert switched_on(False) == ("", "", [])
    assert switched_on(False, number=1, claims=1) == ("nodes-.1.conf", "dump-.1.rdb", []), "it is recorded already"
    assert switched_on(False, number=1) == ("nodes-.1.conf", "dump-.1.rdb", ["1"] * 6)
    assert switched_on(*[False] * 6, True) == ("", "", []), "no pod was replaced before the spec was reverted"
    assert switched_on(False, claims=7)[0] == "", "an edited claim makes no node start without its data"


def test_persistence_is_switched_on_once_no_pod_uses_its_former_files() -> None:
    """Another number would hide the snapshots of pods that were not replaced yet."""
    afresh = (
        "nodes-$(PLATFORM_POD_UID)-$(PLATFORM_LAST_RUN).conf",
        "dump-$(PLATFORM_POD_UID)-$(PLATFORM_LAST_RUN).rdb",
    )
    assert switched_on(False, True) == (*afresh, [])
    assert switched_on(False, True, leaving=0) == (*afresh, []), "its snapshot is the newest data until it has ended"
    assert switched_on(*[False] * 6, True, leaving=0) == (*afresh, []), "the next pod may have no persistence yet"


def test_files_of_the_time_before_stay_unused_although_no_pod_is_left() -> None:
    assert switched_on(True, pods=False, claims=1)[:2] == ("nodes-.1.conf", "dump-.1.rdb")
    assert switched_on(True, pods=False, number=1, claims=2)[:2] == ("nodes-.2.conf", "dump-.2.rdb")
    assert switched_on(False, pods=False, claims=7)[0] == "", "an edited claim makes no node start without its data"


def test_number_of_the_files_outlives_the_stateful_set() -> None:
    assert switched_on(False, template=False, pods=False, claims=2)[0].endswith(".2.conf")
    assert switched_on(False, template=False, used=2, claims=2)[0].endswith(".2.conf")


def test_next_pods_use_the_files_that_the_pods_use() -> None:
    assert switched_on(False, used=1, number=0, claims=1)[0] == "nodes-.1.conf", "a tool restored a former StatefulSet"
    assert switched_on(False, template=False, claims=7)[0] == "", "an edited claim; --cascade=orphan"


def test_number_of_the_files_outlives_all_pods_of_a_cluster_without_claims() -> None:
    """The volumes are shared (spec.pod[0].volumes), and StatefulSet and pods are deleted together."""
    assert switched_on(False, template=False, pods=False, file=2)[0].endswith(".2.conf")
    assert switched_on(False, template=False, pods=False, file="9" * 5_000)[0] == ""
    resource, found = world(*formed())
    found = replace(found, instances=tuple(started_with_files(one, 2) for one in found.instances))
    applied, *_ = ensure_config_map(assess(resource, found)).actions
    assert isinstance(applied, Apply)
    assert applied.obj["metadata"]["annotations"][FILES] == "2"


def test_persistence_is_switched_off_everywhere_although_the_stateful_set_was_deleted_meanwhile() -> None:
    """No number fits the files of all: some pods ignored their files."""
    assert "PLATFORM_LAST_RUN" in switched_on(False, True, template=False)[0]
