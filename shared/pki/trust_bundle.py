"""Who must trust what an operator serves with: API servers, by the caBundle of its WebhookConfigurations."""

from __future__ import annotations

import base64
import logging

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Kind, Obj

log = logging.getLogger(__name__)

MUTATING = Kind(
    "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)
VALIDATING = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
)


class Clients:
    """Those who trust the caBundle of an operator's WebhookConfigurations: the API servers.

    Args:
        name: of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration; both are to exist.
    """

    def __init__(self, kube: Kube, name: str) -> None:
        self._kube = kube
        self._name = name

    async def look(self) -> list[tuple[Kind, Obj]]:
        """The configurations as they are.

        Raises:
            KubeError: one is missing, or may not be read.
        """
        return [(kind, await self._kube.get(kind, None, self._name)) for kind in (MUTATING, VALIDATING)]

    async def teach(self, seen: list[tuple[Kind, Obj]], bundle: str) -> None:
        """Have them trust a bundle, unless they do.

        Args:
            seen: the configurations as they were *before* the bundle was read: with their resourceVersions, an older
                bundle never takes a newer one's place, however late it comes.

        Raises:
            KubeError: a configuration could not be written, or changed meanwhile.
        """
        wanted = base64.b64encode(bundle.encode()).decode()
        for kind, configuration in seen:
            webhooks = configuration.get("webhooks") or []
            if all(webhook["clientConfig"].get("caBundle") == wanted for webhook in webhooks):
                continue
            told = {key: configuration["metadata"][key] for key in ("name", "uid", "resourceVersion")}
            fields = [{"name": webhook["name"], "clientConfig": {"caBundle": wanted}} for webhook in webhooks]
            body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": told, "webhooks": fields}
            await self._kube.apply(kind, body)
            log.info("told clients whom to trust: caBundle of %s %s", kind, self._name)
