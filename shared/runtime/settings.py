"""The operator's options that plans need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from shared.pki.rotation import LIFETIME
from shared.runtime.options import Options


@dataclass(frozen=True)
class Settings:
    """The operator's options that plans need; an operator with more of them derives its own.

    Attributes:
        operator: name of the operator, which its objects bear.
        image_repository: repository of the operand's images, for a resource that gives only a version.
        agent_image: image of what the operator puts beside or before its databases: its own; empty if unknown.
        create_timeout: seconds allowed for servers to become ready before the resource is reported as failed.
        upgrade_timeout: the same for a change that replaces pods.
        certificate_lifetime: seconds for which a certificate that the operator makes is valid.
    """

    operator: str
    image_repository: str
    agent_image: str = ""
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0
    certificate_lifetime: float = LIFETIME.total_seconds()

    @classmethod
    def of(cls, options: Options, **own: Any) -> Self:
        """Return the settings that the options give.

        Args:
            own: values of the fields that a derived class adds.
        """
        return cls(
            options.operator_name,
            options.image_repository,
            options.agent_image,
            options.create_timeout,
            options.upgrade_timeout,
            options.certificate_lifetime,
            **own,
        )
