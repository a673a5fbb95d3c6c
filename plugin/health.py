"""Checks of `doctor`: whether the platform can work in this cluster, and for this user. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from plugin.databases import SERVERS, Database
from plugin.overview import duration, since
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pod_problems import problem_of, restarts
from shared.runtime.shards import lease_of

GOOD, WARNING, BAD, UNKNOWN = "ok", "warning", "error", "unknown"

MAX_SKEW_SECONDS = 30.0
"""Difference of clocks from which times in messages mislead; certificates are issued five minutes in the past."""

MAX_RELEASED_SECONDS = 60.0
"""Time after which another replica should have acquired a Lease that its holder released."""

MIN_MINOR = 30
"""Oldest supported minor version of Kubernetes (docs/reference/compatibility.md)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        check: name of the check.
        state: `ok`, `warning`, `error`, or `unknown` if the user may not see it.
        text: description of the result.
        fix: command or page that helps; empty if nothing is wrong.
    """

    check: str
    state: str
    text: str
    fix: str = ""


def version(found: Obj) -> Finding:
    """Check the version of Kubernetes.

    Args:
        found: response of /version.
    """
    text = str(found.get("gitVersion") or "unknown")
    minor = "".join(filter(str.isdigit, str(found.get("minor") or "")))
    if not minor:
        return Finding("Kubernetes", UNKNOWN, f"The API server does not report its version ({text}).")
    if int(minor) < MIN_MINOR:
        fix = "upgrade Kubernetes: docs/reference/compatibility.md lists the tested versions"
        return Finding("Kubernetes", WARNING, f"Kubernetes {text} is older than 1.{MIN_MINOR}.", fix)
    return Finding("Kubernetes", GOOD, f"Kubernetes {text}.")


def kinds(served: Mapping[str, bool]) -> Iterator[Finding]:
    """Check which kinds the cluster serves.

    Args:
        served: whether the API server serves each kind, by its name.
    """
    for name, found in served.items():
        if found:
            yield Finding(f"kind {name}", GOOD, "The CRD is installed.")
        else:
            fix = "install the platform, or the chart of this operator: docs/how-to/install.md"
            yield Finding(f"kind {name}", WARNING, "The CRD is not installed.", fix)


def operators(deployments: Sequence[Obj], pods: Sequence[Obj], target: Sequence[str] = ()) -> Iterator[Finding]:
    """Check the processes of the operators.

    Args:
        deployments: Deployments of operators.
        pods: pods of these Deployments.
        target: flags for the cluster, in commands that a user may copy.
    """
    for database in SERVERS:
        if not any(is_of(each, database) for each in deployments):
            fix = "docs/how-to/install.md; it may run in a namespace that you may not read"
            yield Finding(f"{database.operator} operator", WARNING, "No Deployment of it was found.", fix)
    for deployment in deployments:
        metadata, status = deployment["metadata"], accessors.status_of(deployment)
        where = shlex.join([f"deployment/{metadata['name']}", *target, "--namespace", metadata["namespace"]])
        desired = _desired(deployment)
        ready, updated = (status.get(name) or 0 for name in ("readyReplicas", "updatedReplicas"))
        image = ", ".join(each["image"] for each in _containers(deployment))
        check = f"operator {metadata['name']}"
        why = next(filter(None, (_problem(pod) for pod in pods if _belongs(pod, deployment))), "")
        if not desired:
            text, fix = "It has 0 replicas, so that nothing is reconciled.", f"kubectl scale {where} --replicas 1"
            yield Finding(check, WARNING, text, fix)
        elif ready < desired:
            state = BAD if not ready else WARNING
            yield Finding(
                check, state, f"{ready} of {desired} replicas are ready. {why}".strip(), f"kubectl describe {where}"
            )
        elif updated < desired or (status.get("replicas") or 0) > updated:
            text = f"Its rollout of {image} is not complete: earlier pods still run. {why}".strip()
            yield Finding(check, WARNING, text, f"kubectl rollout status {where}")
        else:
            yield Finding(check, GOOD, f"{ready} of {desired} replicas are ready ({image}).")


def leases(
    deployments: Iterable[Obj], found: Iterable[Obj], now: datetime, target: Sequence[str] = ()
) -> Iterator[Finding]:
    """Check that a replica of each operator, or of each of its shards, leads: only it changes anything.

    The holder of the Lease of an operator is a replica, or names the number of shards. Leases of shards that no longer
    exist stay, and mean nothing (docs/how-to/shard-an-operator.md).

    Args:
        found: Leases of the namespaces of the Deployments.
        target: flags for the cluster, in commands that a user may copy.
    """
    specs = {(each["metadata"]["namespace"], each["metadata"]["name"]): each.get("spec") or {} for each in found}
    running = [each for each in deployments if _desired(each)]
    for database in SERVERS:
        for namespace in sorted({each["metadata"]["namespace"] for each in running if is_of(each, database)}):
            name = f"{database.operator}-operator"
            count, _, suffix = str(specs.get((namespace, name), {}).get("holderIdentity")).rpartition("-")
            shards = int(count) if suffix == "shards" and count.isdecimal() else 0
            for lease in (name, *(lease_of(name, index) for index in range(shards))):
                yield _leader(f"leader of {lease}", specs.get((namespace, lease), {}), now, target)


def _leader(check: str, spec: Obj, now: datetime, target: Sequence[str]) -> Finding:
    holder, age = spec.get("holderIdentity"), since(spec.get("renewTime"), now)
    if not holder or age is None:
        state = BAD if age and age > MAX_RELEASED_SECONDS else WARNING
        fix = f"read the operator's log: {shlex.join(['kubectl', 'platform', 'logs', *target])}"
        return Finding(check, state, "No replica leads.", fix)
    if age > 4 * int(spec.get("leaseDurationSeconds") or 15):
        text = f"{holder} renewed its Lease {duration(age)} ago."
        return Finding(check, BAD, text, "check the operator's pods and log: nothing is changed without a leader")
    return Finding(check, GOOD, f"{holder} leads.")


def is_of(deployment: Obj, database: Database) -> bool:
    """Whether a Deployment runs the operator of a kind."""
    return database.operator in accessors.label(deployment, "app.kubernetes.io/name")


def webhooks(configurations: Iterable[Obj]) -> Iterator[Finding]:
    """Check that the API server can verify the webhooks: without a CA, each change of a resource is refused.

    Args:
        configurations: ValidatingWebhookConfigurations and MutatingWebhookConfigurations of the platform.
    """
    for configuration in configurations:
        name = configuration["metadata"]["name"]
        hooks = configuration.get("webhooks") or ()
        missing = [hook for hook in hooks if not (hook.get("clientConfig") or {}).get("caBundle")]
        if missing:
            ignored = all(hook.get("failurePolicy") == "Ignore" for hook in missing)
            state, effect = (WARNING, "not checked") if ignored else (BAD, "refused")
            names = ", ".join(hook["name"] for hook in missing)
            text = f"{names} has no caBundle, so that changes of resources are {effect}."
            yield Finding(f"webhook {name}", state, text, "the operator sets it: read its log")
        else:
            yield Finding(f"webhook {name}", GOOD, f"{len(hooks)} webhooks have a CA.")


def storage(classes: Sequence[Obj]) -> Finding:
    """Check that claims without a storage class get volumes."""
    mark = "storageclass.kubernetes.io/is-default-class"
    default = [each["metadata"]["name"] for each in classes if accessors.annotation(each, mark) == "true"]
    if default:
        return Finding("storage", GOOD, f"The default StorageClass is {', '.join(default)}.")
    names = ", ".join(each["metadata"]["name"] for each in classes) or "none"
    fix = f"set storage.storageClassName, or mark a class with the annotation {mark}"
    return Finding("storage", WARNING, f"No StorageClass is the default (classes: {names}).", fix)


def clock(skew: float | None) -> Finding:
    """Check the difference between the clocks of this machine and of the API server.

    Args:
        skew: seconds by which this machine is ahead; None if the API server does not report its time.
    """
    if skew is None:
        return Finding("time", UNKNOWN, "The API server does not report its time.")
    if abs(skew) > MAX_SKEW_SECONDS:
        ahead = "ahead of" if skew > 0 else "behind"
        text = f"This machine's clock is {duration(abs(skew))} {ahead} that of the API server."
        return Finding("time", WARNING, text, "synchronize it: certificates and ages are judged by these clocks")
    return Finding("time", GOOD, "The clocks of this machine and of the API server agree.")


def _desired(deployment: Obj) -> int:
    """Return the desired number of replicas."""
    return int((deployment.get("spec") or {}).get("replicas", 1))


def _containers(deployment: Obj) -> list[Obj]:
    template = (deployment.get("spec") or {}).get("template") or {}
    return (template.get("spec") or {}).get("containers") or []


def _belongs(pod: Obj, deployment: Obj) -> bool:
    labels = pod["metadata"].get("labels") or {}
    selected = ((deployment.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    same = pod["metadata"].get("namespace") == deployment["metadata"].get("namespace")
    return bool(selected) and same and selected.items() <= labels.items()


def _problem(pod: Obj) -> str:
    found = problem_of(pod).text or restarts(pod).text
    return f"{pod['metadata']['name']}: {found}." if found else ""
