"""Write the dashboards' JSON files: `python -m dashboards [project directory]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dashboards import grafana
from dashboards.catalogue import DASHBOARDS, SHIPPED
from tools.local.environment import forget_clusters

PROJECT = Path(__file__).parents[1]


def write(project: Path) -> None:
    """Write every dashboard to dashboards/generated, and in compact form into the charts that install it."""
    files = {page.uid: grafana.text(page) for page in DASHBOARDS}
    for uid, text in files.items():
        _write(project / "dashboards/generated" / f"{uid}.json", text)
    for chart, pages in SHIPPED.items():
        for page in pages:
            compact = json.dumps(json.loads(files[page.uid]), separators=(",", ":"), ensure_ascii=False)
            _write(project / "charts" / chart / "files/dashboards" / f"{page.uid}.json", compact + "\n")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def main() -> None:
    """Write to the directory in the arguments, or to this project."""
    forget_clusters()
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)


if __name__ == "__main__":
    main()
