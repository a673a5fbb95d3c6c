"""Checks of documents: links, anchors, and the commands that a reader copies, as far as no cluster is needed.

Every check returns problems as text, an empty list if there are none.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import operators
from plugin.cli import cli
from shared.cli.options import parse_options
from tests.support.paths import REPOSITORY

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = ("make", "kubectl", "helm")
"""Programs whose commands in backticks are checked as well."""

KINDS = frozenset(
    [
        "pods",
        "pod",
        "pdb",
        "pv",
        "pvc",
        "node",
        "nodes",
        "events",
        "leases",
        "lease",
        "deployment",
        "statefulset",
        "secret",
        "configmap",
        "service",
        "certificates",
        "networkpolicy",
        "clusterrolebinding",
        "clusterrole",
    ]
)
"""Resources of Kubernetes and cert-manager that the documents name."""

VERBS_WITH_KIND = frozenset(["get", "describe", "scale", "patch", "annotate", "wait", "delete", "create", "edit"])
VERBS = VERBS_WITH_KIND | frozenset(["apply", "logs", "exec", "auth", "port-forward", "explain"])
VALUE_OPTIONS = frozenset(
    [
        "-n",
        "--namespace",
        "-o",
        "-l",
        "-f",
        "--dry-run",
        "--from-literal",
        "--filename",
        "--from-file",
        "-c",
        "-p",
        "--type",
        "--since",
        "--timeout",
        "--for",
        "--raw",
        "--field-selector",
        "--sort-by",
        "--as",
        "--replicas",
        "--tail",
        "--clusterrole",
        "--serviceaccount",
        "--patch",
    ]
)
SWITCHES = frozenset(
    [
        "--all-namespaces",
        "-i",
        "--all-pods",
        "--previous",
        "--overwrite",
        "--show-managed-fields",
        "--follow",
        "--all-containers",
        "--wait",
    ]
)
HELM_VERBS = frozenset(["install", "upgrade", "uninstall", "rollback", "test", "get", "status", "lint", "template"])
HELM_OPTIONS = frozenset(
    [
        "--namespace",
        "--create-namespace",
        "--set",
        "--reset-then-reuse-values",
        "--take-ownership",
        "--force-conflicts",
        "--install",
        "--values",
        "--version",
    ]
)
PLACEHOLDER = re.compile(r"^[A-Z_]+$|…")


def documents() -> list[Path]:
    """Return every Markdown file of the tree."""
    folders = [path for path in REPOSITORY.iterdir() if path.is_dir() and not path.name.startswith(".")]
    folders = [path for path in folders if path.name != "dist"]  # artifacts of releases
    folders.append(REPOSITORY / ".github")
    return sorted([*REPOSITORY.glob("*.md"), *(found for folder in folders for found in folder.rglob("*.md"))])


def broken_links(document: Path) -> list[str]:
    """Return the relative links and anchors of a document that lead nowhere."""
    problems = []
    text = FENCE.sub("", document.read_text())
    for target in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        page = found / "README.md" if found.is_dir() else found
        if not found.exists():
            problems.append(f"{target}: no such file")
        elif anchor and (page.suffix != ".md" or anchor not in anchors(page.read_text())):
            problems.append(f"{target}: no such heading")
    return problems


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub derives them; repeated headings are numbered."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 0
        while (candidate := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(candidate)
    return found


def commands(text: str) -> Iterator[str]:
    """Yield the commands of fenced blocks, and those in backticks that start with one of `COMMANDS`."""
    for language, block in FENCE.findall(text):
        joined = block.replace("\\\n", " ")
        if language == "console":
            yield from (line[2:] for line in joined.splitlines() if line.startswith("$ "))
        elif language in ("sh", "bash", "shell"):
            yield from (line for line in joined.splitlines() if line.strip() and not line.startswith("#"))
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        if code.startswith(tuple(f"{program} " for program in COMMANDS)):
            yield code


def yaml_blocks(text: str) -> list[str]:
    """Return the fenced blocks of YAML."""
    return [block for language, block in FENCE.findall(text) if language == "yaml"]


def problems_of(command: str) -> list[str]:
    """Return what is wrong with a command of a document."""
    inner = re.findall(r"\$\(([^()]+)\)", command)
    words = shlex.split(re.sub(r"\$\([^()]+\)", "SUBSTITUTED", command), comments=True)
    problems = [problem for each in inner for problem in problems_of(each)]
    while words and (words[0] == "export" or re.match(r"^[A-Z_]+=", words[0])):
        words = words[1:]
    if not words:
        return problems
    program, rest = Path(words[0]).name, words[1:]
    check = {"make": _make, "kubectl": _kubectl, "helm": _helm, "python": _python, "python3": _python}.get(program)
    if check is not None:
        problems += check(rest)
    return problems + list(_paths(words))


def _make(words: list[str]) -> Iterator[str]:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9.-]+):(?!=)", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+)\s*\?=", makefile, re.MULTILINE)) | {"FORCE", "GENERATED"}
    settings = dict(word.split("=", 1) for word in words if re.match(r"^[A-Z]+=", word))
    for word in words:
        name = word.partition("=")[0]
        if name in settings:
            if name not in variables:
                yield f"make: no variable {name}"
        elif not word.startswith("-") and word not in targets and not PLACEHOLDER.search(word):
            yield f"make: no target {word}"
    if "run" in words:
        yield from _flags(settings.get("OPERATOR", "memcached"), shlex.split(settings.get("ARGS", "")))


def _python(words: list[str]) -> Iterator[str]:
    modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
    for module in modules:
        if importlib.util.find_spec(module) is None:
            yield f"python: no module {module}"
        elif module.startswith("operators."):
            yield from _flags(module.partition(".")[2], words[words.index(module) + 1 :])


def _flags(operator: str, words: list[str]) -> Iterator[str]:
    for word in words:
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in operator_flags().get(operator, frozenset()):
            yield f"the {operator} operator has no flag {flag}"


@functools.cache
def operator_flags() -> dict[str, frozenset[str]]:
    """Return the flags of each operator, by its name."""
    found = {}
    for operator in operators.installed():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            parse_options(operator.process_name, operator.image_repository, ["--help"], {}, flags=operator.flags)
        found[operator.name] = frozenset(re.findall(r"--[a-z][a-z-]+", printed.getvalue()))
    return found


def _kubectl(words: list[str]) -> Iterator[str]:
    if words[:1] == ["platform"]:
        yield from _plugin(words[1:])
        return
    if words[:1] == ["krew"]:  # a plugin of others
        return
    words = words[: words.index("--")] if "--" in words else words
    plain, options = _without_values(words)
    yield from (f"kubectl: unknown option {option}" for option in options if option not in VALUE_OPTIONS | SWITCHES)
    verb, *arguments = plain or [""]
    if verb not in VERBS:
        yield f"kubectl: unknown verb {verb}"
    elif verb in VERBS_WITH_KIND and arguments and "--raw" not in options:
        for kind in arguments[0].split(","):
            if kind.partition("/")[0] not in KINDS | own_kinds() and not PLACEHOLDER.search(kind):
                yield f"kubectl: unknown kind {kind}"
    deployed = [operator.process_name for operator in operators.installed()]
    for word in arguments:
        named = re.search(r"platform-(\w+-operator)", word)
        if named and named[1] not in deployed and named[1] != "NAME-operator":
            yield f"kubectl: no operator is deployed as {named[0]}"


def _plugin(words: list[str]) -> Iterator[str]:
    name = next((word for word in words if not word.startswith("-")), "")
    command = cli.commands.get(name)
    if command is None and name:
        yield f"kubectl platform: unknown command {name}"
    known = options_of(command) if command else {"--help"}
    used = (word.partition("=")[0] for word in words if word.startswith("-"))
    yield from (f"kubectl platform {name}: unknown option {option}" for option in used if option not in known)


def options_of(command: click.Command) -> frozenset[str]:
    """Return the options of a command of the plugin."""
    return frozenset(option for each in command.params if isinstance(each, click.Option) for option in each.opts)


@functools.cache
def own_kinds() -> frozenset[str]:
    """Return the names under which kubectl knows the resources of the operators."""
    resources = [resource for operator in operators.installed() for resource in operator.resources]
    names = [(each.kind.plural, each.kind.name.lower(), *each.short_names) for each in resources]
    return frozenset(name for each in names for name in each)


def _helm(words: list[str]) -> Iterator[str]:
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb not in HELM_VERBS:
        yield f"helm: unknown verb {verb}"
    chart = next((word for word in words if word.startswith("charts/")), "")
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--") and word.partition("=")[0] not in HELM_OPTIONS:
            yield f"helm: unknown option {word}"
        if word == "--set":
            for assignment in re.split(r",(?![^{]*})", after):
                yield from unknown_value(chart or "charts/platform", assignment.partition("=")[0])


def unknown_value(chart: str, key: str) -> list[str]:
    """Return a problem if a chart has no value of that key, such as `redis.image.tag`."""
    first, _, rest = key.partition(".")
    part = f"charts/{first}-operator"
    if chart == "charts/platform" and rest and (REPOSITORY / part).is_dir():
        return unknown_value(part, rest)
    schema_file = REPOSITORY / chart / "values.schema.json"
    if not schema_file.exists():
        return [f"helm: no chart {chart}"]
    document = json.loads(schema_file.read_text())
    schema: dict[str, Any] = document
    for step in key.split("."):
        while "$ref" in schema:
            schema = document["$defs"][schema["$ref"].rpartition("/")[2]]
        properties = schema.get("properties", {})
        if step not in properties and not (properties == {} and schema.get("type") == "object"):
            return [f"helm: {chart} has no value {key}"]
        schema = properties.get(step, {"type": "object"})
    return []


def _without_values(words: list[str]) -> tuple[list[str], list[str]]:
    """Split words into arguments and options; the values of options are left out."""
    plain, options, skip = [], [], False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            name, given, _ = word.partition("=")
            options.append(name)
            skip = name in VALUE_OPTIONS and not given
        else:
            plain.append(word)
    return plain, options


def _paths(words: list[str]) -> Iterator[str]:
    """Yield the paths of this repository that do not exist, except those of the example operator greeter."""
    for word in words:
        path = word.partition("=")[2] if re.match(r"^[A-Z]+=", word) else word
        for part in path.split():
            top = part.partition("/")[0]
            inside = "/" in part and top != "" and not top.startswith(".") and (REPOSITORY / top).is_dir()
            if inside and "greeter" not in part and not (REPOSITORY / part).exists():
                yield f"no such file: {part}"


def unknown_flags(text: str) -> list[str]:
    """Return the flags in backticks that belong to no operator and to no program that the documents explain."""
    known = HELM_OPTIONS | {"--reuse-values"} | SWITCHES | VALUE_OPTIONS
    known |= {flag for flags in operator_flags().values() for flag in flags}
    known |= {option for command in cli.commands.values() for option in options_of(command)}
    found = re.findall(r"`(--[a-z][a-z-]+)`", FENCE.sub("", text))
    return [f"no flag {flag}" for flag in found if flag not in known]
