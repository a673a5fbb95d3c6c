"""Start programs and scrape their metrics."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.local.machine import processes

_BUCKET = re.compile(r'_bucket{.*le="[^+]')


def scrape(url: str) -> str:
    """Return the metrics of a target, `shortened`."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (loopback)
        return shortened(answer.read().decode())


def shortened(text: str) -> str:
    """Drop help texts and all but the last bucket of each histogram; names and labels stay complete."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# HELP") and not _BUCKET.search(line))


@contextmanager
def running(directory: Path, name: str, url: str, *command: str | Path) -> Iterator[None]:
    """Run a program until the context ends; enter once it responds at `url`."""

    def responds() -> bool:
        with suppress(OSError):
            scrape(url)
            return True
        return False

    process = processes.start(name, command, log=directory / f"{name}.log", dies_with_us=True)
    try:
        processes.wait_until(responds, name, needs=[process], timeout=60)
        yield
    finally:
        processes.stop([process])


def merged(texts: list[str]) -> str:
    """Merge several scrapes; the last sample of each series wins."""
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    return "".join({line if line.startswith("#") else line.rpartition(" ")[0]: line for line in lines}.values())
