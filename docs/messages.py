"""Messages as the code has them: the reason and the text of every call that reports both, for the page of reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Assigned = dict[str, list[ast.expr]]
"""The values that each local variable may have at a point of a function."""

TAKES_REASON = {
    "wait": (0, 1),
    "progressing": (0, 1),
    "blocked": (0, 1),
    "paused": (0, 1),
    "note": (0, 1),
    "Step": (2, 3),
}
TAKES_REASON |= {
    "SecretProblem": (0, 1),
    "UnusableSecret": (0, 1),
    "Outcome": (1, 2),
    "Verdict": (1, 2),
    "Finding": (1, 2),
}
"""Positions of the reason and of the message among the arguments of a call."""


class Site(NamedTuple):
    """A call that reports a message.

    Attributes:
        reasons: names of the constants that it may take as its reason.
        templates: forms of the message; `{name}` is a value. Empty if the text is made elsewhere.
    """

    reasons: tuple[str, ...]
    templates: tuple[str, ...]


def sites(path: Path) -> tuple[Site, ...]:
    """Return the calls of a module that report a declared reason."""
    functions = (
        each
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return tuple(site for function in functions for site in _sites(function.body, {}))


def _sites(block: list[ast.stmt], local: Assigned) -> Iterator[Site]:
    """Follow a block statement by statement, with the values that each variable may have there."""
    for statement in block:
        nested = [inner for inner in _blocks(statement) if inner]
        heads = [statement] if not nested else _heads(statement)
        for node in (each for head in heads for each in ast.walk(head)):
            if isinstance(node, ast.NamedExpr):
                local = local | {node.target.id: [node.value]}
        for node in (each for head in heads for each in ast.walk(head)):
            if isinstance(node, ast.Call) and (site := _site(node, local)):
                yield site
        local = local | _assigned(statement)
        after = [] if _always_runs_one(statement) else [local]
        for inner in nested:
            yield from _sites(inner, local)
            if not isinstance(inner[-1], ast.Return | ast.Raise | ast.Continue):
                after.append(_after(inner, local))
        if nested and after:
            names = {name for each in after for name in each}
            local = {name: [value for each in after for value in each.get(name, [])] for name in names}


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return blocks + [handler.body for handler in getattr(statement, "handlers", [])]


def _heads(statement: ast.stmt) -> list[ast.AST]:
    return [getattr(statement, name) for name in ("test", "iter", "subject") if hasattr(statement, name)]


def _always_runs_one(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and bool(statement.orelse)


def _after(block: list[ast.stmt], local: Assigned) -> Assigned:
    for statement in block:
        local = local | _assigned(statement)
    return local


def _site(call: ast.Call, local: Assigned) -> Site | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in TAKES_REASON:
        return None
    positions = TAKES_REASON[name]
    if len(call.args) <= max(positions) or any(isinstance(each, ast.Starred) for each in call.args[: max(positions)]):
        return None
    reason, message = (call.args[position] for position in positions)
    reasons = tuple(each.id for each in _choices(reason, local) if isinstance(each, ast.Name) and each.id.isupper())
    texts = tuple(dict.fromkeys(_templates(message, local)))
    informative = tuple(text for text in texts if re.sub(r"\{\w+\}|\W", "", text))
    return Site(reasons, informative) if reasons else None


def _assigned(statement: ast.stmt) -> Assigned:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return {name: [value]}
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
            values = _tuples(value)
            names = [(position, target.id) for position, target in enumerate(targets) if isinstance(target, ast.Name)]
            return {name: [each.elts[position] for each in values] for position, name in names}
        case _:
            return {}


def _tuples(value: ast.expr) -> list[ast.Tuple]:
    if isinstance(value, ast.IfExp):
        return _tuples(value.body) + _tuples(value.orelse)
    return [value] if isinstance(value, ast.Tuple) else []


def _choices(value: ast.expr, local: Assigned, depth: int = 4) -> Iterator[ast.expr]:
    """Yield the expressions that a value may come from: both sides of a condition, assignments of a variable."""
    if isinstance(value, ast.IfExp):
        yield from _choices(value.body, local, depth)
        yield from _choices(value.orelse, local, depth)
    elif isinstance(value, ast.Name) and value.id in local and depth:
        for each in local[value.id]:
            yield from _choices(each, local, depth - 1)
    else:
        yield value


def _templates(value: ast.expr, local: Assigned) -> Iterator[str]:
    for choice in _choices(value, local):
        if isinstance(choice, ast.BinOp) and isinstance(choice.op, ast.Add):
            rights = list(_templates(choice.right, local))
            yield from (left + right for left in _templates(choice.left, local) for right in rights)
        else:
            yield _text(choice)


def _text(value: ast.expr) -> str:
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(_text(part) for part in value.values)
        case ast.FormattedValue():
            return "{" + _name(value.value) + "}"
        case ast.Call(func=ast.Attribute(value=text, attr="strip" | "rstrip")):
            return _text(text)
        case _:
            return "{" + _name(value) + "}"


def _name(value: ast.expr) -> str:
    """Name a value after what it is: `pod` for `pod.name`, `names` for `', '.join(names)`."""
    match value:
        case ast.Attribute(attr=name, value=ast.Name(id="self")):
            return name.strip("_")
        case ast.Attribute(attr="name" | "value", value=inner):
            return _name(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.strip("_").lower()
        case ast.Call(func=ast.Attribute(attr="join"), args=[inner, *_]):
            return _name(inner)
        case ast.Call(args=[inner, *_], func=ast.Name(id="len" | "str" | "repr" | "sorted" | "round" | "int" | "sum")):
            return _name(inner)
        case ast.Call(func=inner):
            return _name(inner)
        case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner) | ast.Subscript(value=inner) | ast.BinOp(left=inner):
            return _name(inner)
        case ast.IfExp(body=inner):
            return "detail" if isinstance(inner, ast.Constant | ast.JoinedStr) else _name(inner)
        case _:
            return "detail"
