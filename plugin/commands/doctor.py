"""`kubectl platform doctor`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable

import click

from plugin import health
from plugin.commands.base import command, now
from plugin.commands.logs import OPERATORS, deployments
from plugin.databases import ALL, STORAGE_CLASS
from plugin.health import BAD, GOOD, UNKNOWN, WARNING, Finding
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import listed
from plugin.session import Session
from shared.kubernetes.errors import Forbidden, NotFound
from shared.kubernetes.kinds import LEASE, POD, Kind, Obj

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

STYLES = {GOOD: "green", WARNING: "yellow", BAD: "red", UNKNOWN: "yellow"}


@command("doctor", examples=["doctor", "doctor -o json"], prints=listed(Finding))
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def doctor(session: Session, output: Output, operator_namespace: str) -> None:
    """Check whether the platform can work here.

    It checks versions, CRDs, operators, leaders, webhooks, storage and time. What you may not read is `unknown`.
    The exit code is 1 if a check found an error.
    """
    found = await _checked("Kubernetes", lambda: _version(session))
    found += await _checked("kinds", lambda: _kinds(session))
    found += await _checked("operators", lambda: _operators(session, operator_namespace))
    found += await _checked("webhooks", lambda: _webhooks(session))
    found += await _checked("storage", lambda: _storage(session))
    found.append(health.clock(await session.skew()))
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


async def _operators(session: Session, namespace: str) -> list[Finding]:
    running = await deployments(session, namespace)
    namespaces = sorted({each["metadata"]["namespace"] for each in running})
    pods = [pod for found in namespaces for pod in await session.objects(POD, found, OPERATORS)]
    leases = [lease for found in namespaces for lease in await session.objects(LEASE, found)]
    target = session.target.flags
    return [*health.operators(running, pods, target), *health.leases(running, leases, now(), target)]


async def _webhooks(session: Session) -> list[Finding]:
    found = [each for kind in (VALIDATING, MUTATING) for each in await session.objects(kind, None)]
    groups = {database.kind.group for database in ALL}
    return list(health.webhooks(each for each in found if _concerns(each, groups)))


def _concerns(configuration: Obj, groups: set[str]) -> bool:
    """Whether a webhook is about a kind of the platform."""
    hooks = configuration.get("webhooks") or ()
    return any(groups & set(rule.get("apiGroups") or ()) for hook in hooks for rule in hook.get("rules") or ())


async def _storage(session: Session) -> list[Finding]:
    return [health.storage(await session.objects(STORAGE_CLASS, None))]


COMMANDS = (doctor,)
