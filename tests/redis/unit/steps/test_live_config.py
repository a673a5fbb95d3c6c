"""Settings of running servers: differences are corrected, and a refused value stops nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import ApplyDirective
from operators.redis.objects import config_map, names, redis_conf
from operators.redis.objects.names import CONFIG_MARK
from operators.redis.objects.pod import is_started_afresh, is_started_waiting
from operators.redis.objects.redis_conf import CONFIG_KEY
from operators.redis.reasons import CONFIG_MAP_INVALID
from operators.redis.state.instance import Instance
from operators.redis.state.observed import ConfigTemplate, Observed
from operators.redis.steps import configuration
from operators.redis.steps.configuration import note_name, note_of
from operators.redis.steps.live_config import apply_config, report_refused_config
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Obj
from shared.kubernetes.pods import Pod
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Apply, Plan
from shared.status.verdict import Progress
from tests.harness import cost
from tests.redis.unit.world import NOW, PLANNER, At, assess, cluster, edited, formed, node_id, of, patched, seen, stored

BEFORE = "present file"
WORDS = "demo-0 (10.0.0.1:6379) refuses CONFIG SET: ERR active defragmentation is not supported."


def config_map_of(resource: RedisCluster, found: Observed) -> Obj:
    (action,) = configuration.ensure_config_map(assess(resource, found)).actions
    assert isinstance(action, Apply)
    return action.obj


def settings_of(resource: RedisCluster, template: str = "", **others: str) -> dict[str, str]:
    """Return what servers report that use the settings of a resource, and these."""
    normal = {"1gb": str(1 << 30)}
    found = redis_conf.live(resource, template)
    return {name: normal.get(value, value) for name, value in found.items()} | {
        name.replace("__", ".").replace("_", "-"): value for name, value in others.items()
    }


def observed(
    resource: RedisCluster,
    using: RedisCluster,
    *at: At,
    notes: Mapping[int, Mapping[str, str]] | None = None,
    template: str = "",
    **others: str,
) -> Observed:
    """Nodes whose servers use the settings of `using`, and others; the ConfigMap is that of `using`.

    Args:
        notes: annotations of pods.
    """
    reported = settings_of(using, template, **others)
    found = seen(resource, *(at or formed()))
    instances = tuple(_with(each, reported, (notes or {}).get(each.number, {})) for each in found.instances)
    kept = config_map_of(using, Observed(config=ConfigTemplate(template)))
    return replace(found, instances=instances, config_map=stored(kept), config=ConfigTemplate(template))


def _with(instance: Instance, settings: dict[str, str], notes: Mapping[str, str]) -> Instance:
    if instance.pod_obj is not None:
        metadata = instance.pod_obj["metadata"]
        metadata = {**metadata, "annotations": {**metadata["annotations"], **notes}}
        instance = replace(instance, pod_obj={**instance.pod_obj, "metadata": metadata})
    if instance.report is None:
        return instance
    return replace(instance, report=replace(instance.report, settings=settings))


def planned(resource: RedisCluster, found: Observed, hours: float = 0) -> Plan:
    return PLANNER.plan(resource, found, NOW + timedelta(hours=hours))


def attempts(plan: Plan) -> list[tuple[str, str, str]]:
    """Return node, directive and value of each planned change of a setting."""
    calls = [action.call for action in of(plan.actions, "Attempt")]
    assert all(isinstance(call, ApplyDirective) for call in calls)
    return [(call.at.name, call.name, call.value) for call in calls]


def note(value: str, hour: str = "2026-01-01T12Z", words: str = WORDS) -> str:
    return f"{note_of(value)} at {hour}: {words}"


# Differences.


def test_servers_with_the_desired_settings_are_left_alone() -> None:
    resource = cluster(*formed(), config={"maxmemory": "1gb", "notify-keyspace-events": "KEA"})
    assert attempts(planned(resource, observed(resource, resource))) == []
    assert attempts(planned(resource, observed(resource, resource, notify_keyspace_events="AKE"))) == []


def test_changed_setting_is_sent_to_every_server() -> None:
    before, after = cluster(*formed()), cluster(*formed(), config={"maxmemory-policy": "allkeys-lru"})
    plan = planned(after, observed(after, before, maxmemory_policy="noeviction"))
    assert attempts(plan) == [(f"demo-{number}", "maxmemory-policy", "allkeys-lru") for number in range(6)]
    assert plan.verdict.reason == "Configuring"
    assert plan.verdict.progress is Progress.PROGRESSING, "following steps run"


@pytest.mark.parametrize(
    ("away", "lowered"), [(None, True), (0, False), (1, False), (2, True)], ids=["none", "source", "target", "another"]
)
def test_node_timeout_is_lowered_only_when_both_ends_of_a_recorded_move_answer(away: int | None, lowered: bool) -> None:
    """A source that waits in MIGRATE for a large key answers no other node: a short timeout would mark it as failed."""
    at = [replace(each, up=number != away) for number, each in enumerate(formed())]
    moves = [{"from": node_id(0), "to": node_id(1), "slots": "7"}]
    resource = cluster(*at, status={"moves": moves})
    plan = planned(resource, observed(resource, resource, *at, cluster_node_timeout="276000"))
    sent = {(name, value) for _, name, value in attempts(plan)}
    assert sent == ({("cluster-node-timeout", "5000")} if lowered else set())


def test_node_timeout_is_raised_although_an_end_of_a_recorded_move_does_not_answer() -> None:
    at = [replace(each, up=number != 0) for number, each in enumerate(formed())]
    moves = [{"from": node_id(0), "to": node_id(1), "slots": "7"}]
    resource = cluster(*at, status={"moves": moves})
    plan = planned(resource, observed(resource, resource, *at, cluster_node_timeout="1000"))
    assert {(name, value) for _, name, value in attempts(plan)} == {("cluster-node-timeout", "5000")}


DELAYED = {"repl_diskless_sync_delay": str(2**31 - 1)}


@pytest.mark.parametrize(
    ("node", "due"),
    [
        (At(incarnation=1, member=False, knows=False), []),
        (At(incarnation=1), []),
        (At(incarnation=1, recorded=1), [("demo-0", "repl-diskless-sync-delay", "0")]),
    ],
    ids=["not a member", "the former node is still recorded", "the former node is forgotten"],
)
def test_node_without_its_data_keeps_replicas_waiting_until_none_replicates_the_former_node(
    node: At, due: list[tuple[str, str, str]]
) -> None:
    """Replicas connect to its address, and would copy its empty data set."""
    nodes = (node, *formed()[1:])
    resource = cluster(*nodes, config={"appendonly": "no", "save": ""})
    found = observed(resource, resource, *nodes)
    first, *others = found.instances
    found = replace(found, instances=(_with(first, settings_of(resource, **DELAYED), {}), *others))
    assert attempts(planned(resource, found)) == due


def test_setting_that_differs_on_a_server_is_corrected_regardless_of_annotations() -> None:
    """R5: an interrupted migration of a large key leaves cluster-node-timeout raised."""
    resource = cluster(*formed())
    found = observed(resource, resource)
    wrong = found.instances[2]
    assert wrong.report
    raised = {**wrong.report.settings, "cluster-node-timeout": "276000", "proto-max-bulk-len": str(2 << 30)}
    instances = list(found.instances)
    instances[2] = replace(wrong, report=replace(wrong.report, settings=raised))
    plan = planned(resource, replace(found, instances=tuple(instances)))
    assert attempts(plan) == [("demo-2", "cluster-node-timeout", "5000"), ("demo-2", "proto-max-bulk-len", "536870912")]


def test_settings_are_corrected_before_anything_that_waits() -> None:
    """A pod that does not start, or an unknown member, does not leave the node timeout raised."""
    resource = cluster(*formed(), status={"conditions": []})
    found = observed(resource, resource, cluster_node_timeout="276000")
    assert len(attempts(planned(resource, found))) == 6
    crashing = [replace(formed()[0], up=False, runs=False, old=True), *formed()[1:]]
    found = observed(resource, resource, *crashing, cluster_node_timeout="276000")
    assert len(attempts(planned(resource, found))) == 5


def test_directive_that_servers_report_in_another_form_is_sent_once() -> None:
    before, template = cluster(*formed(), pod=[{"configmap": "mine"}]), "loadmodule /a.so\nmine.size 1kb\n"
    found = observed(before, before, template=template, mine__size="1024")
    mark = configuration.configured(configuration.live_settings(assess(before, found)))
    assert len(attempts(planned(before, found))) == 6
    notes = {number: {CONFIG_MARK: mark} for number in range(6)}
    found = observed(before, before, template=template, notes=notes, mine__size="1024")
    assert attempts(planned(before, found)) == []


# Refusals by a server.


def test_refused_setting_is_reported_and_tried_again_later() -> None:
    before = cluster(*formed())
    after = cluster(*formed(), config={"activedefrag": "yes", "hz": "20"})
    notes = {number: {note_name("activedefrag"): note("yes")} for number in range(6)}
    found = observed(after, before, notes=notes, activedefrag="no", hz="10")
    assert {name for _, name, _ in attempts(planned(after, found))} == {"hz"}
    found = observed(after, before, notes=notes, activedefrag="no", hz="20")
    plan = planned(after, found)
    assert attempts(plan) == []
    assert (plan.verdict.reason, plan.verdict.progress) == ("ConfigRefused", Progress.PROGRESSING)
    assert plan.verdict.message == (
        f"Nodes keep the former values of refused settings: activedefrag: {WORDS} "
        "Correct or remove them in spec.config."
    )
    text = config_map_of(after, found)["data"][CONFIG_KEY]
    assert "hz 20" in text
    assert "activedefrag" not in text, "the next pod starts"
    assert len(attempts(planned(after, found, hours=1))) == 6
    other = cluster(*formed(), config={"activedefrag": "no", "hz": "20"})
    assert attempts(planned(other, found)) == []
    assert planned(other, found).verdict.reason != "ConfigRefused"


def test_refused_setting_does_not_hold_up_a_rolling_update() -> None:
    before = cluster(*formed())
    after = cluster(*formed(), config={"activedefrag": "yes", "tcp-backlog": "100"})
    notes = {number: {note_name("activedefrag"): note("yes")} for number in range(6)}
    found = observed(after, before, notes=notes, activedefrag="no")
    assert configuration.config_marks(assess(after, found))[0] != configuration.config_marks(assess(before, found))[0]
    plan = planned(after, replace(found, instances=tuple(replace(each) for each in found.instances)))
    assert plan.verdict.reason in ("Upgrading", "ConfigRefused")


def test_healing_continues_with_a_refused_setting() -> None:
    """R18: a lost primary is replaced although a setting is refused."""
    after = cluster(*formed(), config={"activedefrag": "yes"})
    notes = {number: {note_name("activedefrag"): note("yes")} for number in range(6)}
    moved = [replace(formed()[0], address="10.0.0.99", stale_address="10.0.0.1"), *formed()[1:]]
    plan = planned(after, observed(after, cluster(*formed()), *moved, notes=notes, activedefrag="no"))
    assert of(plan.actions, "Meet"), "its new address is announced"


def test_file_gets_a_setting_when_all_servers_use_it() -> None:
    before, after = cluster(*formed()), cluster(*formed(), config={"hz": "20", "tcp-backlog": "100"})
    found = observed(after, before, hz="10")
    assert config_map_of(after, found)["data"] == config_map_of(before, found)["data"]
    assert configuration.config_marks(assess(after, found))[0] == configuration.config_marks(assess(before, found))[0]
    found = observed(after, before, hz="20")
    assert "hz 20" in config_map_of(after, found)["data"][CONFIG_KEY]
    assert configuration.config_marks(assess(after, found))[0] != configuration.config_marks(assess(before, found))[0]


def test_file_keeps_its_settings_while_no_server_is_reachable() -> None:
    """R18: the pods of a cluster with a setting that servers would refuse are all deleted, and start again."""
    before, after = cluster(*formed()), cluster(*formed(), config={"activedefrag": "yes"})
    deleted = [replace(each, up=False, pod=False) for each in formed()]
    starting = [replace(each, up=False, ready=False) for each in formed()]
    for at in (deleted, starting):
        found = observed(after, before, *at)
        assert config_map_of(after, found)["data"] == config_map_of(before, found)["data"]
    broken = replace(observed(after, before, *starting))
    crashing = tuple(_crashing(each) for each in broken.instances)
    text = config_map_of(after, replace(broken, instances=crashing))["data"][CONFIG_KEY]
    assert "activedefrag yes" in text, "the present file may be the reason, so that a correction must reach the servers"


def test_refused_setting_is_not_written_when_servers_end_for_another_reason() -> None:
    before, after = cluster(*formed()), cluster(*formed(), config={"activedefrag": "yes"})
    starting = [replace(each, up=False, ready=False) for each in formed()]
    found = observed(after, before, *starting, notes={0: {note_name("activedefrag"): note("yes")}})
    crashing = replace(found, instances=tuple(_crashing(each) for each in found.instances))
    for each in (crashing, replace(crashing, config_map=None), replace(found, config_map=None)):
        assert "activedefrag" not in config_map_of(after, each)["data"][CONFIG_KEY]


def _crashing(instance: Instance) -> Instance:
    assert instance.pod_obj is not None
    state = {"name": "redis", "ready": False, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    obj = {**instance.pod_obj, "status": {**instance.pod_obj["status"], "containerStatuses": [state]}}
    return replace(instance, pod_obj=obj, pod=Pod.of(obj, container="redis"))


def test_settings_are_written_at_once_if_servers_of_another_series_run() -> None:
    before, after = cluster(*formed()), cluster(*formed(), config={"hz": "20"}, version="8.2.0")
    assert "hz 20" in config_map_of(after, observed(after, before, hz="10"))["data"][CONFIG_KEY]


# Refusals by the table.


@pytest.mark.parametrize("name", ["maxmemory-policy", "hz", "appendonly", "no-such-directive"])
def test_value_that_the_version_does_not_accept_is_neither_sent_nor_written(name: str) -> None:
    before, wrong = cluster(*formed()), cluster(*formed(), config={name: "sometimes"})
    found = observed(wrong, before)
    plan = planned(wrong, found)
    assert attempts(plan) == []
    assert (plan.verdict.reason, plan.verdict.progress) == ("ConfigRefused", Progress.PROGRESSING)
    assert f"refused settings: {name} " in plan.verdict.message
    assert config_map_of(wrong, found)["data"] == config_map_of(before, found)["data"]
    assert (
        configuration.config_marks(assess(wrong, found))[0] == configuration.config_marks(assess(before, found))[0]
    ), "no restart"


def test_refused_value_replaces_neither_the_former_one_nor_a_default() -> None:
    before, wrong = cluster(*formed(), config={"hz": "20"}), cluster(*formed(), config={"hz": "x", "appendonly": "x"})
    found = observed(wrong, before)
    text = config_map_of(wrong, found)["data"][CONFIG_KEY]
    assert "\nhz 20\n" in text
    assert "\nappendonly yes\n" in text
    assert attempts(planned(wrong, found)) == []
    new = cluster(*formed(), is_formed=False, config={"hz": "x"})
    assert "\nhz " not in config_map_of(new, Observed())["data"][CONFIG_KEY]


def test_value_that_only_a_newer_rule_refuses_stays_as_nodes_run_with_it() -> None:
    resource: Any = cluster(*formed(), config={"cluster-node-timeout": "500"})
    old = stored(config_map_of(cluster(*formed()), Observed()))
    old["data"][CONFIG_KEY] = old["data"][CONFIG_KEY].replace("timeout 5000", "timeout 500")
    found = replace(observed(resource, resource, cluster_node_timeout="500"), config_map=old)
    plan = planned(resource, found)
    assert attempts(plan) == []
    assert plan.verdict.reason == "ConfigRefused"
    assert config_map_of(resource, found)["data"] == old["data"]


def test_directive_that_the_new_version_lacks_is_omitted() -> None:
    at = [replace(each, version="6.2.14") for each in formed()]
    before = cluster(*at, config={"gopher-enabled": "yes"}, version="6.2.14")
    after = cluster(*at, config={"gopher-enabled": "yes"}, version="7.0.15")
    found = observed(after, before, *at)
    assert "gopher-enabled" in found.config_map["data"][CONFIG_KEY]  # type: ignore[index]
    assert "gopher-enabled" not in config_map_of(after, found)["data"][CONFIG_KEY]


EDIT = "\nmaxmemory-policy allkeys-lru\n"


def digest_after_edit(*values: str, at: tuple[At, ...] = (), edited: bool = True) -> str:
    """Digest of the settings that need a restart, after a line was added by hand.

    Args:
        values: values of the directive that the servers report.
    """
    resource = cluster(*formed())
    found = observed(resource, resource, *at)
    settings = settings_of(resource)
    instances = tuple(
        replace(one, report=replace(one.report, settings=settings | {"maxmemory-policy": value})) if one.report else one
        for one, value in zip(found.instances, values, strict=True)
    )
    before = config_map_of(resource, found)
    if edited:
        before = {**before, "data": {CONFIG_KEY: before["data"][CONFIG_KEY] + EDIT}}
    return configuration.config_marks(assess(resource, replace(found, instances=instances, config_map=before)))[0]


def test_edit_by_hand_that_no_server_read_restarts_nothing() -> None:
    unread = ["noeviction"] * 6
    assert digest_after_edit(*unread) == digest_after_edit(*unread, edited=False)


def test_edit_by_hand_that_a_server_may_have_read_is_undone_by_a_restart() -> None:
    """Only a restart restores the default of a directive, whose value is unknown."""
    unread = ["noeviction"] * 6
    unedited = digest_after_edit(*unread, edited=False)
    assert digest_after_edit(*unread[:5], "allkeys-lru") != unedited
    starting = (*formed()[:5], replace(formed()[5], up=False))
    assert digest_after_edit(*unread, at=starting) != unedited


# The ConfigMap counts only as the operator applied it last.


def applied(resource: RedisCluster, found: Observed, **changed: str | None) -> Observed:
    """Return the observed state after a pass, with the file that another client changed then, or deleted.

    Args:
        changed: values of directives in the file; None for a file that does not exist.
    """
    made = {action.obj["kind"]: action.obj for action in of(planned(resource, found).actions, "Apply")}
    text = str(made["ConfigMap"]["data"][CONFIG_KEY])
    for name, value in changed.items():
        text = re.sub(rf"\n{name} .*", "" if value is None else f"\n{name} {value}", text)
    file = stored(made["ConfigMap"])
    file = edited(file, **{CONFIG_KEY: text}) if changed else file
    made_set = stored(made["StatefulSet"])
    return replace(found, config_map=None if None in changed.values() else file, stateful_set=made_set)


VOLATILE = {"appendonly": "no", "save": ""}
BY_HAND = [{"appendonly": None}, {"appendonly": "no"}, {"appendonly": "no", "save": "3600 1"}]


@pytest.mark.parametrize("changed", BY_HAND)
def test_persistence_stays_on_until_the_pods_are_replaced_although_the_file_is_changed_by_hand(
    changed: dict[str, str | None],
) -> None:
    """A container that restarts resumes as the node that it was, and would be an empty primary."""
    at = [replace(each, old=True) for each in formed()]
    before = cluster(*at)
    after = cluster(*at, config=VOLATILE, pod=[{"updateStrategy": {"type": "OnDelete"}}])
    found = applied(after, observed(after, before, *at), **changed)
    for _ in range(2):
        assert "\nappendonly yes\n" in config_map_of(after, found)["data"][CONFIG_KEY]
        assert attempts(planned(after, found)) == []
        found = applied(after, found)


@pytest.mark.parametrize("changed", BY_HAND)
def test_persistence_stays_while_the_spec_has_a_refused_value(changed: dict[str, str | None]) -> None:
    before, wrong = cluster(*formed()), cluster(*formed(), config={"appendonly": "sometimes", "save": "never"})
    found = applied(wrong, observed(wrong, before), **changed)
    assert config_map_of(wrong, found)["data"] == config_map_of(before, Observed())["data"]
    assert attempts(planned(wrong, found)) == []


@pytest.mark.parametrize("changed", BY_HAND)
def test_file_that_is_changed_by_hand_while_no_server_answers_is_restored(changed: dict[str, str | None]) -> None:
    """Servers that start with it would ignore their files, and resume as empty primaries."""
    at = [replace(each, up=False) for each in formed()]
    resource = cluster(*at)
    found = observed(resource, resource, *at)
    restored = config_map_of(resource, applied(resource, found, **changed))
    assert restored["data"] == config_map_of(resource, found)["data"]


def starts_afresh(plan: Plan) -> bool:
    """Return whether each process of a pod of the applied StatefulSet is a new node, without data."""
    (made,) = (action.obj for action in of(plan.actions, "Apply") if action.obj["kind"] == "StatefulSet")
    return is_started_afresh(made["spec"]["template"])


AWAY = [{"up": False, "pod": False}, {"up": False}, {"up": False, "ready": False, "runs": False}]


@pytest.mark.parametrize("change", AWAY, ids=["no pod", "unreachable", "ended"])
@pytest.mark.parametrize("away", [range(6), (0, 3), (0,)], ids=["all", "a shard", "a primary"])
def test_nodes_that_are_away_start_with_the_files_on_their_volumes(away: Sequence[int], change: dict[str, Any]) -> None:
    """Persistence is switched off meanwhile: a pod that is created now would ignore what only its volume may have."""
    before, after = cluster(*formed()), cluster(*formed(), config=VOLATILE)
    ran = applied(before, observed(before, before))
    at = [replace(each, **change) if number in away else each for number, each in enumerate(formed())]
    for made in (ran.stateful_set, None):
        found = replace(observed(after, before, *at), stateful_set=made, config_map=ran.config_map)
        assert not starts_afresh(planned(after, found))
        assert "\nappendonly yes\n" in config_map_of(after, found)["data"][CONFIG_KEY]
        assert attempts(planned(after, found)) == []
    back = replace(observed(after, before), stateful_set=ran.stateful_set, config_map=ran.config_map)
    assert starts_afresh(planned(after, back)), "the rolling update begins once all nodes are there"
    begun = applied(after, back)
    found = replace(observed(after, before, *at), stateful_set=begun.stateful_set, config_map=begun.config_map)
    assert starts_afresh(planned(after, found)), "a pod that ran without them would resume with old files"


def test_file_has_persistence_while_a_node_without_a_pod_may_need_it() -> None:
    """Snapshots replace the log: all other pods are replaced by hand already."""
    before, after = cluster(*formed()), cluster(*formed(), config={"appendonly": "no"})
    ran = applied(after, applied(before, observed(before, before)))
    template = ran.stateful_set["spec"]["template"]["spec"]  # type: ignore[index]
    replaced = tuple(
        replace(each, pod_obj={**each.pod_obj, "spec": template}) if each.pod_obj else each for each in ran.instances
    )
    replaced = tuple(
        replace(each, report=replace(each.report, snapshot_age=60.0)) for each in replaced if each.report is not None
    )
    away = replace(replaced[0], pod=None, pod_obj=None, report=None)
    for instances, value in ((replaced, "no"), ((away, *replaced[1:]), "yes")):
        found = replace(ran, instances=tuple(_with(each, settings_of(after), {}) for each in instances))
        assert f"\nappendonly {value}\n" in config_map_of(after, found)["data"][CONFIG_KEY]


SNAPSHOTS = {"appendonly": "no", "save": "60 1"}


def logging(*, others: Mapping[str, Any] | None = None, away: int | None = None, rewrites: bool = False) -> Observed:
    """Servers with snapshots that have switched on an append-only file; the last one may differ.

    Args:
        others: settings that the last one reports instead.
        away: number of a node without a pod.
        rewrites: whether the last one still writes the file.
    """
    at = [replace(each, up=number != away, pod=number != away) for number, each in enumerate(formed())]
    before = cluster(*at, config=SNAPSHOTS)
    ran = applied(before, observed(before, before, *at))
    reported = settings_of(before) | {"appendonly": "yes", "save": ""}
    instances = [_with(each, reported, {}) for each in ran.instances]
    last = _with(instances[-1], reported | ({"save": "60 1"} if rewrites else {}) | dict(others or {}), {})
    instances[-1] = replace(last, report=replace(last.report, rewrites_log=rewrites)) if last.report else last
    return replace(ran, instances=tuple(instances))


def file_and_template(found: Observed, resource: RedisCluster | None = None) -> tuple[str, bool]:
    """Return appendonly in the applied file, and whether the applied pods keep their replicas waiting."""
    plan = planned(resource or cluster(*formed()), found)
    made = {action.obj["kind"]: action.obj for action in of(plan.actions, "Apply")}
    lines = dict(line.split(" ", 1) for line in made["ConfigMap"]["data"][CONFIG_KEY].splitlines() if " " in line)
    return lines["appendonly"], is_started_waiting(made["StatefulSet"]["spec"]["template"])


@pytest.mark.parametrize(
    "given",
    [{"others": {"appendonly": "no"}}, {"rewrites": True}, {"away": 0}, {"away": 5}],
    ids=["not switched on", "incomplete", "a primary is away", "a replica is away"],
)
def test_servers_start_with_a_log_only_once_all_nodes_have_a_complete_one(given: dict[str, Any]) -> None:
    """A server that starts with a log loads no snapshot: its data would be lost if it ended before."""
    assert file_and_template(logging(**given)) == ("no", True)
    assert file_and_template(logging())[0] == "yes"


@pytest.mark.parametrize("is_formed", [True, False])
@pytest.mark.parametrize("away", [None, 0, 5])
def test_servers_start_with_a_log_only_once_all_have_one_although_the_records_are_lost(
    away: int | None, *, is_formed: bool
) -> None:
    """The status was replaced: what may have data is known from pods and volumes."""
    at = [replace(each, recorded=None) for each in formed()]
    found = logging(rewrites=away is None, away=away)
    lost = replace(found, instances=tuple(replace(each, recorded=None) for each in found.instances))
    assert file_and_template(lost, cluster(*at, is_formed=is_formed)) == ("no", True)


def test_snapshots_stay_on_and_the_change_is_in_progress_until_the_log_of_a_server_is_complete() -> None:
    step = apply_config(assess(cluster(*formed()), logging(rewrites=True)))
    assert (step.actions, step.reason, step.progress) == ((), "Configuring", Progress.PROGRESSING)
    assert step.message == "Writing the first append-only file of demo-5. Until it is complete, snapshots stay on."
    plan = planned(cluster(*formed()), logging(others={"appendonly": "no", "save": "60 1"}))
    assert attempts(plan) == [("demo-5", "appendonly", "yes")]


@pytest.mark.parametrize("away", [None, 0], ids=["before the file is written", "while a node is away"])
def test_snapshots_stay_on_while_servers_would_start_without_their_log(away: int | None) -> None:
    """A server that is stopped meanwhile writes its last snapshot, and resumes with that."""
    found = logging(away=away, others={"save": "60 1"})
    assert attempts(planned(cluster(*formed()), found)) == []


def test_snapshots_are_switched_off_and_the_pods_changed_once_the_file_has_the_log() -> None:
    found = logging(others={"save": "60 1"})
    assert file_and_template(found) == ("yes", True), "the write of the file may be refused"
    assert apply_config(assess(cluster(*formed()), found)).progress is Progress.PROGRESSING
    found = applied(cluster(*formed()), found)
    assert file_and_template(found) == ("yes", False)
    assert attempts(planned(cluster(*formed()), found)) == [("demo-5", "save", "")]


def leaving_log(
    copies: int, *, saved: Mapping[int, dict[str, Any]] | None = None, away: int | None = None, using_all: bool = False
) -> tuple[RedisCluster, Observed]:
    """Servers with a log alone, and pods that suit snapshots, which the spec has now.

    Args:
        saved: facts that servers report about snapshots, by number; the others have just written one.
        away: number of a node without a pod.
        using_all: whether servers use all settings of the spec except appendonly, instead of those of a log.
    """
    at = [replace(each, up=number != away, pod=number != away) for number, each in enumerate(formed(3, copies))]
    before = cluster(*at, replicasPerMaster=copies)
    after = cluster(*at, replicasPerMaster=copies, config=SNAPSHOTS)
    found = applied(after, applied(before, observed(before, before, *at)))
    template = found.stateful_set["spec"]["template"]["spec"]  # type: ignore[index]
    settings, instances = settings_of(after, appendonly="yes") if using_all else settings_of(before), []
    for each in found.instances:
        facts = (saved or {}).get(each.number, {"snapshot_age": 60.0})
        pod_obj = {**each.pod_obj, "spec": template} if each.pod_obj else None
        report = replace(each.report, **facts) if each.report else None
        instances.append(_with(replace(each, pod_obj=pod_obj, report=report), settings, {}))
    return after, replace(found, instances=tuple(instances))


def switched(plan: Plan) -> set[tuple[str, str]]:
    """Return the directives of persistence that are sent, with their values."""
    return {(name, value) for _, name, value in attempts(plan) if name in redis_conf.PERSISTENCE}


def persistence_of(plan: Plan) -> list[str]:
    """Return the lines of persistence in the applied file."""
    (made,) = (action.obj for action in of(plan.actions, "Apply") if action.obj["kind"] == "ConfigMap")
    return config_map.persistence(made["data"]).split("\n")


LOG = ["appendonly yes", 'save ""']
UNSAVED: list[dict[str, Any]] = [{"snapshot_age": math.inf}, {"snapshot_age": 3601.0}]


@pytest.mark.parametrize("facts", UNSAVED, ids=["none of this process", "an old one"])
@pytest.mark.parametrize("copies", [0, 1])
def test_log_stays_on_until_each_server_has_a_snapshot(copies: int, facts: dict[str, Any]) -> None:
    """By default, servers with a log write no snapshots: one that ends would have lost everything, or nearly so."""
    after, found = leaving_log(copies, saved={1: facts, 2: facts | {"saves": True}})
    plan = planned(after, found)
    assert (attempts(plan), persistence_of(plan)) == ([], LOG)
    assert [call.at.name for call in of(plan.actions, "SaveSnapshot")] == ["demo-1"]
    step = apply_config(assess(after, found))
    assert (step.reason, step.progress, step.warning) == ("Configuring", Progress.PROGRESSING, False)
    assert step.message == "Writing a snapshot of demo-1, demo-2. Until each node has one, append-only files stay on."


@pytest.mark.parametrize("facts", [UNSAVED[0], {"save_failed": True}], ids=["writes a snapshot", "cannot write one"])
def test_primary_needs_no_replica_for_writes_while_snapshots_are_to_replace_its_log(facts: dict[str, Any]) -> None:
    """Each process of the new pods begins with that need, and redis.conf has a log until all have snapshots."""
    after, found = leaving_log(1, saved={1: facts})
    found = replace(found, instances=tuple(map(begun, found.instances)))
    assert ("demo-1", "min-replicas-to-write", "0") in attempts(planned(after, found))


def test_container_that_restarts_in_an_earlier_pod_needs_no_replica_for_writes() -> None:
    """The servers have logs now, and the rolling update has not reached this pod."""
    resource = cluster(*formed())
    found = observed(resource, resource)
    found = replace(found, instances=(*found.instances[:5], begun(found.instances[5])))
    assert {name for name, _, _ in attempts(planned(resource, found))} == {"demo-5"}
    assert ("demo-5", "min-replicas-to-write", "0") in attempts(planned(resource, found))


def begun(instance: Instance) -> Instance:
    """Return an instance whose process reports the settings of its start (`old_snapshot`)."""
    assert instance.report
    of_start = {**redis_conf.DELAYED_SYNC, **redis_conf.AWAITED_REPLICA}
    inspected = {name: of_start.get(name, value) for name, value in instance.report.settings.items()}
    return _with(instance, inspected, {})


@pytest.mark.parametrize("copies", [0, 1])
def test_file_has_snapshots_before_servers_switch_their_log_off(copies: int) -> None:
    """A server that starts in between has a snapshot; and a change that is withdrawn needs a complete log again."""
    after, found = leaving_log(copies)
    plan = planned(after, found)
    assert switched(plan) == {("save", "60 1")}
    assert persistence_of(plan) == LOG
    after, found = leaving_log(copies, using_all=True)
    plan = planned(after, found)
    assert (attempts(plan), persistence_of(plan)) == ([], ["appendonly no", "save 60 1"])
    plan = planned(after, applied(after, found))
    assert switched(plan) == {("appendonly", "no")}
    withdrawn = planned(cluster(*formed(3, copies), replicasPerMaster=copies), applied(after, found))
    assert persistence_of(withdrawn) == LOG, "no log was switched off"


@pytest.mark.parametrize("copies", [0, 1])
def test_log_stays_on_while_a_node_is_away(copies: int) -> None:
    after, found = leaving_log(copies, away=0)
    plan = planned(after, found)
    assert (attempts(plan), persistence_of(plan), of(plan.actions, "SaveSnapshot")) == ([], LOG, [])


def test_server_that_loads_its_data_gets_no_request_for_a_snapshot() -> None:
    """Such a server refuses one (LOADING), and the requests to the others would not be sent."""
    after, found = leaving_log(1, saved={1: UNSAVED[0] | {"loading": True}, 2: UNSAVED[0]})
    assert [call.at.name for call in of(planned(after, found).actions, "SaveSnapshot")] == ["demo-2"]


def test_primaries_write_snapshots_after_their_replicas() -> None:
    """A server that writes one needs more memory, and its clients wait while it forks."""
    after, found = leaving_log(1, saved=dict.fromkeys(range(6), UNSAVED[0]))
    names = [call.at.name for call in of(planned(after, found).actions, "SaveSnapshot")]
    assert names == ["demo-3", "demo-4", "demo-5"]


def test_snapshot_that_fails_is_a_warning_and_is_not_repeated() -> None:
    after, found = leaving_log(1, saved={1: {"save_failed": True}, 2: {"snapshot_age": math.inf}})
    step = apply_config(assess(after, found))
    assert (step.reason, step.progress, step.warning) == ("SnapshotFailed", Progress.PROGRESSING, True)
    assert [str(action) for action in step.actions] == ["let demo-2 write a snapshot (BGSAVE)"]
    assert step.message == (
        "demo-1: writing a snapshot failed (rdb_last_bgsave_status in INFO). Until each node has one, append-only "
        "files stay on. Check the space on the volume, and the memory, and run BGSAVE."
    )


def test_servers_that_refuse_the_save_points_keep_their_log() -> None:
    """Without log and save points, they would have nothing."""
    after, found = leaving_log(0, using_all=True)
    refusing = {note_name("save"): note("60 1")}
    noted = tuple(
        _with(each, {**each.report.settings, "save": ""}, refusing) for each in found.instances if each.report
    )
    found = replace(found, instances=noted)
    plan = planned(after, found)
    assert (attempts(plan), persistence_of(plan)) == ([], LOG)
    assert report_refused_config(assess(after, found)).reason == "ConfigRefused"


def test_log_stays_on_while_the_version_refuses_the_save_points() -> None:
    _, found = leaving_log(0, using_all=True)
    wrong = cluster(*formed(3, 0), replicasPerMaster=0, config={"appendonly": "no", "save": "never"})
    plan = planned(wrong, found)
    assert persistence_of(plan) == LOG
    assert ("appendonly", "no") not in switched(plan)


# The volume claims record it, so that a resource that adopts them starts with the same files.

SAVED = "appendonly no\nsave 60 1"
LOGGED = "\n".join(LOG)


def with_records(found: Observed, *lines: str, is_own: bool = True) -> Observed:
    """Return the observed state with the lines that volume claims record, in turn, or another client wrote there."""

    def recorded(instance: Instance) -> Instance:
        assert instance.volume
        kept = {names.NODE_ID: "n", names.APPLIED_PERSISTENCE: lines[instance.number % len(lines)]}
        fields = patched(names.APPLIED_PERSISTENCE) if is_own else []
        metadata = {**instance.volume["metadata"], "annotations": kept, "managedFields": fields}
        return replace(instance, volume={**instance.volume, "metadata": metadata})

    return replace(found, instances=tuple(map(recorded, found.instances)))


def to_record(plan: Plan) -> set[str]:
    """Return the lines of persistence that are written to volume claims."""
    patched = [action for action in of(plan.actions, "Patch") if action.kind is PERSISTENT_VOLUME_CLAIM]
    found = [action.change["metadata"].get("annotations", {}) for action in patched]
    return {each[names.APPLIED_PERSISTENCE] for each in found if names.APPLIED_PERSISTENCE in each}


@pytest.mark.parametrize("copies", [0, 1])
@pytest.mark.parametrize(
    ("former", "config"),
    [
        (SAVED, {}),
        (LOGGED, SNAPSHOTS),
        (SAVED, VOLATILE),
        (LOGGED, VOLATILE),
        (LOGGED, {}),
        (SAVED, SNAPSHOTS),
    ],
    ids=["log", "snapshots", "nothing instead of snapshots", "nothing instead of a log", "same log", "same snapshots"],
)
def test_adopted_volumes_start_with_the_files_that_their_claims_record(
    former: str, config: dict[str, str], copies: int
) -> None:
    at = [replace(each, up=False, pod=False) for each in formed(3, copies)]
    resource = cluster(*at, config=config, replicasPerMaster=copies)
    plan = planned(resource, with_records(seen(resource, *at, stateful_set=False), former))
    if copies or config is not VOLATILE:  # without replicas, the user wants that a node that starts is empty
        assert persistence_of(plan) == former.split("\n")
        assert not starts_afresh(plan)


def test_different_records_and_those_of_another_client_are_none() -> None:
    at = [replace(each, up=False, pod=False) for each in formed()]
    resource = cluster(*at)
    assert with_records(seen(resource, *at, stateful_set=False), SAVED, LOGGED).persistence == {}
    assert with_records(seen(resource, *at, stateful_set=False), SAVED, "").persistence == {}
    assert with_records(seen(resource, *at, stateful_set=False), SAVED).persistence != {}
    assert with_records(seen(resource, *at, stateful_set=False), SAVED, is_own=False).persistence == {}


def test_claims_record_the_persistence_of_the_file() -> None:
    resource = cluster(*formed())
    assert to_record(planned(resource, observed(resource, resource))) == {LOGGED}
    found = with_records(observed(resource, resource), LOGGED)
    assert to_record(planned(resource, found)) == set()
    new = cluster(*formed(), is_formed=False)
    assert to_record(planned(new, observed(new, new))) == set()


def test_log_is_recorded_before_snapshots_end() -> None:
    """Until then servers write both files, so that the volumes can be adopted with either."""
    resource, both = cluster(*formed()), ["appendonly yes", "save 60 1"]
    found = with_records(logging(others={"save": "60 1"}), SAVED)
    plan = planned(resource, found)
    assert (persistence_of(plan), attempts(plan), to_record(plan)) == (both, [], set())
    found = applied(resource, found)
    plan = planned(resource, found)
    assert (persistence_of(plan), attempts(plan), to_record(plan)) == (both, [], {"\n".join(both)})
    found = with_records(found, "\n".join(both), SAVED)
    assert attempts(planned(resource, found)) == [], "one is recorded"
    found = with_records(found, "\n".join(both))
    assert attempts(planned(resource, found)) == [("demo-5", "save", "")]
    found = with_records(applied(resource, with_records(logging(), "\n".join(both))), "\n".join(both))
    assert (persistence_of(planned(resource, found)), to_record(planned(resource, found))) == (LOG, {LOGGED})


@pytest.mark.parametrize("copies", [0, 1])
def test_log_is_recorded_no_more_before_it_ends(copies: int) -> None:
    after, found = leaving_log(copies)
    plan = planned(after, with_records(found, LOGGED))
    assert (switched(plan), persistence_of(plan), to_record(plan)) == ({("save", "60 1")}, LOG, set())
    after, found = leaving_log(copies, using_all=True)
    plan = planned(after, with_records(found, LOGGED))
    assert (switched(plan), persistence_of(plan), to_record(plan)) == (set(), LOG, {SAVED})
    plan = planned(after, with_records(found, SAVED, LOGGED))
    assert (switched(plan), persistence_of(plan), to_record(plan)) == (set(), LOG, {SAVED}), "one is left"
    plan = planned(after, with_records(found, SAVED))
    assert (switched(plan), persistence_of(plan), to_record(plan)) == (set(), SAVED.split("\n"), set())


def test_record_does_not_prevent_that_persistence_is_switched_off() -> None:
    _, found = leaving_log(0)
    resource = cluster(*formed(3, 0), replicasPerMaster=0, config=VOLATILE)
    settings = settings_of(resource, appendonly="yes")
    found = replace(found, instances=tuple(_with(each, settings, {}) for each in found.instances))
    nothing = ["appendonly no", 'save ""']
    plan = planned(resource, with_records(found, LOGGED))
    assert (switched(plan), persistence_of(plan), to_record(plan)) == (set(), LOG, {"\n".join(nothing)})
    assert persistence_of(planned(resource, with_records(found, "\n".join(nothing)))) == nothing


async def test_long_records_cost_little() -> None:
    """Users write annotations of claims, of which all together may have 16 MiB."""
    resource = cluster(*formed())
    found = with_records(observed(resource, resource), *("a\n" * 130_000 + str(number) for number in range(6)))
    async with cost.bounded():
        plan = planned(resource, found)
    assert to_record(plan) == {LOGGED}
    adopting = with_records(seen(resource, *formed(), stateful_set=False), LOGGED + "\nsave 1 1" * 20_000)
    async with cost.bounded():
        assert adopting.persistence == {}


def test_failed_rewrite_of_a_log_prevents_no_other_setting() -> None:
    before, after = cluster(*formed()), cluster(*formed(), config={"save": "900 1"})
    found = observed(after, before)
    last = found.instances[-1]
    assert last.report
    failing = replace(last, report=replace(last.report, rewrites_log=True))
    plan = planned(after, replace(found, instances=(*found.instances[:-1], failing)))
    assert attempts(plan) == [(f"demo-{number}", "save", "900 1") for number in range(6)]


@pytest.mark.parametrize(
    ("others", "repeated"),
    [({}, "repeated"), ({"appendonly": "no"}, "repeated within an hour")],
    ids=["by the server", "with CONFIG SET, which it refused"],
)
def test_first_log_that_cannot_be_written_is_a_warning_with_the_reason(others: dict[str, str], repeated: str) -> None:
    found = logging(rewrites=True, others=others)
    last = found.instances[-1]
    assert last.report
    failing = _with(last, dict(last.report.settings), {note_name("appendonly"): note("yes")})
    failing = replace(failing, report=replace(last.report, rewrite_failed=True))
    step = apply_config(assess(cluster(*formed()), replace(found, instances=(*found.instances[:-1], failing))))
    assert (step.actions, step.reason, step.warning) == ((), "LogIncomplete", True)
    assert step.message == (
        f"demo-5: writing the first append-only file failed (aof_last_bgrewrite_status in INFO), and is {repeated}. "
        "Until it is complete, snapshots stay on. Check the space on the volume, and the memory."
    )


def test_server_of_another_series_does_not_count_as_one_that_writes_its_log() -> None:
    """Such a server switches its log on once its pod is replaced."""
    found = logging(others={"appendonly": "no", "save": "60 1"})
    last = found.instances[-1]
    assert last.report
    older = replace(last, report=replace(last.report, version="7.2.4"))
    step = apply_config(assess(cluster(*formed()), replace(found, instances=(*found.instances[:-1], older))))
    assert step.message == "demo-5: no append-only file yet. Until it is complete, snapshots stay on."


def test_other_settings_are_written_while_a_log_is_incomplete() -> None:
    after = cluster(*formed(), config={"hz": "20"})
    found = logging(rewrites=True)
    found = replace(
        found,
        instances=tuple(
            _with(each, {**(each.report.settings if each.report else {}), "hz": "20"}, {}) for each in found.instances
        ),
    )
    text = config_map_of(after, found)["data"][CONFIG_KEY]
    assert "\nhz 20\n" in text
    assert "\nappendonly no\n" in text


def test_persistence_that_servers_have_not_accepted_is_not_in_a_restored_file() -> None:
    """A server that starts with an append-only file that it does not have ignores its snapshot."""
    at = [replace(each, up=False) for each in formed()]
    before, after = cluster(*at, config={"appendonly": "no"}), cluster(*at)
    found = applied(before, observed(before, before, *at), appendonly=None)
    assert "\nappendonly no\n" in config_map_of(after, found)["data"][CONFIG_KEY]


@pytest.mark.parametrize(("former", "desired"), [("no", "yes"), ("yes", "no")])
def test_file_counts_although_the_stateful_set_was_not_written_after_it(former: str, desired: str) -> None:
    """A webhook refuses that write, or a tool restores a former StatefulSet; then every node stops."""
    at = [replace(each, up=False) for each in formed()]
    before, after = cluster(*at, config={"appendonly": former}), cluster(*at, config={"appendonly": desired})
    found = replace(applied(before, observed(before, before, *at)), config_map=observed(after, after, *at).config_map)
    assert found.config_map is not None
    assert f"\nappendonly {desired}\n" in found.config_map["data"][CONFIG_KEY]
    assert config_map_of(after, found)["data"] == found.config_map["data"]


@pytest.mark.parametrize("made", [False, True], ids=["no StatefulSet", "a StatefulSet without the record"])
def test_nodes_that_are_away_keep_no_persistence_that_nothing_shows(made: bool) -> None:
    """A default instead of what they had would be a log, with which servers ignore their snapshots."""
    at = [replace(each, up=False, pod=False) for each in formed()]
    resource = cluster(*at, config={"appendonly": "no"})
    text = config_map_of(resource, seen(resource, *at, stateful_set=made))["data"][CONFIG_KEY]
    assert "\nappendonly no\n" in text
    assert "\nsave 3600 1\n" in text


def test_persistence_of_a_stateful_set_that_another_client_wrote_does_not_count() -> None:
    """A tool restores a former StatefulSet, and the file was deleted: the spec is the best that is known."""
    at = [replace(each, up=False) for each in formed()]
    before, after = cluster(*at, config={"appendonly": "no"}), cluster(*at)
    found = applied(before, observed(before, before, *at), appendonly=None)
    assert found.stateful_set is not None
    restored = {**found.stateful_set, "metadata": {**found.stateful_set["metadata"], "managedFields": []}}
    assert replace(found, stateful_set=restored).persistence == {}
    assert "\nappendonly yes\n" in config_map_of(after, replace(found, stateful_set=restored))["data"][CONFIG_KEY]


def test_edited_file_does_not_count_although_the_stateful_set_has_no_record() -> None:
    at = [replace(each, up=False) for each in formed()]
    resource = cluster(*at)
    found = applied(resource, observed(resource, resource, *at), appendonly="no")
    found = replace(found, stateful_set=seen(resource, *at).stateful_set)
    assert (found.applied_config, found.persistence) == (None, {})
    assert "\nappendonly yes\n" in config_map_of(resource, found)["data"][CONFIG_KEY]


def test_template_that_another_client_wrote_is_never_applied() -> None:
    """The user's ConfigMap is invalid meanwhile: what is applied counts as its last valid version."""
    given = "cluster-node-timeout 9000\n"
    resource = cluster(*formed(), pod=[{"configmap": "mine"}])
    found = applied(resource, observed(resource, resource, template=given))
    assert found.config_map
    forged = edited(found.config_map, **{config_map.TEMPLATE_KEY: f"{given}maxmemory-policy allkeys-random\n"})
    invalid = ConfigTemplate(problem=SecretProblem(CONFIG_MAP_INVALID, "demo is invalid."))
    found = replace(found, config_map=forged, config=invalid)
    for _ in range(2):
        assert "maxmemory-policy" not in {name for _, name, _ in attempts(planned(resource, found))}
        made = config_map_of(resource, found)
        assert "allkeys-random" not in str(made["data"])
        found = replace(found, config_map=stored(made))


def test_settings_of_a_file_that_is_changed_by_hand_are_not_sent_while_paused() -> None:
    resource = cluster(*formed())
    found = applied(resource, observed(resource, resource), appendonly="no")
    assert attempts(planned(cluster(*formed(), pause=True), found)) == []


def test_restarts_are_counted_although_the_config_map_was_deleted() -> None:
    resource = cluster(*formed())
    found = observed(resource, resource)
    removed = config_map_of(resource, replace(found, config_map={**found.config_map, "data": {CONFIG_KEY: "hz 20"}}))  # type: ignore[dict-item]
    digest = removed["metadata"]["annotations"][names.READ_ONCE]
    assert digest.endswith(".1")
    made = {"metadata": {}, "spec": {"template": {"metadata": {"annotations": {names.READ_ONCE: digest}}}}}
    assert configuration.config_marks(assess(resource, replace(found, config_map=None, stateful_set=made)))[0] == digest
