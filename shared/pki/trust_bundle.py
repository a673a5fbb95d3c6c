"""Trust of API servers in an operator's serving certificate: the caBundle of its WebhookConfigurations."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Kind, Obj
from shared.pki import certs
from shared.pki.certs import Certificate

log = logging.getLogger(__name__)

MUTATING = Kind(
    "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)
VALIDATING = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
)


class Clients:
    """The API servers as clients, which trust the caBundle of the operator's WebhookConfigurations.

    Args:
        name: name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration; both must exist.
    """

    def __init__(self, kube: Kube, name: str) -> None:
        self._kube = kube
        self._name = name

    async def read(self) -> list[tuple[Kind, Obj]]:
        """Read the configurations.

        Raises:
            KubeError: one is missing or cannot be read.
        """
        return [(kind, await self._kube.get(kind, None, self._name)) for kind in (MUTATING, VALIDATING)]

    async def publish(self, seen: list[tuple[Kind, Obj]], bundle: str) -> None:
        """Set the caBundle of the configurations, unless it is already set.

        Args:
            seen: the configurations as observed *before* the bundle was read: by their resourceVersions, an outdated
                bundle can never replace a newer one.

        Raises:
            KubeError: a configuration cannot be written, or has changed since.
        """
        encoded = base64.b64encode(bundle.encode()).decode()
        for kind, configuration in seen:
            webhooks = configuration.get("webhooks") or []
            if all(webhook["clientConfig"].get("caBundle") == encoded for webhook in webhooks):
                continue
            metadata = {key: configuration["metadata"][key] for key in ("name", "uid", "resourceVersion")}
            fields = [{"name": webhook["name"], "clientConfig": {"caBundle": encoded}} for webhook in webhooks]
            body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "webhooks": fields}
            await self._kube.apply(kind, body)
            log.info("updated caBundle of %s %s", kind, self._name)


def authorities_in(seen: Iterable[tuple[Kind, Obj]]) -> tuple[Certificate, ...]:
    """Return the authorities that observed configurations trust, each once; an unreadable bundle counts as empty."""
    found = dict[Certificate, None]()
    for _, configuration in seen:
        for webhook in configuration.get("webhooks") or ():
            try:
                bundle = base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()
                found |= dict.fromkeys(certs.read(bundle))
            except ValueError:
                continue
    return tuple(found)
