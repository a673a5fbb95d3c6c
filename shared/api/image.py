"""Image references: registry, repository, tag and digest, parsed as container runtimes do.

Source of the grammar: https://github.com/distribution/reference (regexp.go, normalize.go).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DOCKER_HUB = "docker.io"
"""Registry of an image that names none; its official images are in `library`."""

_FORMER_HUB = "index.docker.io"

MAX_NAME_LENGTH = 255
"""Length of registry and repository together, in characters."""

_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
"""Digits of the digests that runtimes know."""

_PART = r"[0-9a-z]+((\.|__?|-+)[0-9a-z]+)*"

_REPOSITORY = rf"{_PART}(/{_PART})*"

_NAME = (
    r"^((?P<registry>\[[0-9A-Fa-f:]+\](:[0-9]+)?|[0-9A-Za-z.-]+(:[0-9]+)?)/)?"  # a registry with an optional port
    rf"(?P<repository>{_REPOSITORY})"
)

_HOST = re.compile(
    r"(\[.*\]|([0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?\.)*[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?)(:[0-9]+)?"
)
"""A host with an optional port, which is too long a pattern for CEL."""

NAME_FORM = f"{_NAME}$"
"""Pattern of an image name without tag and digest, for CEL; `is_name` is stricter."""

FORM = _NAME + r"(:(?P<tag>[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}))?(@(?P<digest>[0-9a-z]+:[0-9a-f]{32,}))?$"
"""Pattern of an image reference, for CEL; `Image.parse` is stricter."""


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

        The first part is a registry if it contains a dot, a colon or an upper-case letter, or is localhost; otherwise
        it is a part of the repository in Docker Hub. It may be one that no host can have (a_b.c): runtimes try it.

        Raises:
            ValueError: the text is not an image reference.
        """
        found = re.fullmatch(FORM, reference)
        if found is None:
            raise ValueError(f"{reference!r} is not an image reference")
        registry, path = found["registry"] or "", found["repository"]
        name = f"{registry}/{path}" if registry else path
        first, _, rest = name.partition("/")
        is_registry = rest and (first == "localhost" or set(".:") & set(first) or first.lower() != first)
        registry, repository = (first, rest) if is_registry else ("", name)
        image = cls(registry, repository, found["tag"] or "", found["digest"] or "")
        algorithm, _, digits = image.digest.partition(":")
        is_known = not algorithm or len(digits) == _DIGEST_LENGTHS.get(algorithm)
        is_identifier = re.fullmatch("[0-9a-f]{64}", reference)  # runtimes take it for the ID of a local image
        is_named = re.fullmatch(_REPOSITORY, name) or (registry and _HOST.fullmatch(registry))
        if not is_named or not is_known or is_identifier or len(image.name) > MAX_NAME_LENGTH:
            raise ValueError(f"{reference!r} is not an image reference")
        return image

    @property
    def name(self) -> str:
        """Registry and repository with the defaults of Docker Hub, such as docker.io/library/redis."""
        registry = self.registry if self.registry not in ("", _FORMER_HUB) else DOCKER_HUB
        is_official = registry == DOCKER_HUB and "/" not in self.repository
        return f"{registry}/{'library/' * is_official}{self.repository}"

    @property
    def version(self) -> str:
        """Version of the image: the tag, otherwise the digest, otherwise `latest`."""
        return self.tag or self.digest or "latest"


def is_reference(text: str) -> bool:
    """Whether a text is an image reference."""
    try:
        Image.parse(text)
    except ValueError:
        return False
    return True


def is_name(text: str) -> bool:
    """Whether a text is an image name without tag and digest."""
    return re.fullmatch(NAME_FORM, text) is not None and is_reference(text)
