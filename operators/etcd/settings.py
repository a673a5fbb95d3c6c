"""What the operator's options give to its plans."""

from __future__ import annotations

from dataclasses import dataclass

from shared.pki.rotation import LIFETIME


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's options, as far as plans ask for them.

    Attributes:
        operator: the operator's name, which its objects bear.
        image_repository: where etcd's images come from if a resource gives only a version.
        agent_image: the operator's own image, which takes, fetches and seals snapshots; empty if none is known.
        create_timeout: seconds that members may take to be ready, and a learner to catch up, before that is a failure.
        upgrade_timeout: the same for a change that replaces pods.
        certificate_lifetime: seconds for which a certificate of our own making is valid.
    """

    operator: str
    image_repository: str
    agent_image: str = ""
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0
    certificate_lifetime: float = LIFETIME.total_seconds()
