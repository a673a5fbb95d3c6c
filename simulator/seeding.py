"""Checks and reads that the seeds of all simulated databases share."""

from __future__ import annotations

from collections.abc import Mapping

from shared.kubernetes import accessors
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, SECRET, Kind, Obj
from shared.kubernetes.ownership import INSTANCE
from shared.kubernetes.pod_problems import problem_of
from shared.kubernetes.secrets import content_of
from simulator.plan import Live, Unmodelled


def servers(live: Live, container: str) -> list[Obj]:
    """Return the pods of the resource with a server, which must all be ready.

    Args:
        container: container with the server.

    Raises:
        Unmodelled: a pod is not ready, so it is not known what its server does next.
    """
    if live.resource is None:
        return []
    name = live.resource["metadata"]["name"]
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
