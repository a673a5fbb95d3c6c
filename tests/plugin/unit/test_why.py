"""`kubectl platform why`: which change of which field replaced a pod, and which client wrote it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plugin import restarts
from plugin.commands import why
from plugin.databases import MEMCACHED, REDIS
from plugin.templates import CONTROLLER_REVISION, History, noted, templates
from shared.api.applied_spec import APPLIED_SPEC
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import POD, STATEFUL_SET, Kind, Obj
from shared.status.reconciliation_pause import PAUSE
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, Subject, edit, later, lose
from tests.redis.simulation import losses
from tests.redis.simulation.moving_slots import redis_of
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.memcached.cases import CHANGES
from tests.support.plugin import Terminal
from tests.support.redis import scenarios as redis

HOUR = 3600
NAMED: Obj = {"size": 2, "workload": "StatefulSet"}


def started(monkeypatch: pytest.MonkeyPatch, subject: Subject, step: ScenarioStep) -> Terminal:
    """Return a terminal whose time is that of the world."""
    terminal = Terminal(monkeypatch, subject, step)
    monkeypatch.setattr(why, "now", lambda: terminal.play.world.clock())
    return terminal


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return started(monkeypatch, memcached.MEMCACHED, memcached.apply(**NAMED))


def written(patch: Obj, manager: str = "helm", kind: Kind | None = None) -> ScenarioStep:
    """Let a client with another field manager change an object."""

    def act(stage: Any) -> None:
        actor = stage.user_client._server.actor(manager)
        actor.merge(kind or stage.kind, stage.namespace, "cache", patch)

    return ScenarioStep(f"{manager} writes {patch}", act)


def uids(terminal: Terminal) -> set[str]:
    return {pod["metadata"]["uid"] for pod in terminal.play.stage.find(POD)}


def facts(terminal: Terminal, reference: str) -> list[dict[str, str]]:
    result = terminal.run(f"why {reference} -o json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def texts(found: list[dict[str, str]], source: str) -> list[str]:
    return [fact["text"] for fact in found if fact["source"] == source]


@pytest.mark.parametrize(
    ("subject", "step", "field", "value"),
    [
        (memcached.MEMCACHED, memcached.apply(**NAMED), "containers[memcached].image", "1.6.18"),
        (memcached.MEMCACHED, memcached.apply(size=2, workload="Deployment"), "containers[memcached].image", "1.6.18"),
        (etcd.ETCD, etcd.cluster(3, "3.6.10"), "containers[etcd].image", etcd.MIDDLE),
        (losses.SUBJECT, redis.cluster(6), "containers[redis].image", "7.2.5"),
    ],
    ids=["StatefulSet", "Deployment", "etcd", "redis"],
)
def test_replaced_pod_names_the_field_of_the_template_and_of_the_spec_and_its_writer(
    monkeypatch: pytest.MonkeyPatch, subject: Subject, step: ScenarioStep, field: str, value: str
) -> None:
    terminal = started(monkeypatch, subject, step)
    before = uids(terminal)
    terminal.do(later(60), written({"spec": {"version": value}}), *(later(60) for _ in range(6)))
    pods = [pod for pod in terminal.play.stage.find(POD) if pod["metadata"]["uid"] not in before]
    assert pods
    found = facts(terminal, pods[0]["metadata"]["name"])
    [change] = [text for text in texts(found, "template") if "was replaced by that" in text]
    assert "Its template changed" in change
    fields = texts(found, "field")
    assert any(text.startswith(f"spec.{field}: ") and f"{value}." in text for text in fields), fields
    [spec] = [fact for fact in found if fact["source"] == "spec"]
    assert spec["text"].startswith("spec.version: ")
    assert f"→ {value}; written by helm" in spec["text"]
    assert (spec["manager"], bool(spec["since"])) == ("helm", True)


def test_pod_that_was_lost_later_is_not_explained_by_the_change(cache: Terminal) -> None:
    cache.do(written({"spec": {"version": "1.6.18"}}), *(later(60) for _ in range(3)), later(3 * HOUR), lose(POD))
    [text] = texts(facts(cache, "cache-0"), "template")
    assert "was created 3h later" in text
    assert "a drain, an eviction or a deletion may have replaced it" in text
    assert "was replaced by that" not in text


def test_pod_of_the_first_template_was_replaced_by_no_change(cache: Terminal) -> None:
    cache.do(lose(POD))
    [text] = texts(facts(cache, "cache-0"), "template")
    assert "no change of the template is known that replaced it" in text


def test_change_of_a_paused_resource_is_not_applied_yet(cache: Terminal) -> None:
    cache.do(edit(None, {"metadata": {"annotations": {PAUSE: "true"}}}), written({"spec": {"version": "1.6.18"}}))
    [fact] = [fact for fact in facts(cache, "memcached/cache") if fact["source"] == "spec"]
    assert fact["text"].startswith("spec.version: 1.6.45 → 1.6.18 is not applied yet. Written by helm")
    assert fact["manager"] == "helm"


def test_restart_by_kubectl_names_that_client_and_no_field_of_the_spec(cache: Terminal) -> None:
    template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T01:00:00Z"}}}
    cache.do(written({"spec": {"template": template}}, "kubectl-rollout", STATEFUL_SET), later(60))
    found = facts(cache, "cache-0")
    [field] = texts(found, "field")
    assert field.startswith("metadata.annotations.kubectl.kubernetes.io/restartedAt: none → 2026-01-01T01:00:00Z.")
    assert "On StatefulSet, written by kubectl-rollout" in field
    assert not texts(found, "spec")


def test_resource_shows_the_pods_that_have_the_former_template(cache: Terminal) -> None:
    cache.play.stage.workloads.pod_problem = lambda pod: "" if pod["metadata"]["name"] == "cache-0" else "Unready"
    cache.do(written({"spec": {"version": "1.6.18"}}))
    found = facts(cache, "memcached/cache")
    [text] = texts(found, "template")
    assert "1 of 2 pods have the former one: cache-0. Fields that differ:" in text
    assert any(each.startswith("spec.version: ") for each in texts(found, "spec"))
    [ahead, first] = texts(facts(cache, "cache-0"), "template")
    assert "It runs a former template, and is replaced when it is its turn" in ahead
    assert "first that Kubernetes keeps" in first


def test_condition_states_since_when_what_ends_it_and_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = started(monkeypatch, losses.SUBJECT, redis.cluster(6))
    terminal.do(*losses.destroyed(losses.shard_of(redis_of(terminal.play.world))))
    ready = facts(terminal, "rediscluster/cache")[0]
    assert ready["ends"] == "Nothing changes until a user changes something."
    assert ready["fix"] == "docs/runbook/redis.md#slotslost"
    [resource] = terminal.play.stage.find()
    [condition] = [each for each in resource["status"]["conditions"] if each["type"] == "Ready"]
    assert ready["since"] == condition["lastTransitionTime"]
    assert ready["ends"] in terminal.text("why rediscluster/cache")


@pytest.mark.parametrize(
    ("forbidden", "source", "words"),
    [
        ("/controllerrevisions", "template", "It is unknown which change replaced pods: "),
        ("/statefulsets/", "template", "It is unknown which change replaced pods: "),
        ("/events", "events", "You may not read them: "),
    ],
)
@pytest.mark.parametrize("reference", ["memcached/cache", "cache-0"])
def test_missing_right_hides_only_what_it_is_about(
    cache: Terminal, forbidden: str, source: str, words: str, reference: str
) -> None:
    cache.transport.forbidden = forbidden
    found = facts(cache, reference)
    [fact] = [fact for fact in found if fact["source"] == source]
    assert fact["text"].startswith(words)
    assert "right" in fact["fix"]
    assert texts(found, "Ready")


def test_operator_without_notes_leaves_the_writer_of_the_spec(cache: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version of the operator notes no spec on its workload."""
    monkeypatch.setattr("plugin.templates.APPLIED_SPEC", "none")
    cache.do(later(60), written({"spec": {"version": "1.6.18"}}), later(60))
    [text] = texts(facts(cache, "cache-0"), "spec")
    assert text.startswith("The operator did not record the former spec; the spec was written by helm")


# Every change of a field, and random ones.


def require_explained(terminal: Terminal, before: set[str], change: Mapping[str, Any]) -> int:
    """Require that each pod that a change replaced names a field of the change and its writer; return their number."""
    replaced = [pod for pod in terminal.play.stage.find(POD) if pod["metadata"]["uid"] not in before]
    for pod in replaced:
        found = facts(terminal, pod["metadata"]["name"])
        writers = [fact for fact in found if fact["manager"] == "helm"]
        named = [field for field in change if any(f"spec.{field}" in fact["text"] for fact in writers)]
        assert named, (change, [fact["text"] for fact in found])
    return len(replaced)


RESTARTING = ("version", "memoryMB", "tls.mode", "nodeSelector[]", "labels[]", "threads", "extraArgs[]")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in RESTARTING else pytest.mark.nightly) for each in CHANGES]
)
def test_every_field_that_replaces_pods_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    terminal = started(monkeypatch, memcached.MEMCACHED, memcached.apply(**NAMED))
    before = uids(terminal)
    terminal.do(written({"spec": CHANGES[name]}), *(later(60) for _ in range(3)))
    assert require_explained(terminal, before, CHANGES[name]) or name not in RESTARTING


@pytest.mark.weekly
@pytest.mark.timeout(3600)
def test_a_thousand_random_changes_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    explained, chance = 0, random.Random(39)
    while explained < 1000:
        terminal = started(monkeypatch, memcached.MEMCACHED, memcached.apply(**NAMED))
        before = uids(terminal)
        change = {key: value for name in chance.sample(sorted(CHANGES), 2) for key, value in CHANGES[name].items()}
        terminal.do(written({"spec": change}), *(later(60) for _ in range(3)))
        explained += bool(require_explained(terminal, before, change))


# Objects that a client made, or that are of another time.

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RESOURCE: Obj = {"metadata": {"name": "cache", "namespace": NAMESPACE, "uid": "r"}, "spec": {"size": 2}}
WORKLOAD: Obj = {"kind": "StatefulSet", "metadata": {"name": "cache", "uid": "w"}, "spec": {}}


def ago(**passed: float) -> str:
    return rfc3339(NOW - timedelta(**passed))


def revision(number: int, made: str, image: str, spec: str = '{"uid": "r", "spec": {"size": 2}}', **more: Any) -> Obj:
    owner = {"kind": "StatefulSet", "name": "cache", "uid": "w", "controller": True}
    annotations = {APPLIED_SPEC: spec} if spec else {}
    metadata = {"name": f"cache-{number}", "creationTimestamp": made, "ownerReferences": [owner]}
    template = {"metadata": {"annotations": {}}, "spec": {"containers": [{"name": "memcached", "image": image}]}}
    data = {"spec": {"template": template}}
    return {"metadata": metadata | {"annotations": annotations}, "revision": number, "data": data} | more


def history(*kept: Obj) -> History:
    return History(WORKLOAD, templates(WORKLOAD, kept, RESOURCE))


def pod(name: str, of: str, made: str) -> Obj:
    labels = {"controller-revision-hash": of}
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": made}}


def test_change_without_a_change_of_the_spec_is_of_the_operator() -> None:
    found = history(revision(1, ago(days=9), "a:1"), revision(2, ago(hours=1), "a:2"))
    one = pod("cache-0", "cache-2", ago(minutes=59))
    shown = restarts.of_pod(MEMCACHED, RESOURCE, one, [one], found, NOW)
    assert [fact.text for fact in shown][-1].startswith("The spec was the same: the operator changed the template")


def test_return_to_a_former_template_has_no_time_of_its_own() -> None:
    """Kubernetes gives the former ControllerRevision a new number, and keeps its time."""
    found = history(revision(3, ago(days=9), "a:1"), revision(2, ago(days=1), "a:2"))
    assert [each.content["spec"]["containers"][0]["image"] for each in found.templates] == ["a:2", "a:1"]
    one = pod("cache-0", "cache-3", ago(minutes=1))
    [first, field, _] = restarts.of_pod(MEMCACHED, RESOURCE, one, [one], found, NOW)
    assert "the workload returned to a former one" in first.text
    assert field.text.startswith("spec.containers[memcached].image: a:2 → a:1.")


def test_templates_that_differ_only_in_what_servers_apply_live_replace_no_pod() -> None:
    kept = [revision(number, ago(days=9 - number), f"a:{number}") for number in (1, 2, 3)]
    for each, digest in zip(kept, ("x", "y", "y"), strict=True):
        each["data"]["spec"]["template"]["metadata"]["annotations"] = {"redis.middleware.hc.cn/template": digest}
    found = history(*kept)
    change = found.change_to(found.templates[2])
    assert change is not None
    assert (change.before.name, change.after.name) == ("cache-1", "cache-2")
    assert found.change_since(found.templates[1]) is None


def test_template_that_is_no_longer_kept_is_unknown() -> None:
    one = pod("cache-0", "cache-1", ago(minutes=1))
    [fact] = restarts.of_pod(REDIS, RESOURCE, one, [one], history(revision(5, ago(days=1), "a:1")), NOW)
    assert fact.text == "Kubernetes no longer keeps the template that this pod was created from."


@pytest.mark.parametrize(
    "broken",
    [
        {"data": None},
        {"data": "text"},
        {"data": {"spec": "text"}},
        {"data": {"spec": {"template": []}}},
        {"data": {"spec": {"template": {"spec": {}}}}},
        {"revision": "many"},
        {"revision": None},
    ],
    ids=str,
)
def test_revision_of_any_content_is_left_out(broken: Obj) -> None:
    assert history(revision(1, ago(days=1), "a:1") | broken).templates == ()


@pytest.mark.parametrize("note", ["", "text", "[" * 100_000, "[]", '{"uid": "other", "spec": {}}', '{"uid": "r"}'])
def test_note_of_any_content_is_no_spec(note: str) -> None:
    assert noted({"metadata": {"annotations": {APPLIED_SPEC: note}}}, RESOURCE) is None


def test_values_of_environment_variables_are_hidden() -> None:
    kept = [revision(1, ago(days=1), "a:1"), revision(2, ago(hours=1), "a:1")]
    for number, each in enumerate(kept):
        [container] = each["data"]["spec"]["template"]["spec"]["containers"]
        container["env"] = [{"name": "TOKEN", "value": f"secret{number}"}]
        spec = {"env": [{"name": "TOKEN", "value": f"secret{number}"}]}
        each["metadata"]["annotations"][APPLIED_SPEC] = json.dumps({"uid": "r", "spec": spec})
    one = pod("cache-0", "cache-2", ago(minutes=59))
    shown = restarts.of_pod(MEMCACHED, RESOURCE, one, [one], history(*kept), NOW)
    assert "secret" not in str(shown)
    assert "spec.env[TOKEN].value: (hidden)" in str(shown)


def test_kinds_are_those_of_kubernetes() -> None:
    assert CONTROLLER_REVISION.path("shop") == "/apis/apps/v1/namespaces/shop/controllerrevisions"
