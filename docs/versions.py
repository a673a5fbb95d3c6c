"""The reference page of versions: lines of each engine, their newest and least safe releases, advisories and bugs."""

from __future__ import annotations

from collections.abc import Iterator

import operators
from shared.api.catalogue import Catalogue, dotted

HEADER = "<!-- Generated from the catalogues of versions by `make manifests`. Do not edit. -->\n"
INTRODUCTION = """\
# Versions

What the operators know of the versions of their databases. From it come the default versions, the warnings of
`kubectl apply`, the condition `Vulnerable` and the metric `platform_resource_advisory`. The sources are the projects'
own advisories and release notes, read on the day that each section names.

- Newest: the newest release of the line on that day.
- Safe from: no advisory below applies to this release and later ones of the line, in any configuration.
- Maintained: the project still publishes fixes for the line.
- Needs: a resource that does not use this is not affected.
"""


def to_markdown() -> str:
    """Return the page."""
    catalogues = [catalogue for operator in operators.installed() for catalogue in operator.catalogues]
    return "\n".join([HEADER + INTRODUCTION, *(line for catalogue in catalogues for line in _section(catalogue))])


def _section(catalogue: Catalogue) -> Iterator[str]:
    yield f"## {catalogue.engine}\n"
    yield (
        f"Looked up on {catalogue.looked_up}. Default version: {catalogue.default_version}. Image of the project: "
        f"`{catalogue.image}`.\n"
    )
    yield "| line | newest | safe from | maintained |"
    yield "|---|---|---|---|"
    for line in catalogue.lines:
        safe = catalogue.least_safe(line.series)
        newest, kept = f"[{line.newest}]({line.source})", "yes" if line.maintained else "no"
        yield f"| {dotted(line.series)} | {newest} | {dotted(safe) if safe else 'none'} | {kept} |"
    yield "\n| advisory | impact | needs | since | fixed in |"
    yield "|---|---|---|---|---|"
    for each in catalogue.advisories:
        since = "" if each.introduced == "0.0.0" else each.introduced
        fixed = ", ".join(each.fixed.split())
        yield f"| [{each.id}]({each.source}) | {each.impact} | {each.needs} | {since} | {fixed} |"
    if catalogue.bugs:
        yield "\n| versions | bug | needs | what the operator does | fixed in |"
        yield "|---|---|---|---|---|"
    for bug in catalogue.bugs:
        yield f"| {bug} | [{bug.effect}]({bug.source}) | {bug.needs} | {bug.avoided} | {bug.fixed} |"
    yield ""
