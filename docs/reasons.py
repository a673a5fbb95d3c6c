"""The reference page of reasons: what conditions and events report, how urgent it is, and where the runbook helps."""

from __future__ import annotations

from collections.abc import Iterator

import operators
from shared.status.reasons import COMMON, Catalogue

HEADER = "<!-- Generated from the catalogues of reasons by `make manifests`. Do not edit. -->\n"
INTRODUCTION = """\
# Reasons of conditions and events

`kubectl describe` shows a reason in each condition and event. The message next to it names the objects and values.
In the templates below, `{name}` is such a value.

| severity | meaning |
|---|---|
| normal | The operator works or waits, and continues without help. |
| warning | The operator keeps retrying. Look into it if it lasts. |
| action | Nothing changes until a user changes something. `Stalled` is True, except while a Secret is awaited. |
"""


def to_markdown() -> str:
    """Return the page."""
    sections = [("All operators", COMMON)]
    sections += [(operator.name, operator.reasons) for operator in operators.installed()]
    return "\n".join([HEADER + INTRODUCTION, *(line for title, each in sections for line in _section(title, each))])


def _section(title: str, catalogue: Catalogue) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| reason | severity | meaning | messages |"
    yield "|---|---|---|---|"
    shown = {reason: reason.messages for reason in catalogue} | catalogue.extended
    for reason in sorted(shown):
        messages = "<br>".join(message.replace("|", "\\|") for message in shown[reason])
        link = f"[{reason}](../{reason.runbook})"
        yield f"| {link} | {reason.severity.value} | {reason.meaning} | {messages} |"
    yield ""
