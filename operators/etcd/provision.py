"""Steps that keep what members need around them: names, budget, Secrets, room on their volumes. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.etcd import certificates, resources
from operators.etcd.api import EtcdCluster
from operators.etcd.flags import QUOTA
from operators.etcd.issuing import Issuing
from operators.etcd.observe import Observed
from operators.etcd.resources import SECRETS
from operators.etcd.settings import Settings
from shared.kube import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, SERVICE, STATEFUL_SET, Obj
from shared.ownership import NotOurs
from shared.plan import PASS, Apply, Delete, Patch, Progress, Step
from shared.podspec import smaller
from shared.secrets import AGAIN, INVALID

_EXCLUSIVE = {"minAvailable", "maxUnavailable"}

REFUSAL = "etcd.ydzs.io/growth-refused"
"""Annotation of volume claims: to what size, when, and in what words the API server last refused that they grow."""

NEXT = timedelta(hours=1)
"""A certificate that is due within it is looked at just then; else the usual look will do."""


def keep_services(settings: Settings, resource: EtcdCluster, _seen: Observed, _now: datetime) -> Step:
    """Members find each other by their names before they are ready, and clients those that take them."""
    own = resources.owner(resource, settings.operator)
    return Step.do(
        Apply(SERVICE, resources.headless_service(resource, own)),
        Apply(SERVICE, resources.client_service(resource, own)),
    )


def keep_disruption_budget(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """The PodDisruptionBudget exists as the spec, or care for the quorum, asks; or it is gone."""
    wanted = resources.disruption_budget(resource, resources.owner(resource, settings.operator))
    budget = seen.disruption_budget
    if wanted and budget and (wanted["spec"].keys() ^ budget["spec"].keys()) & _EXCLUSIVE:
        wanted = None  # made anew: Kubernetes refuses both, and somebody else's of them would stay through an apply
    if wanted is not None:
        return Step.do(Apply(DISRUPTION_BUDGET, wanted))
    return Step.do(Delete(DISRUPTION_BUDGET, budget)) if budget is not None else PASS


def keep_secrets(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Certificates that the operator sees to are there before members need them, and new before the old ones end."""
    own = resources.owner(resource, settings.operator)
    if resource.spec.tls.mode == "certManager":
        return Step.do(*(Apply(certificates.CERTIFICATE, ordered) for ordered in certificates.ordered(resource, own)))
    if resource.spec.tls.mode != "self":
        return PASS
    life = timedelta(seconds=settings.certificate_lifetime)
    issuing = Issuing(resource, own, seen.secrets.found, _started_with(seen), now, life)
    try:
        why, writes = issuing.next()
    except NotOurs as error:
        return Step.stall("NotOurs", str(error))
    if writes:
        return Step.wait("IssuingCertificates", f"Certificates are made: {why}.", *writes)
    due = issuing.due
    return Step(requeue=max((due - now).total_seconds(), 1.0)) if due is not None and due - now <= NEXT else PASS


def _started_with(seen: Observed) -> str:
    """The digest of Secrets that every pod was made for, and those to come will be; empty if they differ."""
    made = [place.pod_obj for place in seen.places if place.pod_obj is not None]
    if seen.stateful_set is not None:
        made.append(seen.stateful_set["spec"]["template"])
    digests = {(obj["metadata"].get("annotations") or {}).get(SECRETS, "") for obj in made}
    return digests.pop() if len(digests) == 1 and seen.stateful_set is not None else ""


def require_secrets(_resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """What members cannot start without is there; members that run are left as they are."""
    secrets = seen.secrets
    problem = secrets.problem
    if problem is not None:
        return _lacking(problem.reason, problem.message)
    for name, ends in sorted(secrets.expires.items()):
        if ends <= now:
            return _lacking(
                INVALID,
                f"spec.tls: Secret {name}: its certificate ended on {ends:%Y-%m-%d at %H:%M UTC}, and nobody takes it "
                "any more. Put a new one there.",
            )
    return PASS


def _lacking(reason: str, message: str) -> Step:
    return Step((), Progress.WAITING, reason, f"{message} Nothing was changed.", warning=True, requeue=AGAIN)


def grow_volumes(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Volumes are as large as the spec asks; they never get smaller.

    First each claim is asked to grow. Then the StatefulSet goes, whose template for volumes cannot be changed, and is
    made anew; its pods stay, and notice nothing.
    """
    size, stateful_set = resource.spec.storage.size, seen.stateful_set
    if resource.spec.storage.medium != "Volume" or stateful_set is None:
        return PASS
    bound = [place.volume for place in seen.places if place.volume and _phase(place.volume) == "Bound"]
    small = [volume for volume in bound if smaller(volume["spec"]["resources"]["requests"]["storage"], size)]
    tried = f"{size} at {now:%Y-%m-%dT%HZ}"  # so that a refusal counts for an hour: it may have been a quota's
    refused = {volume["metadata"]["name"]: note for volume in small if (note := _refusal(volume)).startswith(tried)}
    change = {
        "metadata": {"annotations": {REFUSAL: None}},
        "spec": {"resources": {"requests": {"storage": size}}},
    }
    asked = [
        Patch(PERSISTENT_VOLUME_CLAIM, volume, change, noted=(REFUSAL, tried))
        for volume in small
        if volume["metadata"]["name"] not in refused
    ]
    if asked:
        return Step(tuple(asked), Progress.UNDERWAY, "GrowingVolumes", f"Volumes are asked to grow to {size}.")
    if refused:
        name, note = next(iter(refused.items()))
        why = note.removeprefix(tried).lstrip(": ").rstrip(".")
        return Step.underway(
            "VolumesCannotGrow",
            f"PersistentVolumeClaim {name} cannot grow to {size}: {why}. Give its storage class allowVolumeExpansion: "
            "true, or raise the quota; it is tried again each hour.",
            warning=True,
        )
    made = resources.template_size(stateful_set)
    if made is not None and smaller(made, size) and seen.members is not None and resource.recorded_cluster_id:
        message = f"Volumes to come get {size}: the StatefulSet is made anew for it, around the pods that run."
        return Step.wait("GrowingVolumes", message, Delete(STATEFUL_SET, stateful_set, orphan=True))
    growing = [volume["metadata"]["name"] for volume in bound if smaller(_capacity(volume), size)]
    if growing:
        return Step.underway("GrowingVolumes", f"{', '.join(growing)} of {size}: the storage has yet to give it.")
    return PASS


def quota(resource: EtcdCluster, seen: Observed) -> int:
    """Bytes that a member's database may take: no more than before until every volume has the room that goes with it.

    A volume that is full before the quota is used up ends etcd, and nothing can be deleted any more.
    """
    wanted, storage, template = resource.spec.quota, resource.spec.storage, seen.stateful_set
    volumes = [place.volume for place in seen.places if place.volume and _phase(place.volume) == "Bound"]
    if template is None or not any(smaller(_capacity(volume), storage.size) for volume in volumes):
        return wanted
    (container,) = template["spec"]["template"]["spec"]["containers"]
    before = [argument for argument in container["args"] if argument.startswith(QUOTA)]
    return min([wanted, *(int(argument.removeprefix(QUOTA)) for argument in before)])


def _phase(claim: Obj) -> str:
    return str((claim.get("status") or {}).get("phase", ""))


def _capacity(claim: Obj) -> str:
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))


def _refusal(claim: Obj) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(REFUSAL, ""))
