"""Nodes that do not trust the certificate authority of the mounted Secret any longer. Pure.

A node loads another authority without a restart, but only by a command of a client that it accepts (`credentials`).
Once the keys of all certificates that it accepts are deleted, only a restart is left.
"""

from __future__ import annotations

from operators.redis.api.node_entries import REPLICA_ROLE
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names
from operators.redis.objects.names import CERTIFICATE_MARK
from operators.redis.objects.redis_conf import appends
from operators.redis.state.observed import outlives_pods
from operators.redis.steps.rollout_markers import is_applied
from shared.kubernetes.accessors import is_terminating
from shared.pki.secret_names import authority_secret
from shared.runtime.plan import PASS, Step
from shared.status.health import listed
from shared.steps import lost_authority


def restart_distrusting(seen: Assessment) -> Step:
    """Restart nodes that neither have loaded the present certificate nor accept the operator, which would send it.

    All others follow the first one together: until all have restarted, a replica could be elected that lacks the writes
    of its primary.
    """
    resource = seen.resource
    mounted = seen.secrets.mounted
    if not resource.formed or mounted is None:
        return PASS
    rejecting = [
        each
        for each in seen.instances
        if each.pod and each.distrusts and not is_applied(each, CERTIFICATE_MARK, mounted.mark)
    ]
    is_self = resource.spec.tls.mode == "self"
    return lost_authority.restart_distrusting(
        resource.obj,
        authority_secret(resource.name) if is_self else names.server_secret(resource),
        "node",
        [each for each in seen.instances if each.pod or each in seen.staying],
        sorted(rejecting, key=lambda each: (not (each.recorded and each.recorded.role == REPLICA_ROLE), -each.number)),
        is_back=lambda each: each.report is not None and not each.leaving,
        splits=True,
        is_prepared=True,
        refusal=_refusal(seen),
    )


def _refusal(seen: Assessment) -> str:
    resource = seen.resource
    # A server that does not answer may restart too, now or once it is known why.
    used = (each for each in seen.instances if (seen.is_needed(each.id) if each.report else each.pod))
    ending = tuple(each.volume["metadata"]["name"] for each in used if each.volume and is_terminating(each.volume))
    if ending:
        lacks = f"PersistentVolumeClaim {listed(ending)}: being deleted"
    elif not outlives_pods(resource):
        lacks = "there is no spec.storage"
    elif not appends(resource, seen.template_text) or not seen.starts_with_log:
        lacks = 'appendonly is "no"'
    elif not resource.spec.rolls:
        return "spec.pod[0].updateStrategy is OnDelete: delete these pods to let them use it."
    else:
        return ""
    return (
        f"A restart could delete the data ({lacks}), so nothing is changed. Restore the former Secrets from a backup; "
        "or, if the data may be lost, delete the pods."
    )
