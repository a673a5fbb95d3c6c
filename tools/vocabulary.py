"""Vocabulary lint: `python -m tools.vocabulary [path ...]` checks prose and names against the style guide.

Prose is every docstring, comment and message of Python modules, and every other text file of the tree. Names are the
identifiers that Python modules define. Three rules:

- A banned word: each has a replacement, which the finding names.
- A sentence with more than `MAX_WORDS` words.
- A description that starts with a pronoun, so that it makes no sense out of context.

Text in backticks and single words in quotation marks are code: a banned word there is a literal of Redis or of an API.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.local.environment import forget_clusters

ROOT = Path(__file__).parents[1]

MAX_WORDS = 40
"""Longest sentence, in words."""

BANNED: dict[str, str] = {
    "tell|tells|told|telling|untold": "report, log, return, state",
    "say|says|said|saying": "report, state, return, mean",
    "ask|asks|asked|asking|unasked": "request, query, require, read",
    "nobody|somebody|everybody|anybody": "name the subject: the user, the operator, no client",
    "who|whom|whoever|whomever": "name the subject, or use that/which",
    "anew": "again",
    "amid": "during, in",
    "thus|hence|whence|thereof|thereby|therein|hereby": "so, therefore",
    "at leisure|by and by|in vain|in one go": "later, without effect, at once",
    "of its own accord|of their own accord": "without a request, automatically",
    "for good": "permanently",
    "gone": "deleted, removed, missing, no longer exists",
    "silent|silently|deaf|barren": "unreachable, not responding, without a message",
    "mend|mends|mended|mending|unmended": "fix, repair, resolve",
    "trouble|troubles|troubled": "problem",
    "wanted": "desired, requested",
    "hear|hears|heard|hearing|unheard": "receive, observe",
    "stranger|strangers": "foreign, unknown",
    "errand|errands|crew|vault|keyring|voices|gossips": "see the glossary",
    "underway|under way": "in progress",
    "another's|ours|theirs|somebody's|nobody's|everybody's|anybody's": "of another …, the operator's",
    "beside|besides": "next to, in addition to",
    "whatever|however many|however much|however long": "any, regardless of",
    "stand|stands|stood|standing": "is, are",
    "news|story|stories|tale": "change, event, history",
    "room|rooms|roomy": "package, space",
    "place|places|placed": "address, path, position, pod, location (of Kubernetes: scheduled)",
    "bear|bears|bore|borne": "have, contain",
    "goes on|go on|went on|going on": "continue",
    "let go|lets go|letting go|left alone|leave alone|leaves alone": "release, not change",
    "held": "blocked, paused, kept",
    "makes up|made up|taken up|takes up|take up": "apply, use",
    "master|masters|slave|slaves": "primary, replica",
    "foretold|forebode|lest|ere|nought|oneself|yonder|bid|shun|heed|vouch|vouches": "plain English",
    "look at|looks at|looked at|looking at|next look|a look|each look|every look": "read, check, inspect, observe",
    "as good as|no matter|too many to": "plain English",
}
"""Words and phrases, each with what to write instead (style guide: glossary and voice)."""

BANNED_IN_NAMES = frozenset(word for words in BANNED for word in words.split("|") if word.isalpha()) | {"look", "looks"}
"""Words that no identifier contains; fields of an API that use one are declared in `API_NAMES`."""

API_NAMES = frozenset({"masters", "master", "slave", "master_node_id", "replicas_per_master"})
"""Fields and values of RedisCluster that its first API had (api.md), which stay."""

PRONOUNS = "it|its|they|their|them|these|those|this|that|what|who|as"
"""A description does not start with one of these: it must make sense out of context."""

SUFFIXES = {".md", ".yaml", ".yml", ".tpl", ".txt", ".toml", ".go", ".sh", ".tmpl"}
NAMES = {"Makefile", "Dockerfile", "Containerfile", ".editorconfig", "run"}
SKIPPED = re.compile(
    r"^(locks/|docs/pictures/|tests/recorded/|tests/released/|tools/vocabulary\.py|charts/.*\.tgz|dashboards/.*\.json)"
    r"|tests/platform/unit/tools/test_vocabulary\.py|(go\.sum|go\.mod|LICENSE)$"
)
"""Not prose of the project: locks, pictures, recordings of other programs, generated dashboards (the lint reads their
sources), and this list."""


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Prose:
    """A piece of text that a person reads.

    Attributes:
        line: where it starts.
        description: whether it describes something by itself: a docstring, or the description of a field.
    """

    line: int
    text: str
    description: bool = False


_WORD = re.compile(
    r"(?<![\w'’/.:=,@-])(" + "|".join(sorted(BANNED, key=len, reverse=True)) + r")(?![\w'’/=@-]|[:,.]\w)", re.IGNORECASE
)
_REPLACEMENT = {word: instead for words, instead in BANNED.items() for word in words.split("|")}
_CODE = re.compile(r"``[^`]*``|`[^`\n]*`|\"[\w.-]+\"|'[\w.-]+'|https?://\S+|\{[^{}]*\}")


def _quoted(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def check_prose(path: str, prose: Prose) -> Iterator[Finding]:
    """Find banned words, long sentences and leading pronouns in a piece of text."""
    text = _CODE.sub(_quoted, prose.text)
    for found in _WORD.finditer(text):
        word = found.group(1)
        line = prose.line + text.count("\n", 0, found.start())
        yield Finding(path, line, f'"{word}": write {_REPLACEMENT[word.lower()]}')
    for sentence, offset in _sentences(text):
        if (words := len(re.findall(r"\b[A-Za-z][A-Za-z'-]*", sentence))) > MAX_WORDS:
            line = prose.line + text.count("\n", 0, offset)
            yield Finding(path, line, f"a sentence of {words} words: at most {MAX_WORDS}")
    if prose.description and (found_start := re.match(rf"\s*({PRONOUNS})\b", prose.text, re.IGNORECASE)):
        yield Finding(path, prose.line, f'starts with "{found_start.group(1)}": name the thing that it describes')


def _sentences(text: str) -> Iterator[tuple[str, int]]:
    start = 0
    for end in re.finditer(r"[.:;?!](?=\s|$)|<br>|\n\s*\n|\n\s*(?=[-*|#>├└│\d]|\w+: )", text):
        yield text[start : end.start()], start
        start = end.end()
    yield text[start:], start


def check_name(path: str, line: int, name: str) -> Iterator[Finding]:
    """Find words of the dialect in an identifier."""
    if name.strip("_") in API_NAMES:
        return
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    if banned := [part for part in parts if part in BANNED_IN_NAMES]:
        yield Finding(path, line, f"name {name}: {', '.join(banned)}")
    if name.startswith("test_") and parts[1:2] and re.fullmatch(f"{PRONOUNS}|there|one|none", parts[1]):
        yield Finding(path, line, f"name {name}: starts with a pronoun: name the subject")


def check_python(path: str, source: str) -> Iterator[Finding]:
    """Check the docstrings, comments, messages and defined names of a module."""
    tree = ast.parse(source)
    for prose in _python_prose(tree, source):
        yield from check_prose(path, prose)
    seen: set[str] = set()
    for line, name in _defined_names(tree):
        if name not in seen:
            seen.add(name)
            yield from check_name(path, line, name)


def _python_prose(tree: ast.Module, source: str) -> Iterator[Prose]:
    documented = _docstrings(tree)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) in documented:
                yield from _docstring_prose(node.lineno, text)
            case ast.Constant(value=str(text)) if id(node) not in parts and _is_message(text):
                yield Prose(node.lineno, text)
            case ast.JoinedStr() if _is_message(text := _template(node)):
                yield Prose(node.lineno, text)
            case ast.keyword(arg="description" | "help", value=ast.Constant(value=str(text))):
                yield Prose(node.value.lineno, text.split(" ")[0], description=True)
            case _:
                pass
    yield from _comments(source)


def _template(node: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{value}" for part in node.values)


def _comments(source: str) -> Iterator[Prose]:
    """Yield each block of comments as one piece, and each comment behind code as another."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        follows_code = bool(token.line[: token.start[1]].strip())
        if block and (follows_code or token.start[0] != block[-1].start[0] + 1):
            yield _comment(block)
            block = []
        block.append(token)
    if block:
        yield _comment(block)


def _comment(block: list[tokenize.TokenInfo]) -> Prose:
    lines = (re.sub(r"^#:? ?|noqa.*|type: ignore.*", "", token.string) for token in block)
    return Prose(block[0].start[0], "\n".join(lines))


def _docstrings(tree: ast.Module) -> set[int]:
    """Return the ids of the constants that are docstrings, those below an assignment included."""
    return {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }


def _docstring_prose(line: int, text: str) -> Iterator[Prose]:
    yield Prose(line, text, description=True)
    for number, each in enumerate(text.splitlines()):
        if item := re.match(r"\s+[\w, *]+: (\S.*)", each):
            yield Prose(line + number, item.group(1)[:12], description=True)


def _is_message(text: str) -> bool:
    """Whether a string is for people: two or more words, most of them plain ones; not an error that Redis replies."""
    words = [] if text.startswith("ERR ") else text.split()
    plain = [word for word in words if word == "{value}" or re.fullmatch(r"[A-Za-z][a-z'’-]*[.,:;!?)]?", word)]
    return len(words) > 1 and len(plain) * 2 > len(words)


def _defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case _:
                pass


def check_text(path: str, text: str) -> Iterator[Finding]:
    """Check a file that is not Python: a Markdown page as a whole, of others the comments and descriptions."""
    if path.endswith(".md"):
        yield from check_prose(path, Prose(1, re.sub(r"^```.*?^```", _quoted, text, flags=re.MULTILINE | re.DOTALL)))
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not re.match(r"\s*(- )?expr:", line) and _is_message(re.sub(r"^\W+|^[\w.\"-]+: ", "", line.strip())):
            yield from check_prose(path, Prose(number, line))


def check(paths: Iterable[Path]) -> Iterator[Finding]:
    """Check files.

    Args:
        paths: absolute paths of files below the project's root.
    """
    for path in paths:
        name = str(path.relative_to(ROOT))
        if SKIPPED.search(name) or path.is_symlink() or not path.is_file():
            continue
        if path.suffix == ".py":
            yield from check_python(name, path.read_text())
        elif path.suffix in SUFFIXES or path.name in NAMES:
            yield from check_text(name, path.read_text())


def tracked(*below: str) -> list[Path]:
    """List the files that git tracks or would add, below some paths."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *below]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines()]


def main(arguments: list[str]) -> int:
    forget_clusters()
    findings = sorted(check(tracked(*arguments)), key=lambda each: (each.path, each.line))
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    if findings:
        sys.stdout.write(f"{len(findings)} findings. CONTRIBUTING.md has the style guide.\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
