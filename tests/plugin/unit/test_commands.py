"""Commands of the plugin in simulated worlds: they show what the operators reported, and write what users confirm."""

from __future__ import annotations

import json

import pytest

from operators.etcd.objects import names as etcd_names
from operators.memcached.objects import pod as memcached_pod
from operators.redis.objects import names as redis_names
from operators.redis.objects import redis_conf
from plugin import access
from plugin.cli import complete
from plugin.commands import base
from plugin.databases import ALL, BACKUP, SERVERS
from shared.kubernetes import accessors
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import POD
from shared.status.reconciliation_pause import PAUSE
from tests.harness.scenario import ScenarioStep, later, lose, pod_problem
from tests.redis.simulation import losses
from tests.redis.simulation.moving_slots import redis_of
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.plugin import Terminal
from tests.support.redis import scenarios as redis


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A RedisCluster that is Ready."""
    return Terminal(monkeypatch, losses.SUBJECT, redis.cluster(6))


@pytest.fixture
def lost(orders: Terminal) -> Terminal:
    """A RedisCluster that waits for the confirmation of a loss."""
    orders.do(*losses.destroyed(losses.shard_of(redis_of(orders.play.world))))
    return orders


def test_all_kinds_are_those_of_the_operators() -> None:
    from operators import installed

    served = {
        kind.resource.kind: (operator.name, kind.resource.short_names)
        for operator in installed()
        for kind in operator.kinds
    }
    assert {each.kind: (each.operator, (each.short_name,)) for each in ALL} == served


def test_names_in_pods_are_those_of_the_operators() -> None:
    given = {database.operator: (database.component, database.container) for database in SERVERS}
    assert given == {
        "memcached": (memcached_pod.COMPONENT, memcached_pod.CONTAINER),
        "etcd": (etcd_names.COMPONENT, etcd_names.CONTAINER),
        "redis": (redis_names.COMPONENT, redis_names.CONTAINER),
    }
    assert access.TLS == redis_conf.TLS


def test_status_lists_the_resources(orders: Terminal) -> None:
    lines = orders.text("status").splitlines()
    assert lines[0].split() == ["NAMESPACE", "RESOURCE", "READY", "AVAILABLE", "REASON", "SINCE", "MESSAGE"]
    assert lines[1].split()[:5] == ["default", "RedisCluster/cache", "True", "True", "Ready"]


def test_status_of_a_resource_shows_each_server_in_its_shard(orders: Terminal) -> None:
    text = orders.text("status rediscluster/cache")
    assert "RedisCluster default/cache  redis 7.0" in text
    assert "Ready=True" in text
    shards = text.split("slots ")[1:]
    assert len(shards) == 3
    assert all(shard.count("✓ cache-") == 2 for shard in shards), text
    assert all(role in shard for shard in shards for role in ("primary", "replica"))


def test_status_as_json_has_the_values(orders: Terminal) -> None:
    found = json.loads(orders.text("status rec/cache -o json"))
    assert (found["kind"], found["name"], found["phase"]) == ("RedisCluster", "cache", "Running")
    assert [server["status"] for server in found["servers"]] == ["True"] * 6


@pytest.mark.parametrize(
    ("subject", "step", "name", "role"),
    [
        (etcd.ETCD, etcd.cluster(3), "etcdcluster/cache", "leader"),
        (memcached.MEMCACHED, memcached.apply(size=2), "mc/cache", ""),
    ],
    ids=["etcd", "memcached"],
)
def test_status_of_each_kind_shows_its_servers(
    monkeypatch: pytest.MonkeyPatch, subject: object, step: ScenarioStep, name: str, role: str
) -> None:
    terminal = Terminal(monkeypatch, subject, step)  # type: ignore[arg-type]
    found = json.loads(terminal.text(f"status {name} -o json"))
    assert found["servers"]
    assert {server["status"] for server in found["servers"]} == {"True"}
    assert (role in {server["role"] for server in found["servers"]}) or not role


def test_status_puts_what_serves_no_client_first(lost: Terminal) -> None:
    lost.do(losses.to_other() if hasattr(losses, "to_other") else later(1))
    assert "False" in lost.text("status").splitlines()[1]


def test_why_quotes_the_condition_and_names_the_page(lost: Terminal) -> None:
    text = lost.text("why rediscluster/cache")
    ready = accessors.condition(lost.play.stage.find()[0], "Ready")
    assert ready["message"] in text
    assert "docs/runbook/redis.md#slotslost" in text
    assert "kubectl platform confirm rediscluster/cache" in text


def test_why_of_a_pod_shows_its_resource(lost: Terminal) -> None:
    text = lost.text("why cache-1")
    assert "It was created" in text
    assert "RedisCluster default/cache is not Ready" in text


def test_why_of_a_resource_that_is_ready_reports_that(orders: Terminal) -> None:
    assert "RedisCluster default/cache is Ready" in orders.text("why rediscluster/cache")


def test_confirmation_needs_a_terminal_or_the_token(lost: Terminal) -> None:
    result = lost.run("confirm rediscluster/cache")
    assert result.exit_code == 1
    assert "a confirmation needs a terminal, or --token" in result.output
    assert not lost.transport.requests


def test_another_token_confirms_nothing(lost: Terminal) -> None:
    result = lost.run("confirm rediscluster/cache --token another")
    assert result.exit_code == 1
    assert "it is another loss" in result.output
    assert not lost.transport.requests


def test_confirmation_with_the_token_recovers_the_cluster(lost: Terminal) -> None:
    [resource] = lost.play.stage.find()
    text = lost.text(f"confirm rediscluster/cache --token {redis.agreed(lost.play.stage)}")
    assert resource["status"]["recovery"]["message"] in text
    lost.do(later(60))
    assert accessors.is_true(lost.play.stage.find()[0], "Ready")


def test_loss_is_confirmed_once(lost: Terminal) -> None:
    token = redis.agreed(lost.play.stage)
    lost.text(f"confirm rediscluster/cache --token {token}")
    result = lost.run(f"confirm rediscluster/cache --token {token}")
    assert result.exit_code == 1
    assert "nothing of RedisCluster default/cache waits for a confirmation now" in result.output


def test_confirmation_of_a_resource_that_changed_meanwhile_is_refused(lost: Terminal) -> None:
    """The loss that was shown may have ended: the consent is for what the user read."""
    token = lost.play.stage.find()[0]["status"]["recovery"]["token"]
    looked = False

    async def changes() -> None:
        nonlocal looked
        if looked:
            stage = lost.play.stage
            stage.user_client.merge(stage.kind, stage.namespace, "cache", {"metadata": {"labels": {"a": "b"}}})
        looked = True

    lost.transport.between = changes
    result = lost.run(f"confirm rediscluster/cache --token {token}")
    assert result.exit_code == 1
    assert "nothing was confirmed" in result.output
    assert "recovery" not in lost.play.stage.find()[0]["spec"]


def test_confirmation_without_a_loss_is_refused(orders: Terminal) -> None:
    result = orders.run("confirm rediscluster/cache --token t")
    assert result.exit_code == 1
    assert "nothing of RedisCluster default/cache waits" in result.output


def test_pause_and_resume_set_and_remove_the_annotation(orders: Terminal) -> None:
    orders.text("pause rediscluster/cache")
    assert accessors.annotation(orders.play.stage.find()[0], PAUSE) == "true"
    assert "paused" in orders.text("why rediscluster/cache")
    orders.text("resume rediscluster/cache")
    assert accessors.annotation(orders.play.stage.find()[0], PAUSE, "none") == "none"


def test_restart_replaces_each_pod_once_primaries_last(orders: Terminal) -> None:
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.play.stage.find(POD)}
    primaries = {process.pod for process in redis_of(orders.play.world).running if process.node.me.slots}
    redis_of(orders.play.world).client.refused = 0
    orders.transport.between = lambda: orders.play.wait(1)
    result = orders.run("restart rediscluster/cache --yes")
    assert result.exit_code == 0, result.output
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.play.stage.find(POD)}
    assert all(before[name] != after[name] for name in before)
    evicted = [request.path.split("/")[-2] for request in orders.transport.requests]
    assert sorted(evicted) == sorted(before)
    assert set(evicted[3:]) == primaries


def test_restart_of_one_pod_leaves_the_others(orders: Terminal) -> None:
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.play.stage.find(POD)}
    orders.transport.between = lambda: orders.play.wait(1)
    orders.text("restart rediscluster/cache --yes --pod cache-4")
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in orders.play.stage.find(POD)}
    assert {name for name in before if before[name] != after[name]} == {"cache-4"}


def test_restart_needs_a_confirmation(orders: Terminal) -> None:
    result = orders.run("restart rediscluster/cache", stdin="n\n")
    assert result.exit_code == 1
    assert "of RedisCluster default/cache, one after the other?" in result.output
    assert not orders.transport.requests


def test_restart_ends_nothing_while_the_resource_is_not_ready(lost: Terminal) -> None:
    lost.transport.between = lambda: lost.play.wait(1)
    result = lost.run("restart rediscluster/cache --yes --timeout 0")
    assert result.exit_code == 1
    assert "RedisCluster default/cache waits for you: SlotsLost" in result.output
    assert not lost.transport.requests


def test_restart_of_a_paused_resource_is_refused(orders: Terminal) -> None:
    """The operator would hand no primary over."""
    orders.text("pause rediscluster/cache")
    orders.do(later(60))
    orders.transport.requests.clear()
    result = orders.run("restart rediscluster/cache --yes")
    assert result.exit_code == 1
    assert "RedisCluster default/cache is paused" in result.output
    assert not orders.transport.requests


def test_pod_that_another_client_replaced_restarts_once(orders: Terminal) -> None:
    """A drain or a rolling update was faster: the pod has restarted as the user requested."""
    replaced = False

    async def continues() -> None:
        nonlocal replaced
        if not replaced and orders.transport.requests:  # after the first eviction
            stage, evicted = orders.play.stage, orders.transport.requests[0].path.split("/")[-2]
            others = {"cache-4", "cache-5"} - {evicted}
            stage.user_client.delete(POD, stage.namespace, max(others), gracePeriodSeconds=0)
            replaced = True
        await orders.play.wait(1)

    orders.transport.between = continues
    result = orders.run("restart rediscluster/cache --yes --pod cache-4 --pod cache-5")
    assert result.exit_code == 0, result.output
    assert replaced


def test_pod_with_copied_labels_is_no_server(orders: Terminal) -> None:
    """A pod of another workload, or for debugging, may have the labels of a server."""
    stage = orders.play.stage
    copied = stage.find(POD)[0]
    for name, owners in {"debug": [], "foreign": [{**copied["metadata"]["ownerReferences"][0], "name": "x"}]}.items():
        metadata = {"name": name, "namespace": stage.namespace, "labels": copied["metadata"]["labels"]}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": owners}}
        stage.user_client.create(POD, made | {"spec": copied["spec"]})
    assert "foreign" not in orders.text("status rediscluster/cache")
    for name in ("debug", "foreign"):
        assert (
            f"{name} is no pod of RedisCluster cache"
            in orders.run(f"restart rediscluster/cache --yes --pod {name}").output
        )


def test_command_that_waits_survives_an_outage_of_the_api_server(orders: Terminal) -> None:
    failures = 2

    async def fails() -> None:
        nonlocal failures
        await orders.play.wait(1)
        if orders.transport.requests and failures:
            failures -= 1
            raise Unavailable("the API server does not answer")

    orders.transport.between = fails
    result = orders.run("restart rediscluster/cache --yes --pod cache-4")
    assert result.exit_code == 0, result.output
    assert "the API server does not answer" in result.output


def test_backup_is_created_where_the_scheduled_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, etcd.ETCD, etcd.cluster(1))
    result = terminal.run("backup etcdcluster/cache")
    assert result.exit_code == 1
    assert "has no destination for scheduled snapshots" in result.output
    assert "--claim" in result.output


@pytest.mark.parametrize("current", [True, None, False], ids=["current", "of an earlier version", "not current"])
def test_backup_that_may_lack_changes_is_reported(monkeypatch: pytest.MonkeyPatch, current: bool | None) -> None:
    terminal = Terminal(monkeypatch, etcd.ETCD, etcd.cluster(1))
    stage, kind = terminal.play.stage, BACKUP.kind

    async def completed() -> None:
        for backup in stage.find(kind):
            ready = {"type": "Ready", "status": "True", "reason": "NotCurrent", "message": "cache-0 had no leader."}
            done: dict[str, object] = {"phase": "Complete", "location": "volume://a/b", "conditions": [ready]}
            done |= {} if current is None else {"current": current}
            name = backup["metadata"]["name"]
            stage.user_client.merge(kind, stage.namespace, name, {"status": done}, subresource="status")

    terminal.transport.between = completed
    result = terminal.run("backup etcdcluster/cache --claim a")
    assert result.exit_code == 0, result.output
    assert "volume://a/b" in result.output
    assert ("it may lack changes: cache-0 had no leader." in result.output) is (current is False)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("st",), ["status"]),
        (("status", "red"), ["rediscluster/"]),
        (("status", "rediscluster/"), ["rediscluster/cache"]),
        (("status", "pods/"), []),
    ],
)
def test_names_are_completed_in_a_shell(
    orders: Terminal,
    words: tuple[str, ...],
    found: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl_complete-platform", *words])
    complete()
    *lines, directive = capsys.readouterr().out.splitlines()
    assert ([line.partition("\t")[0] for line in lines], directive) == (found, ":4")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("status rediscluster/none", "RedisCluster default/none does not exist"),
        ("status pod/cache-0", "'pod' is no kind of the platform"),
        ("status rediscluster", "no name follows 'rediscluster'"),
        ("status rediscluster/", "names no resource"),
        ("status rediscluster/a etcd", "mixes KIND/NAME and KIND NAME"),
        ("why none", "pod default/none does not exist"),
        ("confirm rediscluster/a etcd/b", "2 resources are named"),
        ("connect etcdbackup/a", "has no servers"),
        ("connect memcached/cache -c stats", "memcached has no client"),
        ("connect rediscluster/cache -c 'get", "No closing quotation"),
        ("status -A rediscluster/cache", "all namespaces are chosen"),
        ("backup rediscluster/cache", "RedisCluster has no backups yet"),
    ],
)
def test_error_names_the_problem_and_the_fix(orders: Terminal, line: str, message: str) -> None:
    result = orders.run(line)
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
    assert message in result.output
    assert "  fix: " in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "line",
    [
        "status rediscluster/cache",
        "why rediscluster/cache",
        "why cache-0",
        "why rediscluster/none",
        "confirm rediscluster/cache",
        "restart rediscluster/cache --yes --timeout 1",
        "pause rediscluster/cache",
    ],
)
def test_commands_to_copy_are_for_the_same_cluster(lost: Terminal, line: str) -> None:
    """In the current context, a resource of the same name may exist: a confirmation would lose its data."""
    chosen = "--kubeconfig /tmp/prod --context prod"
    output = " ".join(lost.run(f"{line} {chosen}").output.split())
    commands = [each for each in output.split("kubectl ")[1:] if not each.startswith("wrote the spec last")]
    assert commands
    assert all(chosen in each for each in commands), output


PAUSED_FOR = 1800
"""Seconds of a pause after each server, longer than the default of --timeout for two."""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A Memcached with two servers; the time of its world passes for the plugin, too."""
    pause = {"updateStrategy": {"pauseSeconds": PAUSED_FOR}}
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=2, **pause))
    monkeypatch.setattr(base, "elapsed", lambda: terminal.play.world.clock().timestamp())
    servers = terminal.play.world.database
    assert isinstance(servers, memcached.Servers)
    servers.clients.keys = 20_000  # clients fill a new server more slowly than the pause lasts
    terminal.do(later(2 * PAUSED_FOR))
    terminal.transport.between = lambda: terminal.play.wait(20)
    return terminal


def evicted(terminal: Terminal) -> list[str]:
    paths = [request.path.split("/") for request in terminal.transport.requests]
    return [path[-2] for path in paths if path[-1] == "eviction"]


def test_restart_of_several_servers_waits_for_the_pause_after_each(cache: Terminal) -> None:
    result = cache.run("restart memcached/cache --yes --pod cache-0 --pod cache-1")
    assert result.exit_code == 0, result.output
    assert evicted(cache) == ["cache-0", "cache-1"]


def test_restart_that_ends_too_early_names_the_pods_that_are_left(cache: Terminal) -> None:
    """The same command would evict a server again that clients have filled."""
    cache.do(pod_problem("Unready"))
    cache.do(lose(POD))
    result = cache.run("restart memcached/cache --yes --pod cache-0 --pod cache-1")
    assert (result.exit_code, evicted(cache)) == (1, [])
    left = "kubectl platform restart memcached/cache --namespace default"
    assert f"  fix: continue with the pods that are left: {left} --pod cache-0 --pod cache-1\n" in result.output


def test_restart_that_ends_too_early_continues_in_the_same_cluster(cache: Terminal) -> None:
    """In the current context, the same names may exist."""
    cache.do(pod_problem("Unready"))
    cache.do(lose(POD))
    chosen = "--kubeconfig /tmp/prod --context prod --namespace default"
    result = cache.run(f"restart memcached/cache --yes {chosen} --pod cache-0 --timeout 60")
    assert result.exit_code == 1
    assert f"kubectl platform restart memcached/cache {chosen} --pod cache-0 --timeout 60\n" in result.output
    assert base.REPEAT not in result.output


def test_restart_that_fails_after_an_eviction_names_the_other_pods(cache: Terminal) -> None:
    async def fails() -> None:
        if evicted(cache):
            cache.play.stage.workloads.pod_problem = lambda _: "Unready"
        await cache.play.wait(20)

    cache.transport.between = fails
    result = cache.run("restart memcached/cache --yes --pod cache-0 --pod cache-1")
    assert (result.exit_code, evicted(cache)) == (1, ["cache-0"])
    assert result.output.endswith("restart memcached/cache --namespace default --pod cache-1\n")


@pytest.mark.nightly
def test_restart_of_all_servers_waits_for_all_pauses(cache: Terminal) -> None:
    before = {pod["metadata"]["uid"] for pod in cache.play.stage.find(POD)}
    result = cache.run("restart memcached/cache --yes")
    assert result.exit_code == 0, result.output
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in cache.play.stage.find(POD))
    assert len(cache.transport.requests) == 1, "one change of the template"


def test_restart_of_all_servers_continues_without_the_command(cache: Terminal) -> None:
    async def fails() -> None:
        if cache.transport.requests:
            cache.play.stage.workloads.pod_problem = lambda _: "Unready"
        await cache.play.wait(200)

    cache.transport.between = fails
    result = cache.run("restart memcached/cache --yes")
    assert result.exit_code == 1
    watch = "kubectl platform status memcached/cache --namespace default"
    assert f"  fix: it continues; watch it with: {watch}\n" in result.output
