"""Skeletons from templates: `templates/operator` once an operator, `templates/kind` once a kind.

A template's path and text hold names between @. Where a file exists, the chart's rules are extended, a package's
__init__.py is kept, and anything else is refused.
"""

from __future__ import annotations

import keyword
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]
TEMPLATES = Path(__file__).parent / "templates"
EXTENDED = "rules.yaml"


class ScaffoldError(Exception):
    """The skeleton cannot be written; the message says why."""


def new_operator(name: str, kind: str) -> list[Path]:
    """Write an operator with one kind.

    Args:
        name: of its folder, such as `greeter`.
        kind: such as `Greeter`.

    Returns:
        The files written.

    Raises:
        ScaffoldError: a name is not usable, or the operator exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]{1,29}", name) or keyword.iskeyword(name):
        raise ScaffoldError(f"NAME={name}: give 2 to 30 lower-case letters and digits, such as NAME=greeter")
    if (PROJECT / "operators" / name).exists():
        raise ScaffoldError(f"operators/{name} exists; a further kind: make new-kind OPERATOR={name} KIND=…")
    names = _names(name, kind, room=name, group=f"{name}.example.com", sample="small")
    files = [*_written(TEMPLATES / "operator", names), *_written(TEMPLATES / "kind", names)]
    lock = PROJECT / "locks" / f"{name}.txt"
    shutil.copyfile(_lock_without_extra(), lock)
    return _formatted([*files, lock])


def new_kind(operator: str, kind: str) -> list[Path]:
    """Add a kind to an operator: a folder of its own, and its entry in operator.py.

    Raises:
        ScaffoldError: the kind's name is not usable, or there is no such operator, or the kind exists.
    """
    registry = PROJECT / "operators" / operator / "operator.py"
    if not registry.exists():
        raise ScaffoldError(f"OPERATOR={operator}: there is no operators/{operator}/operator.py; see make new-operator")
    crds = PROJECT / "charts" / f"{operator}-operator" / "files" / "crds"
    crd = min(crds.glob("*.yaml")).read_text()
    group = re.findall(r"^  group: (\S+)$", crd, re.MULTILINE)[0]
    names = _names(operator, kind, room=f"{operator}/{kind.lower()}", group=group, sample=kind.lower())
    if (PROJECT / "operators" / names["room"]).exists():
        raise ScaffoldError(f"operators/{names['room']} exists")
    files = list(_written(TEMPLATES / "kind", names))
    registry.write_text(_registered(registry.read_text(), names))
    return _formatted([*files, registry])


def _names(name: str, kind: str, *, room: str, group: str, sample: str) -> dict[str, str]:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{1,29}", kind):
        raise ScaffoldError(f"KIND={kind}: give a name such as KIND=Greeter")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lower = kind.lower()
    return {
        "name": name,
        "Kind": kind,
        "kind": lower,
        "plural": lower + ("es" if lower.endswith(("s", "x", "ch", "sh")) else "s"),
        "room": room,
        "module": f"operators.{room.replace('/', '.')}",
        "group": group,
        "sample": sample,
        "version": str(project["version"]),
    }


def _written(templates: Path, names: Mapping[str, str]) -> Iterator[Path]:
    """Write the files of templates, and yield them."""
    for template in sorted(templates.rglob("*.tmpl")):
        file = PROJECT / _filled(str(template.relative_to(templates).with_suffix("")), names)
        text = _filled(template.read_text(), names)
        if file.exists() and file.name == "__init__.py":
            continue
        if file.exists() and file.name == EXTENDED:
            text = file.read_text() + text
        elif file.exists():
            raise ScaffoldError(f"{file.relative_to(PROJECT)} exists")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        yield file


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: names[found[1]], text)


def _registered(text: str, names: Mapping[str, str]) -> str:
    """operator.py with a further entry in `kinds`."""
    start = text.index("kinds=(") + len("kinds=(")
    depth, end = 1, start
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    entries, entry = text[start : end - 1].rstrip().rstrip(","), f"{names['kind']}_controller"
    line = f"from {names['module']} import controller as {entry}\n"
    future = "from __future__ import annotations\n"
    text = f"{text[:start]}{entries}, {entry}.SERVED){text[end:]}"
    return text.replace(future, f"{future}\n{line}", 1)


def _lock_without_extra() -> Path:
    """The lock of an operator that has no dependencies of its own."""
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for lock in sorted((PROJECT / "locks").glob("*.txt")):
        if lock.stem not in {*extras, "dev"}:
            return lock
    raise ScaffoldError("locks/ has no lock of an operator without an extra in pyproject.toml: make lock")


def _formatted(files: list[Path]) -> list[Path]:
    """The files, with imports and lines in order."""
    sources = [str(file) for file in files if file.suffix == ".py"]
    ruff = str(Path(sys.executable).parent / "ruff")
    subprocess.run([ruff, "check", "--quiet", "--fix", "--select", "I", *sources], cwd=PROJECT, check=True)
    subprocess.run([ruff, "format", "--quiet", *sources], cwd=PROJECT, check=True)
    return [file.relative_to(PROJECT) for file in files]
