"""Write the files generated from the charts' values: `python -m charts.values [project directory]`."""

from __future__ import annotations

import sys
from pathlib import Path

from charts.values import umbrella
from charts.values.charts import CHARTS, OPERATORS
from charts.values.files import flags_yaml, schema_json, table, values_yaml, with_table

PROJECT = Path(__file__).parents[2]


def write(project: Path) -> None:
    """Write each chart's files, and the files that list all operators, below a project directory.

    READMEs and the umbrella's Chart.yaml are copied from this project with their generated parts replaced.
    """
    for name, model in CHARTS.items():
        chart = project / "charts" / name
        chart.mkdir(parents=True, exist_ok=True)
        values = model()
        readme = (PROJECT / "charts" / name / "README.md").read_text()
        (chart / "values.yaml").write_text(values_yaml(values))
        (chart / "values.schema.json").write_text(schema_json(model))
        (chart / "README.md").write_text(with_table(readme, table(values)))
        if name in OPERATORS and (flags := OPERATORS[name].flags):
            (chart / "files").mkdir(exist_ok=True)
            (chart / "files/flags.yaml").write_text(flags_yaml(flags))
    operators, platform = list(OPERATORS.values()), project / "charts/platform"
    (platform / "templates").mkdir(exist_ok=True)
    (platform / "templates/NOTES.txt").write_text(umbrella.notes(operators))
    chart_yaml = (PROJECT / "charts/platform/Chart.yaml").read_text()
    (platform / "Chart.yaml").write_text(umbrella.chart_yaml(chart_yaml, operators))
    readme, rows = (PROJECT / "README.md").read_text(), umbrella.operators_table(operators)
    (project / "README.md").write_text(with_table(readme, rows, (umbrella.BEGIN, umbrella.END)))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)
