"""The first manifests that a newcomer types: those of the charts' notes and of README.md become Ready."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from e2e.scenarios.support.commands import RELEASE, ROOT, Helm, Kubectl
from operators import installed
from shared.kubernetes.kinds import Obj

pytestmark = pytest.mark.nightly

KINDS = {operator.main.kind.name: operator.main.kind for operator in installed()}
READY_SECONDS = 180


def commands_in(notes: str) -> dict[str, str]:
    """Return the commands in the notes of a chart that create a resource, by kind."""
    found = re.findall(r"^ *(.*\| kubectl apply --filename -)$", notes, re.MULTILINE)
    return {kind: command for kind in KINDS for command in found if f"kind: {kind}," in command}


def manifests_in(readme: str) -> dict[str, Obj]:
    """Return the manifests in README.md, by name: the smallest spec of each kind in its table, and the YAML blocks."""
    header = next(line for line in readme.splitlines() if line.startswith("| |"))
    row = next(line for line in readme.splitlines() if line.startswith("| smallest spec |"))
    found: dict[str, Obj] = {}
    for kind, cell in zip(header.split("|")[2:-1], row.split("|")[2:-1], strict=True):
        spec = yaml.safe_load("{" + cell.replace("`", "") + "}")
        name = f"readme-{kind.strip().lower()}"
        api_version = KINDS[kind.strip()].api_version
        found[name] = {"apiVersion": api_version, "kind": kind.strip(), "metadata": {"name": name}, "spec": spec}
    for block in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL):
        manifest = yaml.safe_load(block)
        found[manifest["metadata"]["name"]] = manifest
    return found


def await_ready(kubectl: Kubectl, *resources: str) -> None:
    kubectl("wait", "--for=condition=Ready", f"--timeout={READY_SECONDS}s", *resources)


def test_commands_of_the_notes_create_ready_resources(kubectl: Kubectl, helm: Helm) -> None:
    commands = commands_in(helm("get", "notes", RELEASE))
    assert commands.keys() == KINDS.keys()
    for command in commands.values():
        kubectl.shell(command)
    names = {kind: re.findall(r"name: ([\w-]+)", command)[0] for kind, command in commands.items()}
    await_ready(kubectl, *(f"{kind.plural}.{kind.group}/{names[kind.name]}" for kind in KINDS.values()))


def test_manifests_of_the_readme_become_ready(kubectl: Kubectl) -> None:
    manifests = manifests_in((ROOT / "README.md").read_text())
    assert {manifest["kind"] for manifest in manifests.values()} == KINDS.keys()
    for manifest in manifests.values():
        kubectl("apply", "--filename", "-", given=json.dumps(manifest))
        kind = KINDS[manifest["kind"]]
        resource = f"{kind.plural}.{kind.group}/{manifest['metadata']['name']}"
        await_ready(kubectl, resource)
        kubectl("delete", resource, "--wait=false")
