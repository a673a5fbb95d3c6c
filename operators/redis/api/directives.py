"""Directives of redis.conf that users set: their types, and the versions that have them, which directives.toml lists.

Source: src/config.c of redis 6.2, 7.0, 7.2, 7.4, 8.0, 8.2, 8.6 and 8.10, and of valkey 7.2, 8.0, 8.1, 9.0 and 9.1; the
release notes of redis 8.4 and 8.8; sdssplitargs in src/sds.c; memtoull in src/util.c.
tests/redis/containers/test_directives.py compares the table with real servers.

`KNOWN` covers every line of the catalogue, so that a wrong value is refused for each of them. Later versions may have
directives and words that the table lacks: the server decides about them. A directive that came with a patch release
counts for the whole series, because an image tag such as 8.2 does not name the patch.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from operators.redis.api.engine_versions import Engine, EngineName
from operators.redis.api.memory import parse_memory
from shared.api.catalogue import dotted

NODE_TIMEOUT_MS = 5000
"""cluster-node-timeout that the operator sets unless a user does, in milliseconds."""

KNOWN: Mapping[EngineName, tuple[int, int]] = {"redis": (8, 10), "valkey": (9, 1)}
"""Newest series of each engine whose directives are all in the table."""

_INT, _LONG = 2**31 - 1, 2**63 - 1


class Kind(Protocol):
    """Type of a directive."""

    @property
    def accepted(self) -> str:
        """The values that it accepts, as the end of a sentence."""

    def normal(self, value: str) -> object:
        """Return the normal form of a value: equal for values with the same meaning.

        Raises:
            ValueError: the value is not accepted.
        """


@dataclass(frozen=True, slots=True)
class Bool:
    """yes or no."""

    accepted: str = "yes or no"

    def normal(self, value: str) -> object:
        return ("no", "yes").index(value.lower())


@dataclass(frozen=True, slots=True)
class Integer:
    """A decimal integer.

    Attributes:
        low, high: least and greatest accepted value.
        clip: least and greatest value that a server uses: it replaces others by the nearest.
        note: explanation of the limits.
    """

    low: int = 0
    high: int = _INT
    clip: tuple[int, int] | None = None
    note: str = ""

    @property
    def accepted(self) -> str:
        if self.low == self.high:
            return f"only {self.low}{self.note}"
        if self.high < _INT:
            return f"an integer from {self.low} to {self.high}{self.note}"
        return f"an integer of at least {self.low}{self.note}" if self.low > -_INT else "an integer"

    def normal(self, value: str) -> object:
        if re.fullmatch(r"0|-?[1-9][0-9]*", value, re.ASCII) is None or not self.low <= int(value) <= self.high:
            raise ValueError(value)
        return int(value) if self.clip is None else min(max(int(value), self.clip[0]), self.clip[1])


@dataclass(frozen=True, slots=True)
class Memory:
    """An amount of memory, in bytes or with a unit.

    Attributes:
        low: least accepted amount in bytes.
        floor: least amount that a server uses, in bytes: it replaces smaller ones.
        percent: whether a percentage of maxmemory is accepted too.
        off: value for no limit; empty if there is none.
    """

    low: int = 0
    floor: int = 0
    percent: bool = False
    off: str = ""

    @property
    def accepted(self) -> str:
        least = f" of at least {self.low} bytes" if self.low > 1 else ""
        percent = ", or a percentage such as 5%" if self.percent else ""
        return f"an amount of memory{least}, such as 512mb or 2gb{percent}{f', or {self.off}' if self.off else ''}"

    def normal(self, value: str) -> object:
        if self.off and value == self.off:
            return value
        if self.percent and (found := re.fullmatch(r"(0|[1-9][0-9]?|100)%", value, re.ASCII)):
            return found[0] if found[1] != "0" else 0
        amount = parse_memory(value)
        if not self.low <= amount <= _LONG:
            raise ValueError(value)
        return max(amount, self.floor)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several words.

    Attributes:
        synonyms: words that servers report by another word.
    """

    values: tuple[str, ...]
    synonyms: tuple[tuple[str, str], ...] = ()

    @property
    def accepted(self) -> str:
        return f"one of {', '.join(self.values)}"

    def normal(self, value: str) -> object:
        word = value.lower()
        if word not in self.values:
            raise ValueError(value)
        return dict(self.synonyms).get(word, word)


@dataclass(frozen=True, slots=True)
class Words:
    """Several words, in any order; `alone` is the word for none of them, and `every` one for all of them."""

    values: tuple[str, ...]
    alone: str
    every: str = ""

    @property
    def accepted(self) -> str:
        return f"{', '.join(filter(None, (self.alone, self.every)))}, or some of {', '.join(self.values)}"

    def normal(self, value: str) -> object:
        words = {*value.lower().split()}
        if not words or not words <= {*self.values, self.alone, self.every}:
            raise ValueError(value)
        return frozenset(self.values if self.every in words else words - {self.alone})


@dataclass(frozen=True, slots=True)
class Text:
    """Text, of which the form is checked as far as `pattern` describes it."""

    pattern: str = ""
    accepted: str = "text"

    def normal(self, value: str) -> object:
        if self.pattern and re.fullmatch(self.pattern, value, re.ASCII) is None:
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Numbers:
    """Several numbers.

    Attributes:
        form: form of each number.
        least, most: least and greatest value of each.
        count: how many there are; 0 for any number.
        accepted: the accepted values.
    """

    form: str
    least: float
    most: float
    count: int
    accepted: str

    def normal(self, value: str) -> object:
        words = value.split()
        numbers = tuple(float(word) for word in words if re.fullmatch(self.form, word, re.ASCII))
        if len(numbers) != len(words) or (self.count and len(words) != self.count):
            raise ValueError(value)
        if not all(self.least <= number <= self.most for number in numbers):
            raise ValueError(value)
        return numbers


@dataclass(frozen=True, slots=True)
class SavePoints:
    """Conditions for snapshots: pairs of seconds and changes."""

    accepted: str = 'pairs of seconds (at least 1) and changes, such as 3600 1 300 100, or "" for no snapshots'

    def normal(self, value: str) -> object:
        words = value.split()
        if len(words) % 2 or not all(re.fullmatch("[0-9]{1,9}", word, re.ASCII) for word in words):
            raise ValueError(value)
        points = tuple(zip(map(int, words[::2]), map(int, words[1::2]), strict=True))
        if any(seconds < 1 for seconds, _ in points):
            raise ValueError(value)
        return points


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """Output buffer limits of client classes; classes that a value does not name keep their limits."""

    accepted: str = (
        "groups of class (normal, replica or pubsub), hard limit, soft limit and seconds, such as replica 256mb 64mb 60"
    )

    def normal(self, value: str) -> object:
        words = value.split()
        if not words or len(words) % 4:
            raise ValueError(value)
        limits: dict[str, tuple[int, int, int]] = {}
        for at in range(0, len(words), 4):
            name, hard, soft, seconds = words[at : at + 4]
            name = "replica" if name.lower() == "slave" else name.lower()
            if name not in ("normal", "replica", "pubsub") or re.fullmatch("[0-9]{1,9}", seconds, re.ASCII) is None:
                raise ValueError(value)
            limits[name] = (parse_memory(hard), parse_memory(soft), int(seconds))
        return limits


@dataclass(frozen=True, slots=True)
class Events:
    """Classes of keyspace events, one letter each.

    Attributes:
        extra: classes that only some versions have.
        every: classes for which A is short.
    """

    extra: str = ""
    every: str = "g$lshzxetd"
    accepted: str = 'letters of the classes of events, such as KEA or Ex, or "" for none'

    def normal(self, value: str) -> object:
        if not {*value} <= {*self.every, *"AKEmn", *self.extra}:
            raise ValueError(value)
        return frozenset(value.replace("A", self.every))


@dataclass(frozen=True, slots=True)
class Ignored(Text):
    """A directive that servers accept in the file, only for compatibility, and ignore."""

    accepted: str = "any value"


Series = tuple[int, int]
Span = tuple[Series, Series | None] | None
"""First series that has a directive, and the first later one that does not; None if no version of the engine has it."""


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive in a range of versions.

    Attributes:
        redis, valkey: versions of each engine.
        same_as: present name, if this is an older name of the directive.
    """

    name: str
    kind: Kind
    redis: Span
    valkey: Span
    same_as: str = ""

    def exists_in(self, engine: Engine) -> bool:
        """Return whether an engine has it."""
        span = self.redis if engine.name == "redis" else self.valkey
        if span is None:
            return False
        since, until = span
        return since <= engine.version.series and (until is None or engine.version.series < until)


def _span(text: str) -> Span:
    """Return the series that a text of the table means: "7.0+", "6.2 until 7.0" or "none"."""
    if text == "none":
        return None
    first, _, end = text.removesuffix("+").partition(" until ")
    return _series(first), _series(end) if end else None


def _series(text: str) -> Series:
    major, minor = text.split(".")
    return int(major), int(minor)


_KINDS: Mapping[str, Callable[..., Kind]] = {
    "bool": Bool,
    "integer": Integer,
    "memory": Memory,
    "one-of": OneOf,
    "words": Words,
    "text": Text,
    "numbers": Numbers,
    "save-points": SavePoints,
    "buffer-limits": BufferLimits,
    "events": Events,
    "ignored": Ignored,
}

_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

FORM = r"^[a-z][a-z0-9-]*$"
"""Pattern of a directive's name. Redis also accepts capital letters; names are compared, so only small ones are
accepted.
"""

RESERVED: tuple[str, ...] = tuple(_FILE.pop("reserved").split())
"""Directives that other fields of the spec or the operator set."""

RESTART = frozenset(_FILE.pop("restart").split())
"""Directives that a server reads only when it starts."""


def _table() -> Mapping[str, tuple[Directive, ...]]:
    """Return the directives in directives.toml, which explains its fields."""
    found: dict[str, tuple[Directive, ...]] = {}
    for type_name, rows in _FILE.items():
        for row in rows:
            names, redis, valkey = row.pop("names"), row.pop("redis", "0.0+"), row.pop("valkey", "0.0+")
            kind = _KINDS[type_name](**{field: _field(field, value) for field, value in row.items()})
            for text in names.split():
                name, _, present = text.partition("=")
                directive = Directive(name, kind, _span(redis), _span(valkey), present)
                found[name] = (*found.get(name, ()), directive)
    return found


def _field(name: str, value: Any) -> Any:
    if name == "values":
        return tuple(value.split())
    return tuple(map(tuple, value)) if name == "synonyms" else tuple(value) if name == "clip" else value


TABLE: Mapping[str, tuple[Directive, ...]] = _table()
"""Directives by name; several if the type changed between versions."""

_PRESENT_NAMES = {name: each.same_as for name, found in TABLE.items() for each in found if each.same_as}

_OF_MODULES = re.compile(r".*\..*|(search|ts|bf|cf)-.*", re.DOTALL)
"""Names of directives that modules define: with a dot, and those of the modules in the images of redis 8."""


def find(name: str, engine: Engine) -> Directive | None:
    """Return a directive as an engine has it; None if the table has none for this version."""
    return next((each for each in TABLE.get(name, ()) if each.exists_in(engine)), None)


def present_name(name: str) -> str:
    """Return the present name of a directive: two names of one directive have the same."""
    return _PRESENT_NAMES.get(name, name)


def refusal(name: str, value: str, engine: Engine, *, modules: bool = False) -> str:
    """Return why an engine refuses a directive, as the rest of a sentence after its name; empty if it accepts it.

    Args:
        value: all arguments, separated by spaces.
        modules: whether modules are loaded, which define directives of their own.
    """
    directive, is_newer = find(name, engine), engine.version.series > KNOWN[engine.name]
    if directive is None:
        if modules or is_newer or _OF_MODULES.fullmatch(name):
            return ""
        return f"is not a directive of {engine.name} {dotted(engine.version.series)}"
    if is_newer and isinstance(directive.kind, OneOf | Words | Events):
        return ""
    try:
        directive.kind.normal(value)
    except ValueError:
        return f"accepts {directive.kind.accepted}"
    return ""


def same(name: str, desired: str, actual: str, engine: Engine) -> bool | None:
    """Return whether a value of a server means the desired one; None if the table does not know the directive."""
    if desired == actual:  # so it is for nearly every directive of every server, in each pass
        return True
    is_short = len(desired) + len(actual) <= _REMEMBERED_BYTES
    return (_same_remembered if is_short else _same)(name, desired, actual, engine)


def _same(name: str, desired: str, actual: str, engine: Engine) -> bool | None:
    directive = find(name, engine)
    if directive is None:
        return None
    try:
        expected, found = directive.kind.normal(desired), directive.kind.normal(actual)
    except ValueError:  # of another build, or below a limit that only the operator has
        return False
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.items() <= found.items()
    return expected == found


_REMEMBERED_BYTES = 1024
"""Maximum size of values whose comparison is remembered."""

_same_remembered = lru_cache(maxsize=4096)(_same)  # the servers of a cluster report the same few values
