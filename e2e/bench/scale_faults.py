"""Measurements of faults that concern one namespace, and of outages of the API server, with a thousand resources."""

from __future__ import annotations

import asyncio
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
from e2e.bench.scale_trials import FAILING, POLICY_SECONDS, REFUSAL, Fleet, reported, world
from e2e.bench.timed_operator import QUEUE_DEPTH, RECONCILES, REQUESTS, WATCH_SYNCED
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.machine.network import free_ports
from shared.kubernetes.kinds import Kind

OPERATOR = "memcached"
NEIGHBOUR = "neighbour"
"""Namespace of the resources that have a problem."""

SHOPS = tuple(f"shop-{number}" for number in range(10))
"""Namespaces of the other resources."""

WEBHOOK_SECONDS = 10
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
        with PROBLEMS[problem](plane, fleet):
            fleet.create_in([NEIGHBOUR], count, FAILING)
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
def _slow_webhook(plane: ControlPlane, fleet: Fleet) -> Iterator[None]:
    """Let a webhook admit every write to the namespace, after `WEBHOOK_SECONDS`."""
    (port,) = free_ports(1)
    pair = plane.authority.issue("slow-webhook", "slow-webhook", hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serving = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(_hang, "127.0.0.1", port, ssl=context, backlog=4096), loop
    )
    serving.result(10)
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
    time.sleep(POLICY_SECONDS)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_end_connections(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _end_connections() -> None:
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for each in connections:
        each.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer nothing: the API server continues after the timeout of the webhook."""
    try:
        await asyncio.sleep(2 * WEBHOOK_SECONDS)
    finally:
        writer.close()


@contextmanager
def _refused(_: ControlPlane, fleet: Fleet) -> Iterator[None]:
    """Let the API server refuse the Services of the resources, so that they fail and are retried."""
    for kind, spec in REFUSAL:
        metadata = {"name": "bench-refusal"}
        fleet.apply(kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec})
    time.sleep(POLICY_SECONDS)
    yield


PROBLEMS: dict[str, Callable[[ControlPlane, Fleet], AbstractContextManager[None]]] = {
    "each write takes 10 s": _slow_webhook,
    "they fail": _refused,
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
