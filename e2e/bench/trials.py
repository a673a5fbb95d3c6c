"""Measurements of the memcached operator: memory and requests as resources increase, and races with the bare client."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from e2e.bench.audit import Audit, Call
from e2e.bench.bare import Bare, Sent, replay
from e2e.bench.measures import Account, Race, Run, quantile
from e2e.bench.service_account import USER, ServiceAccount
from e2e.bench.subject import Subject
from operators.memcached.api.resource import API
from shared.api.crd import to_dict
from shared.kubernetes.fair_queue import MAX_QUICK_SLOTS
from shared.kubernetes.kinds import CRD, DEPLOYMENT, EVENT, SERVICE, Kind, Obj
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError

NAMESPACE = "default"
OWNED = (SERVICE, DEPLOYMENT)
CREATORS = 64
"""Connections that create resources; with more, the API server is still the bottleneck."""

WARM = 300
"""Number of resources with which a new API server is warmed."""

REFERENCE_WORKERS = (1, 32)
"""Concurrent reconciles of the reference operator: its default, and as many as the requests of this operator."""

QUIET_SECONDS = 3.0
"""Time without a request after which the operator counts as idle."""

SETTLE_SECONDS = 8.0
"""Delay before memory is measured: kopf keeps its state for an object for five seconds after the last event."""

STALL_TIMEOUT = 60.0
"""Time without a request after which incomplete work is an error."""

RESYNC_SECONDS = 540.0
"""Earliest start of the operator's first resync."""

Advance = Callable[[int], None]


class Recorded(NamedTuple):
    """Writes of an operator, for replay.

    Attributes:
        writes: successful writes with their bodies, in order.
        uids: recorded UID of each resource, by name.
    """

    writes: Sequence[Call]
    uids: dict[str, str]

    def of(self, names: set[str]) -> list[Call]:
        """Return the writes for the named resources."""
        return [write for write in self.writes if _resource_of(write) in names]


class Server:
    """A new API server with an audit log of the operator's requests."""

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
                asyncio.run(server._install_crd())
                yield server

    def cpu(self) -> float:
        """Return the CPU time of the API server and its etcd, in seconds."""
        return sum(process.cpu for process in self.plane.processes)

    async def create(self, names: Sequence[str]) -> tuple[float, dict[str, str]]:
        """Create resources at once.

        Returns:
            Duration in seconds, and the UIDs of the resources by name.
        """
        path = API.kind.path(NAMESPACE)
        async with Bare.of(self.plane, CREATORS) as client:
            took, responses = await client.send([Sent("POST", path, _resource(name)) for name in names])
        created = [json.loads(response)["metadata"] for response in responses]
        return took, {metadata["name"]: metadata["uid"] for metadata in created}

    async def missing_work(self, names: Sequence[str], *, has_events: bool = True) -> list[str]:
        """Return one sentence for each thing that the operator should have done but has not.

        Args:
            has_events: whether each resource must have an event.
        """
        async with Bare.of(self.plane, 4) as client:
            listed = {kind: await self._list(client, kind) for kind in (API.kind, *OWNED, EVENT)}
        existing = {kind: {obj["metadata"]["name"] for obj in objs} for kind, objs in listed.items()}
        kinds = (API.kind, *OWNED)
        problems = [f"{kind} {name} is missing" for kind in kinds for name in names if name not in existing[kind]]
        problems += [
            f"Memcached {obj['metadata']['name']} has no current status"
            for obj in listed[API.kind]
            if not _has_status(obj)
        ]
        if not has_events:
            return problems
        with_event = {obj["involvedObject"].get("name") for obj in listed[EVENT]}
        return problems + [f"Memcached {name} has no event" for name in names if name not in with_event]

    async def _list(self, client: Bare, kind: Kind) -> list[Obj]:
        found: list[Obj] = (await client.get(kind.path(NAMESPACE)))["items"]
        return found

    async def _install_crd(self) -> None:
        """Install the CRD and wait until resources can be created."""
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


def measure_account(
    stages: Sequence[int], *, workers: int, idle: float, advance: Advance = lambda _: None
) -> tuple[Account, Recorded]:
    """Create more and more resources for one operator, restart it, then let it idle; measure memory and requests.

    Args:
        stages: numbers of resources at which memory is measured.
        workers: number of workers; 0 for the default.
        idle: duration of the idle phase, in seconds.
        advance: called with the number of new writes.

    Raises:
        ClusterError: the operator did not complete its work.
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
                time.sleep(SETTLE_SECONDS)
                memory[count] = subject.memory()
            peak = subject.peak_memory()
        with Subject.running(server.plane, server.directory, workers) as subject:
            began = time.monotonic()
            restarted_calls = _until_done(server, names(stages[-1]), advance)
            time.sleep(SETTLE_SECONDS)
            restarted = subject.memory()
            server.audit.new_calls()
            time.sleep(idle)
            idle_calls = _unexpected(server.audit.new_calls(), time.monotonic() - began)
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


def race(
    size: int, recorded: Recorded, *, workers: int, is_reversed: bool = False, advance: Advance = lambda _: None
) -> Race:
    """Create resources at once and measure the work for them: by the operator, by the reference and by a bare client.

    Each has a new API server, on which it first does the same for `WARM` resources: the API server compiles the rules
    of a CRD at its first requests. The bare client replays the writes of the operator, with as many concurrent requests
    as its workers may send. All times are from the first creation to the response to the last write; those of the
    operators come from the audit log.

    Args:
        is_reversed: begin with the bare client instead of the operator.

    Raises:
        ClusterError: an operator did not complete its work, or the API server rejected a write.
    """
    created, waits = names(size), dict[int, float]()

    def this_operator(server: Server) -> Run:
        with Subject.running(server.plane, server.directory, workers) as subject:
            run = _measured(server, subject, created, advance)
            waits[size] = quantile(subject.queue_wait(), 0.99)
            return run

    def reference(number: int, server: Server) -> Run:
        with Subject.reference(server.plane, server.directory, number) as subject:
            return _measured(server, subject, created, advance, has_events=False)  # client-go drops surplus events

    def bare(server: Server) -> Run:
        token = ServiceAccount.create(server.plane, server.directory).token
        return asyncio.run(_bare(server, token, created, recorded, advance))

    entrants: list[Callable[[Server], Run]] = [
        this_operator,
        *(partial(reference, number) for number in REFERENCE_WORKERS),
        bare,
    ]
    runs = []
    for entrant in reversed(entrants) if is_reversed else entrants:
        with Server.fresh() as server:
            runs.append(entrant(server))
    operator, *references, replayed = reversed(runs) if is_reversed else runs
    return Race(size, operator, replayed, waits[size], dict(zip(REFERENCE_WORKERS, references, strict=True)))


def _measured(
    server: Server, subject: Subject, created: Sequence[str], advance: Advance, *, has_events: bool = True
) -> Run:
    """Return the work of a running operator for resources that are created at once, after it is warm."""
    asyncio.run(server.create(_warm_names()))
    _until_done(server, _warm_names(), lambda _: None, has_events=has_events)

    def cpu() -> tuple[float, float]:
        return subject.process.cpu, server.cpu()

    before, began = cpu(), time.time()
    after = before

    def note(writes: int) -> None:
        nonlocal after
        if writes:  # the check of the work that follows the last write is not the operator's
            after = cpu()
        advance(writes)

    asyncio.run(server.create(created))
    writes = [call for call in _until_done(server, created, note, has_events=has_events) if call.is_write]
    return Run(
        seconds=max(call.ended for call in writes) - began,
        client=after[0] - before[0],
        server=after[1] - before[1],
        memory=subject.memory(),
    )


async def _bare(server: Server, token: str, created: list[str], recorded: Recorded, advance: Advance) -> Run:
    async with Bare.of(server.plane, MAX_QUICK_SLOTS, token) as client:  # audited as the operator is
        _, warm_uids = await server.create(_warm_names())
        await client.send(list(_warming(recorded, warm_uids)))
        busy = server.cpu()
        creating, now = await server.create(created)
        uids = {recorded.uids[name]: uid for name, uid in now.items()}
        requests = [replay(write, uids) for write in recorded.of(set(created))]
        used = time.process_time()
        writing, _ = await client.send(requests, advance)
        used = time.process_time() - used
    if missing_work := await server.missing_work(created):
        raise ClusterError(
            f"the replay of the bare client is incomplete: {'; '.join(missing_work[:3])}",
            "check replay() in e2e/bench/bare.py",
        )
    return Run(creating + writing, used, server.cpu() - busy)


def _warm_names() -> list[str]:
    return [f"warm-{number:05}" for number in range(WARM)]


def _warming(recorded: Recorded, uids: dict[str, str]) -> Iterator[Sent]:
    """Return the recorded writes for the first resources, renamed to those that warm the API server."""
    for name, warm in zip(names(WARM), _warm_names(), strict=True):
        for write in recorded.of({name}):
            sent = replay(write, {recorded.uids[name]: uids[warm]})
            body = sent.body.replace(name.encode(), warm.encode())
            yield sent._replace(uri=sent.uri.replace(name, warm), body=body)


def _until_done(server: Server, created: Sequence[str], advance: Advance, *, has_events: bool = True) -> list[Call]:
    """Wait until the operator has completed its work and is idle.

    Args:
        has_events: whether each resource must have an event.

    Returns:
        Requests of the operator until then.

    Raises:
        ClusterError: the operator is idle, but its work is incomplete.
    """
    calls: list[Call] = []
    last = time.monotonic()
    while True:
        new = [call for call in server.audit.new_calls() if call.verb != "watch"]
        calls += new
        advance(sum(call.is_write for call in new))
        now = time.monotonic()
        last = now if new else last
        if now - last > QUIET_SECONDS:
            missing_work = asyncio.run(server.missing_work(created, has_events=has_events))
            if not missing_work:
                return calls
            if now - last > STALL_TIMEOUT:
                log = (server.directory / "operator.log").read_text()[-2000:]
                raise ClusterError(
                    f"the operator is idle, but its work is incomplete ({len(missing_work)} problems): "
                    f"{'; '.join(missing_work[:3])}",
                    f"check the end of its log:\n{log}",
                )
        time.sleep(0.2)


def _unexpected(calls: list[Call], age: float) -> tuple[str, ...]:
    """Return the requests that an idle operator should not send: all but watches and the lists of due resyncs.

    The further pages of a list belong to its first one.
    """
    first = [call for call in calls if call.verb != "watch" and "continue=" not in call.uri]
    requests = [f"{call.verb} {call.resource}" for call in first]
    for request in {request for request in requests if request.startswith("list ")}:
        for _ in range(min(int(age / RESYNC_SECONDS), requests.count(request))):
            requests.remove(request)
    return tuple(requests)


def _resource(name: str) -> bytes:
    body = {
        "apiVersion": API.kind.api_version,
        "kind": API.kind.name,
        "metadata": {"name": name},
        # The reference operator creates a Deployment, and neither of the others.
        "spec": {"size": 3, "workload": "Deployment", "network": {"enabled": False}, "connectionSecret": False},
    }
    return json.dumps(body).encode()


def _has_status(obj: Obj) -> bool:
    reported: dict[str, Any] = obj.get("status") or {}
    return reported.get("observedGeneration") == obj["metadata"]["generation"] and bool(reported.get("conditions"))


def _resource_of(write: Call) -> str:
    """Return the name of the resource to which a write belongs."""
    if write.resource == EVENT.plural:
        return str(write.body["involvedObject"]["name"])
    return write.name
