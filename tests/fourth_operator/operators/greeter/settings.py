"""What the operator's options give to plans of a Greeter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Options that plans need.

    Attributes:
        operator: the operator's name, which its objects bear.
        image_repository: of the servers' image.
        create_timeout: seconds until a creation that does not end is reported.
        upgrade_timeout: seconds until a change that does not end is reported.
    """

    operator: str
    image_repository: str
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0
