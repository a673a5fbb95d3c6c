"""Labels and annotations of the pods of running members: bootstrap closed, and open for clients. Pure."""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import Closed
from operators.etcd.objects.names import CLIENTS, SERVES
from operators.etcd.state.observed import Instance
from operators.etcd.steps.data_loss import known_voters
from shared.kubernetes.accessors import label
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import PASS, Patch, Step


def close_bootstrap(seen: Assessment) -> Step:
    """Forbid the pod of a started member to bootstrap or join again, should its volume be found empty.

    The annotation is set before the member votes and before clients connect: from then on a lost volume must be
    detected.
    """
    change: Obj = {"metadata": {"annotations": bootstrap.annotated(seen.resource, Closed())}}
    started = (each for each in seen.instances if each.member and each.member.name)
    pods = (each.pod_obj for each in started if each.pod and not each.pod.leaving)
    return Step.do(*(Patch(POD, pod, change) for pod in pods if pod))


def admit_clients(seen: Assessment) -> Step:
    """Route clients to every voter, and to no other pod: the Service selects pods by a label.

    A learner rejects clients. A pod without a member may have the data of a cluster that a recovery replaced.
    """
    return Step.do(
        *(
            Patch(POD, instance.pod_obj, {"metadata": {"labels": {SERVES: CLIENTS if _votes(instance) else None}}})
            for instance in seen.instances
            if seen.members is not None and instance.pod_obj and instance.pod and not instance.pod.leaving
        )
    )


def readmit_clients(seen: Assessment) -> Step:
    """Route clients to voters whose pods were recreated, also while a step before `admit_clients` stops.

    While a learner joins or a recovery keeps a volume, new pods lack the label. What those steps ensure is required of
    the state instead: the cluster is recorded, its pods cannot bootstrap, and etcd has the requested authentication.
    """
    auth, recorded = seen.resource.spec.auth, seen.resource.recorded_cluster_id
    is_protected = auth is None or not auth.enabled or seen.auth_enabled or seen.denied
    if not is_protected or not recorded or seen.cluster_id not in (recorded, 0):
        return PASS
    voters = [each for each in seen.instances if each.ready and _votes(each)]
    if seen.members is None:  # a readiness probe needs a leader, which may be one of the former cluster on kept volumes
        names = {voter.name for voter in known_voters(seen)}
        known = (each for each in seen.instances if each.name in names and each.is_out_of_reach)
        voters = [each for each in known if each.disk == each.recorded != "" and not each.kept_by]
    change: Obj = {"metadata": {"labels": {SERVES: CLIENTS}}}
    unlabelled = (each.pod_obj for each in voters if each.pod_obj and label(each.pod_obj, SERVES) != CLIENTS)
    return Step.do(*(Patch(POD, pod, change) for pod in unlabelled if bootstrap.is_closed(pod)))


def _votes(instance: Instance) -> bool:
    return instance.member is not None and not instance.member.learner
