"""Image references: registry, repository, tag and digest, told apart as container runtimes do.

Source of the grammar: https://github.com/distribution/reference (regexp.go).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = r"[0-9a-z]+((\.|__?|-+)[0-9a-z]+)*"

_NAME = (
    r"^((?P<registry>\[[0-9A-Fa-f:]+\](:[0-9]+)?|[0-9A-Za-z.-]+(:[0-9]+)?)/)?"  # a registry, maybe with a port
    rf"(?P<repository>{_PART}(/{_PART})*)"
)

NAME_FORM = f"{_NAME}$"
"""What an image's name without tag and digest looks like, for Python and for CEL alike."""

FORM = _NAME + r"(:(?P<tag>[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}))?(@(?P<digest>[0-9a-z]+:[0-9a-f]{32,}))?$"
"""What an image reference looks like, for Python and for CEL alike."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image reference and its parts; a part that is not given is empty.

    Attributes:
        registry: host and port that it is pulled from.
        repository: its name there.
    """

    registry: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, reference: str) -> Image:
        """The parts of a reference.

        The first part is a registry only if it could be a host: it has a dot or a port, or is localhost.

        Raises:
            ValueError: it is no image reference.
        """
        found = re.fullmatch(FORM, reference)
        if found is None:
            raise ValueError(f"{reference!r} is no image reference")
        registry, repository = found["registry"] or "", found["repository"]
        if registry and not (registry == "localhost" or set(".:[") & set(registry)):
            registry, repository = "", f"{registry}/{repository}"
        return cls(registry, repository, found["tag"] or "", found["digest"] or "")

    @property
    def version(self) -> str:
        """What tells it from others of its name: its tag, else its digest, else `latest`."""
        return self.tag or self.digest or "latest"
