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
        approval_namespaces: namespaces in which each change of a spec needs an approval; "*" means all.
    """

    require_tls: bool = False
    require_auth: bool = False
    allowed_registries: tuple[str, ...] = ()
    allow_host_path: bool = False
    approval_namespaces: tuple[str, ...] = ()

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
        if wrong:
            return Review(errors=tuple(wrong))
        notes = (*open_access(exposure), *found.notes)
        return Review(warnings=(*found.warnings, f"spec: {'; '.join(notes)}.") if notes else found.warnings)

    return dataclasses.replace(admission, review=review)


def open_access(exposure: Exposure) -> list[str]:
    """Return a clause for each way in which a resource is open."""
    return [
        text
        for closed, text in (
            (exposure.tls, "no TLS (tls)"),
            (exposure.auth, "no password (auth)"),
            (exposure.restricted, "open to all (network.allowFrom)"),
        )
        if not closed
    ]


def _is_in(image: str, registry: str) -> bool:
    """Return whether an image is in a registry, or in a part of one such as registry.example.com/team."""
    try:
        parsed = Image.parse(image)
    except ValueError:  # rejected by the rules of the spec
        return True
    return f"{parsed.name}/".startswith(f"{registry.rstrip('/')}/")
