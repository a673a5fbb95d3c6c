"""Starts programs and records what they show to Prometheus."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.cluster.machine import processes

_BUCKET = re.compile(r'_bucket{.*le="[^+]')


def scrape(url: str) -> str:
    """What a target answers, `shortened`."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (loopback)
        return shortened(answer.read().decode())


def shortened(text: str) -> str:
    """Without help texts, and of each histogram's buckets only the last: names and labels are all there."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# HELP") and not _BUCKET.search(line))


@contextmanager
def running(directory: Path, name: str, url: str, *command: str | Path) -> Iterator[None]:
    """A program that answers at a URL, until the context is left."""

    def answers() -> bool:
        with suppress(OSError):
            scrape(url)
            return True
        return False

    process = processes.start(name, command, log=directory / f"{name}.log", dies_with_us=True)
    try:
        processes.wait_until(answers, name, needs=[process], timeout=60)
        yield
    finally:
        processes.stop([process])


def merged(texts: list[str]) -> str:
    """Several scrapes as one: each series once."""
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    return "".join({line if line.startswith("#") else line.rpartition(" ")[0]: line for line in lines}.values())
