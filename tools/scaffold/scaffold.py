"""Scaffolding from templates: `templates/operator` once per operator, `templates/kind` once per kind.

The path and the text of a template contain names between @ signs. If a file exists already, the chart's rules are
extended and the `__init__.py` of a package is kept; any other existing file is an error.
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
    """The files cannot be written."""


def new_operator(name: str, kind: str) -> list[Path]:
    """Write an operator with one kind.

    Args:
        name: name of the operator and its directory, such as `greeter`.
        kind: name of the kind, such as `Greeter`.

    Returns:
        Paths of the written files.

    Raises:
        ScaffoldError: a name is invalid, or the operator already exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]{1,29}", name) or keyword.iskeyword(name):
        raise ScaffoldError(
            f"NAME={name} is invalid: use a letter and 1 to 29 more letters or digits, all lower-case, such as greeter"
        )
    if (PROJECT / "operators" / name).exists():
        raise ScaffoldError(f"operators/{name} already exists; to add a kind: make new-kind OPERATOR={name} KIND=…")
    names = _names(name, kind, package=name, group=f"{name}.example.com", sample="small")
    files = [*_write_templates(TEMPLATES / "operator", names), *_write_templates(TEMPLATES / "kind", names)]
    lock = PROJECT / "locks" / f"{name}.txt"
    shutil.copyfile(_lock_without_extra(), lock)
    return _format([*files, lock])


def new_kind(operator: str, kind: str) -> list[Path]:
    """Add a kind to an operator: a new package, and an entry in operator.py.

    Args:
        operator: name of the operator.
        kind: name of the kind, such as `Greeter`.

    Returns:
        Paths of the written files.

    Raises:
        ScaffoldError: the name of the kind is invalid, the operator does not exist, or the kind already exists.
    """
    registry = PROJECT / "operators" / operator / "operator.py"
    if not registry.exists():
        raise ScaffoldError(
            f"OPERATOR={operator} is unknown: operators/{operator}/operator.py does not exist;"
            f" to create it: make new-operator NAME={operator}"
        )
    crds = PROJECT / "charts" / f"{operator}-operator" / "files" / "crds"
    crd = min(crds.glob("*.yaml")).read_text()
    group = re.findall(r"^  group: (\S+)$", crd, re.MULTILINE)[0]
    names = _names(operator, kind, package=f"{operator}/{kind.lower()}", group=group, sample=kind.lower())
    if (PROJECT / "operators" / names["package"]).exists():
        raise ScaffoldError(f"operators/{names['package']} already exists")
    files = list(_write_templates(TEMPLATES / "kind", names))
    registry.write_text(_with_entry(registry.read_text(), names))
    return _format([*files, registry])


def _names(name: str, kind: str, *, package: str, group: str, sample: str) -> dict[str, str]:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{1,29}", kind):
        raise ScaffoldError(f"KIND={kind} is invalid: use a capitalized name such as Greeter, at most 30 characters")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    lower = kind.lower()
    return {
        "name": name,
        "Kind": kind,
        "kind": lower,
        "plural": lower + ("es" if lower.endswith(("s", "x", "ch", "sh")) else "s"),
        "package": package,
        "module": f"operators.{package.replace('/', '.')}",
        "group": group,
        "sample": sample,
        "version": str(project["version"]),
    }


def _write_templates(templates: Path, names: Mapping[str, str]) -> Iterator[Path]:
    """Write the file of each template and yield its path."""
    for template in sorted(templates.rglob("*.tmpl")):
        file = PROJECT / _substitute(str(template.relative_to(templates).with_suffix("")), names)
        text = _substitute(template.read_text(), names)
        if file.exists() and file.name == "__init__.py":
            continue
        if file.exists() and file.name == EXTENDED:
            text = file.read_text() + text
        elif file.exists():
            raise ScaffoldError(f"{file.relative_to(PROJECT)} already exists")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        yield file


def _substitute(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: names[found[1]], text)


def _with_entry(text: str, names: Mapping[str, str]) -> str:
    """Return the text of operator.py with an additional entry in `kinds`."""
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
    """Return the lock of an operator without additional dependencies."""
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for lock in sorted((PROJECT / "locks").glob("*.txt")):
        if lock.stem not in {*extras, "build", "common", "dev"}:
            return lock
    raise ScaffoldError("locks/ has no lock of an operator without additional dependencies; fix: make lock")


def _format(files: list[Path]) -> list[Path]:
    """Sort the imports and format the files; return their relative paths."""
    sources = [str(file) for file in files if file.suffix == ".py"]
    ruff = str(Path(sys.executable).parent / "ruff")
    subprocess.run([ruff, "check", "--quiet", "--fix", "--select", "I", *sources], cwd=PROJECT, check=True)
    subprocess.run([ruff, "format", "--quiet", *sources], cwd=PROJECT, check=True)
    return [file.relative_to(PROJECT) for file in files]
