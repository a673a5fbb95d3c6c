"""Faults of the incidents: each is a context manager that breaks something real, and repairs it at the end."""

from __future__ import annotations

import base64
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError, RedisError

from e2e.scenarios.etcd.clients import NO_SPACE, Connection, Failed
from e2e.scenarios.incidents import calm
from e2e.scenarios.incidents.model import Fault, Scene
from e2e.scenarios.observability.watch import TOKEN_FILE
from e2e.scenarios.redis.cluster import own_slots
from e2e.scenarios.redis.pulse import key_in
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import until
from e2e.scenarios.support.operator import CONTAINER
from e2e.scenarios.support.resource import crowded
from tools.local.cluster import Cluster as LocalCluster
from tools.local.pki import Authority

MISSING_IMAGE = "memcached:no-such-version"


# Any resource.


def changed(**spec: Any) -> Fault:
    """Change the spec, and remove the fields again; of a mapping, only the keys."""

    def removed(given: Any) -> Any:
        return {key: removed(value) for key, value in given.items()} if isinstance(given, dict) else None

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        scene.resource.change(**spec)
        try:
            yield
        finally:
            scene.resource.change(**removed(spec))

    return fault


@contextmanager
def rolled(scene: Scene) -> Iterator[None]:
    """Roll all pods by a change of their annotations, and wait until the roll is complete."""
    before = {pod["metadata"]["uid"] for pod in _pods(scene)}
    scene.resource.change(annotations={"example.com/rolled": str(time.monotonic_ns())})

    def complete() -> bool:
        assert before.isdisjoint(pod["metadata"]["uid"] for pod in _pods(scene)), "pods are left to replace"
        return bool(scene.resource.ready_now())

    until("the roll is complete", complete, seconds=400, every=1)
    yield


@contextmanager
def operator_cut_off(scene: Scene) -> Iterator[None]:
    """Drop all packets from the operator to the servers; clients and Prometheus reach them."""
    addresses = [pod["status"]["podIP"] for pod in _pods(scene)]
    with runtime.cut_off(scene.operator.pods, addresses):
        yield


def frozen(container: str, *, role: str = "") -> Fault:
    """Stop a container of one pod without ending it, as a process that hangs.

    Args:
        container: name of the container.
        role: role of the pod: follower or replica; empty: the first pod.
    """

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        pod = _pod(scene, role)
        runtime.signal(pod, container, "SIGSTOP")
        try:
            yield
        finally:
            runtime.signal(pod, container, "SIGCONT")

    return fault


def _pods(scene: Scene) -> list[dict[str, Any]]:
    """Return the pods of the resource."""
    return scene.kubectl.items("pods", "-l", f"app.kubernetes.io/instance={scene.resource.name}")


def _pod(scene: Scene, role: str) -> dict[str, Any]:
    pods = {pod["metadata"]["name"]: pod for pod in _pods(scene)}
    if role == "follower":
        return pods[next(name for name in sorted(pods) if name != scene.etcd.leader)]
    if role == "replica":
        return pods[scene.redis.shard()[1][0]]
    return pods[min(pods)]


# Operators and the API server.


@contextmanager
def operator_killed(scene: Scene) -> Iterator[None]:
    """Kill the leader's process; wait until a replica leads and carries out a change."""
    operator = scene.operator
    before = operator.holder
    runtime.signal(operator.leader(), CONTAINER, "SIGKILL")
    until("another process is the leader", lambda: operator.holder not in ("", before), seconds=60)
    scene.resource.change(labels={"example.com/changed": "yes"})
    until("the change is carried out", scene.resource.ready_now, seconds=120)
    operator.await_rollout()
    yield


@contextmanager
def frozen_leader(scene: Scene) -> Iterator[None]:
    """Stop the leader's process without ending it; wait until the other replica leads, and let it continue."""
    operator = scene.operator
    before, leader = operator.holder, operator.leader()
    runtime.signal(leader, CONTAINER, "SIGSTOP")
    try:
        until("the other replica is the leader", lambda: operator.holder not in ("", before), seconds=60)
    finally:
        runtime.signal(leader, CONTAINER, "SIGCONT")
    operator.await_rollout()
    yield


@contextmanager
def operator_stopped(scene: Scene) -> Iterator[None]:
    with scene.operator.scaled_to_zero():
        yield


@contextmanager
def scrape_refused(scene: Scene) -> Iterator[None]:
    """Replace the token of Prometheus, so that the operators refuse to show their metrics."""
    file = scene.directory / "watch" / TOKEN_FILE
    token = file.read_text()
    file.write_text("invalid")
    try:
        yield
    finally:
        file.write_text(token)


@contextmanager
def api_server_down(_: Scene) -> Iterator[None]:
    """Stop the API server without ending it: connections stay open, and no request is answered."""
    running = LocalCluster.running()
    assert running is not None
    server = running.record.process("kube-apiserver")
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


# Memcached.


@contextmanager
def server_missing(scene: Scene) -> Iterator[None]:
    """Delete a server; a quota of the namespace prevents a new one."""
    pods = _pods(scene)
    with crowded(scene.kubectl, len(pods) - 1):
        scene.kubectl("delete", "pod", pods[0]["metadata"]["name"], "--grace-period=0", "--force")
        yield


@contextmanager
def all_servers_missing(scene: Scene) -> Iterator[None]:
    with crowded(scene.kubectl, 0):
        scene.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        yield


@contextmanager
def flooded(scene: Scene) -> Iterator[None]:
    """Write continuously to the first server of a Memcached, more than its memory holds."""
    cache, ending = scene.memcached, threading.Event()
    value = b"x" * 100_000
    address = f"{cache.access.names.address(cache.servers[0].rpartition(':')[0])}:11211"

    def write() -> None:
        with cache.access.client(address) as client:
            number = 0
            while not ending.wait(0.01):
                client.set(f"key-{number}", value)
                number += 1

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        ending.set()
        writing.join(30)
        with cache.access.client(address) as client:
            client.flush_all()


def connections_used_up(port: int, count: int) -> Fault:
    """Hold this number of idle connections to one server."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        address = _pod(scene, "")["status"]["podIP"]
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(closing(socket.create_connection((address, port), 5)))
            yield

    return fault


def certificate_that_ends(left: timedelta) -> Fault:
    """Replace the certificate by one that is valid for this time; negative: that has ended."""

    @contextmanager
    def fault(scene: Scene) -> Iterator[None]:
        authority = Authority(scene.directory / f"authority-{left.total_seconds():g}")
        calm.renew(scene.kubectl, authority, left)
        scene.resource.touch()
        try:
            yield
        finally:
            calm.renew(scene.kubectl, authority, timedelta(days=80))
            scene.resource.touch()

    return fault


@contextmanager
def ended_certificate_by_mistake(scene: Scene) -> Iterator[None]:
    """Replace the certificate by one that has ended, such as from a backup, and put it back at the end."""
    secret = scene.kubectl.get("secret", calm.SECRET)
    given = {**secret, "metadata": {"name": calm.SECRET}}
    calm.renew(scene.kubectl, Authority(scene.directory / "authority-ended"), timedelta(minutes=-10))
    scene.resource.touch()
    try:
        yield
    finally:
        scene.kubectl.apply(given)
        scene.resource.touch()


@contextmanager
def certificate_ended_in_use(scene: Scene) -> Iterator[None]:
    """Restart the server with a certificate that is still valid, and wait until it ends."""
    left = timedelta(seconds=45)
    with certificate_that_ends(left)(scene):
        ended = time.monotonic() + left.total_seconds()
        scene.kubectl("delete", "pods", "--all", "--grace-period=1")
        scene.memcached.await_ready(1)
        time.sleep(max(0.0, ended - time.monotonic()))
        yield


# etcd.


@contextmanager
def member_down(scene: Scene) -> Iterator[None]:
    with scene.etcd.down("demo-2"):
        yield


@contextmanager
def quorum_lost(scene: Scene) -> Iterator[None]:
    """Delete two of three members; a quota of the namespace prevents new ones."""
    with crowded(scene.kubectl, 1):
        scene.kubectl("delete", "pods", "demo-1", "demo-2", "--grace-period=0", "--force")
        yield


@contextmanager
def majority_destroyed(scene: Scene) -> Iterator[None]:
    """Delete two of three members with their volumes; at the end, confirm the recovery."""
    scene.etcd.lose("demo-0", "demo-1")
    yield
    scene.etcd.change(recovery={"confirm": scene.etcd.status["recovery"]["token"]})
    scene.etcd.await_ready(3, seconds=300)
    scene.etcd.change(recovery=None)


@contextmanager
def leader_killed(scene: Scene) -> Iterator[None]:
    """Kill the leader's pod, and wait until all members are healthy again."""
    scene.kubectl("delete", "pod", scene.etcd.leader, "--grace-period=0", "--force", "--wait=false")
    time.sleep(2)
    scene.etcd.await_ready(3)
    yield


@contextmanager
def slow_follower(scene: Scene) -> Iterator[None]:
    """Limit the writes of a follower to its disk, while clients write."""
    pod = _pod(scene, "follower")
    claim = f"data-{pod['metadata']['name']}"
    with scene.etcd.load(clients=2), runtime.slow_disk(scene.kubectl, pod, "etcd", claim):
        yield


@contextmanager
def quota_used_up(scene: Scene) -> Iterator[None]:
    """Write distinct keys up to the quota of a member: compaction frees nothing. At the end, delete them."""
    address = scene.etcd.addresses()[0]
    with closing(Connection(address, scene.etcd.access)) as connection, pytest.raises(Failed, match=NO_SPACE):
        deque((connection.put(f"large-{number}", "x" * 100_000) for number in range(400)), maxlen=0)
    yield
    first, after = (base64.b64encode(key.encode()).decode() for key in ("large-", "large."))
    with closing(Connection(address, scene.etcd.access)) as connection:
        connection.post("/v3/kv/deleterange", {"key": first, "range_end": after})


@contextmanager
def backups_failing(scene: Scene) -> Iterator[None]:
    """Schedule a snapshot each minute, and take one by hand, to an object store that does not answer."""
    keys = {"accessKeyID": "unknown", "secretAccessKey": "invalid"}
    scene.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"}, "stringData": keys})
    store = {"endpoint": "http://127.0.0.1:9", "bucket": "snapshots", "credentialsSecret": "store"}
    scene.etcd.change(backup={"schedule": "* * * * *", "retention": 1, "destination": {"s3": store}})
    scene.kubectl.apply(
        {
            "apiVersion": scene.etcd.API_VERSION,
            "kind": "EtcdBackup",
            "metadata": {"name": "by-hand"},
            "spec": {"clusterName": scene.etcd.name, "destination": {"s3": store}},
        }
    )
    try:
        yield
    finally:
        scene.etcd.change(backup=None)
        scene.kubectl("delete", "etcdbackups", "--all", "--wait=false")


# Redis.


@contextmanager
def primary_killed(scene: Scene) -> Iterator[None]:
    """Kill a primary's pod, and wait until all nodes are ready again: it returns, or its replica takes over."""
    primary = scene.redis.shard()[0]
    before = scene.redis.uids()[primary]
    scene.kubectl("delete", "pod", primary, "--grace-period=0", "--force", "--wait=false")
    until("the pod is replaced", lambda: scene.redis.uids().get(primary) not in (None, before), seconds=60)
    time.sleep(2)
    scene.redis.await_ready(6, seconds=120)
    yield


@contextmanager
def replica_down(scene: Scene) -> Iterator[None]:
    with scene.redis.down(scene.redis.shard()[1][0]):
        yield


@contextmanager
def unreplicated_primary_down(scene: Scene) -> Iterator[None]:
    with scene.redis.down("demo-1"):
        yield


@contextmanager
def replica_cut_off(scene: Scene) -> Iterator[None]:
    """Drop all packets from a replica to its primary, and close the connections between them."""
    primary, (replica, *_) = scene.redis.shard()
    pods = scene.redis.pods()
    with runtime.cut_off([pods[replica]], [pods[primary]["status"]["podIP"]]):
        scene.redis.execute(primary, "CLIENT", "KILL", "TYPE", "replica")
        yield


@contextmanager
def shard_destroyed(scene: Scene) -> Iterator[None]:
    """Delete a primary and its replica with their volumes; at the end, confirm the recovery."""
    primary, replicas = scene.redis.shard()
    scene.redis.lose(primary, *replicas)
    yield
    scene.redis.change(recovery={"confirm": scene.redis.status["recovery"]["token"]})
    scene.redis.await_ready(6, seconds=300)
    scene.redis.change(recovery=None)


@contextmanager
def rebalanced(scene: Scene) -> Iterator[None]:
    """Add a primary with a replica, wait until slots have moved to it, and remove both again."""
    scene.redis.fill(2000)
    scene.redis.change(replicas=8)
    scene.redis.await_ready(8, primaries=4, seconds=300)
    scene.redis.change(replicas=6)
    scene.redis.await_ready(6, seconds=300)
    yield


@contextmanager
def memory_used_up(scene: Scene) -> Iterator[None]:
    """Write to one primary until it rejects writes; at the end, delete everything."""
    primary = max(scene.redis.primaries())
    key = _own_key(scene, primary)
    with scene.redis.node(primary) as node:
        with pytest.raises(OutOfMemoryError):
            deque((node.rpush(key, "x" * 200_000) for _ in range(200)), maxlen=0)
        try:
            yield
        finally:
            node.flushall()


@contextmanager
def disk_full(scene: Scene) -> Iterator[None]:
    """Fill the volume of a node, and let a client and a snapshot write to it; at the end, remove the file."""
    pod, directory = scene.redis.pods()[calm.SMALL_DISK], runtime.volume(scene.kubectl, f"data-{calm.SMALL_DISK}")
    runtime.inside(pod, "sh", "-c", f"dd if=/dev/zero of={directory}/filler bs=1M 2>/dev/null || true")
    key, ending = _own_key(scene, calm.SMALL_DISK), threading.Event()

    def write() -> None:
        with scene.redis.node(calm.SMALL_DISK) as node:
            while not ending.wait(0.2):
                with suppress(RedisError):
                    node.set(key, "x" * 10_000)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        until("writes are refused", lambda: _refuses(scene, key), seconds=30)
        with suppress(RedisError):
            scene.redis.execute(calm.SMALL_DISK, "BGSAVE")
        yield
    finally:
        runtime.inside(pod, "rm", f"{directory}/filler")
        until("writes are accepted", lambda: not _refuses(scene, key), seconds=60)
        ending.set()
        writing.join(30)
        scene.redis.execute(calm.SMALL_DISK, "BGSAVE")


def _own_key(scene: Scene, name: str) -> str:
    """Return a key whose slot a node owns."""
    [slots] = own_slots(scene.redis.execute(name, "CLUSTER", "NODES")).values()
    return key_in(slots, "key")


def _refuses(scene: Scene, key: str) -> bool:
    """Return whether a node refuses a write, because it cannot append to its log."""
    try:
        scene.redis.execute(calm.SMALL_DISK, "SET", key, "x")
    except RedisError as error:
        return "MISCONF" in str(error)
    return False


@contextmanager
def killed_for_memory(scene: Scene) -> Iterator[None]:
    """Send one giant command to a replica: the kernel kills its container at the memory limit."""
    replica = scene.redis.shard()[1][0]
    address = scene.redis.pods()[replica]["status"]["podIP"]

    def was_killed() -> bool:
        states = scene.kubectl.get("pod", replica)["status"]["containerStatuses"]
        ended = [state["lastState"].get("terminated", {}) for state in states if state["name"] == "redis"]
        return any(each.get("reason") == "OOMKilled" for each in ended)

    with closing(socket.create_connection((address, 6379), 30)) as connection, suppress(OSError):
        _send(connection, calm.MEMORY_LIMIT_MEBIBYTES + 64)
    until("the container was killed", was_killed, seconds=60, every=1)
    yield


@contextmanager
def memory_nearly_used_up(scene: Scene) -> Iterator[None]:
    """Send a giant command, but not its end, to a replica, so that it uses most of its memory limit."""
    pod = scene.redis.pods()[scene.redis.shard()[1][0]]

    def used() -> float:
        return runtime.working_set(pod, "redis") / 2**20 / calm.MEMORY_LIMIT_MEBIBYTES

    with closing(socket.create_connection((pod["status"]["podIP"], 6379), 30)) as connection:
        _send(connection, int((0.95 - used()) * calm.MEMORY_LIMIT_MEBIBYTES))
        until("the container uses most of its memory limit", lambda: used() > 0.93, seconds=20)
        yield


def _send(connection: socket.socket, mebibytes: int) -> None:
    """Send the beginning of a command with an argument of 400 MiB."""
    connection.sendall(f"*2\r\n$4\r\nECHO\r\n${400 * 2**20}\r\n".encode())
    for _ in range(mebibytes):
        connection.sendall(b"x" * 2**20)
