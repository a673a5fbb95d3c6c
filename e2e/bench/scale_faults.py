"""Measurements of faults that concern one namespace, and of outages of the API server, with a thousand resources."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from e2e.bench.measures import percentile
from e2e.bench.scale_measures import Neighbours, Outage
from e2e.bench.scale_replicas import Replica
from e2e.bench.scale_trials import FAILING, POLICY_SECONDS, REFUSAL, SERVER_PORT, Fleet, reported, world
from e2e.bench.timed_operator import QUEUE_DEPTH, RECONCILES, REQUESTS, WATCH_SYNCED
from shared.kubernetes.kinds import Kind
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports

OPERATOR = "memcached"
NEIGHBOUR = "neighbour"
"""Namespace of the resources that have a problem."""

SHOPS = tuple(f"shop-{number}" for number in range(10))
"""Namespaces of the other resources."""

WEBHOOK_SECONDS = 10
HUNG_ADDRESS = "127.83.0.1"
"""Address of the servers that do not answer: one of this machine that nothing else uses."""

Begin = Callable[[int], None]
"""Lets the problem begin of a number of resources that exist by now."""

QUIET_SECONDS = 30.0
"""Seconds after an outage in which requests are counted."""

_WEBHOOK = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)


def measure_neighbours(problem: str, count: int, others: int, seconds: float) -> Neighbours:
    """Change resources for a while, then again while those of another namespace have a problem.

    Args:
        count: number of resources that have the problem.
        others: number of resources of which random ones are changed.
        seconds: duration of the changes, each time.
    """
    with world(OPERATOR) as (plane, fleet, start):
        leader = _leader(start)
        fleet.create_in(SHOPS, others, "r")
        _rested(leader, fleet, others)
        alone = _percentiles(fleet.changes(seconds))
        with PROBLEMS[problem](plane, fleet) as begin:
            fleet.create_in([NEIGHBOUR], count, FAILING)
            begin(count)
            among = _percentiles(fleet.changes(seconds))
    return Neighbours(problem, count, alone, among)


def measure_outage(count: int, seconds: float) -> Outage:
    """Stop etcd and the API server for a while."""
    with world(OPERATOR) as (plane, fleet, start):
        leader = _leader(start)
        fleet.create_in(SHOPS, count, "r")
        _rested(leader, fleet, count)
        time.sleep(QUIET_SECONDS / 3)
        events, reconciles = fleet.events(), leader.scrape().total(RECONCILES)
        plane.change_data(lambda _: time.sleep(seconds))
        began, requests = time.monotonic(), _answered(leader)
        name = random.Random(7).choice(fleet.healthy)
        generation, at = fleet.change(name)
        leader.wait(lambda: _is_synced(leader), "every collection is observed", 120)
        observed = time.monotonic() - began
        leader.wait(lambda: fleet.seen[name].generation >= generation, "the report of a change", 120)
        change = fleet.seen[name].at - at
        leader.wait(lambda: leader.scrape().total(RECONCILES) - reconciles >= count, "a reconcile of all", 300)
        reconciled = time.monotonic() - began
        time.sleep(QUIET_SECONDS)
        return Outage(
            seconds=seconds,
            count=count,
            observed=observed,
            reported=change,
            reconciled=reconciled,
            requests=(_answered(leader) - requests) / count,
            events=fleet.events() - events,
        )


@contextmanager
def _slow_webhook(plane: ControlPlane, fleet: Fleet) -> Iterator[Begin]:
    """Let a webhook admit every write to the namespace, after `WEBHOOK_SECONDS`."""
    (port,) = free_ports(1)
    pair = plane.authority.issue("slow-webhook", "slow-webhook", hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    bundle = b64encode(plane.authority.pair.certificate.read_bytes()).decode()
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*/*"]}
    webhook = {
        "name": "slow.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NEIGHBOUR}},
        "failurePolicy": "Ignore",
        "timeoutSeconds": WEBHOOK_SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [
            {"name": "of-the-operator", "expression": "request.userInfo.username.startsWith('system:serviceaccount:')"}
        ],
    }
    metadata = {"name": "slow"}
    fleet.apply(
        _WEBHOOK,
        {"apiVersion": _WEBHOOK.api_version, "kind": _WEBHOOK.name, "metadata": metadata, "webhooks": [webhook]},
    )
    with _hanging("127.0.0.1", port, context):
        time.sleep(POLICY_SECONDS)
        yield _begun


@contextmanager
def _hung_databases(_: ControlPlane, fleet: Fleet) -> Iterator[Begin]:
    """Let each resource have a ready server that accepts connections, and answers nothing.

    Its version is inspected until it is known, so that each reconcile waits for it as long as the operator waits.
    """
    with _hanging(HUNG_ADDRESS, SERVER_PORT):
        yield lambda count: fleet.add_servers(NEIGHBOUR, count, HUNG_ADDRESS)


@contextmanager
def _hanging(address: str, port: int, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """Accept connections, and answer nothing."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opening = asyncio.start_server(_hang, address, port, ssl=tls, backlog=4096)
    server = asyncio.run_coroutine_threadsafe(opening, loop).result(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_end_connections(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def _begun(_: int) -> None:
    """Do nothing: the problem has begun with the resources."""


async def _end_connections() -> None:
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for each in connections:
        each.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer nothing: the client continues after its timeout."""
    with contextlib.suppress(asyncio.CancelledError):  # at the end of the problem
        await asyncio.sleep(2 * WEBHOOK_SECONDS)
    writer.close()


@contextmanager
def _refused(_: ControlPlane, fleet: Fleet) -> Iterator[Begin]:
    """Let the API server refuse the Services of the resources, so that they fail and are retried."""
    for kind, spec in REFUSAL:
        metadata = {"name": "bench-refusal"}
        fleet.apply(kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec})
    time.sleep(POLICY_SECONDS)
    yield _begun


PROBLEMS: dict[str, Callable[[ControlPlane, Fleet], AbstractContextManager[Begin]]] = {
    "each write takes 10 s": _slow_webhook,
    "they fail": _refused,
    "their databases do not answer": _hung_databases,
}


def _leader(start: Callable[..., Replica]) -> Replica:
    leader = start()
    leader.wait(lambda: leader.is_ready, "start")
    return leader


def _rested(leader: Replica, fleet: Fleet, count: int) -> None:
    reported(leader, fleet, count)
    leader.wait(lambda: leader.scrape().total(QUEUE_DEPTH) == 0, "an empty queue", 600)


def _percentiles(latencies: list[float]) -> tuple[float, float]:
    return percentile(latencies, 0.5), percentile(latencies, 0.99)


def _is_synced(leader: Replica) -> bool:
    scrape = leader.scrape()
    return scrape.total(WATCH_SYNCED) == scrape.count(WATCH_SYNCED) > 0


def _answered(leader: Replica) -> float:
    """Return the number of requests of the operator that were answered."""
    scrape = leader.scrape()
    return scrape.total(REQUESTS) - scrape.total(REQUESTS, 'code="<error>"')
