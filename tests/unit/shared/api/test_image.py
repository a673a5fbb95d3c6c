"""Image references are parsed as container runtimes do."""

from __future__ import annotations

import pytest

from shared.api.image import Image

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
