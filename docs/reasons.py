"""The reference page of reasons: what conditions and events report, how urgent it is, and where the runbook helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import operators
import shared
from docs.messages import sites
from plugin.reasons import ENDS
from shared.status.reasons import COMMON, Catalogue, Reason, Severity

HEADER = "<!-- Generated from the catalogues and the messages in the code by `make manifests`. Do not edit. -->\n"
INTRODUCTION = f"""\
# Reasons of conditions and events

`kubectl describe` shows a reason in each condition and event. The message next to it names the objects and values.
In the templates below, `{{name}}` is such a value.

| severity | meaning |
|---|---|
| normal | {ENDS[Severity.NORMAL]} |
| warning | {ENDS[Severity.WARNING]} |
| action | {ENDS[Severity.ACTION]} `Stalled` is True, except while a Secret is awaited. |
"""


def to_markdown() -> str:
    """Return the page."""
    code = Path(*operators.__path__)
    sections = [("All operators", COMMON, Path(*shared.__path__))]
    sections += [(each.name, each.reasons, code / each.name) for each in operators.installed()]
    return "\n".join([HEADER + INTRODUCTION, *(line for section in sections for line in _section(*section))])


def _section(title: str, catalogue: Catalogue, code: Path) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| reason | severity | meaning | messages |"
    yield "|---|---|---|---|"
    shown = {reason: dict[str, None]() for reason in catalogue} | _messages(catalogue, code)
    for reason in sorted(shown):
        messages = "<br>".join(message.replace("|", "\\|") for message in shown[reason])
        link = f"[{reason}](../{reason.runbook})"
        yield f"| {link} | {reason.severity.value} | {reason.meaning} | {messages} |"
    yield ""


def _messages(catalogue: Catalogue, code: Path) -> dict[Reason, dict[str, None]]:
    """Return the messages in the code of a catalogue's operator, by their reasons, common ones included."""
    constants = {name.lower(): reason for each in (COMMON, catalogue) for name, reason in each.reasons.items()}
    found: dict[Reason, dict[str, None]] = {}
    for path in sorted(code.rglob("*.py")):
        for reasons, templates in sites(path):
            for reason in (constants.get(each.replace("_", "").lower()) for each in reasons if templates):
                if reason is not None:
                    found.setdefault(reason, {}).update(dict.fromkeys(templates))
    return found
