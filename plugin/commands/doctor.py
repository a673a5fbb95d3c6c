"""`kubectl platform doctor`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import click

from plugin import health, infrastructure, version
from plugin.commands.base import command, now
from plugin.commands.logs import OPERATORS, deployments
from plugin.databases import ALL, ETCD, MEMCACHED, REDIS, SERVERS, STORAGE_CLASS, ZONE, Database
from plugin.health import BAD, GOOD, UNKNOWN, WARNING, Finding, is_of
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import listed
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.client import Request
from shared.kubernetes.errors import Forbidden, KubeError, NotFound
from shared.kubernetes.kinds import CRD, LEASE, NODE, POD, SERVICE, Kind, Obj

VALIDATING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
MUTATING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)

ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SYSTEM = "kube-system"

TRIALS: Mapping[Database, Obj] = {
    MEMCACHED: {"size": 1},
    ETCD: {"size": 1, "version": "3.6.16"},
    REDIS: {"replicas": 3, "replicasPerMaster": 0},
}
"""Specs for the dry run; one that a webhook refuses shows as well that it answers."""

STYLES = {GOOD: "green", WARNING: "yellow", BAD: "red", UNKNOWN: "yellow"}


@command(
    "doctor",
    examples=["doctor", "doctor --operator-namespace platform-system", "doctor -o json"],
    prints=listed(Finding),
)
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def doctor(session: Session, output: Output, operator_namespace: str) -> None:
    """Check whether the platform can work here.

    It checks the versions of Kubernetes, CRDs, operators and this plugin; leaders; webhooks, their certificates, and
    with a dry run whether the API server reaches them; storage; DNS; and clocks. What you may not read is `unknown`.
    Each finding states what helps. The exit code is 1 if a check found an error.
    """
    skew = await session.skew()
    server_time = now() - timedelta(seconds=skew or 0)
    found = await _checked("Kubernetes", lambda: _version(session))
    found += await _checked("kinds", lambda: _kinds(session))
    found += await _checked("operators", lambda: _operators(session, operator_namespace, server_time))
    found += await _checked("version CRD", lambda: _crds(session, operator_namespace))
    found += await _checked("webhooks", lambda: _webhooks(session, server_time))
    found += await _checked("storage", lambda: _storage(session))
    found += await _checked("DNS", lambda: _dns(session))
    found.append(health.clock(skew))
    if output.as_json:
        output.json(found)
    else:
        for each in found:
            output.text(f"{each.state:<8} {each.check}: {each.text}", style=STYLES[each.state])
            if each.fix:
                output.text(f"         → {each.fix}")
    if bad := [each.check for each in found if each.state == BAD]:
        raise Problem(
            f"{len(bad)} of {len(found)} checks found an error: {', '.join(bad)}", "each line states what helps"
        )


async def _checked(name: str, check: Callable[[], Awaitable[Iterable[Finding]]]) -> list[Finding]:
    """Return the findings of a check; that they are unknown, if the user may not read what it needs."""
    try:
        return list(await check())
    except NotFound as error:  # a kind that this cluster does not serve
        return [Finding(name, UNKNOWN, f"The API server does not serve this: {error}", "upgrade Kubernetes")]
    except Forbidden as error:
        fix = (
            "request the right from the administrator of the cluster; one namespace is enough with --operator-namespace"
        )
        return [Finding(name, UNKNOWN, f"You may not read this: {error}", fix)]


async def _version(session: Session) -> list[Finding]:
    return [health.version(await session.raw("/version"))]


async def _kinds(session: Session) -> list[Finding]:
    return list(health.kinds({database.kind.name: await _served(session, database.kind) for database in ALL}))


async def _served(session: Session, kind: Kind) -> bool:
    with contextlib.suppress(NotFound):
        served = await session.raw(f"/apis/{kind.group}/{kind.version}")
        return any(each.get("name") == kind.plural for each in served.get("resources") or ())
    return False


async def _operators(session: Session, namespace: str, server_time: datetime) -> list[Finding]:
    running = await deployments(session, namespace)
    namespaces = sorted({each["metadata"]["namespace"] for each in running})
    pods = [pod for found in namespaces for pod in await session.objects(POD, found, OPERATORS)]
    leases = [lease for found in namespaces for lease in await session.objects(LEASE, found)]
    target = session.target.flags
    return [
        *health.operators(running, pods, target),
        *infrastructure.versions(running),
        *health.leases(running, leases, server_time, target),
        *infrastructure.clocks([each for each in leases if _is_own(each)], server_time),
    ]


def _is_own(lease: Obj) -> bool:
    return str(lease["metadata"]["name"]).startswith(tuple(f"{each.operator}-operator" for each in SERVERS))


async def _crds(session: Session, namespace: str) -> list[Finding]:
    names = {database.kind.name: f"{database.kind.plural}.{database.kind.group}" for database in ALL}
    found = {kind: await session.kube.find(CRD, None, name) for kind, name in names.items()}
    running = await deployments(session, namespace)
    versions = {
        database.operator: version.of_operator(each) for each in running for database in ALL if is_of(each, database)
    }
    return list(infrastructure.crds(found, versions))


async def _webhooks(session: Session, server_time: datetime) -> list[Finding]:
    groups = {database.kind.group for database in ALL}
    every = [each for kind in (VALIDATING, MUTATING) for each in await session.objects(kind, None)]
    configurations = [each for each in every if _concerns(each, groups)]
    found = [*health.webhooks(configurations), *infrastructure.authorities(configurations, server_time)]
    found += await _checked("webhook services", lambda: _endpoints(session, configurations))
    for database in SERVERS:
        if own := [each for each in configurations if _concerns(each, {database.kind.group})]:
            found.append(await _trial(session, database, own))
    return found


async def _endpoints(session: Session, configurations: Sequence[Obj]) -> list[Finding]:
    services: dict[tuple[str, str], bool] = {}
    for hook in (hook for each in configurations for hook in each.get("webhooks") or ()):
        if service := (hook.get("clientConfig") or {}).get("service"):
            key = str(service.get("namespace")), str(service.get("name"))
            services[key] = services.get(key, False) or hook.get("failurePolicy") != "Ignore"
    namespaces = sorted({namespace for namespace, _ in services})
    slices = {namespace: await session.objects(ENDPOINT_SLICE, namespace) for namespace in namespaces}
    return list(infrastructure.endpoints(services, slices, session.target.flags))


async def _trial(session: Session, database: Database, configurations: Iterable[Obj]) -> Finding:
    """Let the API server create a resource in a dry run, for which it calls the webhooks."""
    hooks = [hook for each in configurations for hook in each.get("webhooks") or ()]
    is_strict = all(hook.get("failurePolicy") != "Ignore" for hook in hooks)
    kind, error = database.kind, None
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "platform-doctor", "namespace": session.namespace},
        "spec": TRIALS[database],
    }
    try:
        await session.send(Request("POST", kind.path(session.namespace), {"dryRun": "All"}, body))
    except KubeError as raised:
        error = raised
    return infrastructure.trial(database, session.namespace, error, is_strict=is_strict)


def _concerns(configuration: Obj, groups: set[str]) -> bool:
    """Whether a webhook is about a kind of the platform."""
    hooks = configuration.get("webhooks") or ()
    return any(groups & set(rule.get("apiGroups") or ()) for hook in hooks for rule in hook.get("rules") or ())


async def _storage(session: Session) -> list[Finding]:
    classes = await session.objects(STORAGE_CLASS, None)
    zones: set[str] | None = None
    with contextlib.suppress(Forbidden, NotFound):
        zones = {zone for each in await session.objects(NODE, None) if (zone := accessors.label(each, ZONE))}
    found = infrastructure.storage_classes(classes, zones, session.target.flags)
    return [health.storage(classes), *found]


async def _dns(session: Session) -> list[Finding]:
    services = await session.objects(SERVICE, SYSTEM, "k8s-app=kube-dns")
    slices = await session.objects(ENDPOINT_SLICE, SYSTEM) if services else []
    return [infrastructure.dns(services, slices, session.target.flags)]


COMMANDS = (doctor,)
