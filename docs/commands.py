"""Generates docs/reference/kubectl-platform.md from the commands of the plugin."""

from __future__ import annotations

from collections.abc import Iterator

import click

from plugin.cli import PROGRAM, cli
from plugin.commands.base import SHAPES

HEADER = """\
<!-- Generated from the commands of the plugin by `make manifests`. Do not edit. -->

# kubectl platform

[How to install and use it](../how-to/kubectl-plugin.md). Each command ends with 0, or with 1 and a message that
states what is wrong and what helps; with 2 if its options are not valid. `connect` ends as its client does: redis-cli
ends with 0 although the server answered with an error.

With `-o json`, the standard output has exactly the values that the command documents below, and nothing else. Progress
and questions go to the standard error, and so does an error: `{"error": "…", "fix": "…", "exit_code": 1}`. A later
version may add fields, and does not change the meaning of a present one. Invalid options are reported as text.
"""

SHARED = ("namespace", "context", "kubeconfig")
"""Options of every command, which kubectl has as well."""


def to_markdown() -> str:
    """Return the page, in Markdown."""
    pages = [HEADER, "", "| command | does |", "|---|---|"]
    pages += [
        f"| [`{name}`](#{name}) | {each.get_short_help_str(100)} |" for name, each in sorted(cli.commands.items())
    ]
    pages += ["", "Every command takes `--namespace`, `--context` and `--kubeconfig`, as kubectl does."]
    for name, each in sorted(cli.commands.items()):
        pages += ["", f"## {name}", "", _text(each), "", "```console", *_examples(each), "```"]
        if options := [one for one in each.params if isinstance(one, click.Option) and one.name not in SHARED]:
            pages += ["", "| option | meaning |", "|---|---|", *map(_row, options)]
        pages += ["", *_shape(name)]
    return "\n".join(pages).replace("\n\n\n", "\n\n") + "\n"


def _text(command: click.Command) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))


def _examples(command: click.Command) -> list[str]:
    lines = (command.epilog or "").splitlines()
    return [f"$ {line.strip()}" for line in lines if line.strip().startswith(PROGRAM)]


def _shape(name: str) -> Iterator[str]:
    """Yield what a command prints with -o json."""
    shape, fields = SHAPES[name], list(SHAPES[name].fields())
    if not fields:
        yield f"With `-o json`: {shape.form}, a manifest of Kubernetes."
        return
    yield from (f"With `-o json`: {shape.form}.", "", "| field | meaning |", "|---|---|")
    yield from (f"| `{field}` | {meaning} |" for field, meaning in fields)


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    default = option.default
    shown = f" Default: {default:g}." if isinstance(default, float) and option.show_default else ""
    shown = f" Default: {default}." if isinstance(default, str) and option.show_default else shown
    return f"| {names} | {option.help}{shown} |"
