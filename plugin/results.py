"""Values that commands print with `-o json`, as docs/reference/kubectl-platform.md documents them.

Fields may be added later; their meaning does not change.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from plugin.databases import Database


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of what a command prints.

    Attributes:
        of: class whose fields the printed object has, or its module and name; Mapping for an object of Kubernetes.
        form: how the objects are printed, in words.
        details: names of the values in `details`, in a class that has them.
    """

    of: type | str
    form: str
    details: tuple[str, ...] = ()

    @property
    def type(self) -> type:
        """The class, which may be in a module that only its command loads."""
        if not isinstance(self.of, str):
            return self.of
        module, _, name = self.of.rpartition(".")
        found: type = getattr(import_module(module), name)
        return found

    def fields(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each field, and what it means."""
        meanings = dict(_meanings(self.type.__doc__ or ""))
        for each in dataclasses.fields(self.type) if dataclasses.is_dataclass(self.type) else ():
            named = ", ".join(f"`{name}`" for name in self.details) if each.name == "details" else ""
            yield each.name, f"{meanings.get(each.name, '')}{named and ' They are '}{named}{named and '.'}"


def one(of: type | str) -> Shape:
    """Return the shape of one object."""
    return Shape(of, "one object")


def listed(of: type) -> Shape:
    """Return the shape of a list of objects."""
    return Shape(of, "a list of objects")


def lines(of: type) -> Shape:
    """Return the shape of objects that each take a line."""
    return Shape(of, "one object a line")


def _meanings(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the section "Attributes" of a docstring; one line may be about several."""
    _, _, section = inspect.cleandoc(docstring).partition("Attributes:\n")
    names, text = "", ""
    for line in section.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ": " in line:
            yield from ((name.strip(), text) for name in names.split(",") if names)
            names, _, text = line.strip().partition(": ")
        elif line.strip():
            text = f"{text} {line.strip()}"
    yield from ((name.strip(), text) for name in names.split(",") if names)


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command that acts on a resource.

    Attributes:
        action: one of paused, resumed, confirmed, approved, restarted, failed over, backed up, reported or connected.
        kind: kind of the resource.
        namespace: namespace of the resource.
        name: name of the resource.
        message: the same in words.
        details: values of the action by their names.
    """

    action: str
    kind: str
    namespace: str
    name: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, action: str, database: Database, namespace: str, name: str, message: str, **details: Any) -> Done:
        """Return the result of an action on a resource."""
        return cls(action, database.kind.name, namespace, name, message, details)


@dataclass(frozen=True, slots=True)
class Advisory:
    """A published advisory that applies to a resource.

    Attributes:
        kind: kind of the resource.
        namespace: namespace of the resource.
        name: name of the resource.
        version: version that it runs.
        reason: reason of the condition Vulnerable.
        message: message of the condition Vulnerable.
    """

    kind: str
    namespace: str
    name: str
    version: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the operator logged.

    Attributes:
        time: time of the line; empty if the operator logs text.
        level: level of the line; empty if the operator logs text.
        message: the message, or the whole line if the operator logs text.
        exception: traceback; empty if there is none.
    """

    time: str
    level: str
    message: str
    exception: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, on the standard error.

    Attributes:
        error: the problem.
        fix: command or change that helps; empty if none is known.
        exit_code: exit code of the command.
    """

    error: str
    fix: str
    exit_code: int


def acted(*details: str, many: bool = False) -> Shape:
    """Return the shape of the result of an action.

    Args:
        details: names of its values.
        many: whether the action is on several resources.
    """
    return dataclasses.replace((listed if many else one)(Done), details=details)
