"""Members that do not trust the certificate authority of the operator any longer. Pure.

etcd reads the authorities that it trusts only when it starts; the pod records which ones (annotation SECRETS).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects.names import CONTAINER, SECRETS
from operators.etcd.state.observed import Instance
from shared.kubernetes.accessors import annotation
from shared.kubernetes.pods import running_since
from shared.pki.secret_names import authority_secret
from shared.runtime.plan import PASS, Step
from shared.status.health import listed
from shared.steps import lost_authority
from shared.steps.rolling_update import may_evict

STARTING = timedelta(seconds=10)
"""Time after which a member that runs has accepted its certificates. Without the others, it is not ready."""


def restart_distrusting(seen: Assessment) -> Step:
    """Restart members that reject the certificate of the operator, or of members that have restarted."""
    resource = seen.resource
    issuers, made = seen.secrets.issuers, seen.stateful_set
    if issuers is None or not issuers.trusted or not resource.recorded_cluster_id or made is None:
        return PASS
    own = [each for each in seen.instances if not each.kept_by]
    started = {each.name: annotation(each.pod_obj, SECRETS) for each in own if each.pod}
    rejecting = [each for each in own if issuers.are_rejected(started.get(each.name, ""))]
    splits = any(issuers.peer_is_rejected(started[each.name]) for each in rejecting)
    return lost_authority.restart_distrusting(
        resource.obj,
        authority_secret(resource.name),
        "member",
        [each for each in own if each.pod or each.number < made["spec"]["replicas"]],
        sorted(rejecting, key=lambda each: (each.ready, each.number)),
        is_back=lambda each: _has_run(each, seen.now) if splits else each.ready,
        splits=splits,
        is_prepared=annotation(made["spec"]["template"], SECRETS) == issuers.trusted[0],
        # Pods on kept volumes are not ready, so that the budget may allow no eviction before a user releases them.
        evicts=not (splits or len(own) < len(seen.instances))
        and may_evict(resource.spec.pod_disruption_budget, resource.spec.size),
        # A claim that no member uses has no data of the cluster.
        refusal=_refusal(seen, [each for each in seen.instances if each in rejecting or each.member]),
    )


def _has_run(instance: Instance, now: datetime) -> bool:
    since = running_since(instance.pod_obj, CONTAINER)
    is_leaving = instance.pod is None or instance.pod.leaving
    return since is not None and not is_leaving and now - since >= STARTING


def _refusal(seen: Assessment, members: Sequence[Instance]) -> str:
    """Return why these members must not restart, and the remedy; empty if they may."""
    ending = [each for each in members if seen.why_data_ends(each)]
    if not ending:
        return "" if seen.spec_applies else "No member restarts before the spec can be applied."
    names = listed(tuple(each.volume["metadata"]["name"] if each.volume else each.name for each in ending))
    return (
        f"A restart would delete the data of {names} ({seen.why_data_ends(ending[0])}), so nothing is changed. Restore "
        "the former Secrets from a backup; or save the keys with etcdctl in a pod, and create the cluster again."
    )
