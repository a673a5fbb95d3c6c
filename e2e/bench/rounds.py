"""One round each: an operator that is watched as its resources become more, and a race against the bare client."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from e2e.bench.audit import Audit, Call
from e2e.bench.bare import Bare, Sent, replay
from e2e.bench.measures import Account, Race, Run, quantile
from e2e.bench.subject import USER, Subject
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from operators.memcached.api.resource import API
from shared.api.crd import to_dict
from shared.kubernetes.kinds import CRD, DEPLOYMENT, EVENT, SERVICE, Kind, Obj
from shared.kubernetes.transport import MAX_REQUESTS_AT_ONCE

NAMESPACE = "default"
OWNED = (SERVICE, DEPLOYMENT)
CREATORS = 64
"""Connections that create resources: more bring no more, so that the API server's speed is the limit."""

QUIET = 3.0
"""Seconds without a request after which the operator has come to rest."""

AT_REST = 8.0
"""Seconds until memory is read: kopf keeps what it needs for an object for five seconds after its last event."""

PATIENCE = 60.0
"""Seconds without a request after which work that is not done will not be done."""

RESYNC = 540.0
"""Seconds after which the operator's first resync may begin."""

Advance = Callable[[int], None]


class Recorded(NamedTuple):
    """What an operator wrote, to be replayed.

    Attributes:
        writes: those that succeeded, in order, with their bodies.
        uids: the UID of each resource then, by its name.
    """

    writes: Sequence[Call]
    uids: dict[str, str]

    def of(self, names: set[str]) -> list[Call]:
        """The writes about some of the resources."""
        return [write for write in self.writes if _subject_of(write) in names]


class Server:
    """A fresh API server, told to write down what the operator asks."""

    def __init__(self, plane: ControlPlane, audit: Audit, directory: Path) -> None:
        self.plane = plane
        self.audit = audit
        self.directory = directory

    @classmethod
    @contextmanager
    def fresh(cls, *, bodies: bool = False) -> Iterator[Server]:
        with tempfile.TemporaryDirectory(prefix="platform-bench-") as name:
            directory = Path(name)
            audit = Audit(directory, USER, bodies=bodies)
            with ControlPlane.alone(directory, api_flags=audit.flags) as plane:
                server = cls(plane, audit, directory)
                asyncio.run(server._serve_our_kind())
                yield server

    def cpu(self) -> float:
        """Processor time that the API server and its etcd have used, in seconds."""
        return sum(process.cpu for process in self.plane.processes)

    async def create(self, names: Sequence[str]) -> tuple[float, dict[str, str]]:
        """Create resources all at once.

        Returns:
            Seconds that it took, and the resources' UIDs by name.
        """
        path = API.kind.path(NAMESPACE)
        async with Bare.of(self.plane, CREATORS) as client:
            took, answers = await client.send([Sent("POST", path, _resource(name)) for name in names])
        made = [json.loads(answer)["metadata"] for answer in answers]
        return took, {metadata["name"]: metadata["uid"] for metadata in made}

    async def undone(self, names: Sequence[str]) -> list[str]:
        """What an operator should have done and has not, a sentence each."""
        async with Bare.of(self.plane, 4) as client:
            listed = {kind: await self._list(client, kind) for kind in (API.kind, *OWNED, EVENT)}
        there = {kind: {obj["metadata"]["name"] for obj in objs} for kind, objs in listed.items()}
        said = [f"{kind} {name} is missing" for kind in (API.kind, *OWNED) for name in names if name not in there[kind]]
        said += [f"Memcached {obj['metadata']['name']} has no status" for obj in listed[API.kind] if not _told(obj)]
        told = {obj["involvedObject"]["name"] for obj in listed[EVENT]}
        return said + [f"no event tells of Memcached {name}" for name in names if name not in told]

    async def _list(self, client: Bare, kind: Kind) -> list[Obj]:
        found: list[Obj] = (await client.get(kind.path(NAMESPACE)))["items"]
        return found

    async def _serve_our_kind(self) -> None:
        """Install the CRD, and wait until resources can be created."""
        async with Bare.of(self.plane, 1) as client:
            await client.send([Sent("POST", CRD.path(), json.dumps(to_dict(API)).encode())])
            deadline = time.monotonic() + 20
            while True:
                try:
                    await client.send([Sent("POST", API.kind.path(NAMESPACE) + "?dryRun=All", _resource("probe"))])
                    return
                except ClusterError:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.2)


def names(count: int, first: int = 0) -> list[str]:
    return [f"cache-{number:05}" for number in range(first, count)]


def take_account(
    stages: Sequence[int], *, workers: int, idle: float, advance: Advance = lambda _: None
) -> tuple[Account, Recorded]:
    """Let one operator take up more and more resources, restart it, and leave it alone for a while.

    Args:
        stages: numbers of resources at which its memory is read.
        workers: resources it handles at once; 0 for its default.
        idle: seconds to leave it alone.
        advance: told of its writes.

    Raises:
        ClusterError: it did not do its work.
    """
    memory: dict[int, int] = {}
    uids: dict[str, str] = {}
    calls: list[Call] = []
    with Server.fresh(bodies=True) as server:
        with Subject.running(server.plane, server.directory, workers) as subject:
            calls += _until_done(server, [], advance)
            memory[0] = subject.memory()
            for before, count in zip((0, *stages), stages, strict=False):
                uids |= asyncio.run(server.create(names(count, before)))[1]
                calls += _until_done(server, names(count), advance)
                time.sleep(AT_REST)
                memory[count] = subject.memory()
            peak = subject.peak_memory()
        with Subject.running(server.plane, server.directory, workers) as subject:
            began = time.monotonic()
            restarted_calls = _until_done(server, names(stages[-1]), advance)
            time.sleep(AT_REST)
            restarted = subject.memory()
            server.audit.news()
            time.sleep(idle)
            idle_calls = _unexpected(server.audit.news(), time.monotonic() - began)
    writes = [call for call in calls if call.is_write and call.status < 400]
    account = Account(
        memory=memory,
        peak=peak,
        restarted=restarted,
        writes=sum(call.is_write for call in calls),
        owned=len(OWNED),
        restart_writes=sum(call.is_write for call in restarted_calls),
        idle=idle,
        idle_calls=idle_calls,
    )
    return account, Recorded(writes, uids)


def race(size: int, recorded: Recorded, *, workers: int, advance: Advance = lambda _: None) -> Race:
    """Resources created at once, all the operator's work on them, and the same writes by a bare client.

    The bare client sends as many requests at once as the operator's workers do. Both are timed from the first creation
    to the last write's answer, so that the API server does the same for both; the operator by the server's own clock.

    Raises:
        ClusterError: the operator did not do its work, or a write was refused.
    """
    wanted = names(size)
    with Server.fresh() as server, Subject.running(server.plane, server.directory, workers) as subject:
        client, busy, began = subject.process.cpu, server.cpu(), time.time()
        asyncio.run(server.create(wanted))
        writes = [call for call in _until_done(server, wanted, advance) if call.is_write]
        operator = Run(
            seconds=max(call.ended for call in writes) - began,
            client=subject.process.cpu - client,
            server=server.cpu() - busy,
        )
        queue_p99 = quantile(subject.queue_wait(), 0.99)
    with Server.fresh() as server:
        bare = asyncio.run(_bare(server, wanted, recorded, advance))
    return Race(size, operator, bare, queue_p99)


async def _bare(server: Server, wanted: list[str], recorded: Recorded, advance: Advance) -> Run:
    busy = server.cpu()
    creating, now = await server.create(wanted)
    uids = {recorded.uids[name]: uid for name, uid in now.items()}
    requests = [replay(write, uids) for write in recorded.of(set(wanted))]
    user = server.plane.authority.issue(USER, USER, groups=["system:masters"])  # whose requests are written down, too
    async with Bare.of(server.plane, MAX_REQUESTS_AT_ONCE, user) as client:
        used = time.process_time()
        writing, _ = await client.send(requests, advance)
        used = time.process_time() - used
    if undone := await server.undone(wanted):
        raise ClusterError(f"the bare client's replay is not whole: {'; '.join(undone[:3])}", "look at replay()")
    return Run(creating + writing, used, server.cpu() - busy)


def _until_done(server: Server, wanted: Sequence[str], advance: Advance) -> list[Call]:
    """Wait until the operator has done all its work and has come to rest.

    Returns:
        What it asked meanwhile.

    Raises:
        ClusterError: it has come to rest and something is left.
    """
    calls: list[Call] = []
    last = time.monotonic()
    while True:
        news = [call for call in server.audit.news() if call.verb != "watch"]
        calls += news
        advance(sum(call.is_write for call in news))
        now = time.monotonic()
        last = now if news else last
        if now - last > QUIET:
            undone = asyncio.run(server.undone(wanted))
            if not undone:
                return calls
            if now - last > PATIENCE:
                said = "; ".join(undone[:3])
                raise ClusterError(
                    f"the operator rests, and {len(undone)} things are not done: {said}",
                    f"its last words:\n{(server.directory / 'operator.log').read_text()[-2000:]}",
                )
        time.sleep(0.2)


def _unexpected(calls: list[Call], age: float) -> tuple[str, ...]:
    """What an idle operator should not have asked: all but watches, and the lists of a resync that was due."""
    asked = [f"{call.verb} {call.resource}" for call in calls if call.verb != "watch"]
    for what in {what for what in asked if what.startswith("list ")}:
        for _ in range(min(int(age / RESYNC), asked.count(what))):
            asked.remove(what)
    return tuple(asked)


def _resource(name: str) -> bytes:
    body = {
        "apiVersion": API.kind.api_version,
        "kind": API.kind.name,
        "metadata": {"name": name},
        "spec": {"size": 3},
    }
    return json.dumps(body).encode()


def _told(obj: Obj) -> bool:
    reported: dict[str, Any] = obj.get("status") or {}
    return reported.get("observedGeneration") == obj["metadata"]["generation"] and bool(reported.get("conditions"))


def _subject_of(write: Call) -> str:
    """The name of the resource that a write is about."""
    if write.resource == EVENT.plural:
        return str(write.body["involvedObject"]["name"])
    return write.name
