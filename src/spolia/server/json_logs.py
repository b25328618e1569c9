"""Logs as lines of JSON, for platforms that collect them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """Formatter of a record as one line of JSON: time, level, logger, message; also the fields of a request and the
    trace of an exception.

    >>> record = logging.LogRecord("spolia.server", logging.WARNING, "", 0, "%s waits", ("a.md",), None)
    >>> line = json.loads(JsonFormatter().format(record))
    >>> line["level"], line["logger"], line["message"]
    ('WARNING', 'spolia.server', 'a.md waits')
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(), "level": record.levelname,
            "logger": record.name, "message": record.getMessage(), **getattr(record, "fields", {}),
        }  # fmt: skip
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_json() -> None:
    """Write all warnings, and a record of each request, to stderr as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.getLogger("spolia.server.requests").setLevel(logging.INFO)
