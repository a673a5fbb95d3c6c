"""The version of the plugin, which is that of the operators of the same release."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from plugin.databases import Database
from plugin.problem import Problem
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj

DISTRIBUTION = "platform-operators"
VERSION_LABEL = "app.kubernetes.io/version"
CONTAINER = "operator"

_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")


def own() -> str:
    """Return the version of this plugin: of the installed distribution, or of the checkout that it runs from."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        return str(tomllib.loads(project.read_text("utf-8"))["project"]["version"])
    return metadata.version(DISTRIBUTION)


def of_operator(deployment: Obj) -> str:
    """Return the version of an operator from its image, or from the label of its chart; empty if neither names one."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    image = next((str(each["image"]) for each in containers if each["name"] == CONTAINER), "")
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if found := _VERSION.fullmatch(tag.removeprefix("v")):
        return found[0]
    return accessors.label(deployment, VERSION_LABEL)


def require_same(database: Database, deployment: Obj) -> None:
    """Require that an operator has the version of this plugin: another one may execute other steps.

    Raises:
        Problem: the operator has another version, or does not name one.
    """
    running = of_operator(deployment)
    if running == own():
        return
    where = f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
    raise Problem(
        f"the {database.operator} operator ({where}) has version {running or 'unknown'}, and this plugin {own()}: it "
        "cannot know what another version does",
        f"install the plugin of version {running or 'of the operator'}",
    )
