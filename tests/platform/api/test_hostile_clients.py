"""An operator within the memory limit of its chart, while hostile clients use all of its ports, and users its Secrets.

Each operator runs as a process in a cgroup. Everything that a client without credentials can send is sent, most of it
from two addresses, while another address does what the kubelet does. Before that, a namespace gets 20 resources whose
Secrets and ConfigMaps have hostile content, and large pods with the labels of another resource. Every input gets an
answer or a closed connection, every resource a condition, the kubelet its answers, and the process lives on with the
same Lease.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from charts.values.operator import OperatorValues
from operators import installed
from shared.api.admission import DEFAULT, LIMITS, VALIDATE
from shared.kubernetes import accessors
from shared.kubernetes.kinds import CONFIG_MAP, POD, SECRET, SERVICE, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, NAME
from shared.kubernetes.quantity import parse_quantity
from shared.runtime.operator import Operator, ServedKind
from shared.status.conditions import READY
from tests.platform.api.support.replicas import ready
from tests.platform.api.support.world import World
from tests.platform.unit.test_hostile_content import ANY, CERTIFICATES, REDIS_CONF, TARGETS, Target
from tests.support.hostile_reviews import COSTLY, MARK, body_of, bombs, paths_of, replaced, sample
from tests.support.memory_limit import MemoryLimit, memory_limit
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports
from tools.local.paths import REPOSITORY

LIMIT = int(parse_quantity(OperatorValues.model_fields["resources"].default.limits["memory"]))

HOSTILE, KUBELET = ("127.0.0.2", "127.0.0.3"), "127.0.0.9"

PROBE_SECONDS, PROBE_PAUSE_SECONDS, FAILURES = 1.0, 1.0, 3
"""Timeout of a probe, as in the chart; time between probes, a tenth of the chart's; failures that end a container."""

ANSWER_SECONDS = 60.0
"""Time for an answer while others are sent. The machine may run other tests."""

TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


class Front:
    """An operator's process, and its clients.

    Attributes:
        process: the process.
        limit: memory limit of the process, and how it is enforced.
        ports: ports by server: probes, metrics, webhook.
        answers: number of inputs by their result: a status, or closed.
        answered, failed, longest_failure: numbers of probes, and of failures in a row.
    """

    def __init__(self, name: str, kubeconfig: Path, namespace: str, limit: MemoryLimit) -> None:
        self.limit = f"{LIMIT >> 20} MiB ({limit.kind})"
        self.ports = dict(zip(("probes", "metrics", "webhook"), free_ports(3), strict=True))
        self.answers = Counter[str]()
        self.answered = self.failed = self.longest_failure = 0
        command = [
            *limit.prefix,
            *(sys.executable, "-m", f"operators.{name}", "--log-format=text", f"--kubeconfig={kubeconfig}"),
            f"--health-probe-bind-address=127.0.0.1:{self.ports['probes']}",
            f"--metrics-bind-address=127.0.0.1:{self.ports['metrics']}",
            f"--webhook-bind-address=127.0.0.1:{self.ports['webhook']}",
            f"--watch-namespace={namespace}",
            "--leader-elect",
            f"--leader-elect-namespace={namespace}",
        ]
        self.log = Path(f"{kubeconfig}.{name}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stderr=log)

    @property
    def peak(self) -> int:
        """Peak of the process's resident memory, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024

    async def connect(
        self, port: str, client: str, *, handshake: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = TLS if handshake and port != "probes" else None
        return await asyncio.open_connection("127.0.0.1", self.ports[port], ssl=tls, local_addr=(client, 0))

    async def send(self, port: str, content: bytes, client: str = HOSTILE[0]) -> str:
        """Send an input; return the status of its answer, or `closed`."""
        result = "no answer"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    reader, writer = await self.connect(port, client)
                    writer.write(content)
                    line = (await reader.readline()).decode("latin-1")
                    writer.transport.abort()
                    result = line.split(" ")[1] if line.startswith("HTTP/1.1 ") else "closed"
                except (OSError, asyncio.IncompleteReadError):
                    result = "closed"
        self.answers[result] += 1
        return result

    async def probe_for_ever(self) -> None:
        """Probe as the kubelet does."""
        failing = 0
        while True:
            began = time.monotonic()
            is_answered = False
            with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(PROBE_SECONDS):
                    reader, writer = await self.connect("probes", KUBELET)
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    is_answered = b" 200 " in await reader.readline()
                    writer.transport.abort()
            self.answered += is_answered
            self.failed += not is_answered
            failing = 0 if is_answered else failing + 1
            self.longest_failure = max(self.longest_failure, failing)
            await asyncio.sleep(max(0.0, began + PROBE_PAUSE_SECONDS - time.monotonic()))


def post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def reviews(kind: str) -> Iterator[bytes]:
    for at in COSTLY:
        if at in paths_of(kind):
            for bomb in bombs().values():
                yield post(VALIDATE, body_of(kind, replaced(sample(kind), at, MARK), None, bomb))


RESOURCES = 20
"""Number of resources with hostile content."""

PODS = 120
"""Number of pods with the labels of a resource; together they would take 225 MiB of memory."""

CONDITION_SECONDS = 120.0
"""Time until each of these has a condition, and a resource without such content its objects."""


def hostile(operator: Operator) -> list[tuple[Target, str]]:
    """Return Secrets of the operator's kinds with the names of their content: of each content one first."""
    targets = [target for target in TARGETS if target.operator == operator.name]
    found = [(target, name) for name in (*CERTIFICATES, *ANY) for target in targets]
    fitting = [(target, name) for target, name in found if name in ANY or target.has_certificate]
    first = {name: (target, name) for target, name in reversed(fitting)}
    return [*first.values(), *(case for case in fitting if case not in first.values())][:RESOURCES]


def create_hostile(world: World, operator: Operator) -> dict[str, Kind]:
    """Create resources that name hostile Secrets, for Redis also ConfigMaps, and one with many large pods.

    Returns:
        Their kinds by name.
    """
    created = dict[str, Kind]()
    for number, (target, name) in enumerate(hostile(operator)):
        contents = {**target.secrets, target.name: {**ANY, **CERTIFICATES}[name](target)}
        spec = json.dumps(target.spec)
        for secret, content in contents.items():
            spec = spec.replace(f'"{secret}"', f'"{secret}-{number}"')
            data = {key: base64.b64encode(value).decode() for key, value in content.items()}
            world.user_client.create(SECRET, {"metadata": world.metadata(f"{secret}-{number}"), "data": data})
        created[f"hostile-{number}"] = create(world, target.served, f"hostile-{number}", json.loads(spec))
    if operator.name == "redis":
        for number, text in enumerate(REDIS_CONF.values()):
            name = f"configured-{number}"
            world.user_client.create(CONFIG_MAP, {"metadata": world.metadata(name), "data": {"redis.conf": text}})
            created[name] = create(world, operator.kinds[0], name, {"replicas": 6, "pod": [{"configmap": name}]})
    created["crowded"] = create(world, operator.kinds[0], "crowded", PLAIN[operator.name])
    for number in range(PODS):
        metadata = {"labels": {MANAGED_BY: operator.process_name, INSTANCE: "crowded", NAME: operator.name}}
        container = {"name": "a", "image": "a", "env": [{"name": f"e{at}"} for at in range(8_000)]}
        pod = {"metadata": world.metadata(f"crowd-{number}") | metadata, "spec": {"containers": [container]}}
        world.user_client.create(POD, pod)
    return created


def create(world: World, served: ServedKind, name: str, spec: Obj) -> Kind:
    """Create a resource with the defaults of admission, which does not run here; return its kind."""
    kind = served.resource.kind
    body: Obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": world.metadata(name), "spec": spec}
    world.user_client.create(kind, served.admission.default(body) if served.admission else body)
    return kind


async def require_reconciled(world: World, operator: Operator, created: Mapping[str, Kind]) -> None:
    """Require that each hostile resource has a condition, and that another resource gets its Services."""
    create(world, operator.kinds[0], "plain", PLAIN[operator.name])
    deadline = time.monotonic() + CONDITION_SECONDS
    while True:
        missing = [name for name, kind in created.items() if not accessors.condition(world.get(kind, name), READY)]
        owners = [obj["metadata"].get("ownerReferences", [{}])[0].get("name") for obj in world.listed(SERVICE)]
        if not missing and "plain" in owners:
            return
        assert time.monotonic() < deadline, (missing, owners)
        await asyncio.sleep(1)


PLAIN: Mapping[str, Obj] = {"memcached": {"size": 1}, "etcd": {"size": 1}, "redis": {"replicas": 6}}


REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 2000,
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + b"x" * 8000 + b"\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1_000_000,
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: x\r\n" * 100_000,
    b"POST /validate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000,
    b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 10_000 + b"\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
    b"\x16\x03\x01" + b"\xff" * 100_000 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n\r\n",
)


async def attack(front: Front, kind: str) -> int:
    """Send everything; return the number of inputs."""
    count, work = 0, asyncio.Semaphore(16)

    async def send(port: str, content: bytes, client: str) -> None:
        try:
            await front.send(port, content, client)
        finally:
            work.release()

    # Reviews, one after the other and then 200 at once.
    async with asyncio.TaskGroup() as group:
        for number, content in enumerate(reviews(kind)):
            await work.acquire()
            group.create_task(send("webhook", content, HOSTILE[number % 2]))
            count += 1
    items = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "a": [0] * 15_000}).encode()
    for body in (items, b"[" + b"[]," * 300_000 + b"0]", b"x" * LIMITS.body_bytes, b"x" * (2 * LIMITS.body_bytes)):
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(front.send("webhook", post(DEFAULT, body), HOSTILE[number % 2]))
                count += 1
    # Requests that are none, or too large, at every port.
    async with asyncio.TaskGroup() as group:
        for port in front.ports:
            for number, content in enumerate(REQUESTS * 4):
                await work.acquire()
                group.create_task(send(port, content, HOSTILE[number % 2]))
                count += 1
    # Connections that are idle, or half-open, or slow, and stay.
    opened = []
    for port in front.ports:
        for number in range(300):
            with contextlib.suppress(OSError):
                _, writer = await front.connect(port, HOSTILE[number % 2], handshake=number % 3 > 0)
                opened.append(writer)
                writer.write(
                    (b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: x", post(VALIDATE, b"x" * 60_000)[:-1])[number % 3]
                )
            count += 1
    await asyncio.sleep(5)
    for port, content in (
        ("probes", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("metrics", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("webhook", post(VALIDATE, body_of(kind, sample(kind), None, ""))),
    ):
        for _ in range(5):
            assert await front.send(port, content, KUBELET) in {"200", "401"}, port
            count += 1
    for writer in opened:
        writer.transport.abort()
    return count


@pytest.fixture(params=[operator.name for operator in installed()])
def front(request: pytest.FixtureRequest, plane: ControlPlane, world: World, tmp_path: Path) -> Iterator[Front]:
    config = tmp_path / "kubeconfig"
    config.write_text(plane.kubeconfig.read_text())
    with memory_limit(LIMIT) as limit:
        front = Front(request.param, config, world.namespace, limit)
        with ready(front.process, f"http://127.0.0.1:{front.ports['probes']}"):
            yield front


@pytest.mark.nightly
@pytest.mark.timeout(1200)
async def test_hostile_clients_neither_end_an_operator_nor_keep_out_the_kubelet(
    front: Front, world: World, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    operator = next(each for each in installed() if each.name == request.node.callspec.params["front"])
    before = front.peak
    probing = asyncio.create_task(front.probe_for_ever())
    created = await asyncio.to_thread(create_hostile, world, operator)
    count = await attack(front, operator.main.kind.name)
    await require_reconciled(world, operator, created)
    probing.cancel()
    assert front.process.poll() is None, front.log.read_text()[-2000:]
    record_property(
        "summary",
        f"hostile clients of {operator.name}: {count}/{count} inputs, {dict(front.answers)}; "
        f"{len(created)}/{len(created)} resources with hostile content have a condition; peak "
        f"{front.peak >> 20} MiB (before: {before >> 20}) of {front.limit}; probes answered in {PROBE_SECONDS:g} s: "
        f"{front.answered}/{front.answered + front.failed}, at most {front.longest_failure} failures in a row",
    )
    assert not front.answers["no answer"], front.answers
    assert front.longest_failure < FAILURES
    assert "Traceback" not in front.log.read_text()
    assert "lost" not in front.log.read_text(), "the Lease is renewed throughout"
