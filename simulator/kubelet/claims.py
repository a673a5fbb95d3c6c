"""Kubernetes' controllers of PersistentVolumeClaims: bound and grown at once, modified in stages, kept while in use.

A bound claim gets another VolumeAttributesClass as by the external-resizer of CSI: it is Pending until the class
exists, then InProgress, and then the current one; a driver may refuse the class as Infeasible
(https://kubernetes.io/docs/concepts/storage/volume-attributes-classes/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from simulator.api_server.kinds import ATTRIBUTES_CLASS, IN_USE
from simulator.api_server.requests import value_at

if TYPE_CHECKING:
    from simulator.api_server.server import ApiServer


INFEASIBLE: Obj = {"infeasible": "true"}
"""Parameters of a VolumeAttributesClass that the simulated driver refuses."""


class Claims:
    """Simulates the binding, expansion and deletion of claims."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._controller = server.actor("kube-controller-manager")

    def step(self) -> bool:
        """Bind, expand, modify or release one claim; return whether there was anything to do."""
        return any(self._control(claim) for _, claim in self._server.objects(PERSISTENT_VOLUME_CLAIM))

    def _control(self, claim: Obj) -> bool:
        metadata, requested = claim["metadata"], value_at(claim, "spec.resources.requests.storage")
        address = (PERSISTENT_VOLUME_CLAIM, metadata["namespace"], metadata["name"])
        if metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers") or []
            if IN_USE not in finalizers or self._is_in_use(claim):
                return False
            left = [name for name in finalizers if name != IN_USE]
            self._controller.merge(*address, {"metadata": {"finalizers": left or None}})
            return True
        if not claim["spec"].get("volumeName"):
            self._controller.merge(*address, {"spec": {"volumeName": f"pvc-{metadata['uid']}"}})
            return True
        status = {"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": {"storage": requested}}
        status |= self._modification(claim)
        if status == {key: claim["status"].get(key) for key in status}:
            return False
        self._controller.merge(*address, {"status": status}, subresource="status")
        return True

    def _modification(self, claim: Obj) -> Obj:
        """Return the next status of the modification that a claim requests; None for a key that is removed."""
        requested, status = claim["spec"].get("volumeAttributesClassName"), claim["status"]
        if not requested or requested == status.get("currentVolumeAttributesClassName"):
            return {"modifyVolumeStatus": None}
        modified = {"currentVolumeAttributesClassName": requested, "modifyVolumeStatus": None}
        if status.get("phase") != "Bound":  # the volume is provisioned with the class
            return modified
        in_progress = {"targetVolumeAttributesClassName": requested, "status": "InProgress"}
        try:
            found = self._controller.get(ATTRIBUTES_CLASS, None, requested)
        except NotFound:
            return {"modifyVolumeStatus": in_progress | {"status": "Pending"}}
        if found.get("parameters") == INFEASIBLE:
            return {"modifyVolumeStatus": in_progress | {"status": "Infeasible"}}
        return modified if status.get("modifyVolumeStatus") == in_progress else {"modifyVolumeStatus": in_progress}

    def _is_in_use(self, claim: Obj) -> bool:
        """Whether a pod that is bound to a node uses the claim, even a completed pod."""
        address = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        return any(
            (pod["metadata"]["namespace"], (volume.get("persistentVolumeClaim") or {}).get("claimName")) == address
            for _, pod in self._server.objects(POD)
            if pod["spec"].get("nodeName")
            for volume in pod["spec"].get("volumes", ())
        )
