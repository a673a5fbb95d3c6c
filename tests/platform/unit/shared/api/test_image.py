"""Image references are parsed as container runtimes do."""

from __future__ import annotations

import json

import pytest

from shared.api.image import MAX_NAME_LENGTH, Image, is_name, is_reference
from tests.support.paths import RECORDED

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("reference", "registry", "repository", "tag", "digest"),
    [
        ("memcached", "", "memcached", "", ""),
        ("memcached:1.6.38", "", "memcached", "1.6.38", ""),
        ("team/memcached:1", "", "team/memcached", "1", ""),
        ("localhost/memcached", "localhost", "memcached", "", ""),
        ("example.com/a/b/c:1.6-alpine", "example.com", "a/b/c", "1.6-alpine", ""),
        ("example.com:5000/memcached", "example.com:5000", "memcached", "", ""),
        ("host:5000/a/b:c", "host:5000", "a/b", "c", ""),
        ("[::1]:5000/memcached:1", "[::1]:5000", "memcached", "1", ""),
        (f"memcached@{DIGEST}", "", "memcached", "", DIGEST),
        (f"example.com:5000/memcached:1.6.38@{DIGEST}", "example.com:5000", "memcached", "1.6.38", DIGEST),
    ],
)
def test_reference_is_split_into_its_parts(
    reference: str, registry: str, repository: str, tag: str, digest: str
) -> None:
    assert Image.parse(reference) == Image(registry, repository, tag, digest)


@pytest.mark.parametrize("reference", ["", "A/B:1", "a:", "a:b:c", "a//b", "a@sha256:1", "a b", "-a"])
def test_invalid_reference_is_rejected(reference: str) -> None:
    with pytest.raises(ValueError, match="is not an image reference"):
        Image.parse(reference)


@pytest.mark.parametrize(
    ("reference", "version"),
    [("a", "latest"), ("example.com:5000/a", "latest"), (f"a@{DIGEST}", DIGEST), (f"a:1@{DIGEST}", "1")],
)
def test_version_is_the_tag_or_else_the_digest(reference: str, version: str) -> None:
    assert Image.parse(reference).version == version


HOST = ".".join(["a" * 60] * 3) + ".example.com"


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("redis", "docker.io/library/redis"),
        ("redis:8.2.9", "docker.io/library/redis"),
        ("library/redis", "docker.io/library/redis"),
        ("docker.io/redis", "docker.io/library/redis"),
        ("docker.io/library/redis", "docker.io/library/redis"),
        ("docker.io/team/redis", "docker.io/team/redis"),
        ("index.docker.io/redis", "docker.io/library/redis"),
        ("index.docker.io/team/redis", "docker.io/team/redis"),
        ("team/redis", "docker.io/team/redis"),
        ("a/b/c", "docker.io/a/b/c"),
        ("EVIL/x", "EVIL/x"),
        ("Team/redis", "Team/redis"),
        ("docker.IO/library/redis", "docker.IO/library/redis"),
        ("localhost/redis", "localhost/redis"),
        ("localhost:5000/redis", "localhost:5000/redis"),
        ("evil:5000/redis", "evil:5000/redis"),
        ("evil.example/redis", "evil.example/redis"),
        ("127.0.0.1/redis", "127.0.0.1/redis"),
        ("[2001:db8::1]/redis", "[2001:db8::1]/redis"),
        ("xn--7o8h.com/redis:1", "xn--7o8h.com/redis"),
        ("a-b.c/d__e-f.g/h---i", "a-b.c/d__e-f.g/h---i"),
        ("redis:5000", "docker.io/library/redis"),
        ("1.2/redis", "1.2/redis"),
        (f"redis:8@{DIGEST}", "docker.io/library/redis"),
        (f"redis@sha512:{'0a' * 64}", "docker.io/library/redis"),
        (f"{HOST}/{'a' * (254 - len(HOST))}", f"{HOST}/{'a' * (254 - len(HOST))}"),
    ],
)
def test_registry_and_repository_are_those_of_the_runtime(reference: str, name: str) -> None:
    """A part of the repository is a registry to a runtime if it has a dot, a colon or an upper-case letter."""
    assert Image.parse(reference).name == name


@pytest.mark.parametrize(
    "reference",
    [
        "Redis",
        "example.com/Redis",
        "-evil/redis",
        "evil-/redis",
        "evil..com/redis",
        ".evil/redis",
        "evil_host.com:5000/redis",
        "evil:port/redis",
        "https://example.com/redis",
        "::1/redis",
        "redis/",
        "/redis",
        "redis:.tag",
        f"redis:{'a' * 129}",
        "redis__",
        "re___dis",
        "redis@sha256:short",
        f"redis@sha256:{'0a' * 31}",
        f"redis@sha256:{'0A' * 32}",
        f"redis@md5:{'0a' * 16}",
        "0a" * 32,
        "a" * 256,
        f"{HOST}/{'a' * (255 - len(HOST))}",
        "redis\n",
        " redis",
    ],
)
def test_text_that_a_runtime_rejects_is_no_reference(reference: str) -> None:
    assert not is_reference(reference)


@pytest.mark.parametrize(("text", "expected"), [("a/b", True), ("a:1", False), (f"a@{DIGEST}", False), ("A", False)])
def test_name_has_neither_tag_nor_digest(text: str, expected: bool) -> None:
    assert is_name(text) is expected


PARSED: dict[str, list[str]] = {
    reference: parts for reference, *parts in json.loads((RECORDED / "images/references.json").read_text())
}
"""Name, tag and digest of references, as the Go package of the runtimes parses them (images/main.go)."""


def test_references_are_parsed_as_the_package_of_the_runtimes_does() -> None:
    """With another registry than the runtime's, an image would pass the list of allowed registries."""
    assert len(PARSED) > 2_000
    differences = {reference for reference, parts in PARSED.items() if _parsed(reference) != parts}
    # Version 0.5 counts the registry in the length, and 0.6 does not. Runtimes have either: both accept a shorter name.
    assert {reference for reference in differences if _parsed(reference)} == set()
    assert all(len(PARSED[reference][0]) > MAX_NAME_LENGTH for reference in differences)


def _parsed(reference: str) -> list[str]:
    try:
        image = Image.parse(reference)
    except ValueError:
        return []
    return [image.name, image.tag, image.digest]
