"""Paths of objects on the API server."""

from __future__ import annotations

import pytest

from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET


@pytest.mark.parametrize(
    "name", ["..", ".", "../a", "a/b", "a?b", "a#b", "a%2e", "..\n", ".\n.", "a\n", "\u00e4", "a" * 254]
)
def test_text_that_names_no_object_is_no_path(name: str) -> None:
    with pytest.raises(NotFound, match="no object has this name"):
        SECRET.path("default", name)
    with pytest.raises(NotFound):
        SECRET.path(name, "cache")


@pytest.mark.parametrize("name", ["a", "a-b.c", "system:auth", "A_1", "a" * 253])
def test_name_is_in_the_path(name: str) -> None:
    assert SECRET.path("default", name) == f"/api/v1/namespaces/default/secrets/{name}"
