"""Labels and annotations of the pods of running members: bootstrap closed, and open for clients. Pure."""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import Closed
from operators.etcd.objects.names import CLIENTS, SERVES
from operators.etcd.state.observed import Instance
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import Patch, Step


def close_bootstrap(seen: Assessment) -> Step:
    """Forbid the pod of a started member to bootstrap or join again, should its volume be found empty.

    The annotation is set before the member votes and before clients connect: from then on a lost volume must be
    detected.
    """
    change: Obj = {"metadata": {"annotations": bootstrap.annotated(seen.resource, Closed())}}
    return Step.do(
        *(
            Patch(POD, instance.pod_obj, change)
            for instance in seen.instances
            if instance.pod_obj
            and instance.pod
            and not instance.pod.leaving
            and instance.member
            and instance.member.name
        )
    )


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


def _votes(instance: Instance) -> bool:
    return instance.member is not None and not instance.member.learner
