"""What the pod of a member that has begun may do: not begin a second time, and take clients. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import bootstrap
from operators.etcd.objects.bootstrap import Closed
from operators.etcd.objects.names import CLIENTS, SERVES
from operators.etcd.observe import Observed
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import Patch, Step


def close_bootstrap(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """The pod of a member that has begun may not begin, or join, a second time, should its disk be found empty.

    Before it has a vote, and before clients come: from then on a disk that is gone must be known to be gone.
    """
    change: Obj = {"metadata": {"annotations": bootstrap.annotated(resource, Closed())}}
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


def admit_clients(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Clients are sent to every voter: the Service selects pods by a label that learners' pods are made without."""
    change: Obj = {"metadata": {"labels": {SERVES: CLIENTS}}}
    return Step.do(
        *(
            Patch(POD, instance.pod_obj, change)
            for instance in seen.instances
            if instance.pod_obj
            and instance.pod
            and not instance.pod.leaving
            and instance.member
            and not instance.member.learner
        )
    )
