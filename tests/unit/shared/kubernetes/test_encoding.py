"""JSON is the same whichever encoder writes it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from shared.kubernetes.encoding import canonical, encode

TEXT = some.text(some.characters(exclude_categories=()))
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | TEXT,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_canonical_text_never_changes(value: Any) -> None:
    """Another digest would be a write to every object at an upgrade of the operator."""
    assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@given(VALUES)
def test_text_means_the_value(value: Any) -> None:
    assert json.loads(encode(value)) == value
