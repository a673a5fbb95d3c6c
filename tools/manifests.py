"""Generate all generated files from the registry of operators: `python -m tools.manifests [PROJECT_DIRECTORY]`."""

from __future__ import annotations

import sys
from pathlib import Path

import operators
from charts.values import __main__ as values
from dashboards import __main__ as dashboards
from dashboards.rules import __main__ as rules
from docs import __main__ as docs
from docs import commands, compatibility, reasons, resources, tests_map, versions
from shared.api import crd
from tools.local.environment import forget_clusters

PROJECT = Path(__file__).parents[1]


def write(project: Path) -> None:
    """Write CRDs, reference pages, chart values, dashboards, alert rules and docs into a project directory."""
    for operator in operators.installed():
        crds = project / "charts" / operator.process_name / "files/crds"
        crds.mkdir(parents=True, exist_ok=True)
        for resource in operator.resources:
            (crds / f"{resource.kind.plural}.yaml").write_text(crd.to_yaml(resource))
        page = project / "docs/reference" / f"{operator.name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(resources.to_markdown(*operator.resources))
    values.write(project)
    dashboards.write(project)
    rules.write(project)
    docs.write(project)
    (project / "docs/reference/reasons.md").write_text(reasons.to_markdown())
    (project / "docs/reference/kubectl-platform.md").write_text(commands.to_markdown())
    (project / "docs/reference/versions.md").write_text(versions.to_markdown())
    (project / "docs/reference/compatibility.md").write_text(compatibility.to_markdown())
    (project / "tests").mkdir(exist_ok=True)
    (project / "tests/README.md").write_text(tests_map.page())


def main(arguments: list[str]) -> None:
    """Write the generated files below the directory that is named, or below this project."""
    forget_clusters()
    write(Path(*arguments) if arguments else PROJECT)


if __name__ == "__main__":
    main(sys.argv[1:])
