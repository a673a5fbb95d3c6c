"""`kubectl platform plan` in simulated worlds: what it prints, its exit codes, and what ends it."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from plugin import applying, databases, plans, version
from plugin.cli import cli
from plugin.commands import approve as approving
from plugin.commands import base
from plugin.commands import plan as planning
from plugin.reading import Reader
from shared.api.applied_spec import APPROVAL
from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import Forbidden
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, DISRUPTION_BUDGET, POD, Obj
from shared.kubernetes.ownership import INSTANCE
from simulator.api_server.actor import Actor
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, create, delete, edit, later, pod_problem
from tests.redis.simulation import losses
from tests.redis.simulation.moving_slots import redis_of
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.plugin import Terminal, operator
from tests.support.redis import scenarios as redis

API = {
    "EtcdCluster": "etcd.ydzs.io/v1alpha1",
    "Memcached": "cache.example.com/v1alpha1",
    "RedisCluster": "redis.middleware.hc.cn/v1alpha1",
}


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=3))
    terminal.do(operator("memcached"))
    return terminal


@pytest.fixture
def manifest(tmp_path: Path) -> Any:
    """Write a manifest, and return its path."""

    def written(kind: str = "Memcached", name: str = "cache", **spec: Any) -> str:
        document = {"apiVersion": API[kind], "kind": kind, "metadata": {"name": name}, "spec": spec}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return written


BASE: Obj = {"size": 3, "updateStrategy": {"pauseSeconds": 0}}


def test_nothing_to_do_ends_with_0(cache: Terminal, manifest: Any) -> None:
    assert "Nothing to do." in cache.text("plan memcached/cache")
    assert "Nothing to do." in cache.text(f"plan -f {manifest(**BASE)}")


def test_change_without_a_restart_ends_with_2(cache: Terminal, manifest: Any) -> None:
    result = cache.run(f"plan -f {manifest(**BASE | {'size': 4})}")
    assert result.exit_code == 2, result.output
    lines = result.output.splitlines()
    assert lines[0] == "Memcached default/cache"
    assert lines[2].split() == ["STEP", "ACTION", "REASON", "EFFECT", "REDUNDANCY", "ABOUT"]
    assert "change StatefulSet cache" in lines[3]
    assert "spec.replicas: 3 → 4" in lines[3]
    assert "Pod cache-3 starts" in lines[4]
    assert "2 steps, less than 1s; no pod restarts; least redundancy: 3 of 4 servers ready." in result.output
    assert "  A new pod takes as long as the 3 pods that run now: 0 s from its creation until" in result.output


def test_restarts_end_with_3_and_name_the_fields(cache: Terminal, manifest: Any) -> None:
    result = cache.run(f"plan -f {manifest(**BASE, version='1.6.18')}")
    assert result.exit_code == 3, result.output
    assert "cache-2, cache-1, cache-0 restart:" in result.output
    assert "  spec.containers[memcached].image: memcached:1.6.45 → memcached:1.6.18" in result.output
    assert "3 pods restart; least redundancy: 2 of 3 servers ready." in result.output


def test_paused_resource_ends_with_4(cache: Terminal, manifest: Any) -> None:
    result = cache.run(f"plan -f {manifest(**BASE | {'size': 5}, paused=True)}")
    assert result.exit_code == 4, result.output
    assert "It waits for a person. Paused: " in result.output


def test_loss_that_waits_for_a_confirmation_ends_with_4(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, losses.SUBJECT, redis.cluster(6))
    terminal.do(operator("redis"), *losses.destroyed(losses.shard_of(redis_of(terminal.play.world))))
    [found] = terminal.play.stage.find()
    result = terminal.run("plan rediscluster/cache")
    assert result.exit_code == 4, result.output
    assert found["status"]["recovery"]["message"] in result.output
    assert f"Token of this decision: {found['status']['recovery']['token']}" in result.output


def test_refused_manifest_ends_with_5_and_the_refusal(
    cache: Terminal, manifest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = cache.play.world.server.handle

    def refusing(request: Request) -> Response:
        if request.query.get("dryRun"):
            body = {"kind": "Status", "reason": "Invalid", "message": "spec.size: Invalid value: -1", "code": 422}
            return Response(422, body)
        return handle(request)

    monkeypatch.setattr(cache.play.world.server, "handle", refusing)
    result = cache.run(f"plan -f {manifest(**BASE | {'size': -1})}")
    assert result.exit_code == 5, result.output
    assert "The API server refuses the manifest: " in result.output
    assert "spec.size: Invalid value: -1" in result.output
    found = json.loads(cache.run(f"plan -o json -f {manifest(**BASE | {'size': -1})}").output)
    assert (found["outcome"], found["steps"]) == ("refused", [])


def test_nothing_is_written(cache: Terminal, manifest: Any) -> None:
    before = cache.play.world.server.version
    cache.run(f"plan -f {manifest(**BASE | {'size': 5})}")
    assert cache.play.world.server.version == before
    assert [request.query.get("dryRun") for request in cache.transport.requests] == ["All"]


def test_new_resource_has_a_plan(cache: Terminal, manifest: Any) -> None:
    result = cache.run(f"plan -f {manifest(name='other', size=2)}")
    assert result.exit_code == 2, result.output
    assert "create StatefulSet other" in result.output
    assert "  Durations are defaults: this resource has no pod on which they could be measured." in result.output
    assert "Pod other-1 starts" in result.output


def test_json_has_a_stable_schema(cache: Terminal, manifest: Any) -> None:
    """Scripts depend on these names: fields may be added, not renamed."""
    found = json.loads(cache.run(f"plan -o json -f {manifest(**BASE, version='1.6.18')}").output)
    assert found["schema"] == "platform.ydzs.io/plan/v1"
    assert found.keys() >= {"kind", "namespace", "name", "outcome", "steps", "ready", "reason", "message", "person"}
    assert found.keys() >= {"seconds", "assumptions"}
    restart = next(step for step in found["steps"] if step["action"] == "restarts")
    assert restart == {
        "by": "kubernetes",
        "action": "restarts",
        "target": "Pod cache-2",
        "fields": [],
        "reason": "Updating",
        "message": restart["message"],
        "pods": [
            {
                "name": "cache-2",
                "effect": "restarts",
                "why": ["spec.containers[memcached].image: memcached:1.6.45 → memcached:1.6.18"],
            }
        ],
        "members": [],
        "moves": [],
        "redundancy": 1,
        "redundancy_text": "2 of 3 servers ready",
        "seconds": 1.0,
        "minor": False,
        "count": 1,
        "others": [],
    }


def test_slots_and_roles_are_shown(monkeypatch: pytest.MonkeyPatch, manifest: Any) -> None:
    terminal = Terminal(monkeypatch, redis.REDIS, redis.cluster(6))
    terminal.do(operator("redis"))
    spec = terminal.play.stage.find()[0]["spec"]
    result = terminal.run(f"plan -f {manifest('RedisCluster', **spec | {'replicas': 8})}")
    assert result.exit_code == 2, result.output
    assert "1366 slots from cache-0 to cache-7" in result.output
    assert "primary → replica" in result.output


@pytest.mark.parametrize(
    ("image", "labels", "running"),
    [
        ("registry.example.com/memcached-operator:9.9.9", {}, "9.9.9"),
        ("registry.example.com/memcached-operator:latest", {"app.kubernetes.io/version": "9.9.9"}, "9.9.9"),
        ("registry.example.com/memcached-operator@sha256:abc", {}, "unknown"),
    ],
    ids=["tag", "label", "neither"],
)
def test_operator_of_another_version_has_no_plan(
    monkeypatch: pytest.MonkeyPatch, image: str, labels: dict[str, str], running: str
) -> None:
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=1))
    terminal.do(operator("memcached", image, **labels))
    result = terminal.run("plan memcached/cache")
    assert result.exit_code == 1
    assert f"has version {running}, and this plugin {version.own()}" in result.output


def test_image_without_a_version_has_that_of_its_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=1))
    terminal.do(operator("memcached", "memcached-operator:dev", **{version.VERSION_LABEL: version.own()}))
    assert "Nothing to do." in terminal.text("plan memcached/cache")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plan", "name either a resource or a file"),
        ("plan memcached/cache -f a.yaml", "name either a resource or a file"),
        ("plan etcdbackup/monday", "an EtcdBackup has no plan"),
        ("plan memcached/missing", "does not exist"),
        ("plan --unknown", "No such option"),
        ("plan -f missing.yaml", "missing.yaml"),
    ],
)
def test_wrong_commands_end_with_1(cache: Terminal, line: str, message: str) -> None:
    result = cache.run(line)
    assert (result.exit_code, message in result.output) == (1, True), result.output


def test_file_without_a_resource_is_reported(cache: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("kind: Secret\n---\nkind: Service\n")
    result = cache.run(f"plan -f {path}")
    assert "has 0 resources with a plan" in result.output
    path.write_text("a: [")
    assert "is not valid YAML" in cache.run(f"plan -f {path}").output


def test_manifest_from_standard_input(cache: Terminal, manifest: Any) -> None:
    text = Path(manifest(**BASE | {"size": 4})).read_text()
    assert cache.run("plan -f -", stdin=text).exit_code == 2


def test_missing_operator_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=1))
    result = terminal.run("plan memcached/cache")
    assert "0 Deployments of the memcached operator were found" in result.output


def test_state_that_is_not_known_ends_with_1(cache: Terminal, manifest: Any) -> None:
    cache.do(pod_problem("CrashLoopBackOff"), ScenarioStep("a pod ends", _lose_a_pod))
    result = cache.run(f"plan -f {manifest(**BASE | {'size': 4})}")
    assert result.exit_code == 1, result.output
    assert "There is no plan: Pod cache-0 does not serve: CrashLoopBackOff" in result.output


def _lose_a_pod(stage: Any) -> None:
    stage.user_client.delete(POD, NAMESPACE, "cache-0", gracePeriodSeconds=0)


def test_secrets_are_read_and_never_shown(cache: Terminal, manifest: Any) -> None:
    cache.do(memcached.given_users("hunter2hunter2"))
    found = cache.run(f"plan -o json -f {manifest(**BASE, auth={'secretName': 'cache-users'})}").output
    assert "hunter2" not in found


def test_patch_removes_what_the_manifest_no_longer_has() -> None:
    """Kubectl apply compares with the manifest that was applied last, not with the live object."""
    former = {"spec": {"size": 3, "tls": {"mode": "self", "minVersion": "1.3"}, "labels": {"a": "b"}}}
    annotations = {applying.LAST_APPLIED: json.dumps(former)}
    live = {"metadata": {"annotations": annotations}, "spec": {**former["spec"], "defaulted": 1}}
    found = applying.patch({"metadata": {}, "spec": {"size": 4, "tls": {"mode": "self"}}}, live)
    assert found["spec"] == {"size": 4, "tls": {"mode": "self", "minVersion": None}, "labels": None}
    empty = applying.patch({"metadata": {"annotations": None}}, live)
    assert empty["metadata"]["annotations"].keys() == {applying.LAST_APPLIED}


def test_each_outcome_has_an_exit_code() -> None:
    from simulator import plan as simulated

    outcomes = {getattr(simulated, name) for name in ("NOTHING", "SAFE", "RESTARTS", "PERSON", "REFUSED", "UNKNOWN")}
    assert plans.EXIT_CODES.keys() == outcomes


# Approvals.


def test_plan_of_a_change_that_needs_an_approval_has_its_token_and_the_steps_after_it(
    monkeypatch: pytest.MonkeyPatch, manifest: Any
) -> None:
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=3, changes="Approved"))
    terminal.do(operator("memcached"))
    changed = {**BASE, "size": 4, "changes": "Approved"}
    result = terminal.run(f"plan -f {manifest(**changed)} -o json")
    planned = json.loads(result.output)
    assert (result.exit_code, planned["outcome"], planned["ready"]) == (2, "safe", True)
    terminal.do(memcached.apply(size=4, changes="Approved"))
    assert len(terminal.play.stage.find(POD)) == 3
    text = terminal.run("plan memcached/cache").output
    assert f"annotate the resource with {APPROVAL}={planned['approval']}" in " ".join(text.split())
    assert "cache-3" in text
    terminal.do(edit(None, {"metadata": {"annotations": {APPROVAL: planned["approval"]}}}))
    assert len(terminal.play.stage.find(POD)) == 4
    assert "Nothing to do." in terminal.text("plan memcached/cache")


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A Memcached with a change that waits for an approval."""
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=3, changes="Approved"))
    terminal.do(operator("memcached"), memcached.apply(size=4, changes="Approved"))
    return terminal


def token_of(terminal: Terminal) -> str:
    return str(json.loads(terminal.run("plan memcached/cache -o json").output)["approval"])


def test_approval_with_the_token_shows_the_plan_and_begins_the_change(waiting: Terminal) -> None:
    text = waiting.text(f"approve memcached/cache --token {token_of(waiting)}")
    assert "Pod cache-3 starts" in text
    assert "Approved " in text
    waiting.do(later(60))
    assert len(waiting.play.stage.find(POD)) == 4
    result = waiting.run("approve memcached/cache --token x")
    assert result.exit_code == 1
    assert "no change of Memcached default/cache waits for an approval" in result.output


@pytest.mark.parametrize("given", ["", " --token another"])
def test_approval_needs_a_terminal_or_the_token(waiting: Terminal, given: str) -> None:
    result = waiting.run(f"approve memcached/cache{given}")
    assert result.exit_code == 1
    assert ("an approval needs a terminal, or --token" in result.output) != bool(given)
    assert len(waiting.play.stage.find(POD)) == 3


def test_approval_of_a_resource_that_changed_meanwhile_is_refused(
    waiting: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, shown = token_of(waiting), planning.show

    def changing(*given: Any, **more: Any) -> None:
        shown(*given, **more)
        memcached.apply(size=5, changes="Approved").act(waiting.play.stage)

    monkeypatch.setattr(approving, "show", changing)
    result = waiting.run(f"approve memcached/cache --token {token}")
    assert result.exit_code == 1
    assert "nothing was approved" in result.output


# What a plan does not know, or is not about.


def deployment(terminal: Terminal, change: Any, name: str = "memcached-operator") -> None:
    """Change the Deployment of an operator."""
    user = terminal.play.stage.user_client
    found = user.get(DEPLOYMENT, "platform-system", name)
    change(found)
    user.update(DEPLOYMENT, found)


def watching(*namespaces: str) -> Any:
    def change(found: Obj) -> None:
        [container] = found["spec"]["template"]["spec"]["containers"]
        container["args"].append(f"--watch-namespace={','.join(namespaces)}")

    return change


def second_operator(terminal: Terminal, namespace: str, *watched: str) -> None:
    """Install the operator another time."""
    user = terminal.play.stage.user_client
    found = user.get(DEPLOYMENT, "platform-system", "memcached-operator")
    copy = {"metadata": {**found["metadata"], "namespace": namespace}, "spec": json.loads(json.dumps(found["spec"]))}
    for key in ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"):
        copy["metadata"].pop(key, None)
    copy["spec"]["template"]["spec"]["containers"][0]["args"][-1] = f"--watch-namespace={','.join(watched)}"
    user.create(DEPLOYMENT, copy)


@pytest.mark.parametrize("changes", [False, True], ids=["at rest", "a change"])
def test_namespace_that_no_operator_watches_has_no_plan(cache: Terminal, manifest: Any, *, changes: bool) -> None:
    deployment(cache, watching("team-a", "team-b"))
    result = cache.run(f"plan -f {manifest(**BASE | {'size': 4})}" if changes else "plan memcached/cache")
    assert result.exit_code == 1, result.output
    assert "no memcached operator watches namespace default" in result.output
    assert "team-a, team-b" in result.output


def test_operator_that_watches_the_namespace_is_chosen_of_several(cache: Terminal) -> None:
    deployment(cache, watching("team-a"))
    second_operator(cache, "team-a", "default", "other")
    assert "Nothing to do." in cache.text("plan memcached/cache")
    second_operator(cache, "team-b", "default")
    result = cache.run("plan memcached/cache")
    assert (result.exit_code, "2 Deployments of the memcached operator" in result.output) == (1, True)
    assert "team-a, team-b" in result.output


def test_operator_without_a_ready_replica_is_a_warning(cache: Terminal, manifest: Any) -> None:
    assumed = "No replica of the memcached operator is ready: nothing happens until one is."
    assert assumed in cache.text("plan memcached/cache")
    assert assumed in json.loads(cache.run(f"plan -o json -f {manifest(**BASE | {'size': 4})}").output)["warnings"]
    status = {"status": {"readyReplicas": 1}}
    user = cache.play.stage.user_client
    user.merge(DEPLOYMENT, "platform-system", "memcached-operator", status, subresource="status")
    assert assumed not in cache.text("plan memcached/cache")


def test_budget_of_a_user_is_part_of_the_plan(monkeypatch: pytest.MonkeyPatch, manifest: Any) -> None:
    """With a second budget, the API server evicts no pod, and the operator repeats the eviction for ever."""
    terminal = Terminal(monkeypatch, etcd.ETCD, etcd.cluster(3))
    own = {"minAvailable": 3, "selector": {"matchExpressions": [{"key": INSTANCE, "operator": "Exists"}]}}
    terminal.do(operator("etcd"), create(DISRUPTION_BUDGET, "mine", spec=own))
    result = terminal.run(f"plan -f {manifest('EtcdCluster', size=3, version='3.6.16')}")
    assert result.exit_code == 1, result.output
    assert "more than one PodDisruptionBudget" in " ".join(result.output.split())


def test_leftover_volumes_are_part_of_the_plan_of_a_new_resource(
    monkeypatch: pytest.MonkeyPatch, manifest: Any
) -> None:
    """The operator does not use the volumes of a deleted resource of the same name."""

    def begin(stage: Any) -> None:
        for number in range(40):  # so that the resource has another UID than that of the plan
            create(CONFIG_MAP, f"other-{number}").act(stage)
        etcd.cluster(3).act(stage)

    terminal = Terminal(monkeypatch, etcd.ETCD, ScenarioStep("40 other objects, and a cluster", begin))
    terminal.do(operator("etcd"), delete())
    result = terminal.run(f"plan -f {manifest('EtcdCluster', size=3, version=etcd.MIDDLE)}")
    assert result.exit_code == 4, result.output
    assert "has the data of a former EtcdCluster" in result.output


def test_storage_class_that_the_user_may_not_read_ends_a_plan_with_growth() -> None:
    class Forbidding:
        async def find(self, kind: Any, namespace: str | None, name: str) -> Obj | None:
            raise Forbidden("you cannot get storageclasses", status=403)

    reader = Reader(SimpleNamespace(kube=Forbidding()), databases.ETCD, "default")  # type: ignore[arg-type]
    found = asyncio.run(reader.find(databases.STORAGE_CLASS, "", "fast"))
    assert found is not None
    assert reader.unreadable_classes == {"fast"}
    assert not reader.assumptions


# Output.


@pytest.mark.parametrize("form", ["json", "text"])
def test_forced_colours_change_nothing_in_a_pipe(cache: Terminal, manifest: Any, form: str) -> None:
    line = f"plan -f {manifest(**BASE | {'size': 4})} -o {form}"
    plain = cache.run(line)
    forced = CliRunner().invoke(cli, line.split(), env={"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"})
    shown = forced.output if form == "json" else Text.from_ansi(forced.output).plain
    assert (forced.exit_code, shown.splitlines()) == (plain.exit_code, plain.output.splitlines())


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 80, 120, 400])
def test_narrow_terminals_show_all_of_a_step(
    monkeypatch: pytest.MonkeyPatch, cache: Terminal, manifest: Any, width: int
) -> None:
    console = Console(width=width, emoji=False, force_terminal=True, file=(screen := Screen()), color_system=None)
    monkeypatch.setattr(base, "Console", lambda **_: console)
    assert cache.run(f"plan -f {manifest(**BASE, version='1.6.18')}").exit_code == 3
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(screen.getvalue().split())
    for words in (
        "change StatefulSet cache",
        "spec.template.spec.containers[memcached].image: memcached:1.6.45 → memcached:1.6.18",
        "Pod cache-2 restarts",
        "2 of 3 servers ready",
    ):
        assert words in text, screen.getvalue()
    assert "…" not in text


# Manifests.


def text_of(metadata: str, spec: str = "{size: 3, updateStrategy: {pauseSeconds: 0}}") -> str:
    return f"apiVersion: {API['Memcached']}\nkind: Memcached\nmetadata: {metadata}\nspec: {spec}\n"


@pytest.mark.parametrize(
    ("metadata", "flags"),
    [
        ("{name: cache, namespace: }", ""),
        ("{name: cache, namespace: ''}", ""),
        ("{name: cache, annotations: }", ""),
        ("{name: cache, namespace: default}", " -n default"),
    ],
)
def test_manifests_that_kubectl_accepts_have_a_plan(cache: Terminal, metadata: str, flags: str) -> None:
    result = cache.run(f"plan -f -{flags}", stdin=text_of(metadata))
    assert (result.exit_code, "Nothing to do." in result.output) == (0, True), result.output


def test_date_is_a_text(cache: Terminal, tmp_path: Path) -> None:
    """The rule of kubectl: YAML has dates, and JSON has none."""
    path = tmp_path / "cache.yaml"
    path.write_text(text_of("{name: cache, annotations: {built: 2026-01-01, at: 2026-13-45}}"))
    assert applying.read(str(path)).resource["metadata"]["annotations"] == {"built": "2026-01-01", "at": "2026-13-45"}
    assert cache.run(f"plan -f {path}").exit_code in (0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (text_of("{name: cache, namespace: elsewhere}"), "the namespace of the manifest is elsewhere, and --namespace"),
        (text_of("{name: 123}"), "metadata.name is 123, not a text"),
        (text_of("{name: cache, namespace: 1}"), "metadata.namespace is 1, not a text"),
        (text_of("{name: cache}", "[1]"), "spec is a list, not a mapping"),
        (text_of("{name: cache, labels: [a]}"), "metadata.labels is a list, not a mapping"),
        (text_of("{name: cache, annotations: [a]}"), "metadata.annotations is a list, not a mapping"),
        (text_of("[a]"), "metadata.name is missing"),
        ("[" * 3000, "is nested too deeply"),
        ("a: " + "{b: " * 3000, "is nested too deeply"),
    ],
    ids=lambda text: text[:60],
)
def test_manifest_that_is_wrong_is_reported(cache: Terminal, text: str, message: str) -> None:
    result = cache.run("plan -f - -n default", stdin=text)
    assert result.exit_code == 1, result.output
    assert message in result.output
    assert "defect" not in result.output


def test_resource_in_a_list_has_a_plan(cache: Terminal) -> None:
    document = yaml.safe_load(text_of("{name: cache}"))
    found = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Secret"}, document]})
    assert cache.run("plan -f -", stdin=found.replace("- kind: Secret\n", "")).exit_code == 0
    two = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [document, document]})
    assert "has 2 resources with a plan" in cache.run("plan -f -", stdin=two).output


def test_secret_of_the_same_manifest_is_part_of_the_change(cache: Terminal, tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "users"},
        "stringData": {"users": "app:hunter2hunter2\n"},
    }
    network = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "other"}}
    resource = yaml.safe_load(text_of("{name: cache}")) | {"spec": {**BASE, "auth": {"secretName": "users"}}}
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([secret, network, resource]))
    result = cache.run(f"plan -f {path}")
    assert result.exit_code == 3, result.output
    assert "hunter2" not in result.output
    assert "Ingress other of the file is not part of the plan." in result.output
    assert [(each.method, each.query.get("dryRun")) for each in cache.transport.requests] == [
        ("POST", "All"),
        ("PATCH", "All"),
    ]


def test_resource_that_another_tool_applies_has_a_warning(cache: Terminal, manifest: Any) -> None:
    resource = yaml.safe_load(text_of("{name: cache, namespace: default}"))
    Actor(cache.play.world.server, "kustomize-controller").apply(cache.play.stage.kind, resource, force=True)
    [found] = cache.play.stage.find()
    live = {**found, "metadata": {**found["metadata"], "annotations": {}}}
    [warned] = applying.warnings(live)
    assert "kustomize-controller applied the resource" in warned
    own = {"manager": "memcached-operator", "operation": "Apply", "subresource": "status"}
    assert not list(applying.warnings({"metadata": {"managedFields": [own]}}))
    annotated = {"metadata": {**live["metadata"], "annotations": {applying.LAST_APPLIED: "{}"}}}
    assert not list(applying.warnings(annotated))


def refusing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, part: str, message: str) -> None:
    """Let the API server answer 403 to dry runs, or to paths with a part."""
    handle = terminal.play.world.server.handle

    def answer(request: Request) -> Response:
        if request.query.get("dryRun") if part == "dryRun" else request.path.endswith(part):
            return Response(403, {"kind": "Status", "reason": "Forbidden", "message": message, "code": 403})
        return handle(request)

    monkeypatch.setattr(terminal.play.world.server, "handle", answer)


def test_exceeded_quota_is_a_refusal(cache: Terminal, manifest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(cache, monkeypatch, "dryRun", 'memcacheds "n" is forbidden: exceeded quota: q, used: 5, limited: 5')
    result = cache.run(f"plan -f {manifest(name='n', size=3)}")
    assert (result.exit_code, "exceeded quota: q" in result.output) == (5, True), result.output


def test_refused_list_of_all_deployments_names_the_flag(cache: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(cache, monkeypatch, "/apis/apps/v1/deployments", 'User "u" cannot list resource "deployments"')
    result = cache.run("plan memcached/cache")
    assert result.exit_code == 1
    assert "fix: name the namespace of the operator with --operator-namespace" in result.output
    assert "Nothing to do." in cache.text("plan memcached/cache --operator-namespace platform-system")


@pytest.mark.parametrize("line", ["plna", "--nope plan", "plan --nope", "plan", "status --nope", "plan a/b -o x"])
def test_wrong_usage_ends_with_1(cache: Terminal, line: str) -> None:
    """2 means a change without a restart."""
    assert cache.run(line).exit_code == 1


# Summaries.


def test_summary_counts_only_what_is_shown() -> None:
    from simulator.plan import Person, Plan
    from simulator.recorder import Step

    minor = Step("operator", "change", "Pod a", minor=True)
    person = Person("Paused", "resume it")
    waiting = Plan("Memcached", "n", "a", "person", steps=(minor,), person=person)
    assert plans.summary(waiting) == "No step is possible now."
    assert list(plans.end(waiting)) == ["It waits for a person. Paused: resume it"]


def test_new_resource_has_no_least_redundancy(cache: Terminal, manifest: Any) -> None:
    output = cache.run(f"plan -f {manifest(name='other', size=2)}").output
    assert "no pod restarts." in output
    assert "least redundancy" not in output
