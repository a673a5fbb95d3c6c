"""How results look: a terminal gets colours and trees, a pipe the same text without them, and `-o json` the values."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from rich import markup
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from plugin.overview import BAD, GOOD, Condition, Overview, Server, Volume, duration, for_cluster

MARKS = {GOOD: ("green", "✓"), BAD: ("red", "✗")}
"""Colour and mark by status of a server."""

_CONTROLS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}


def visible(text: str) -> str:
    """Return text without what controls a terminal: a message may quote what a client of a database wrote."""
    return text.translate(_CONTROLS)


def escape(text: str) -> str:
    """Return text that rich prints as it is."""
    return markup.escape(visible(text))


_CONTROLS_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON does not escape."""


class Output:
    """Where a command writes.

    Args:
        console: the terminal or pipe.
        as_json: whether values are printed as JSON. Then texts, such as progress, go to the standard error.
    """

    def __init__(self, console: Console, *, as_json: bool = False) -> None:
        self.console = Console(width=console.width, emoji=False, stderr=True) if as_json else console
        self.as_json = as_json
        self._values = console

    def json(self, value: Any, *, line: bool = False) -> None:
        """Print a value as JSON, without colours and line breaks of a terminal.

        Args:
            line: whether it takes one line, as one of several values.
        """
        text = json.dumps(value, indent=None if line else 2, ensure_ascii=False, default=_plain)
        text = text.translate(_CONTROLS_IN_JSON)
        self._values.print(text, markup=False, highlight=False, soft_wrap=True)

    def result(self, value: Any, line: str) -> None:
        """Print what a command did: the value as JSON, or else the line."""
        if self.as_json:
            self.json(value)
        else:
            self.text(line)

    def text(self, line: str = "", style: str = "") -> None:
        """Print a line that may contain any characters."""
        self.console.print(
            visible(line), style=style or None, markup=False, highlight=False, soft_wrap=not self.is_terminal
        )

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table as kubectl does; the last column may wrap in a terminal, and is whole in a pipe."""
        lines = [[str(cell) for cell in row] for row in rows]
        if not self.is_terminal:
            widths = [max(len(row[i]) for row in (columns, *lines)) for i in range(len(columns))]
            for row in (columns, *lines):
                self.text("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            return
        self.console.print(self.grid(columns, lines))

    @staticmethod
    def grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
        """Return a table for a terminal."""
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(column, no_wrap=column != columns[-1], overflow="fold")
        for each in rows:
            table.add_row(*map(escape, each))
        return table

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads it: FORCE_COLOR and similar variables make no terminal of a pipe."""
        return self.console.file.isatty()


def row(each: Overview) -> list[str]:
    """Return the row of a resource in a table of many."""
    ready = each.ready
    available = each.condition("Available")
    marks = {"being deleted": each.deleting, "paused": each.paused, "of an earlier spec": not each.observed}
    states = ", ".join(mark for mark, applies in marks.items() if applies)
    reason = ready.reason + (f" ({states})" if states else "")
    message = "" if ready.normal else ready.message
    return [
        each.namespace,
        f"{each.kind}/{each.name}",
        ready.status,
        available.status if available else "-",
        reason,
        duration(ready.seconds),
        message,
    ]


COLUMNS = ("NAMESPACE", "RESOURCE", "READY", "AVAILABLE", "REASON", "SINCE", "MESSAGE")
"""Columns of `row`."""


def tree(each: Overview, target: Sequence[str] = ()) -> Tree:
    """Return a resource as a tree: conditions, unfinished work, what waits for a user, and the servers.

    Args:
        target: flags for its cluster, in commands that a user may copy.
    """
    where = shlex.join([*target, "--namespace", each.namespace])
    style = "green" if each.ready.normal else "red"
    title = [f"[bold]{escape(each.reference)}[/]", escape(each.version), f"[{style}]{escape(each.phase)}[/]"]
    root = Tree("  ".join(filter(None, title)))
    if not each.observed:
        root.add("[yellow]The status describes an earlier spec: the operator has not observed the last change yet.[/]")
    if each.deleting:
        root.add("[yellow]It is being deleted.[/]")
    for condition in each.conditions:
        root.add(_line(condition, target))
    for work in each.progress:
        root.add(f"progress: {escape(work)}")
    if each.decision:
        branch = root.add("[bold red]waits for your decision[/]")
        branch.add(escape(each.decision["message"]))
        branch.add(escape(f"kubectl platform confirm {each.kind.lower()}/{each.name} {where}"))
    branches: dict[str, Tree] = {}
    for server in each.servers:
        if server.group not in branches:
            branches[server.group] = root.add(escape(server.group)) if server.group else root
        leaf = branches[server.group].add(_server(server))
        for volume in server.volumes:
            leaf.add(escape(_volume(volume)))
    for sentence in each.unread:
        root.add(f"[yellow]{escape(sentence)}[/]")
    return root


def _volume(volume: Volume) -> str:
    used = f"{volume.used} of " if volume.used else ""
    state = "" if volume.phase == "Bound" else volume.phase
    parts = [f"volume {volume.name}", f"{used}{volume.size}", volume.storage_class, state]
    return "  ".join(filter(None, parts))


def _line(condition: Condition, target: Sequence[str]) -> str:
    style = "green" if condition.normal else "yellow" if condition.status == "Unknown" else "red"
    found = f"[{style}]{escape(condition.type)}={condition.status}[/] for {duration(condition.seconds)}"
    if condition.normal:
        return found
    return f"{found}  {escape(condition.reason)}: {escape(for_cluster(condition.message, target))}"


def _server(server: Server) -> str:
    style, mark = MARKS.get(server.status, ("yellow", "?"))
    details = "  ".join(f"{name} {value}" for name, value in server.details.items())
    host = f"on {server.host}" if server.host else ""
    parts = [f"[{style}]{mark} {escape(server.name)}[/]", server.role, server.reason, server.message, host, details]
    return "  ".join(parts[:1] + [escape(part) for part in parts[1:] if part])


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return str(value)
