"""Policy of the platform's administrator, enforced at admission and by every plan. Pure.

A resource may be older than the policy, or have bypassed the webhook. The plan therefore checks it again: nothing is
created or changed for a resource that violates the policy, and what runs is still repaired.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from shared.api.image import Image
from shared.api.spec import Admission, Exposure, Review
from shared.kubernetes.kinds import Obj


@dataclass(frozen=True, slots=True)
class PlatformPolicy:
    """Requirements that every resource must meet.

    Attributes:
        require_tls: whether connections must be encrypted.
        require_auth: whether clients must have a password.
        allowed_registries: registries, or repositories in them, of the images that a spec may name, such as
            registry.example.com/team; empty allows all.
        allow_host_path: whether a spec may mount directories of the nodes.
    """

    require_tls: bool = False
    require_auth: bool = False
    allowed_registries: tuple[str, ...] = ()
    allow_host_path: bool = False

    def violations(self, exposure: Exposure) -> list[str]:
        """Return a sentence for each rule that a resource violates."""
        wrong = []
        if self.require_tls and not exposure.tls:
            wrong.append("spec.tls: the platform policy requires TLS. Set it.")
        if self.require_auth and not exposure.auth:
            wrong.append("spec.auth: the platform policy requires a password of clients. Set it.")
        if exposure.host_path and not self.allow_host_path:
            wrong.append(
                f"{exposure.host_path}: the platform policy does not allow hostPath volumes. Use spec.storage; the "
                "administrator of the operator can set policy.allowHostPath."
            )
        named = ", ".join(self.allowed_registries)
        wrong += [
            f"{field}: the platform policy does not allow {image}. Use an image of {named}."
            for field, image in exposure.images.items()
            if self.allowed_registries and not any(_is_in(image, allowed) for allowed in self.allowed_registries)
        ]
        return wrong


def governed(admission: Admission, policy: PlatformPolicy) -> Admission:
    """Return the admission of a kind that also enforces the policy, and warns of what a resource leaves open."""
    exposure_of = admission.exposure
    if exposure_of is None:
        return admission

    def review(new: Obj, old: Obj | None) -> Review:
        found = admission.review(new, old)
        if found.errors:
            return found
        exposure = exposure_of(new)
        wrong = policy.violations(exposure)
        return Review(errors=tuple(wrong)) if wrong else Review(warnings=(*found.warnings, *open_access(exposure)))

    return dataclasses.replace(admission, review=review)


def open_access(exposure: Exposure) -> list[str]:
    """Return a sentence that names what a resource leaves open; none if nothing is."""
    found = [
        text
        for closed, text in (
            (exposure.tls, "connections are not encrypted (spec.tls)"),
            (exposure.auth, "clients need no password (spec.auth)"),
            (exposure.restricted, "the port of clients is open to all pods and networks (spec.network.allowFrom)"),
        )
        if not closed
    ]
    return [f"spec: {'; '.join(found)}."] if found else []


def _is_in(image: str, registry: str) -> bool:
    """Return whether an image is in a registry, or in a part of one such as registry.example.com/team."""
    try:
        parsed = Image.parse(image)
    except ValueError:  # rejected by the rules of the spec
        return True
    return f"{parsed.name}/".startswith(f"{registry.rstrip('/')}/")
