"""Image references: registry, repository, tag and digest, parsed as container runtimes do.

Source of the grammar: https://github.com/distribution/reference (regexp.go).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = r"[0-9a-z]+((\.|__?|-+)[0-9a-z]+)*"

_NAME = (
    r"^((?P<registry>\[[0-9A-Fa-f:]+\](:[0-9]+)?|[0-9A-Za-z.-]+(:[0-9]+)?)/)?"  # a registry with an optional port
    rf"(?P<repository>{_PART}(/{_PART})*)"
)

NAME_FORM = f"{_NAME}$"
"""Pattern of an image name without tag and digest, for Python and CEL."""

FORM = _NAME + r"(:(?P<tag>[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}))?(@(?P<digest>[0-9a-z]+:[0-9a-f]{32,}))?$"
"""Pattern of an image reference, for Python and CEL."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image reference and its parts; a missing part is empty.

    Attributes:
        registry: host and port of the registry.
        repository: name of the image in the registry.
    """

    registry: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def parse(cls, reference: str) -> Image:
        """Parse a reference.

        The first part is a registry only if it can be a host, that is, if it contains a dot or a port, or is localhost.

        Raises:
            ValueError: the text is not an image reference.
        """
        found = re.fullmatch(FORM, reference)
        if found is None:
            raise ValueError(f"{reference!r} is not an image reference")
        registry, repository = found["registry"] or "", found["repository"]
        if registry and not (registry == "localhost" or set(".:[") & set(registry)):
            registry, repository = "", f"{registry}/{repository}"
        return cls(registry, repository, found["tag"] or "", found["digest"] or "")

    @property
    def version(self) -> str:
        """Version of the image: the tag, otherwise the digest, otherwise `latest`."""
        return self.tag or self.digest or "latest"
