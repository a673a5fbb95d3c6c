"""Writes what is made from the charts' values: `python -m charts.values [directory of a project]`."""

from __future__ import annotations

import sys
from pathlib import Path

from charts.values.charts import CHARTS
from charts.values.files import schema_json, table, values_yaml, with_table

PROJECT = Path(__file__).parents[2]


def write(project: Path) -> None:
    """Write each chart's files below charts/ of a directory; READMEs are taken from this project."""
    for name, model in CHARTS.items():
        chart = project / "charts" / name
        chart.mkdir(parents=True, exist_ok=True)
        values = model()
        readme = (PROJECT / "charts" / name / "README.md").read_text()
        (chart / "values.yaml").write_text(values_yaml(values))
        (chart / "values.schema.json").write_text(schema_json(model))
        (chart / "README.md").write_text(with_table(readme, table(values)))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)
