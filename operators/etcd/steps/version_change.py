"""Changes of the version: which version the members may run, and downgrades. Pure.

The template of the StatefulSet decides which version starts on the data of a member, also if the kubelet or a user
replaces its pod. So the template changes to another series only with good evidence about every member; until then, it
keeps what runs (`permitted`). Patch releases of the series that runs are always permitted.

An upgrade needs a version and a log of each member that the next series can follow. A downgrade is etcd's own: once it
is enabled, the cluster runs as the earlier series, and each member converts its data. Only then does the template
change, and the pods are recreated one by one. etcd ends the downgrade when all members run the earlier series.

Source: https://etcd.io/docs/v3.6/downgrades/downgrade_3_6/
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from operators.etcd.api.versions import MIN_VERSION_BEFORE, SUPPORTED, Version, upgrade_refusal
from operators.etcd.client.commands import CancelDowngrade, EnableDowngrade
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.evidence import GOOD, Finding, bad, objection, unknown
from operators.etcd.membership.layout import begun
from operators.etcd.membership.raft_log import WRITES_SINCE, ran_later, readable
from operators.etcd.objects.names import CONTAINER, VERSION
from operators.etcd.reasons import DOWNGRADING, UPGRADE_BLOCKED, UPGRADE_REFUSED
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps.intervals import BLOCKED_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from shared.api.catalogue import dotted
from shared.api.image import Image
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import container_of
from shared.runtime.plan import PASS, Step

_LATER = "The change continues automatically."


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the members keep the version that runs.

    Attributes:
        refused: whether etcd does not support the change; otherwise the change waits.
    """

    why: str
    refused: bool = False


def hold(seen: Assessment) -> Hold | None:
    """Return why the members must not run the version of the spec yet; None if they may."""
    resource = seen.resource
    running, target = running_version(seen), resource.version
    if running is None or not begun(resource, seen):
        return None
    cluster = _cluster_version(seen)
    if cluster is None:
        same = target.series == running.series
        why = f"No quorum of members reports the version of the cluster, so that it keeps {running}. {_LATER}"
        return None if same else Hold(why)
    if refused := _refusal(seen, cluster):
        return Hold(refused, refused=True)
    if target.series < cluster.series:
        why = objection(resource, seen, partial(_may_downgrade, seen, cluster)) or "it is not enabled in etcd yet"
        return Hold(f"A downgrade to {target} needs all members with {dotted(cluster.series)}: {why}. {_LATER}")
    if target.series == running.series:  # decided before, with evidence about every member
        return None
    if target.series > cluster.series:
        return _unproven_upgrade(seen, target)
    members = (instance for instance in seen.instances if instance.member)
    if not seen.downgrade_target and all(_runs_later(cluster, instance) for instance in members):
        why = f"every member runs a later series than {dotted(cluster.series)}, to which etcd raises the cluster now"
        return Hold(f"{target} becomes a downgrade: {why}. {_LATER}")
    return _unproven_downgrade(seen, target)


def _refusal(seen: Assessment, cluster: Version) -> str:
    """Return why etcd does not support the change from the version of the cluster to that of the spec."""
    target = seen.resource.version
    if target.series < cluster.series and seen.resource.spec.storage.medium == "Memory":
        return (
            f"{target} is below {dotted(cluster.series)}, the current version of the cluster: etcd lets no member join "
            "during a downgrade, and with storage.medium Memory every member would have to join again. Set a version "
            f"of {dotted(cluster.series)}, or restore a backup into a new cluster."
        )
    return upgrade_refusal(_reported(seen), cluster, target)


def _unproven_upgrade(seen: Assessment, target: Version) -> Hold | None:
    """Require a version and a log of every member that the target can follow.

    If a downgrade is reverted, its first pod may not start. What the pod would run is then the only version in addition
    to the target that may have written to its data.
    """
    resource = seen.resource
    reverts = ran_later(resource, (target.major, target.minor - 1))
    least = MIN_VERSION_BEFORE.get(target.series, Version(0, 0, 0))
    if why := objection(resource, seen, partial(_has_version, least, reverts)):
        return Hold(f"An upgrade to {target} needs the version of every member: {why}. {_LATER}")
    if why := objection(resource, seen, lambda instance: readable(resource, instance, target.series)):
        return Hold(
            f"{target} reads only log entries that {dotted(WRITES_SINCE[target.series])} or later wrote, and a member "
            f"reads Raft's log from its last snapshot on: {why}. {_LATER} To speed this up, set spec.snapshotCount "
            "temporarily, for example to 100."
        )
    return None


def _unproven_downgrade(seen: Assessment, target: Version) -> Hold | None:
    """Require that every member has converted its data; the revert of an upgrade needs no conversion."""
    if not seen.downgrade_target and not ran_later(seen.resource, target.series):
        return None
    if why := objection(seen.resource, seen, partial(_is_converted, target)):
        return Hold(f"A downgrade to {target} needs the converted data of every member: {why}. {_LATER}")
    return None


def _runs_later(cluster: Version, instance: Instance) -> bool:
    """Return whether a member runs a later series than the cluster, or is about to.

    etcd raises the version of the cluster some seconds after the last member runs a later one. A pod of the earlier
    series that starts then ends at once. One such member prevents that, also if its pod cannot start.
    """
    if instance.status is not None:
        version: Version | None = Version.parse(instance.status.version)
    else:
        is_starting = instance.pod is not None and not instance.pod.problem
        version = _tagged(_image(instance.pod_obj)) if is_starting else None
    return version is not None and version.series > cluster.series


def _has_version(least: Version, reverts: bool, instance: Instance) -> Finding:
    image = _tagged(_image(instance.pod_obj)) if reverts else None
    version = Version.parse(instance.status.version) if instance.status else image
    if version is None:
        return unknown()
    return GOOD if version >= least else bad(f"runs {version}, which is below {least}")


def _is_converted(target: Version, instance: Instance) -> Finding:
    if instance.status is None:
        return unknown()
    if Version.parse(instance.status.version).series <= target.series:
        return GOOD
    storage = instance.status.storage_version
    if not storage:
        return unknown("does not report the format of its data")
    return GOOD if Version.parse(storage).series <= target.series else bad(f"still has data in the format of {storage}")


def running_version(seen: Assessment) -> Version | None:
    """Return the version that the template of the StatefulSet starts; None if nothing is known.

    Without a StatefulSet, the images of pods show it, or else the status. An image whose tag is no version was started
    by an earlier release of the operator, and then the latest version of a member counts.
    """
    noted = _parsed(annotation(seen.stateful_set, VERSION)) if seen.stateful_set is not None else None
    image = running_image(seen)
    return noted or (_tagged(image) if image else None) or max(_reported(seen), default=seen.resource.recorded_version)


def running_image(seen: Observed) -> str | None:
    """Return the image of the template, or else the earliest one of a pod; None if there is none."""
    if seen.stateful_set is not None and (image := _image(seen.stateful_set["spec"]["template"])):
        return image  # unless another client renamed the container
    images = [image for instance in seen.instances if (image := _image(instance.pod_obj))]
    return min(images, key=lambda image: _tagged(image) or Version(0, 0, 0), default=None)


def image(seen: Assessment) -> str:
    """Return the image of the members."""
    return seen.resource.image_reference(seen.settings.image_repository)


def permitted(seen: Assessment) -> Assessment:
    """Return the view with the version and image that run in the spec, while those of the spec are not permitted."""
    if hold(seen) is None:
        return seen
    update = {"image": running_image(seen), "version": str(running_version(seen))}
    return replace(seen, resource=seen.resource.changed_to(update))


def refuse_unsafe_upgrade(seen: Assessment) -> Step:
    """Report a version that the members must not run, or not yet.

    The members keep what runs. The other parts of a change that waits continue: some may resolve it.
    """
    waiting = hold(seen)
    if waiting is None:
        return PASS
    if waiting.refused:
        return Step.blocked(UPGRADE_REFUSED, f"{waiting.why} Nothing was changed.")
    return Step.progressing(UPGRADE_BLOCKED, waiting.why, warning=True, requeue=BLOCKED_POLL_SECONDS)


def change_downgrade(seen: Assessment) -> Step:
    """Enable etcd's downgrade to the series of the spec, or cancel one to another series.

    etcd compares the target with the version of the cluster only. A member that still runs a later series, because a
    user did not wait for the end of the downgrade before, could not start again two series below.
    """
    cluster, target, enabled = _cluster_version(seen), seen.resource.version, seen.downgrade_target
    if cluster is None:
        return PASS
    if enabled and (below := Version.parse(enabled).series) != target.series:
        running = running_version(seen)
        if running is not None and target.series < below == running.series:
            return PASS  # pods start as that series already, and their data must not be converted back: it ends first
        message = f"spec.version is {target}: cancelling the downgrade of the cluster to {dotted(below)}."
        return Step.wait(DOWNGRADING, message, CancelDowngrade(seen.endpoints, seen.secrets.access))
    if target.series >= cluster.series or _refusal(seen, cluster):
        return PASS
    change = f"Downgrade from {dotted(cluster.series)} to {dotted(target.series)}"
    if enabled:
        message = f"{change}: waiting until the cluster runs as {dotted(target.series)}."
        return Step.wait(DOWNGRADING, message, requeue=MEMBERSHIP_POLL_SECONDS)
    if objection(seen.resource, seen, partial(_may_downgrade, seen, cluster)):  # `hold` reports it
        return PASS
    call = EnableDowngrade(seen.endpoints, seen.secrets.access, dotted(target.series))
    return Step.wait(DOWNGRADING, f"{change}: enabling it in etcd.", call, requeue=MEMBERSHIP_POLL_SECONDS)


def may_start(seen: Assessment, instance: Instance) -> Finding:
    """Return what is known about whether a member can start as the version of the template."""
    running = running_version(seen)
    if running is None or not begun(seen.resource, seen):
        return GOOD
    return readable(seen.resource, instance, running.series)


def _may_downgrade(seen: Observed, cluster: Version, instance: Instance) -> Finding:
    """Return whether a member is a healthy voter that runs the series of the cluster."""
    found = _is_healthy_voter(seen, instance)
    if found is not GOOD or instance.status is None:
        return found
    version = Version.parse(instance.status.version)
    return GOOD if version.series == cluster.series else bad(f"runs {version}")


def _is_healthy_voter(seen: Observed, instance: Instance) -> Finding:
    if instance.member is not None and instance.member.learner:
        return bad("is a learner")
    if instance.status is None:
        return unknown()
    return GOOD if seen.healthy(instance) else bad("is not healthy")


def _cluster_version(seen: Observed) -> Version | None:
    """Return the version that all members run together as; None if no quorum reports it, or it is not decided."""
    if seen.members is None or not seen.cluster_version:
        return None
    version = Version.parse(seen.cluster_version)
    return version if version.series in SUPPORTED else None


def _reported(seen: Observed) -> list[Version]:
    """Return the versions that members report."""
    return [Version.parse(each.status.version) for each in seen.instances if each.status and each.member]


def _image(made: Obj | None) -> str:
    return str(container_of(made, CONTAINER).get("image") or "")


def _tagged(image: str) -> Version | None:
    """Return the version that the tag of an image names; None if it names none."""
    try:
        return _parsed(Image.parse(image).tag)
    except ValueError:
        return None


def _parsed(text: str) -> Version | None:
    try:
        return Version.parse(text)
    except ValueError:
        return None
