"""Arguments of etcd: those that extraArgs may set, and those that it must not, as patterns for CEL and Python.

flags.toml has the flags. Source: etcdmain/config.go and embed/config.go of 3.4.13, 3.5.35, 3.6.16 and 3.7.3. The
container tests start each of these versions with the accepted arguments.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

REWRITTEN = r"^.*[$][(].*$"
"""Arguments with $(NAME): Kubernetes replaces it by a variable, with a value that was not checked."""

Series = tuple[int, int]


class Flag(NamedTuple):
    """A flag of etcd.

    Attributes:
        value: pattern of the text after the name in extraArgs; empty for a flag that the operator sets, so that
            extraArgs must not.
        first, last: first and last series with this flag.
        is_shared: whether the operator sets it too, to values that `RESERVED_FLAGS` keeps from extraArgs.
    """

    value: str
    first: Series = (3, 4)
    last: Series = (3, 7)
    is_shared: bool = False


_TABLE = tomllib.loads(Path(__file__).with_name("flags.toml").read_text("utf-8"))
_FORMS: dict[str, str] = _TABLE["forms"]


def _flag(value: str, first: Series = (3, 4), last: Series = (3, 7), *, is_shared: bool = False) -> Flag:
    """Return the flag of a row in flags.toml, which explains its fields."""
    return Flag(_FORMS.get(value, value), (first[0], first[1]), (last[0], last[1]), is_shared)


_FORMERLY_EXPERIMENTAL = {name: _flag(**row) for name, row in _TABLE["formerly-experimental"].items()}

FLAGS = {
    **dict.fromkeys(_TABLE["operators"].split(), Flag("")),
    **{name: _flag(**row) for name, row in _TABLE["flags"].items()},
    **{name: flag._replace(first=(3, 6)) for name, flag in _FORMERLY_EXPERIMENTAL.items()},
    **{f"experimental-{name}": flag._replace(last=(3, 6)) for name, flag in _FORMERLY_EXPERIMENTAL.items()},
}
"""The flags of etcd, by name: the builder, the reserved and the accepted ones derive from it.

A flag that is not here is neither set by the operator (`argument`) nor accepted in extraArgs.
"""

USER_FLAGS = {name: flag for name, flag in FLAGS.items() if flag.value}
"""Flags that extraArgs may set, by name."""

_REFUSED = _TABLE["refused"].split()
_SET = [name for name, flag in FLAGS.items() if not flag.value and not re.fullmatch("|".join(_REFUSED), name)]

RESERVED_FLAGS = (
    rf"^--?(({'|'.join((*_SET, *_REFUSED))})(=.*)?|feature-gates=.*(InitialCorruptCheck|CompactHashCheck).*)$"
)
"""Flags that users must not set: those of the operator, of other fields, and the refused ones of flags.toml."""

ACCEPTED = rf"^--({'|'.join(f'{name}{flag.value}' for name, flag in USER_FLAGS.items())})$"
"""One argument including its value that etcd accepts: it exits on others, or stops parsing flags there."""


def argument(name: str, value: object) -> str:
    """Return an argument of the operator. etcd takes the last one of a name, and extraArgs follow.

    Raises:
        ValueError: extraArgs may set the flag, or it is not in the table, so that extraArgs could override the value.
    """
    flag = FLAGS.get(name)
    if flag is None or (flag.value and not flag.is_shared):
        raise ValueError(f"--{name} is no flag of the operator in FLAGS, so that extraArgs could override it")
    return f"--{name}={value}"


def absent(series: Series) -> str:
    """Return a pattern of the flags that a series does not have: etcd would not start."""
    names = [name for name, flag in USER_FLAGS.items() if not flag.first <= series <= flag.last]
    return rf"^--({'|'.join(names)})(=.*)?$"
