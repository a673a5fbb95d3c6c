"""Messages: bounded, and one sentence for what is the same for several pods."""

from __future__ import annotations

import pytest

from shared.status.messages import grouped, lacks_detail_of, shortened

PULL = "cannot pull redis:8.2.9: the registry does not have it"


@pytest.mark.parametrize(
    ("hindrances", "total", "sentences"),
    [
        ({"a-0": PULL}, 6, [f"a-0 {PULL}."]),
        ({"a-0": PULL, "a-1": PULL}, 6, [f"a-0 and a-1 {PULL}."]),
        ({f"a-{n}": PULL for n in range(4)}, 6, [f"4 of 6 pods {PULL}."]),
        ({f"a-{n}": PULL for n in range(6)}, 6, [f"6 of 6 pods {PULL}."]),
        ({"a-0": "does not exist", "a-1": "does not exist"}, 2, ["2 of 2 pods do not exist."]),
        ({"a-0": "is starting.", "a-1": PULL, "a-2": "is starting"}, 3, ["a-0 and a-2 are starting.", f"a-1 {PULL}."]),
        ({"a-0": PULL.partition(":8.2.9")[0] + ":8.2.9", "a-1": PULL}, 2, [f"2 of 2 pods {PULL}."]),
        ({}, 3, []),
    ],
)
def test_pods_with_the_same_hindrance_share_a_sentence(
    hindrances: dict[str, str], total: int, sentences: list[str]
) -> None:
    assert grouped(hindrances, total) == sentences


def test_a_long_message_ends_after_a_sentence_with_the_number_left_out() -> None:
    text = "One sentence is here. " * 50
    found = shortened(text, 400)
    assert len(found) <= 400
    kept, _, rest = found.partition(" (and ")
    assert kept.endswith("is here.")
    assert int(rest.split()[0]) == len(text) - len(kept)


@pytest.mark.parametrize("text", ["x" * 2000, "word " * 400, "One. " + "long " * 400])
def test_a_message_without_sentences_ends_after_a_word(text: str) -> None:
    found = shortened(text, 400)
    assert len(found) <= 400
    assert found.endswith("more characters)")
    assert len(found) > 300
    assert text.startswith(found.partition(" (and ")[0])


def test_a_short_message_is_unchanged() -> None:
    assert shortened("x" * 400, 400) == "x" * 400


def test_a_message_that_lacks_the_detail_of_the_former_one() -> None:
    assert lacks_detail_of("a-0 cannot pull redis:8.", "a-0 cannot pull redis:8: not found.")
    assert not lacks_detail_of("a-0 cannot pull redis:8.", "a-0 cannot pull redis:8.")
    assert not lacks_detail_of("a-0 cannot pull redis:8: not found.", "a-0 cannot pull redis:8.")
    assert not lacks_detail_of("", ": x")
