"""Writes the dashboards' files: `python -m dashboards [directory of a project]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dashboards import grafana
from dashboards.catalogue import DASHBOARDS, SHIPPED

PROJECT = Path(__file__).parents[1]


def write(project: Path) -> None:
    """Write each dashboard below dashboards/generated, and, without white space, into the charts that bring it."""
    files = {page.uid: grafana.text(page) for page in DASHBOARDS}
    for uid, text in files.items():
        _write(project / "dashboards/generated" / f"{uid}.json", text)
    for chart, pages in SHIPPED.items():
        for page in pages:
            dense = json.dumps(json.loads(files[page.uid]), separators=(",", ":"), ensure_ascii=False)
            _write(project / "charts" / chart / "files/dashboards" / f"{page.uid}.json", dense + "\n")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)
