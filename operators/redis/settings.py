"""What the operator's options give to its plans."""

from __future__ import annotations

from dataclasses import dataclass

from shared.pki.rotation import LIFETIME


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's options, as far as plans ask for them.

    Attributes:
        operator: the operator's name, which its objects bear.
        image_repository: where images come from if a resource gives only a version.
        create_timeout: seconds that nodes may take to be a cluster before that is a failure.
        upgrade_timeout: the same for a change that replaces pods.
        certificate_lifetime: seconds for which a certificate of our own making is valid.
        password_overlap: seconds for which a former password is good still, once the new one is used.
    """

    operator: str
    image_repository: str
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0
    certificate_lifetime: float = LIFETIME.total_seconds()
    password_overlap: float = 600.0
