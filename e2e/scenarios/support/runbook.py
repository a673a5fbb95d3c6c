"""The commands of the runbook, which scenarios type as they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping

from e2e.scenarios.support.commands import ROOT, Kubectl


def commands_of(page: str, heading: str) -> list[str]:
    """Return the kubectl commands in a section of the runbook, in order.

    Args:
        page: file in docs/runbook, without suffix.
        heading: heading of the section, usually a reason.
    """
    text = (ROOT / f"docs/runbook/{page}.md").read_text()
    _, found, rest = text.partition(f"\n### {heading}\n")
    assert found, f"{page}.md has no section {heading}"
    section = re.split(r"\n##+ (?!.*\n##)", rest)[0]
    return re.findall(r"(?:`|^\$ )(kubectl [^`\n]+)", section, re.MULTILINE)


def follow(kubectl: Kubectl, page: str, heading: str, verb: str, names: Mapping[str, str]) -> str:
    """Run the command with this verb of a section, and return its output.

    Args:
        verb: first arguments of kubectl, such as `delete pvc`.
        names: the names of the user by those of the runbook.
    """
    [command] = [each for each in commands_of(page, heading) if each.startswith(f"kubectl {verb}")]
    for written, meant in names.items():
        command, count = re.subn(rf"(?<!\w){re.escape(written)}(?!\w)", meant, command)
        assert count, f"the runbook's command does not have {written}: {command}"
    return kubectl.shell(command)
