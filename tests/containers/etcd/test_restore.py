"""Snapshots of a real etcd, through our program and etcd's own, into a real etcd that begins with them; no container.

The arguments are those of the pods that the operator makes; only paths are others.
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

from e2e.cluster.binaries import ETCD
from e2e.cluster.machine.network import free_ports
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
from tests.containers.support import etcd_servers
from tests.containers.support.etcd_servers import OPEN, Node, eventually

MINORS = {version.rpartition(".")[0]: version for version in sorted(ETCD)}
"""The newest version of each minor one."""

SETTINGS = Settings("etcd-operator", "etcd", "etcd-operator:1")
STORE = VolumeStore(claim_name="snapshots")
FILE = "demo-u-1/a-b.db"

Keys = dict[str, bytes]


def cluster(version: str, uid: str = "u-1") -> EtcdCluster:
    metadata = {"name": "demo", "namespace": "default", "uid": uid}
    return EtcdCluster.parse({"metadata": metadata, "spec": {"size": 1, "version": version}})


@dataclass
class Member:
    """A member that runs as a process, on the volume of which `home` is the mount.

    Attributes:
        client: its port for clients; metrics: that of its metrics.
    """

    process: subprocess.Popen[bytes]
    client: int
    metrics: int

    async def ask(self, path: str, body: Obj) -> Any:
        wire = Wire(self.endpoint, OPEN)
        try:
            return await wire.post(path, body, dict)
        finally:
            await wire.aclose()

    @property
    def endpoint(self) -> Any:
        return Node("demo-0", "127.0.0.1", [self.client, 0, self.metrics], None, Path()).endpoint()  # type: ignore[arg-type]

    async def put(self, key: str, value: bytes) -> int:
        answer = await self.ask("kv/put", {"key": _coded(key.encode()), "value": _coded(value)})
        return int(answer["header"]["revision"])

    async def keys(self) -> Keys:
        """All there are."""
        answer = await self.ask("kv/range", {"key": _coded(b"\0"), "range_end": _coded(b"\0")})
        found = answer.get("kvs") or ()
        return {base64.b64decode(each["key"]).decode(): base64.b64decode(each.get("value", "")) for each in found}

    async def status(self) -> EndpointStatus:
        from operators.etcd.client.gateway import connect

        server = connect(self.endpoint, OPEN)
        try:
            found = await server.status()
            assert found.leader, "it has elected itself by now"
            return found
        finally:
            await server.aclose()

    def stop(self) -> None:
        """End it in good order, as the kubelet does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


@contextmanager
def running(version: str, home: Path, how: Start) -> Iterator[Member]:
    """Etcd on a volume, begun as the operator lets it."""
    client, peer, metrics = free_ports(3)
    resource = cluster(version)
    told, own = bootstrap.annotated(resource, how), names.peer_url(resource, 0)
    here = f"http://127.0.0.1:{peer}"  # 3.4 looks up by which names it is reached, when it begins
    if isinstance(how, New):
        told[bootstrap.INITIAL_CLUSTER], own = told[bootstrap.INITIAL_CLUSTER].replace(own, here), here
    command = [
        str(etcd_servers.program(version, "etcd")),
        "--name=demo-0",
        f"--data-dir={home}/data",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls={here}",
        f"--initial-advertise-peer-urls={own}",
        f"--listen-metrics-urls=http://127.0.0.1:{metrics}",
        f"--initial-cluster-state={told[bootstrap.INITIAL_STATE]}",
        f"--initial-cluster={told[bootstrap.INITIAL_CLUSTER]}",
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
    """Keys of which some were changed, some deleted and some are large; and history that was compacted."""
    for number in range(40):
        await member.put(f"key-{number}", bytes([number]) * (1 + 4096 * (number % 9)))
    for number in range(0, 40, 7):
        await member.put(f"key-{number}", b"changed")
    for number in range(0, 40, 11):
        await member.ask("kv/deleterange", {"key": _coded(f"key-{number}".encode())})
    await member.ask("kv/compaction", {"revision": "30", "physical": True})
    return await member.keys()


def work(directory: Path, *arguments: str) -> Obj:
    """What our program says of its work, which goes well."""
    message = directory / "termination-log"
    assert program.main([*arguments, f"--termination-log={message}"]) == 0, message.read_text()
    found: Obj = json.loads(message.read_text())
    return found


def take(directory: Path, version: str, member: Member, cluster_id: int) -> Obj:
    """A snapshot in the store, with the arguments of the pod."""
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
    """Do what a pod's containers do, one after the other; what the last one says."""
    said: Obj = {}
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        places = {HOME: str(home), "/var/lib/store": str(directory / "store")}
        arguments = container["args"]
        for place, here in places.items():
            arguments = [text.replace(place, here) for text in arguments]
        if container["image"] == SETTINGS.agent_image:
            said = work(directory, *arguments)
        else:
            (name,) = container["command"]
            command = [str(etcd_servers.program(version, name)), *arguments]
            if version.startswith("3.4."):  # it looks up what the pod's own /etc/hosts knows
                command = [*_with_hosts(pod["spec"]["hostAliases"], directory / "hosts"), *command]
            done = subprocess.run(command, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode()
    return said


def _with_hosts(aliases: list[Obj], file: Path) -> list[str]:
    """What makes a command find other names in /etc/hosts, as the kubelet does."""
    file.write_text("".join(f"{alias['ip']} {name}\n" for alias in aliases for name in alias["hostnames"]))
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount --bind {file} /etc/hosts && exec "$@"', "sh"]


def contents(database: Path) -> bolt.Contents:
    async def read(offset: int, size: int) -> bytes:
        return await asyncio.to_thread(partial(read_piece, database), offset, size)

    return asyncio.run(bolt.contents(read))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The volume of a member that is gone by the time of its snapshot's restore."""
    return _directory(tmp_path / "home")


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def _coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def taken(version: str, home: Path, directory: Path) -> tuple[Keys, EndpointStatus, Obj]:
    """What a member held, what it said of itself, and what was said of its snapshot."""
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
        *(pytest.param(version, version, marks=pytest.mark.long) for version in ETCD if version != "3.6.16"),
        pytest.param("3.4.13", "3.5.35", marks=pytest.mark.long),
        pytest.param("3.4.13", "3.6.16", marks=pytest.mark.long),
        pytest.param("3.5.35", "3.6.16", marks=pytest.mark.long),
    ],
)
def test_a_cluster_begins_with_what_another_one_held(before: str, after: str, home: Path, tmp_path: Path) -> None:
    keys, status, said = taken(before, home, tmp_path)
    assert said["revision"] == status.revision
    if not before.startswith("3.4."):  # it may tell or not
        assert said["version"] == f"{before.rpartition('.')[0]}.0"
    assert said["cluster_id"] == f"{status.cluster_id:016x}"

    resource, volume = cluster(after, "u-2"), _directory(tmp_path / "restored")
    pod = pods.restore_pod(SETTINGS, resource, STORE, FILE)
    sealed = carry_out(pod, volume, after, tmp_path)
    bumped = features(Version.parse(after)).bumps_revision
    assert sealed["revision"] - status.revision == (pods.REVISION_BUMP if bumped else 0)

    with running(after, volume, Closed()) as member:  # nobody may begin with an empty disk: so it has its data
        now = asyncio.run(member.status())
        assert asyncio.run(member.keys()) == keys
        assert now.revision >= sealed["revision"]
        _, cluster_id = bootstrap.ids(names.peer_url(resource, 0), resource.uid)
        assert now.cluster_id == cluster_id != status.cluster_id
        assert asyncio.run(member.put("key-1", b"later")) == now.revision + 1
        if bumped:  # who watched the former cluster from then on is told that it missed something
            with pytest.raises(EtcdError, match="compacted"):
                asyncio.run(member.ask("kv/range", {"key": _coded(b"key-1"), "revision": str(status.revision)}))
        member.stop()

    again = carry_out(pod, volume, after, tmp_path)  # the operator had not written down that it was done
    assert again["revision"] >= sealed["revision"]
    with running(after, volume, Closed()) as member:
        assert asyncio.run(member.keys()) == keys | {"key-1": b"later"}


def test_a_snapshot_of_a_newer_etcd_is_refused_by_its_name(home: Path, tmp_path: Path) -> None:
    taken("3.7.3", home, tmp_path)
    volume, message = _directory(tmp_path / "restored"), tmp_path / "termination-log"
    fetch = pods.restore_pod(SETTINGS, cluster("3.6.16"), STORE, FILE)["spec"]["initContainers"][0]["args"]
    given = [text.replace(HOME, str(volume)).replace("/var/lib/store", str(tmp_path / "store")) for text in fetch]
    assert program.main([*given, f"--termination-log={message}"]) == 1
    said = json.loads(message.read_text())
    assert said["reason"] == "SnapshotTooNew"
    assert f"{FILE} in volume at" in said["message"]
    assert "was written by etcd 3.7.0, which 3.6 cannot read" in said["message"]


@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=[] if each == "3.6.16" else pytest.mark.long) for each in ETCD]
)
def test_a_survivor_goes_on_as_a_cluster_of_its_own_and_its_former_data_stays(
    version: str, home: Path, tmp_path: Path
) -> None:
    """What a recovery's pod does, on the disk of a member that was ended in good order."""
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
def test_a_new_database_is_read_too(version: str, home: Path) -> None:
    """Its buckets are so small that they stand within their parent's page."""
    with running(version, home, New()) as member:
        member.stop()
    assert contents(home / "data" / "member" / "snap" / "db").revision == 1
