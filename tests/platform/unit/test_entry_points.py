"""Every entry point of content from outside a process has a case that judges its cost (tests/harness/cost.py).

The entry points are found in the code, so that a new one without a case fails here:

- routes of HTTP servers: started, and attacked below; the bodies of webhooks in shared/api/test_hostile_reviews.py;
- Secrets and ConfigMaps that specs name: test_hostile_content.py, with resources themselves;
- lists and events of the API server: shared/runtime/test_list_cost.py; lists without `Kube.pages` are below;
- objects with the labels or the names of a resource: shared/runtime/test_owned_cost.py;
- replies of servers: test_hostile_replies.py and redis/test_hostile_replies.py, which find the functions that read any;
- what the API server trusts, and files of an administrator: below.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import operators
from docs.resources import fields
from operators.memcached.exporter import program as exporter
from shared.api import crd
from shared.cli.options import parse_options
from shared.kubernetes.kinds import Obj
from shared.observability import http_server
from shared.observability.http_server import Route
from shared.pki.serving import MAX_CLIENT_AUTHORITIES, FileCertificates, SelfSignedCertificates
from shared.pki.stores import Memory
from shared.pki.trust_bundle import MUTATING, authorities_in
from shared.status import conditions, resource_metrics
from tests.harness import cost
from tests.memcached.unit.client.fake import fake
from tests.memcached.unit.exporter.test_program import recorded
from tests.platform.unit.shared.runtime.test_garbage import World
from tests.platform.unit.test_hostile_content import CERTIFICATES, TARGETS
from tests.support.hostile_reviews import HANDLERS
from tests.support.paths import REPOSITORY

RESOURCES = 1_000
"""Number of resources in the metrics of the operator, of all kinds together."""

CLIENTS = 40
"""Number of connections, and of requests at once, from one address."""

CLIENT, OTHER_CLIENT = "127.0.0.2", "127.0.0.3"


# Routes.


@dataclass(frozen=True)
class Front:
    """A server that listens.

    Attributes:
        routes: served paths with their handlers.
        is_secure: whether it uses TLS.
    """

    routes: tuple[Route, ...]
    port: int
    is_secure: bool


@contextlib.contextmanager
def recorded_fronts() -> Iterator[list[Front]]:
    """Yield the servers that start until the context is left."""
    fronts: list[Front] = []
    serve = http_server.serve

    async def recording(stack: Any, address: str, routes: Any, **options: Any) -> int:
        routes = tuple(routes)
        port = await serve(stack, address, routes, **options)
        fronts.append(Front(routes, port, options.get("tls") is not None))
        return port

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "serve", recording)
        yield fronts


@contextlib.asynccontextmanager
async def an_operator() -> AsyncIterator[list[Front]]:
    """Run the process of an operator with all of its servers, whose metrics report many resources of all kinds."""
    world = World()
    servers = ("metrics", "health-probe", "webhook")
    flags = [f"--{server}-bind-address=127.0.0.1:0" for server in servers]
    with recorded_fronts() as fronts, resource_metrics.shown(*many_resources()):
        task = asyncio.create_task(world.process(lambda transports: transports, *flags).run())
        await world.until("the start", lambda: world.reported()[2] == "True" and len(fronts) == len(servers))
        try:
            yield fronts
        finally:
            task.cancel()
            await asyncio.wait({task})


def many_resources() -> Iterator[resource_metrics.Resources]:
    for operator in operators.installed():
        options = parse_options(operator.process_name, operator.name, ["--agent-image=operator:1"], {})
        for controller in operator.controllers(options):
            found = [resource(number) for number in range(RESOURCES // 4)]
            yield resource_metrics.Resources(controller.kind, lambda found=found: found, controller.samples, {})  # type: ignore[misc]


def resource(number: int) -> Obj:
    """Return a resource with all common metrics."""
    named = {"status": "True", "reason": "AsExpected", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
    given = [{"type": condition, **named} for condition in conditions.COMPOSED]
    metadata = {"name": f"cache-{number:05}", "namespace": f"team-{number % 50}", "generation": 1}
    status = {"conditions": given, "phase": "Running", "observedGeneration": 1, "version": "1.6.38"}
    spec = {"size": 3, "replicas": 6}
    return {"metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec, "status": status}


@contextlib.asynccontextmanager
async def an_exporter() -> AsyncIterator[list[Front]]:
    """Run the server of memcached's exporter, for a server with recorded statistics."""
    watch = SimpleNamespace(
        serves=True,
        error="",
        version="1.6.38",
        certificate="",
        users=lambda *_: "",
        reloads_users=True,
        loaded_users="",
    )
    stop = asyncio.Event()
    async with fake(recorded()) as to:
        options = exporter.parse_options([f"--address=127.0.0.1:{to.port}", "--listen=127.0.0.1:0"])
        with recorded_fronts() as fronts:
            task = asyncio.create_task(exporter._serve(options, watch, stop))  # type: ignore[arg-type]
            async with asyncio.timeout(20):
                while not fronts:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            yield fronts
            stop.set()
            assert await task == 0


PROCESSES: dict[str, Callable[[], AbstractAsyncContextManager[list[Front]]]] = {
    "operator": an_operator,
    "exporter": an_exporter,
}

ON_LOOPBACK = {("GET", "/debug/profile"), ("GET", "/debug/memory")}
"""Routes of --profiling, which is for developers: nothing outside the pod reaches them."""


def routes_in_the_code() -> tuple[set[tuple[str, str]], set[str]]:
    """Return method and path of each route, and the modules whose routes have paths that are no literals."""
    found, others = set[tuple[str, str]](), set[str]()
    for package in ("shared", "operators"):
        for module in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Route"):
                    method, path, _ = node.args
                    if isinstance(method, ast.Constant) and isinstance(path, ast.Constant):
                        found.add((str(method.value), str(path.value)))
                    else:
                        others.add(str(module.relative_to(REPOSITORY)))
    return found, others


async def test_every_route_is_attacked() -> None:
    served = set[tuple[str, str]]()
    for opened in PROCESSES.values():
        async with opened() as fronts:
            served |= {(route.method, route.path) for front in fronts for route in front.routes}
    known, others = routes_in_the_code()
    assert served >= known - ON_LOOPBACK
    assert others == {"shared/api/admission.py"}
    assert {path for method, path in served if method == "POST"} == HANDLERS.keys()


TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


async def connected(front: Front, client: str, *, handshake: bool = True) -> Any:
    tls = TLS if front.is_secure and handshake else None
    return await asyncio.open_connection("127.0.0.1", front.port, ssl=tls, local_addr=(client, 0))


async def answer(front: Front, route: Route, client: str, more: str = "") -> str:
    """Send a request, read the whole response, and return its status; `closed` without one."""
    reader, writer = None, None
    try:
        reader, writer = await connected(front, client)
        body = "{}" if route.method == "POST" else ""
        head = f"{route.method} {route.path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(body)}"
        writer.write(f"{head}\r\n{more}\r\n{body}".encode())
        line = (await reader.readline()).decode()
        while await reader.read(65_536):
            pass
        return line.split(" ")[1] if line else "closed"
    except OSError:
        return "closed"
    finally:
        if writer is not None:
            writer.transport.abort()


@pytest.mark.parametrize("process", PROCESSES)
async def test_no_route_costs_more_than_its_share(process: str, record_property: Callable[[str, object], None]) -> None:
    async with PROCESSES[process]() as fronts:
        for front in fronts:
            for route in front.routes:
                assert await answer(front, route, OTHER_CLIENT) in {"200", "400", "401"}  # what is made once
                async with cost.bounded() as found:
                    statuses = await attacked(front, route)
                record_property("summary", f"{process}: {route.method} {route.path}: {dict(statuses)}, {found}")
                assert statuses.keys() <= {"200", "400", "401", "429", "503", "closed"}


async def attacked(front: Front, route: Route) -> Counter[str]:
    """Use a route from one address, while another one gets its answer; return the statuses."""
    idle = [await connected(front, CLIENT, handshake=False) for _ in range(CLIENTS)]
    work = asyncio.Semaphore(8)  # the clients are of this process, too

    async def send(more: str = "") -> str:
        async with work:
            return await answer(front, route, CLIENT, more)

    sent = [send(f"X: {'x' * 60_000}\r\n"), *(send() for _ in range(CLIENTS))]
    statuses = Counter(await asyncio.gather(*sent))
    assert statuses.pop("431", 0) + statuses["closed"] >= 1
    assert await answer(front, route, OTHER_CLIENT) in {"200", "400", "401"}
    for _, writer in idle:
        writer.transport.abort()
    return statuses


async def test_authorized_scrape_of_many_resources_costs_little(record_property: Callable[[str, object], None]) -> None:
    async with an_operator() as fronts:
        front, route = next((front, route) for front in fronts for route in front.routes if route.path == "/metrics")
        token = "Authorization: Bearer a\r\n"
        assert await answer(front, route, CLIENT, token) == "200"
        for accept in ("text/plain", "application/openmetrics-text"):
            async with cost.bounded() as found:
                assert await answer(front, route, CLIENT, f"{token}Accept: {accept}\r\n") == "200"
            record_property("summary", f"scrape of {RESOURCES:,} resources as {accept}: {found}")


# Lists of the API server.

LISTS = {
    "shared/runtime/install.py": "a selector of nothing",
}
"""Modules that list otherwise than with `Kube.pages`."""


def test_every_list_is_read_in_pages_of_bounded_cost() -> None:
    found = {
        str(module.relative_to(REPOSITORY))
        for package in ("shared", "operators", "plugin")
        for module in (REPOSITORY / package).rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("kube.list")
    }
    assert found == LISTS.keys()


# Content that specs name.


NO_CONTENT = {
    "spec.imagePullSecrets[].name": "the kubelet reads it",
    "spec.extraVolumes[].secret.secretName": "the kubelet reads it",
    "spec.extraVolumes[].configMap.name": "the kubelet reads it",
    "spec.users[].passwordSecret.key": "a key in it",
}
"""Texts that belong to a Secret or ConfigMap, but name none that an operator reads."""


def named_by_specs() -> Iterator[tuple[str, str]]:
    """Yield kind and path of each field that names a Secret or ConfigMap which an operator reads.

    A variable of a container names them in an object of any content, which the kubelet reads.
    """
    for operator in operators.installed():
        for described in operator.resources:
            schema = crd.to_dict(described)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for field in fields(schema["properties"]["spec"], "spec"):
                is_text = field.schema.get("type") == "string"
                if (
                    is_text
                    and re.search("secret|configmap", field.path, re.IGNORECASE)
                    and field.path not in NO_CONTENT
                ):
                    yield described.kind.name, field.path


def paths_with(value: str, within: Any, path: str) -> Iterator[str]:
    """Yield the paths in a spec that have a value."""
    if within == value:
        yield path
    for name, inner in within.items() if isinstance(within, dict) else ():
        yield from paths_with(value, inner, f"{path}.{name}")
    for inner in within if isinstance(within, list) else ():
        yield from paths_with(value, inner, f"{path}[]")


def test_content_that_any_spec_names_is_attacked() -> None:
    attacked = {(each.kind, path) for each in TARGETS for path in paths_with(each.name, each.spec, "spec")}
    assert attacked | {("RedisCluster", "spec.pod[].configmap")} == set(named_by_specs())


# Trust.


def configuration(bundle: bytes) -> Obj:
    return {"webhooks": [{"name": "a", "clientConfig": {"caBundle": base64.b64encode(bundle).decode()}}] * 4}


BUNDLES = {name: change for name, change in CERTIFICATES.items() if "auth" in name or "DER" in name}


def bundle_of(name: str) -> bytes:
    target = next(target for target in TARGETS if target.has_certificate)
    return BUNDLES[name](target)["ca.crt"]


@pytest.mark.parametrize("name", BUNDLES)
async def test_hostile_ca_bundle_of_the_webhooks_costs_little(name: str) -> None:
    seen = [(MUTATING, configuration(bundle_of(name)))] * 2
    async with cost.bounded():
        authorities_in(seen)


@pytest.mark.parametrize("name", BUNDLES)
async def test_hostile_file_of_client_authorities_costs_little(name: str, tmp_path: Path) -> None:
    certificates = SelfSignedCertificates(Memory(), name="box-operator", hosts=frozenset({"a"}))
    await certificates.open()
    file, bundle = tmp_path / "ca.crt", bundle_of(name)
    end = b"-----END CERTIFICATE-----"
    accepted = b"".join(each + end for each in bundle.split(end)[:MAX_CLIENT_AUTHORITIES])
    for content in (bundle, accepted):
        file.write_bytes(content)
        async with cost.bounded():
            with contextlib.suppress(ValueError):
                certificates.for_clients_of(file)


@pytest.mark.parametrize("name", CERTIFICATES)
async def test_hostile_serving_certificate_costs_little(name: str, tmp_path: Path) -> None:
    target = next(target for target in TARGETS if target.has_certificate)
    content = {**target.secrets[target.name], **CERTIFICATES[name](target)}
    for key, value in content.items():
        (tmp_path / key).write_bytes(value)
    certificates = FileCertificates(tmp_path)
    async with cost.bounded():
        with contextlib.suppress(ValueError):
            await certificates._refresh()
