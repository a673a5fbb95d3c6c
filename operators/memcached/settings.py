"""The operator's options that plans need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's options, as far as plans need them.

    Attributes:
        operator: name of the operator, which its objects carry.
        image_repository: repository of images for a resource that gives only a version.
        agent_image: the operator's own image, which is the metrics sidecar too; empty if it is unknown.
        create_timeout: seconds allowed for servers to become ready before the resource is reported as failed.
        upgrade_timeout: the same for a change that replaces servers.
    """

    operator: str
    image_repository: str
    agent_image: str = ""
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0
