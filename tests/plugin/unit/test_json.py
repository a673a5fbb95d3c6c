"""`-o json` of every command: the documented shape on the standard output, everything else on the standard error."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from plugin.cli import cli
from plugin.commands.base import SHAPES
from plugin.databases import BACKUP
from plugin.results import Shape
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import Obj
from shared.status import conditions
from tests.redis.simulation import losses
from tests.redis.simulation.moving_slots import redis_of
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.plugin import Terminal, operator
from tests.support.redis import scenarios as redis

KUBECTL = """#!/bin/sh
case "$*" in
  *logs*) echo '{"time": "t", "level": "info", "message": "default/cache: created Service cache"}';;
  *"cluster failover"*) echo OK; touch CALLED;;
  *exec*) echo "an answer";;
esac
"""


@pytest.fixture(autouse=True)
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a kubectl that answers as one would, and return the file that it makes with a failover."""
    path, marker = tmp_path / "kubectl", tmp_path / "called"
    path.write_text(KUBECTL.replace("CALLED", str(marker)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("KUBECTL", str(path))
    monkeypatch.chdir(tmp_path)
    return marker


def of_redis(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(monkeypatch, losses.SUBJECT, redis.cluster(6))
    terminal.do(operator("redis"))
    return terminal


def lost(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = of_redis(monkeypatch)
    terminal.do(*losses.destroyed(losses.shard_of(redis_of(terminal.play.world))))
    return terminal


def restarting(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = of_redis(monkeypatch)
    terminal.transport.between = lambda: terminal.play.wait(1)
    return terminal


def of_memcached(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=1))
    terminal.do(operator("memcached"))
    return terminal


def waiting(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A change waits for an approval."""
    terminal = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=1, changes="Approved"))
    terminal.do(operator("memcached"), memcached.apply(size=2, changes="Approved"))
    return terminal


def approval(terminal: Terminal) -> str:
    return str(json.loads(terminal.run("plan memcached/cache -o json").stdout)["approval"])


def vulnerable(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = of_memcached(monkeypatch)
    found = {"type": conditions.VULNERABLE, "status": "True", "reason": "KnownAdvisory", "message": "CVE"}
    [resource] = terminal.play.stage.find()
    put(terminal, {"conditions": [*resource["status"]["conditions"], found]})
    return terminal


def failing_over(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a world in which cache-1 or another replica has taken over once kubectl was called."""
    terminal = of_redis(monkeypatch)
    was_called = Path("called").exists

    async def taken_over() -> None:
        if was_called():
            [resource] = terminal.play.stage.find()
            put(terminal, {"nodes": [{**node, "role": "primary"} for node in resource["status"]["nodes"]]})

    terminal.transport.between = taken_over
    return terminal


def backed_up(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(monkeypatch, etcd.ETCD, etcd.cluster(1))

    async def completed() -> None:
        stage = terminal.play.stage
        for backup in stage.find(BACKUP.kind):
            ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "It is complete."}
            done = {"phase": "Complete", "location": "volume://a/b", "revision": 7, "etcdVersion": "3.6.11"}
            name = backup["metadata"]["name"]
            status = {"status": done | {"conditions": [ready]}}
            stage.user_client.merge(BACKUP.kind, stage.namespace, name, status, subresource="status")

    terminal.transport.between = completed
    return terminal


def with_backup(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = backed_up(monkeypatch)
    stage = terminal.play.stage
    metadata = {"name": "monday", "namespace": stage.namespace}
    head = {"apiVersion": BACKUP.kind.api_version, "kind": BACKUP.kind.name, "metadata": metadata}
    spec = {"clusterName": "cache", "destination": {"volume": {"claimName": "a"}}}
    stage.user_client.create(BACKUP.kind, head | {"spec": spec})
    return terminal


def put(terminal: Terminal, status: Obj) -> None:
    stage = terminal.play.stage
    stage.user_client.merge(stage.kind, stage.namespace, "cache", {"status": status}, subresource="status")


def token(terminal: Terminal) -> str:
    return redis.agreed(terminal.play.stage)


def replica(terminal: Terminal) -> str:
    [resource] = terminal.play.stage.find()
    return next(str(node["name"]) for node in resource["status"]["nodes"] if node["role"] == "replica")


World = Callable[[pytest.MonkeyPatch], Terminal]

RUNS: Mapping[str, tuple[World, str]] = {
    "advisories": (vulnerable, "advisories"),
    "approve": (waiting, "approve memcached/cache --token {approval}"),
    "backup": (backed_up, "backup etcdcluster/cache --claim a"),
    "confirm": (lost, "confirm rediscluster/cache --token {token}"),
    "connect": (of_redis, "connect rediscluster/cache -c ping"),
    "doctor": (of_memcached, "doctor"),
    "failover": (failing_over, "failover rediscluster/cache --to {replica}"),
    "logs": (of_memcached, "logs memcached/cache"),
    "pause": (of_memcached, "pause memcached/cache"),
    "plan": (of_memcached, "plan memcached/cache"),
    "report": (of_memcached, "report memcached/cache"),
    "restart": (restarting, "restart rediscluster/cache --yes --pod cache-4"),
    "restore": (with_backup, "restore etcdbackup/monday --as cache-restored"),
    "resume": (of_memcached, "resume memcached/cache"),
    "status": (of_memcached, "status memcached/cache"),
    "why": (of_memcached, "why memcached/cache"),
}
"""A run of each command that prints something."""


def run(terminal: Terminal, line: str) -> Result:
    words = {"token": token, "replica": replica, "approval": approval}
    given = {name: find(terminal) for name, find in words.items() if f"{{{name}}}" in line}
    return terminal.run(f"{line.format(**given)} -o json")


def test_every_command_has_a_run() -> None:
    assert RUNS.keys() == cli.commands.keys()


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_the_format_a_shape_and_examples(name: str) -> None:
    command = cli.commands[name]
    [option] = [each for each in command.params if isinstance(each, click.Option) and "-o" in each.opts]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == ("text", "json")
    shape = SHAPES[name]
    assert shape.form
    assert all(meaning for _, meaning in shape.fields()) or name == "plan"
    examples = [line.split() for line in (command.epilog or "").splitlines() if "kubectl platform" in line]
    assert len(examples) >= 2
    assert any("json" in words for words in examples), examples
    assert command.help


@pytest.mark.parametrize("name", sorted(RUNS))
def test_command_prints_its_shape_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, line = RUNS[name]
    result = run(world(monkeypatch), line)
    assert result.exit_code == 0, result.output
    found = values(result.stdout, SHAPES[name])
    if name == "confirm":
        assert found[0]["message"] in result.stderr, "the loss is shown, too"
    assert found
    for each in found:
        fields = {field for field, _ in SHAPES[name].fields()} or {"apiVersion", "kind", "metadata", "spec"}
        assert each.keys() == fields
        assert set(each.get("details", ())) == set(SHAPES[name].details)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_error_is_one_object_on_the_standard_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = of_memcached(monkeypatch)
    words = {"token": "t", "replica": "cache-1", "approval": "t"}

    async def fails() -> None:
        raise Unavailable("the API server does not answer")

    terminal.transport.between = fails
    result = terminal.run(f"{RUNS[name][1].format(**words)} -o json")
    assert (result.exit_code, result.stdout) == (1, "")
    error = json.loads(result.stderr)
    assert error["error"] == "the API server does not answer"
    assert "repeat the command" in error["fix"]
    assert error["exit_code"] == 1


def values(text: str, shape: Shape) -> list[dict[str, Any]]:
    if shape.form == "one object a line":
        return [json.loads(line) for line in text.splitlines()]
    found = json.loads(text)
    is_list = isinstance(found, list)
    assert is_list or not shape.form.startswith("a list")
    return found if is_list else [found]


def test_progress_is_on_the_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(restarting(monkeypatch), RUNS["restart"][1])
    assert "evicting cache-4" in result.stderr
    assert json.loads(result.stdout)["details"] == {"pods": ["cache-4"]}


def test_command_of_a_database_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = of_redis(monkeypatch)
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho '(error) ERR'\nexit 3\n")
    result = run(terminal, RUNS["connect"][1])
    assert result.exit_code == 3
    details = json.loads(result.stdout)["details"]
    assert (details["exit_code"], details["output"]) == (3, "(error) ERR\n")


def test_shell_prints_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(of_memcached(monkeypatch), "connect rediscluster/cache")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["fix"] == "name a command with -c"


def test_control_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = of_memcached(monkeypatch)
    put(terminal, {"phase": "\x1b]0;title\x07\x9b2J"})
    result = run(terminal, "status memcached/cache")
    assert not {"\x1b", "\x07", "\x9b"} & set(result.stdout)
    assert json.loads(result.stdout)["phase"] == "\x1b]0;title\x07\x9b2J"
