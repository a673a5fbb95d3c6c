"""Answers as they come over the wire, in whatever pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.resp import Partial, Replies, Wrong, packed, texts

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.binary(max_size=40)
    | st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=20).map(Wrong),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=30,
)


def written(value: Any) -> bytes:
    """As servers write it."""
    match value:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case Wrong():
            return f"-{value.text}\r\n".encode()
    return b"*%d\r\n" % len(value) + b"".join(map(written, value))


def drained(replies: Replies) -> list[Any]:
    found = []
    while True:
        try:
            found.append(replies.next())
        except Partial:
            return found


@given(st.lists(VALUES, max_size=6), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_answers_are_the_same_however_they_are_cut(values: list[Any], sizes: list[int]) -> None:
    text, replies, found, at = b"".join(map(written, values)), Replies(), [], 0
    for turn in range(len(text)):
        if at >= len(text):
            break
        size = sizes[turn % len(sizes)]
        replies.feed(text[at : at + size])
        at += size
        found += drained(replies)
    assert found == values
    assert drained(replies) == []


def test_short_texts_and_missing_lists_are_read() -> None:
    replies = Replies()
    replies.feed(b"+OK\r\n*-1\r\n*0\r\n")
    assert drained(replies) == [b"OK", None, []]


@pytest.mark.parametrize("text", [b"HTTP/1.1 200 OK\r\n", b"$x\r\n", b":\r\n", b"*1.5\r\n", b"\r\n"])
def test_what_is_no_answer_is_refused(text: bytes) -> None:
    replies = Replies()
    replies.feed(text)
    with pytest.raises(ValueError, match=r"."):
        replies.next()


def test_commands_are_written_as_lists_of_bytes() -> None:
    replies = Replies()
    replies.feed(packed([("SET", b"\xff", 1), ("PING",), ("ECHO", "ä")]))
    assert drained(replies) == [[b"SET", b"\xff", b"1"], [b"PING"], [b"ECHO", "ä".encode()]]


def test_bytes_become_texts_wherever_they_are() -> None:
    assert texts([b"a", [b"\xff", 1, None]]) == ["a", ["\\xff", 1, None]]
