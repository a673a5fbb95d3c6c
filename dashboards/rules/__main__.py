"""Write the rule files: `python -m dashboards.rules [project directory]`."""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.rules.catalogue import RULES
from dashboards.rules.files import for_chart, plain
from tools.local.environment import forget_clusters

PROJECT = Path(__file__).parents[2]


def write(project: Path) -> None:
    """Write the plain rule files and those of the charts below a project directory."""
    for operator, rules in RULES.items():
        for path, text in (
            (project / "dashboards/generated/rules" / f"{operator}.yaml", plain(rules)),
            (project / f"charts/{operator}-operator/files/alerts.yaml", for_chart(rules)),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def main() -> None:
    """Write to the directory in the arguments, or to this project."""
    forget_clusters()
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)


if __name__ == "__main__":
    main()
