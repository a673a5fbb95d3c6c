"""Checks and reads that the seeds of all simulated databases share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from shared.kubernetes import accessors
from shared.kubernetes.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SECRET,
    STATEFUL_SET,
    Kind,
    Obj,
)
from shared.kubernetes.ownership import INSTANCE, controller_of
from shared.kubernetes.pod_problems import problem_of
from shared.kubernetes.secrets import content_of
from simulator.plan import Live, Unmodelled


def servers(live: Live, container: str) -> list[Obj]:
    """Return the pods of the resource with a server, which must all be ready.

    Args:
        container: container with the server.

    Raises:
        Unmodelled: a pod is missing or not ready, so it is not known what its server does next.
    """
    if live.resource is None:
        return []
    name = live.resource["metadata"]["name"]
    _require_settled(live, name)
    found = [
        pod
        for pod in live.of(POD)
        if accessors.label(pod, INSTANCE) == name
        and any(each["name"] == container for each in pod["spec"]["containers"])
    ]
    for pod in found:
        if accessors.is_terminating(pod):
            raise Unmodelled(f"Pod {pod['metadata']['name']} is being deleted: repeat the command when it has ended.")
        if not accessors.is_true(pod, "Ready"):
            why = problem_of(pod).text or "it is not ready"
            raise Unmodelled(
                f"Pod {pod['metadata']['name']} does not serve: {why}. The simulation does not know what its server "
                "does next; `kubectl platform why` explains the present state."
            )
    return found


def _require_settled(live: Live, name: str) -> None:
    """Require that Kubernetes has observed the workloads of a resource, and has created all of their pods."""
    sets = {each["metadata"]["uid"]: (controller_of(each) or {}).get("uid") for each in live.of(REPLICA_SET)}
    owners = [(controller_of(pod) or {}).get("uid") for pod in live.of(POD)]
    found = Counter(sets.get(owner, owner) for owner in owners)
    for kind in (STATEFUL_SET, DEPLOYMENT):
        for obj in live.of(kind):
            metadata, desired = obj["metadata"], obj["spec"].get("replicas", 1)
            if accessors.label(obj, INSTANCE) != name:
                continue
            if not accessors.is_current(obj):
                raise Unmodelled(
                    f"Kubernetes has not observed the last change of {kind} {metadata['name']} yet: repeat the command."
                )
            if (pods := found[metadata["uid"]]) < desired:
                raise Unmodelled(
                    f"{kind} {metadata['name']} has {pods} of {desired} pods: repeat the command when Kubernetes has "
                    f"created them. `kubectl describe {kind.name.lower()} {metadata['name']}` has what prevents it."
                )


def unknown_adoption(resource: Obj) -> str:
    """Return why it is not known with which data a resource starts that adopts volumes; empty if it has done so."""
    adopt = (resource.get("spec") or {}).get("adopt") or {}
    adopted = (resource.get("status") or {}).get("adoption") or {}
    if not adopt or adopt.get("fromUID") == adopted.get("fromUID"):
        return ""
    return (
        "spec.adopt is not simulated: what is on the volumes of the deleted resource is not known. Keep them; after "
        "the change, the status reports the adoption."
    )


def volumes(live: Live, pod: Obj) -> dict[str, Obj]:
    """Return the claims, ConfigMaps and Secrets that a pod mounts, by the name of the volume.

    Raises:
        Unmodelled: one is missing.
    """
    found: dict[str, Obj] = {}
    for volume in pod["spec"].get("volumes", ()):
        for kind, source, key in (
            (PERSISTENT_VOLUME_CLAIM, "persistentVolumeClaim", "claimName"),
            (SECRET, "secret", "secretName"),
            (CONFIG_MAP, "configMap", "name"),
        ):
            given = volume.get(source) or {}
            if name := given.get(key):
                obj = _named(live, kind, name)
                if obj is not None:
                    found[volume["name"]] = obj
                elif not given.get("optional"):
                    raise Unmodelled(f"Pod {pod['metadata']['name']} mounts {kind} {name}, which does not exist.")
    return found


def secret(live: Live, name: str) -> Mapping[str, str]:
    """Return the content of a Secret; empty if there is none."""
    return content_of(_named(live, SECRET, name))


def status(live: Live) -> Obj:
    """Return the status of the resource; empty if there is none."""
    return accessors.status_of(live.resource) if live.resource is not None else {}


def spec(live: Live) -> Obj:
    return (live.resource or {}).get("spec") or {}


def _named(live: Live, kind: Kind, name: str) -> Obj | None:
    return next((obj for obj in live.of(kind) if obj["metadata"]["name"] == name), None)
