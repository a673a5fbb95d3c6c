"""A version of a server: of an image tag, a spec, or the server itself. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version; a suffix after a hyphen names the build of an image, and is not compared.

    Attributes:
        major, minor, patch: 8, 0 and 2 of 8.0.2; the patch of 8.0 is 0.
        FORM: pattern of a version, for Python and CEL.
        OF: the server, for messages.
    """

    FORM: ClassVar[str]
    OF: ClassVar[str]

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a version.

        Raises:
            ValueError: the text is not a version.
        """
        numbers = _numbers(cls.FORM, text)
        if numbers is None:
            raise ValueError(f"{text!r} is not a version of {cls.OF}")
        return cls(*numbers)

    @property
    def series(self) -> tuple[int, int]:
        """Major and minor version, which determine features and upgrades."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


_NUMBERS = re.compile(r"v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")


@lru_cache(maxsize=1024)
def _numbers(form: str, text: str) -> tuple[int, ...] | None:
    found = _NUMBERS.match(text) if re.fullmatch(form, text) else None
    return tuple(map(int, found.groups(default="0"))) if found else None
