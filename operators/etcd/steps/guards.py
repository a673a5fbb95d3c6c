"""Guards for what the operator does not own: claims of other owners, members that a user added. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup.pods import recovery_pod_name, restore_pod_name
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.quorum import member_names
from operators.etcd.objects.names import CLUSTER_UID, COMPONENT, owner, peer_url_of
from operators.etcd.reasons import UNKNOWN_MEMBER, VOLUME_IN_THE_WAY
from operators.etcd.state.observed import Instance
from operators.etcd.steps.data_loss import pods_of_members
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import controller_of, owner_of
from shared.runtime.plan import PASS, Step
from shared.status.reasons import FOREIGN_OBJECT
from shared.steps import claims


def refuse_unknown_members(seen: Assessment) -> Step:
    """Block while etcd lists members without a pod of this cluster: their health is unknown."""
    if not seen.unknown_members:
        return PASS
    names, resource = member_names(seen, seen.unknown_members), seen.resource
    own = {each.name for each in seen.instances if each.member is None and (each.pod_obj or each.volume)}
    named = {each.id: each.name for each in seen.unknown_members if each.name in own}
    pods = named | pods_of_members(seen)
    updates = {each: f"update {each:x} --peer-urls={peer_url_of(resource, pods[each])}" for each in pods}
    found = (updates.get(each.id, f"remove {each.id:x} (if nothing needs it)") for each in seen.unknown_members)
    repair = "; ".join(f"etcdctl member {change}" for change in found)
    return Step.blocked(
        UNKNOWN_MEMBER,
        f"etcd lists {names}: no pod of this cluster has this name and address. A user added the member, or changed "
        f"its address. The operator changes no members until that is undone: {repair}",
    )


def is_foreign(resource: EtcdCluster, instance: Instance) -> bool:
    """Whether the volume of an instance belongs to another owner than this cluster."""
    return instance.volume is not None and claims.is_foreign(
        instance.volume, CLUSTER_UID, name=resource.name, uid=resource.uid
    )


def refuse_stray_pods(seen: Assessment) -> Step:
    """Block while no quorum answers, and a pod of the name of a restore or recovery has another owner.

    Its result is not used. It is not deleted either, and it may use the volume on which a member would start.
    """
    resource = seen.resource
    makers = (restore_pod_name(resource), recovery_pod_name(resource))
    pod = next((seen.stray_pods[name] for name in makers if name in seen.stray_pods), None)
    if pod is None or seen.members is not None:
        return PASS
    controller = controller_of(pod)
    if controller is not None and owner(resource, "").was(controller):
        message = stray(pod, "That resource is deleted, and Kubernetes is about to delete the pod.")
        return Step.wait(FOREIGN_OBJECT, message, requeue=claims.RETRY_SECONDS)
    what = "It may use the volume of a member: until you delete it, no member is started, restored or recovered."
    return Step.blocked(FOREIGN_OBJECT, stray(pod, what), requeue=claims.RETRY_SECONDS)


def stray(pod: Obj, consequence: str) -> str:
    """Describe a pod of a name that the cluster needs, and which the cluster does not control."""
    by = f", but by {owner_of(pod)}" if controller_of(pod) is not None else ""
    return f"Pod {pod['metadata']['name']} is not controlled by this EtcdCluster{by}. {consequence}"


def refuse_foreign_volumes(seen: Assessment) -> Step:
    """Block if a claim of this name has another owner: it is neither used, nor changed, nor deleted.

    The labels of the cluster's own claims are restored.
    """
    found = [instance.volume for instance in seen.instances if instance.volume]
    own = owner(seen.resource, seen.settings.operator)
    message = claims.refusal(found, own, CLUSTER_UID, may_adopt=seen.stateful_set is None)
    if not message:
        return claims.keep_labels(found, own, COMPONENT, CLUSTER_UID)
    return Step.blocked(VOLUME_IN_THE_WAY, message, requeue=claims.RETRY_SECONDS)
