"""Structured logs: one JSON object per line, or text for a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time

from shared.observability import tracing

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("json", "text")


class JsonFormatter(logging.Formatter):
    """Formats records as {"time": …, "level": "info", "logger": "shared.runtime.reconciler", "message": …}."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace := tracing.trace_id():
            line["trace_id"] = trace
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str, form: str) -> None:
    """Send all logs to standard error in one format.

    Args:
        level: one of `LEVELS`.
        form: one of `FORMATS`.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level != "debug":  # kopf logs every watch and handler; its problems are warnings
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
