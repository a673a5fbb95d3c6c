"""The program that runs in pods: its arguments, its termination message, and its imports."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.backup import bolt, locations, pods, program, work
from operators.etcd.backup.bolt import Contents
from operators.etcd.backup.store import AccessDenied
from operators.etcd.client.errors import Denied, Unreachable
from operators.etcd.client.server import Access, Endpoint, EndpointStatus
from shared.observability import logs
from tests.etcd.unit.backup.test_snapshot import sealed
from tests.etcd.unit.world import SETTINGS, cluster
from tests.support.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore

SNAPSHOT = sealed(bytes(4096))
STATUS = EndpointStatus(0xC1, 1, 1, "3.6.8", 7, 1, 10, 10, 4096, 4096)


class Member:
    """Fake member that replies or raises an error."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.connections: list[tuple[Endpoint, Access]] = []
        self.closed = self.caught_up = False
        self._error = error
        self._hangs = hangs

    def connect(self, endpoint: Endpoint, access: Access) -> Any:
        self.connections.append((endpoint, access))
        return self

    async def status(self) -> EndpointStatus:
        if self._error:
            raise self._error
        return STATUS

    async def members(self) -> None:
        self.caught_up = True

    async def snapshot(self) -> AsyncIterator[bytes]:
        yield SNAPSHOT[:512]
        if self._hangs:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        yield SNAPSHOT[512:]

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _any_database(monkeypatch: pytest.MonkeyPatch) -> None:
    async def contents(_: Any) -> Contents:
        return Contents(7, "3.6.0")

    monkeypatch.setattr(bolt, "contents", contents)
    monkeypatch.setattr(logs, "configure", lambda *_: None)


def run(tmp_path: Path, member: Member, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the program; return its exit code and its termination message."""
    message = tmp_path / "termination-log"
    code = program.main([*arguments, f"--termination-log={message}"], member.connect)
    return code, json.loads(message.read_bytes())


def snapshot(tmp_path: Path, *more: str) -> list[str]:
    return [
        "snapshot",
        "--endpoint=https://demo-1.demo.default.svc:2379",
        "--member=demo-1",
        "--namespace=default",
        "--cluster=demo",
        "--cluster-uid=u-1",
        "--backup=a",
        "--file=demo-u-1/a-b.db",
        *(more or (f"--volume={tmp_path}",)),
    ]


def test_snapshot_is_taken_and_reported(tmp_path: Path) -> None:
    member = Member()
    code, reported = run(tmp_path, member, *snapshot(tmp_path))
    assert code == 0
    assert (reported["file"], reported["revision"], reported["size"], reported["member"]) == (
        "demo-u-1/a-b.db",
        7,
        4128,
        "demo-1",
    )
    assert (tmp_path / "demo-u-1" / "a-b.db").read_bytes() == SNAPSHOT
    host = "demo-1.demo.default.svc"
    assert member.connections == [(Endpoint("demo-1", host, host, 2379), Access())]
    assert member.closed


def test_credentials_are_read_from_the_mounted_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key", "password"):
        (tmp_path / name).write_text(f"content of {name}")
    member = Member()
    given = [f"--tls-ca={tmp_path}/ca", f"--tls-cert={tmp_path}/cert", f"--tls-key={tmp_path}/key"]
    code, _ = run(tmp_path, member, *snapshot(tmp_path), *given, f"--password-file={tmp_path}/password")
    ((_, access),) = member.connections
    assert code == 0
    assert (access.authority, access.pair) == ("content of ca", ("content of cert", "content of key"))
    assert (access.user, access.password) == ("root", "content of password")


def test_bucket_is_accessed_with_the_keys_of_the_secret(tmp_path: Path, objects: ObjectStore) -> None:
    for key, text in zip(locations.KEYS, (ACCESS_KEY, SECRET_KEY), strict=True):
        (tmp_path / key).write_text(f"{text}\n")
    bucket = objects.bucket()
    given = [f"--s3-bucket={bucket}", f"--s3-endpoint={objects.url}", f"--s3-credentials={tmp_path}", "--s3-prefix=x"]
    code, reported = run(tmp_path, Member(), *snapshot(tmp_path, *given))
    assert (code, reported["revision"]) == (0, 7)
    assert objects.keys(bucket) == ["x/demo-u-1/a-b.db", "x/demo-u-1/a-b.db.json"]


def test_missing_key_of_the_secret_is_reported(tmp_path: Path) -> None:
    code, reported = run(tmp_path, Member(), *snapshot(tmp_path, "--s3-bucket=abc", f"--s3-credentials={tmp_path}"))
    assert (code, reported["reason"]) == (1, "AccessDenied")
    assert reported["message"].endswith("Add the key accessKeyID to the Secret with the credentials.")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Unreachable("demo-1 is unreachable."), "MemberUnreachable"), (Denied("wrong password."), "MemberDenied")],
)
def test_error_of_the_member_is_reported(tmp_path: Path, error: Exception, reason: str) -> None:
    assert run(tmp_path, Member(error), *snapshot(tmp_path)) == (1, {"reason": reason, "message": str(error)})


def test_interrupted_snapshot_leaves_no_partial_file(tmp_path: Path) -> None:
    code, reported = run(tmp_path, Member(hangs=True), *snapshot(tmp_path))
    assert (code, reported["reason"]) == (1, "Interrupted")
    assert not any((tmp_path / "demo-u-1").iterdir())


def test_snapshots_that_may_be_stale_replace_only_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: each due time of a lost quorum added one, until the store was full: then each later snapshot failed."""
    monkeypatch.setattr(work, "ELECTION_SECONDS", 0)
    leaderless = dataclasses.replace(STATUS, leader=0)
    for hour, status in enumerate([STATUS, STATUS, *[leaderless] * 5], start=1):
        monkeypatch.setattr(sys.modules[__name__], "STATUS", status)
        name = f"demo-26010103{hour:02}"
        given = (f"--backup={name}", f"--file=demo-u-1/{name}-b.db", "--scheduled", "--keep=2")
        code, reported = run(tmp_path, Member(), *snapshot(tmp_path), *given)
        assert (code, reported["current"]) == (0, bool(status.leader))
    stored = sorted(path.name[13:15] for path in (tmp_path / "demo-u-1").glob("*.db"))
    assert stored == ["01", "02", "07"], "all current ones, and the last of the others, which have the same data"


def test_failed_pruning_does_not_fail_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def prune(*_: object) -> list[str]:
        raise AccessDenied("may not delete.")

    monkeypatch.setattr(work, "prune", prune)
    code, reported = run(tmp_path, Member(), *snapshot(tmp_path), "--scheduled", "--keep=3")
    assert (code, reported["revision"]) == (0, 7)
    assert reported["warning"] == "Older snapshots are not removed: may not delete."


def test_long_message_is_truncated_to_the_kubelets_limit(tmp_path: Path) -> None:
    _, reported = run(tmp_path, Member(Unreachable("\N{GRINNING FACE}" * 4_000)), *snapshot(tmp_path))
    assert len((tmp_path / "termination-log").read_bytes()) <= program.MAX_MESSAGE_BYTES
    assert reported["reason"] == "MemberUnreachable"


def test_long_warning_does_not_hide_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def prune(*_: object) -> list[str]:
        raise AccessDenied("no" * 4_000)

    monkeypatch.setattr(work, "prune", prune)
    code, reported = run(tmp_path, Member(), *snapshot(tmp_path), "--scheduled", "--keep=3")
    assert len((tmp_path / "termination-log").read_bytes()) <= program.MAX_MESSAGE_BYTES
    assert (code, reported["revision"]) == (0, 7)
    assert reported["warning"].startswith("Older snapshots are not removed: nono")


def test_snapshot_is_fetched_and_sealed(tmp_path: Path) -> None:
    store, home = tmp_path / "store", tmp_path / "home"
    for path in (store, home):
        path.mkdir()
    (store / "a.db").write_bytes(SNAPSHOT)
    assert (
        run(tmp_path, Member(), "fetch", f"--volume={store}", "--file=a.db", f"--home={home}", "--newest=3.6")[0] == 0
    )
    (home / "scratch" / "data" / "member").mkdir(parents=True)
    done = run(tmp_path, Member(), "seal", f"--home={home}", "--token=t1")
    assert done == (0, {"token": "t1", "revision": 7})


def test_corrupt_snapshot_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"!" + SNAPSHOT[1:])
    code, reported = run(tmp_path, Member(), "fetch", f"--volume={tmp_path}", "--file=a.db", f"--home={tmp_path}")
    assert (code, reported["reason"]) == (1, "SnapshotCorrupt")
    assert re.search(r"a\.db in volume at .*: its checksum is [0-9a-f]{64}", reported["message"])


@pytest.mark.parametrize("store", [VolumeStore(claim_name="c", path="p"), S3(bucket="abc", credentials_secret="s")])
def test_program_accepts_the_arguments_of_every_pod(store: VolumeStore | S3) -> None:
    """Parse the arguments of every container that runs the agent image."""
    resource = cluster(recorded=None)
    made = [pods.restore_pod(SETTINGS, resource, store, "a.db"), pods.recovery_pod(SETTINGS, resource, 1, "t1")]
    for pod in made:
        for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            if container["image"] == SETTINGS.agent_image:
                program._parser().parse_args(container["args"])


def test_program_imports_nothing_of_an_operator(tmp_path: Path) -> None:
    """With these imports, a pod would need as much memory as an operator."""
    script = (
        "import runpy, sys\n"
        "sys.argv = ['etcd', 'seal', '--token=t', '--home=/nowhere', '--termination-log=/dev/null']\n"
        "try: runpy.run_module('operators.etcd', run_name='__main__')\n"
        "except SystemExit as end: print(end.code)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    code, loaded = found.splitlines()
    assert code == "1"
    assert not {"kopf", "kubernetes", "pydantic", "cryptography", "botocore", "aiobotocore"} & set(loaded.split())
