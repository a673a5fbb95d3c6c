"""Replicas with self-issued certificates, on an in-memory API server, in simulated time."""

from __future__ import annotations

import base64
import contextlib
import heapq
import itertools
import random
import ssl
import types
from collections.abc import Callable, Coroutine, Generator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from shared.kubernetes.client import Kube, Request, Response, Transport
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import SECRET, Kind, Obj
from shared.pki.ca import fulfil
from shared.pki.rotation import CertificateOrder, Made
from shared.pki.serving import SelfSignedCertificates
from shared.pki.stores import SharedSecret
from shared.pki.trust_bundle import MUTATING, VALIDATING, Clients
from simulator.api_server.field_sets import Schema
from simulator.api_server.kinds import NAMESPACE
from tests.harness import ApiServer, Served

LIFE = timedelta(seconds=1000)
HOST = "ours-webhook.system.svc"
START = datetime(2026, 1, 1, tzinfo=UTC)

_SCHEMA = Schema(keys={"webhooks": ("name",)}, sets=frozenset(), atomic=frozenset(), defaults={})


def configuration(kind: Kind) -> Obj:
    """Return a WebhookConfiguration as the chart creates it, without a caBundle."""
    client = {"service": {"name": "ours-webhook", "namespace": "system", "path": "/"}}
    webhook = {"name": f"a.{kind.plural}.example.com", "sideEffects": "None", "clientConfig": client}
    metadata = {"name": "ours"}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "webhooks": [webhook]}


class Cluster:
    """An API server with an operator's configurations, and the clock of all clients.

    Attributes:
        now: current time; only a test advances it.
    """

    def __init__(self) -> None:
        self.now = START
        served = [Served(kind, built_in=True, schema=_SCHEMA, status=False) for kind in (MUTATING, VALIDATING)]
        self.server = ApiServer(served, clock=lambda: self.now)
        self.chart = self.server.actor("helm")
        self.chart.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}})
        for kind in (MUTATING, VALIDATING):
            self.chart.create(kind, configuration(kind))

    def replica(
        self, transport: Transport | None = None, *, life: timedelta = LIFE, host: str = HOST
    ) -> SelfSignedCertificates:
        kube = Kube(transport or self.server, manager="ours")
        return SelfSignedCertificates(
            SharedSecret(kube, "system", "ours-certificates"),
            Clients(kube, "ours"),
            name="ours",
            hosts=frozenset({host}),
            life=life,
            clock=lambda: self.now,
            maker=made,
        )

    @property
    def secret(self) -> dict[str, str]:
        found = self.chart.get(SECRET, "system", "ours-certificates")
        return {name: base64.b64decode(text).decode() for name, text in found["data"].items()}

    def trusted(self, kind: Kind = VALIDATING) -> str:
        """Return the bundle that clients of the webhooks trust; empty if there is none."""
        ((_, found),) = self.server.objects(kind)
        (webhook,) = found["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()


async def made(order: CertificateOrder) -> Made:
    """Fulfil an order like `ca.make`, without a thread."""
    return fulfil(order)


class Wire:
    """A replica's connection, which may lose requests before or after they are processed."""

    def __init__(self, server: ApiServer, chance: random.Random, losses: float) -> None:
        self._server = server
        self._chance = chance
        self._losses = losses

    async def request(self, request: Request) -> Response:
        dice = self._chance.random()
        if dice < self._losses / 2:
            return Response(503, {"message": "lost before it was processed"})
        answer = await self._server.request(request)
        return answer if dice > self._losses else Response(503, {"message": "processed, but the response was lost"})


def verify(served: str, bundle: str, now: datetime, host: str = HOST) -> None:
    """Verify as a strict client does, at a given time; raises VerificationError."""
    (leaf,) = x509.load_pem_x509_certificates(served.encode())
    trusted = Store(x509.load_pem_x509_certificates(bundle.encode()))
    PolicyBuilder().store(trusted).time(now).build_server_verifier(x509.DNSName(host)).verify(leaf, [])


@types.coroutine
def _sleep(seconds: float, _: object = None) -> Generator[float, None, None]:
    yield seconds


class Life:
    """Runs replicas in simulated time: real `open` and `run`, with a random latency of each request.

    Args:
        observe: called after each step of a replica.
        latency: maximum seconds of a request.
    """

    def __init__(self, cluster: Cluster, chance: random.Random, observe: Callable[[], None], latency: float) -> None:
        self.cluster = cluster
        self._chance = chance
        self._observe = observe
        self._latency = latency
        self._numbers = itertools.count()
        self._waiting: list[tuple[datetime, int, SelfSignedCertificates, Coroutine[Any, Any, None]]] = []
        self.up: set[SelfSignedCertificates] = set()

    @property
    def serving(self) -> set[SelfSignedCertificates]:
        """Replicas that a Service would send requests to."""
        return {replica for replica in self.up if not replica.unready()}

    def start(self, replica: SelfSignedCertificates) -> None:
        self.up.add(replica)
        self._push(0.0, replica, self._process(replica))

    def stop(self, replica: SelfSignedCertificates) -> None:
        """Stop a replica between two of its steps."""
        self.up.discard(replica)

    def pass_time(self, seconds: float) -> None:
        end = self.cluster.now + timedelta(seconds=seconds)
        with patch("asyncio.sleep", _sleep):
            while self._waiting and self._waiting[0][0] <= end:
                self.cluster.now, _, replica, work = heapq.heappop(self._waiting)
                if replica not in self.up:
                    work.close()
                    continue
                pause = work.send(None)
                self._push(pause or self._chance.uniform(0, self._latency), replica, work)
                self._observe()
        self.cluster.now = end
        self._observe()

    def close(self) -> None:
        for _, _, _, work in self._waiting:
            work.close()

    async def _process(self, replica: SelfSignedCertificates) -> None:
        """Run a replica like process.py; one that cannot start is restarted by the kubelet."""
        while True:
            try:
                await replica.open()
                break
            except KubeError:
                await _sleep(LIFE.total_seconds() / 100)
        await replica.run()

    def _push(self, pause: float, replica: SelfSignedCertificates, work: Coroutine[Any, Any, None]) -> None:
        at = self.cluster.now + timedelta(seconds=pause)
        heapq.heappush(self._waiting, (at, next(self._numbers), replica, work))


def served_by(context: ssl.SSLContext) -> str:
    """Return the certificate that a new connection gets, as PEM."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = anyone.wrap_bio(back, there)
    server = context.wrap_bio(there, back, server_side=True)
    for end in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"")
