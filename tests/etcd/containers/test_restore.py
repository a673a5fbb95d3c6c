"""Snapshots of a real etcd, taken and restored by the operator's program and etcd's tools, without containers.

The arguments are those of the operator's pods; only the paths differ.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import VolumeStore
from operators.etcd.api.versions import Version, features
from operators.etcd.backup import bolt, pods, program
from operators.etcd.backup.volume import read_piece
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.http import Wire
from operators.etcd.client.server import EndpointStatus
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.bootstrap import Closed, New, Start
from operators.etcd.objects.command_line import HOME
from shared.kubernetes.kinds import Obj
from shared.runtime.settings import Settings
from tests.support.containers import etcd_servers
from tests.support.containers.etcd_servers import OPEN, Node, eventually
from tools.local.binaries import ETCD
from tools.local.machine.network import free_ports

pytestmark = pytest.mark.nightly

MINORS = {version.rpartition(".")[0]: version for version in sorted(ETCD)}
"""Newest version of each minor version."""

SETTINGS = Settings("etcd-operator", "etcd", "etcd-operator:1")
STORE = VolumeStore(claim_name="snapshots")
FILE = "demo-u-1/a-b.db"
KEYS_IN_A_PAGE = 5

Keys = dict[str, bytes]


def cluster(version: str, uid: str = "u-1") -> EtcdCluster:
    metadata = {"name": "demo", "namespace": "default", "uid": uid}
    return EtcdCluster.parse({"metadata": metadata, "spec": {"size": 1, "version": version}})


@dataclass
class Member:
    """Member that runs as a process.

    Attributes:
        client: port for clients.
        metrics: port of the metrics.
    """

    process: subprocess.Popen[bytes]
    client: int
    metrics: int

    async def post(self, path: str, body: Obj) -> Any:
        wire = Wire(self.endpoint, OPEN)
        try:
            return await wire.post(path, body, dict)
        finally:
            await wire.aclose()

    @property
    def endpoint(self) -> Any:
        return Node("demo-0", "127.0.0.1", [self.client, 0, self.metrics], None, Path()).endpoint()  # type: ignore[arg-type]

    async def put(self, key: str, value: bytes) -> int:
        answer = await self.post("kv/put", {"key": _coded(key.encode()), "value": _coded(value)})
        return int(answer["header"]["revision"])

    async def keys(self) -> Keys:
        """Read all keys, in pages: the operator's client refuses large responses."""
        found: Keys = {}
        last, more = b"\0", True
        while more:
            page = {"key": _coded(last), "range_end": _coded(b"\0"), "limit": str(KEYS_IN_A_PAGE)}
            answer = await self.post("kv/range", page)
            for each in answer.get("kvs") or ():
                last = base64.b64decode(each["key"]) + b"\0"
                found[last[:-1].decode()] = base64.b64decode(each.get("value", ""))
            more = bool(answer.get("more"))
        return found

    async def status(self) -> EndpointStatus:
        from operators.etcd.client.gateway import connect

        server = connect(self.endpoint, OPEN)
        try:
            found = await server.status()
            assert found.leader, "the member must have a leader"
            return found
        finally:
            await server.aclose()

    def stop(self) -> None:
        """Stop the process gracefully, as the kubelet does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


@contextmanager
def running(version: str, home: Path, how: Start) -> Iterator[Member]:
    """Run etcd on a volume with the bootstrap flags of the operator."""
    client, peer, metrics = free_ports(3)
    resource = cluster(version)
    annotations, own = bootstrap.annotated(resource, how), names.peer_url(resource, 0)
    here = f"http://127.0.0.1:{peer}"  # 3.4 resolves its advertised names at startup
    if isinstance(how, New):
        annotations[bootstrap.INITIAL_CLUSTER], own = annotations[bootstrap.INITIAL_CLUSTER].replace(own, here), here
    command = [
        str(etcd_servers.program(version, "etcd")),
        "--name=demo-0",
        f"--data-dir={home}/data",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls={here}",
        f"--initial-advertise-peer-urls={own}",
        f"--listen-metrics-urls=http://127.0.0.1:{metrics}",
        f"--initial-cluster-state={annotations[bootstrap.INITIAL_STATE]}",
        f"--initial-cluster={annotations[bootstrap.INITIAL_CLUSTER]}",
        f"--initial-cluster-token={resource.uid}",
        *features(resource.version).corruption_checks,
        "--logger=zap",
        "--heartbeat-interval=20",
        "--election-timeout=200",
    ]
    with (home / "log").open("ab") as log:
        member = Member(subprocess.Popen(command, stdout=log, stderr=log), client, metrics)
    try:
        asyncio.run(eventually(member.status, EtcdError, AssertionError))
        yield member
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(home / 'log').read_text()[-2000:]}") from error
    finally:
        member.process.kill()
        member.process.wait()


async def write(member: Member) -> Keys:
    """Write small and large keys, change some, delete some, and compact the history; return all keys."""
    for number in range(40):
        await member.put(f"key-{number}", bytes([number]) * (1 + 4096 * (number % 9)))
    for number in range(0, 40, 7):
        await member.put(f"key-{number}", b"changed")
    for number in range(0, 40, 11):
        await member.post("kv/deleterange", {"key": _coded(f"key-{number}".encode())})
    await member.post("kv/compaction", {"revision": "30", "physical": True})
    return await member.keys()


def work(directory: Path, *arguments: str) -> Obj:
    """Run the operator's program, which must succeed, and return its termination message."""
    message = directory / "termination-log"
    assert program.main([*arguments, f"--termination-log={message}"]) == 0, message.read_text()
    found: Obj = json.loads(message.read_text())
    return found


def take(directory: Path, version: str, member: Member, cluster_id: int) -> Obj:
    """Take a snapshot into the store, with the arguments of the pod; return the termination message."""
    given = [
        "snapshot",
        f"--endpoint=http://127.0.0.1:{member.client}",
        "--member=demo-0",
        f"--cluster-id={cluster_id:016x}",
        "--namespace=default",
        "--cluster=demo",
        "--cluster-uid=u-1",
        "--backup=a",
        f"--file={FILE}",
        f"--volume={directory / 'store'}",
    ]
    return work(directory, *given)


def carry_out(pod: Obj, home: Path, version: str, directory: Path) -> Obj:
    """Run the containers of a pod in order; return the termination message of the last one."""
    result: Obj = {}
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        mounts = {HOME: str(home), "/var/lib/store": str(directory / "store")}
        arguments = container["args"]
        for mount, path in mounts.items():
            arguments = [text.replace(mount, path) for text in arguments]
        if container["image"] == SETTINGS.agent_image:
            result = work(directory, *arguments)
        else:
            (name,) = container["command"]
            command = [str(etcd_servers.program(version, name)), *arguments]
            if version.startswith("3.4."):  # 3.4 resolves names that only the pod's /etc/hosts has
                command = [*_with_hosts(pod["spec"]["hostAliases"], directory / "hosts"), *command]
            done = subprocess.run(command, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode()
    return result


def _with_hosts(aliases: list[Obj], file: Path) -> list[str]:
    """Return a command prefix that mounts other names into /etc/hosts, as the kubelet does."""
    file.write_text("".join(f"{alias['ip']} {name}\n" for alias in aliases for name in alias["hostnames"]))
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount --bind {file} /etc/hosts && exec "$@"', "sh"]


def contents(database: Path) -> bolt.Contents:
    async def read(offset: int, size: int) -> bytes:
        return await asyncio.to_thread(partial(read_piece, database), offset, size)

    return asyncio.run(bolt.contents(read))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Volume of a member that stops before its snapshot is restored."""
    return _directory(tmp_path / "home")


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def _coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def taken(version: str, home: Path, directory: Path) -> tuple[Keys, EndpointStatus, Obj]:
    """Return the keys of a member, its status, and the termination message of its snapshot."""
    (directory / "store").mkdir()
    with running(version, home, New()) as member:
        keys = asyncio.run(write(member))
        status = asyncio.run(member.status())
        return keys, status, take(directory, version, member, status.cluster_id)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("3.6.16", "3.6.16"),
        pytest.param("3.6.16", "3.7.3"),
        pytest.param("3.5.35", "3.7.3"),
        *(pytest.param(version, version, marks=pytest.mark.weekly) for version in ETCD if version != "3.6.16"),
        pytest.param("3.4.13", "3.5.35", marks=pytest.mark.weekly),
        pytest.param("3.4.13", "3.6.16", marks=pytest.mark.weekly),
        pytest.param("3.5.35", "3.6.16", marks=pytest.mark.weekly),
    ],
)
def test_cluster_is_restored_from_the_snapshot_of_another(before: str, after: str, home: Path, tmp_path: Path) -> None:
    keys, status, reported = taken(before, home, tmp_path)
    assert reported["revision"] == status.revision
    if not before.startswith("3.4."):  # 3.4 may report no version
        assert reported["version"] == f"{before.rpartition('.')[0]}.0"
    assert reported["cluster_id"] == f"{status.cluster_id:016x}"

    resource, volume = cluster(after, "u-2"), _directory(tmp_path / "restored")
    pod = pods.restore_pod(SETTINGS, resource, STORE, FILE)
    sealed = carry_out(pod, volume, after, tmp_path)
    bumped = features(Version.parse(after)).bumps_revision
    assert sealed["revision"] - status.revision == (pods.REVISION_BUMP if bumped else 0)

    with running(after, volume, Closed()) as member:  # `Closed` refuses to start on an empty disk
        now = asyncio.run(member.status())
        assert asyncio.run(member.keys()) == keys
        assert now.revision >= sealed["revision"]
        _, cluster_id = bootstrap.ids(names.peer_url(resource, 0), resource.uid)
        assert now.cluster_id == cluster_id != status.cluster_id
        assert asyncio.run(member.put("key-1", b"later")) == now.revision + 1
        if bumped:  # watches of the former cluster detect missed events
            with pytest.raises(EtcdError, match="compacted"):
                asyncio.run(member.post("kv/range", {"key": _coded(b"key-1"), "revision": str(status.revision)}))
        member.stop()

    again = carry_out(pod, volume, after, tmp_path)  # as after a crash before the result was recorded
    assert again["revision"] >= sealed["revision"]
    with running(after, volume, Closed()) as member:
        assert asyncio.run(member.keys()) == keys | {"key-1": b"later"}


def test_snapshot_of_a_newer_etcd_is_refused(home: Path, tmp_path: Path) -> None:
    taken("3.7.3", home, tmp_path)
    volume, message = _directory(tmp_path / "restored"), tmp_path / "termination-log"
    fetch = pods.restore_pod(SETTINGS, cluster("3.6.16"), STORE, FILE)["spec"]["initContainers"][0]["args"]
    given = [text.replace(HOME, str(volume)).replace("/var/lib/store", str(tmp_path / "store")) for text in fetch]
    assert program.main([*given, f"--termination-log={message}"]) == 1
    reported = json.loads(message.read_text())
    assert reported["reason"] == "SnapshotTooNew"
    assert f"{FILE} in volume at" in reported["message"]
    assert "was written by etcd 3.7.0, which 3.6 cannot read" in reported["message"]


@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=[] if each == "3.6.16" else pytest.mark.weekly) for each in ETCD]
)
def test_survivor_continues_as_a_new_cluster_and_keeps_its_former_data(
    version: str, home: Path, tmp_path: Path
) -> None:
    """Run the containers of a recovery pod on the disk of a member that stopped gracefully."""
    with running(version, home, New()) as member:
        keys = asyncio.run(write(member))
        status = asyncio.run(member.status())
        member.stop()
    resource = cluster(version)
    pod = pods.recovery_pod(SETTINGS, resource, 0, "t1")
    carry_out(pod, home, version, tmp_path)
    assert contents(home / "data.before-t1" / "member" / "snap" / "db").revision == status.revision
    with running(version, home, Closed()) as member:
        now = asyncio.run(member.status())
        assert asyncio.run(member.keys()) == keys
        _, cluster_id = bootstrap.ids(names.peer_url(resource, 0), bootstrap.recovery_cluster_token(resource, "t1"))
        assert now.cluster_id == cluster_id
        assert now.revision >= status.revision


@pytest.mark.parametrize("version", sorted(MINORS.values()))
def test_new_database_can_be_read(version: str, home: Path) -> None:
    """Buckets of a new database are inlined in the page of their parent."""
    with running(version, home, New()) as member:
        member.stop()
    assert contents(home / "data" / "member" / "snap" / "db").revision == 1
