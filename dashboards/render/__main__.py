"""Draw a picture of each dashboard: `python -m dashboards.render http://localhost:9090`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from dashboards.render.page import View, load, picture
from dashboards.render.prometheus import Prometheus, QueryFailed
from tools.local.environment import forget_clusters

GENERATED = Path(__file__).parents[1] / "generated"


def main(arguments: list[str] | None = None) -> int:
    """Draw all dashboards; print Prometheus's error message if a query fails."""
    forget_clusters()
    options = _options(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    chosen = dict(pair.split("=", 1) for pair in options.var)
    view = View(time.time(), options.minutes * 60, options.interval, chosen)
    try:
        for file in sorted(GENERATED.glob("*.json")):
            target = options.into / f"{file.stem}.png"
            picture(load(file), Prometheus(options.prometheus), view, target)
            sys.stdout.write(f"{target}\n")
    except QueryFailed as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dashboards.render", description="Draw each dashboard as a PNG.")
    parser.add_argument("prometheus", help="URL of a Prometheus server, such as http://localhost:9090")
    parser.add_argument(
        "--into", type=Path, default=Path("docs/pictures"), help="output directory (default: %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=60, help="time range in minutes (default: %(default)s)")
    parser.add_argument(
        "--interval",
        default="1m",
        help="rate interval; at least four times the scrape interval (default: %(default)s)",
    )
    parser.add_argument(
        "--var", action="append", default=[], metavar="NAME=REGEX", help="values of a variable (default: all)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
