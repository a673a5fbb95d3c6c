"""The vocabulary lint: each rule finds what it is for, and accepts plain English and literals."""

from __future__ import annotations

import pytest

from tools.vocabulary import MAX_WORDS, check_name, check_python, check_text

BANNED = [
    "The kubelet tells the operator.",
    "Nobody answers.",
    "It is asked anew.",
    "Mend the Secret.",
    "The master follows.",
    "A replica, whose master is gone.",
    "Taken up at once, for good.",
]

PLAIN = [
    "The kubelet reports the pod.",
    "Set `masterauth` or `role:master` in the template.",
    "redis-cli --pass-file /run/password info replication",
    'The role "master" of the first API.',
    "See https://redis.io/docs/master for details.",
    "connected_slaves:1 and master_link_status:up",
    "The {told} value is replaced.",
]


@pytest.mark.parametrize("text", BANNED)
def test_a_banned_word_is_found_in_markdown_comments_and_messages(text: str) -> None:
    assert list(check_text("docs/page.md", f"# Title\n\n{text}\n"))
    assert list(check_text("charts/values.yaml", f"# {text}\n"))
    assert list(check_python("module.py", f"# {text}\n"))
    assert list(check_python("module.py", f'"""Return the state.\n\n{text}\n"""\n'))
    assert list(check_python("module.py", f'raise ValueError("{text}")\n'))


@pytest.mark.parametrize("text", PLAIN)
def test_plain_english_and_literals_pass(text: str) -> None:
    assert not list(check_text("docs/page.md", text))
    assert not list(check_python("module.py", f"# {text}\n"))


def test_a_finding_names_the_line_and_the_replacement() -> None:
    [found] = check_text("docs/page.md", "# Title\n\nPlain.\nNobody answers.\n")
    assert (found.path, found.line) == ("docs/page.md", 4)
    assert "no client" in str(found)


def test_a_message_in_an_f_string_is_checked_as_a_whole() -> None:
    assert list(check_python("module.py", 'text = f"{member} tells {peer}"\n'))


def test_code_blocks_of_a_page_are_not_prose() -> None:
    assert not list(check_text("docs/page.md", "```console\n$ echo nobody tells the master\n```\n"))


def test_a_long_sentence_is_found() -> None:
    assert not list(check_text("docs/page.md", " ".join(["word"] * MAX_WORDS) + "."))
    assert list(check_text("docs/page.md", " ".join(["word"] * (MAX_WORDS + 1)) + "."))
    assert not list(check_text("docs/page.md", f"{' '.join(['word'] * MAX_WORDS)}. And {' '.join(['word'] * 9)}."))


@pytest.mark.parametrize(
    "description", ["Its name.", "They are restarted.", "What the operator does.", "As spec.labels."]
)
def test_a_description_that_starts_with_a_pronoun_is_found(description: str) -> None:
    assert list(check_python("module.py", f'"""{description}"""\n'))
    assert list(check_python("module.py", f'field = Field(description="{description}")\n'))
    assert list(check_python("module.py", f'"""A thing.\n\nAttributes:\n    field: {description}\n"""\n'))


@pytest.mark.parametrize("name", ["told", "ask_again", "is_gone", "Nobody", "test_it_works", "test_what_is_left_stays"])
def test_a_name_of_the_dialect_is_found(name: str) -> None:
    assert list(check_name("module.py", 1, name))


@pytest.mark.parametrize("name", ["masters", "replicas_per_master", "report", "task", "test_a_pod_is_deleted"])
def test_a_plain_name_passes(name: str) -> None:
    assert not list(check_name("module.py", 1, name))
