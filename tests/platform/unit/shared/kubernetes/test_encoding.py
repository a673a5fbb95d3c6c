"""JSON is the same whichever encoder writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shared.kubernetes import encoding
from shared.kubernetes.encoding import MAX_LEVELS, canonical, decode, encode

TEXT = some.text(some.characters(exclude_categories=()))
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_canonical_text_never_changes(value: Any) -> None:
    """Another digest would be a write to every object at an upgrade of the operator."""
    assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@given(VALUES, some.integers(1, 9))
def test_values_are_counted_in_parts_as_in_one(value: Any, size: int) -> None:
    text = encode(value)
    whole = encoding.count_values(text, 1_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_COUNTED_BYTES", size)
        assert encoding.count_values(text, 1_000) == whole


@pytest.mark.parametrize("value", [*map(chr, range(128)), 1e-7, -1.5e-9, 1e-10, 1e16, 0.1, -0.0, 2**64])
def test_every_character_and_form_of_a_number_keeps_its_text(value: Any) -> None:
    for nested in (value, [value, 1], {"a": value}, {str(value): value}):
        assert canonical(nested) == json.dumps(nested, sort_keys=True, separators=(",", ":")).encode()


@given(VALUES)
def test_text_means_the_value(value: Any) -> None:
    assert json.loads(encode(value)) == value


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 900, 100_000])
def test_text_with_too_many_levels_is_refused_like_any_that_is_not_json(opening: str, levels: int) -> None:
    closing = "".join({"[": "]", "{": "}"}[mark] for mark in reversed(opening) if mark in "[{")
    for text in (opening * levels, opening * levels + "0" + closing * levels):
        with pytest.raises(ValueError, match=r"."):
            decode(text)


@pytest.mark.parametrize("text", ["", "[", "NaN", "1e999", '"\ud800"', b"\xff", "[1] 2"])
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


def test_text_with_the_maximum_number_of_levels_is_read() -> None:
    assert decode("[" * MAX_LEVELS + "]" * MAX_LEVELS)
