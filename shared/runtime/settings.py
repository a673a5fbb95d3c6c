"""Options of the operator that plans need."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Self

from shared.api.policy import PlatformPolicy
from shared.kubernetes.kinds import Obj
from shared.pki.rotation import DATABASES, LIFETIME, RotationPolicy
from shared.runtime.options import Options


@dataclass(frozen=True)
class Settings:
    """Options of the operator that plans need; operators with more of them derive a class.

    Attributes:
        operator: name of the operator, which is also a label of its objects.
        image_repository: repository of the operand's images, for a resource that sets only a version.
        agent_image: image of sidecars and init containers of databases; empty if unknown.
        create_timeout: seconds allowed for new servers to become ready before a failure is reported.
        upgrade_timeout: seconds allowed for a rolling update before a failure is reported.
        certificate_lifetime: lifetime of issued certificates in seconds.
        write_secrets: whether the operator may create Secrets that resources do not need to run: generated passwords,
            and connections for clients.
        operator_peers: peers as which the operator connects, as the `from` of a NetworkPolicy; empty if unknown.
        policy: policy of the platform's administrator.
    """

    operator: str
    image_repository: str
    agent_image: str = ""
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0
    certificate_lifetime: float = LIFETIME.total_seconds()
    write_secrets: bool = True
    operator_peers: tuple[Obj, ...] = ()
    policy: PlatformPolicy = field(default_factory=PlatformPolicy)

    @property
    def rotation(self) -> RotationPolicy:
        """Policy of the certificates of databases."""
        return replace(DATABASES, life=timedelta(seconds=self.certificate_lifetime))

    @classmethod
    def of(cls, options: Options, **own: Any) -> Self:
        """Return the settings from the options.

        Args:
            own: values of the fields of a derived class.
        """
        given = {each.name: getattr(options, each.name) for each in fields(Settings) if each.name != "operator"}
        return cls(options.operator_name, **given, **own)
