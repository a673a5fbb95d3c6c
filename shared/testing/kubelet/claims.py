"""Kubernetes' controllers of PersistentVolumeClaims: bound, grown and modified at once, and kept while in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.testing.api_server.kinds import IN_USE
from shared.testing.api_server.requests import value_at

if TYPE_CHECKING:
    from shared.testing.api_server.server import ApiServer


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
        if attributes := claim["spec"].get("volumeAttributesClassName"):
            status["currentVolumeAttributesClassName"] = attributes
        if status == {key: claim["status"].get(key) for key in status}:
            return False
        self._controller.merge(*address, {"status": status}, subresource="status")
        return True

    def _is_in_use(self, claim: Obj) -> bool:
        """Whether a pod that is bound to a node uses the claim, even a completed pod."""
        address = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        return any(
            (pod["metadata"]["namespace"], (volume.get("persistentVolumeClaim") or {}).get("claimName")) == address
            for _, pod in self._server.objects(POD)
            if pod["spec"].get("nodeName")
            for volume in pod["spec"].get("volumes", ())
        )
