"""Results of pure functions are remembered within a bound in bytes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.api import memo
from shared.api.memo import Memo, NotRemembered, only_remembered, remembered
from shared.pki import ca, verify
from shared.pki.threads import evaluate


def test_results_are_dropped_by_their_size_the_least_recently_used_first() -> None:
    known, computed = Memo(10_000), []

    @remembered(len, known)
    def text(name: str, length: int) -> str:
        computed.append(name)
        return name * length

    for name in "abab":
        text(name, 3_000)
    assert computed == ["a", "b"]
    text("a", 3_000)
    text("c", 3_000)
    assert known.size <= 10_000
    computed.clear()
    text("a", 3_000)
    text("b", 3_000)
    assert computed == ["b"], "a was used more recently"
    text("d", 20_000)
    assert known.size == 0, "a result that does not fit is not kept"


def test_arguments_that_differ_in_their_parts_are_not_confused() -> None:
    @remembered(lambda _: 0, Memo())
    def shown(*parts: object) -> str:
        return repr(parts)

    for parts in (("a", "b"), ("ab",), ("a", ("b",)), (("a", "b"),), ("a", None), ("a", "None"), (1,), (True,), ("1",)):
        assert shown(*parts) == repr(parts)


def test_number_of_large_results_does_not_fill_the_memory() -> None:
    @remembered(len)
    def large(number: int) -> bytes:
        return bytes(1024 * 1024)

    for number in range(120):
        large(number)
    assert memo._memo.size <= memo.MAX_BYTES


async def test_only_what_is_not_remembered_is_computed_in_a_thread() -> None:
    known = Memo()

    @remembered(lambda _: 0, known)
    def square(number: int) -> int:
        return number * number

    with only_remembered(), pytest.raises(NotRemembered):
        square(3)
    assert await evaluate("default", square, 3) == 9
    with only_remembered():
        assert square(3) == 9


def test_contexts_count_with_their_authorities() -> None:
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    authorities = [ca.authority(f"ca-{number}", begins=begins, ends=begins.replace(year=2030)) for number in range(64)]
    bundle = "".join(pair.certificate for pair in authorities)
    for number in range(60):
        verify.trust(f"# {number}\n{bundle}", None)
    assert memo.MAX_BYTES // 2 < verify._contexts.size <= memo.MAX_BYTES
