"""Restarts servers that do not trust the present certificate authority, because the former one was deleted. Pure.

With `tls.mode: self`, only Secrets have the keys of the authority and of the certificates. Once they are deleted,
nothing can sign a certificate that a running server accepts. Only a restart makes it load the present authority. Data
on a volume survives that.

One server restarts first. When it is back, the others follow: one by one if they accept its certificate, otherwise
together. In the latter case, servers that have restarted and the others reject each other, so that the outage ends when
all have restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step, announced
from shared.status.health import listed
from shared.status.reasons import AUTHORITY_UNTRUSTED
from shared.steps.instance import Instance
from shared.steps.rolling_update import stop

RETRY_SECONDS = 5.0
"""Time until servers are observed again that have restarted, or that must not."""

InstanceT = TypeVar("InstanceT", bound=Instance)


def restart_distrusting(
    resource: Obj,
    secret: str,
    noun: str,
    instances: Sequence[InstanceT],
    rejecting: Sequence[InstanceT],
    *,
    is_back: Callable[[InstanceT], bool],
    splits: bool,
    is_prepared: bool,
    evicts: bool = False,
    refusal: str = "",
) -> Step:
    """Restart the servers that reject the certificates of the present authority.

    Args:
        secret: name of the Secret with the authority.
        noun: term for a server.
        instances: the instances that should have a server.
        rejecting: instances whose server does not trust the authority, in the order in which they restart.
        is_back: whether a server that has restarted needs nothing more before others may.
        splits: whether these servers also reject the certificates of those that have restarted.
        is_prepared: whether new pods use the present authority.
        evicts: whether pods that serve are evicted, within their budget, rather than deleted.
        refusal: why they must not restart, and the remedy; empty if they may.
    """
    if not rejecting:
        return PASS
    trust = f"No {noun} trusts" if len(rejecting) == len(instances) else f"{_listed(rejecting)}: not trusting"
    consequence, restarted = refusal, tuple[InstanceT, ...]()
    if not refusal and is_prepared:
        consequence, restarted = _next(instances, rejecting, is_back, splits=splits)
    message = (
        f"{trust} the certificate authority of Secret {secret}, because the former one was deleted or replaced. "
        f"{consequence or 'Preparing new pods.'}"
    )
    if refusal:
        return Step.blocked(AUTHORITY_UNTRUSTED, message, requeue=RETRY_SECONDS)
    stopped = (stop(each, evicts=evicts) for each in restarted)
    step = Step.wait(AUTHORITY_UNTRUSTED, message, *stopped, warning=True, requeue=RETRY_SECONDS)
    return announced(resource, step) if restarted else step


def _next(
    instances: Sequence[InstanceT],
    rejecting: Sequence[InstanceT],
    is_back: Callable[[InstanceT], bool],
    *,
    splits: bool,
) -> tuple[str, tuple[InstanceT, ...]]:
    """Return a sentence about the next restart, and the instances that restart now."""
    staying = tuple(each for each in rejecting if each.pod and not each.pod.leaving)
    following = tuple(each for each in staying if not each.runs)  # nothing depends on them
    if not following:
        others = [each for each in instances if each not in (staying if splits else staying[:1])]
        awaited = [each for each in others if not is_back(each)]
        has_first = splits and len(awaited) < len(others)
        if awaited and not has_first:
            problems = (f"{each.name} {each.pod.hindrance}." for each in awaited if each.pod and each.pod.hindrance)
            return f"Waiting for {_listed(awaited)}, then the next ones restart. {next(problems, '')}".strip(), ()
        following = staying if has_first else staying[:1]
    if not following:
        return "They are terminating.", ()
    return f"Restarting {_listed(following)}: a server loads it when it starts.", following


def _listed(instances: Sequence[Instance]) -> str:
    return listed(tuple(each.name for each in instances))
