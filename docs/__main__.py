"""Generates documentation from the code: `python -m docs [directory of a project]`.

- docs/reference/packages.md: every package and module of the product, with the first line of its docstring.
- docs/reference/lifecycles.md: a diagram of every `LIFECYCLES` of the product.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

from shared.status.lifecycle import Lifecycle

PROJECT = Path(__file__).parents[1]
PACKAGES = ("shared", "operators", "plugin", "simulator")
HEADER = "<!-- Generated from the modules' docstrings by `make manifests`. Do not edit. -->\n"
LIFECYCLES_PAGE = """\
<!-- Generated from the tables of lifecycles by `make manifests`. Do not edit. -->

# Lifecycles

What can lose data follows a table of legal transitions ([why](../decisions/lifecycles-are-tables.md)). Each diagram is
one table: its states with their meaning, and the events that lead from one state to another.
"""


def packages() -> str:
    """Return the index of packages and modules, in Markdown."""
    lines = [HEADER, "# Packages and modules", "", "Each module with the first line of its docstring."]
    for package in PACKAGES:
        for init in sorted((PROJECT / package).rglob("__init__.py")):
            modules = sorted(path for path in init.parent.glob("*.py") if path != init)
            lines += ["", f"## {init.parent.relative_to(PROJECT)}", "", _summary(init)]
            if modules:
                lines += ["", "| module | contents |", "|---|---|"]
                lines += [f"| `{path.name}` | {_summary(path)} |" for path in modules]
    return "\n".join(lines) + "\n"


def lifecycles() -> Iterator[Lifecycle]:  # type: ignore[type-arg]  # of any states and events
    """Yield every lifecycle that a module of the product exports, sorted by name."""
    found = {}
    for package in PACKAGES:
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if module.name.rpartition(".")[2] == "__main__":
                continue
            for each in getattr(importlib.import_module(module.name), "LIFECYCLES", ()):
                found[each.name] = each
    yield from (found[name] for name in sorted(found))


def mermaid(lifecycle: Lifecycle) -> str:  # type: ignore[type-arg]  # of any states and events
    """Return a lifecycle as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {lifecycle.initial.name}"]
    lines += [f"    {state.name}: {state.value}" for state in lifecycle.transitions]
    for state, events in lifecycle.transitions.items():
        lines += [f"    {state.name} --> {target.name}: {event.value}" for event, target in events.items()]
        lines += [f"    {state.name} --> [*]"] * (not events)
    return "\n".join(lines)


def diagrams() -> str:
    """Return the page of lifecycles, in Markdown."""
    return "".join(
        [LIFECYCLES_PAGE, *(f"\n## {each.name}\n\n```mermaid\n{mermaid(each)}\n```\n" for each in lifecycles())]
    )


def write(project: Path) -> None:
    """Write the generated files below `project`."""
    (project / "docs/reference").mkdir(parents=True, exist_ok=True)
    (project / "docs/reference/packages.md").write_text(packages())
    (project / "docs/reference/lifecycles.md").write_text(diagrams())


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = docstring.partition("\n\n")[0].replace("\n", " ")
    return paragraph.partition(". ")[0].rstrip(".").replace("|", r"\|")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)
