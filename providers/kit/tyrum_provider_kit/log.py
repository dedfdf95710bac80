"""Logs: one JSON object per line on standard error, without secrets.

Invariant: what `conceal` was told never leaves through a log record, neither in messages nor in tracebacks.
Values shorter than four characters cannot be told from ordinary text and are not concealed.
"""

import datetime
import json
import logging
import sys
from collections.abc import Iterable

MASK = "[concealed]"
MIN_CONCEALED = 4


class JsonLines(logging.Formatter):
    """Formats records as JSON lines and masks concealed values."""

    def __init__(self) -> None:
        super().__init__()
        self._concealed: list[str] = []

    def conceal(self, values: Iterable[str]) -> None:
        """Mask these values from now on, also as they appear in a `repr`."""
        wanted = {value for value in values if len(value) >= MIN_CONCEALED}
        spellings = wanted | {repr(value)[1:-1] for value in wanted}
        self._concealed = sorted(spellings.union(self._concealed), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = self._mask(self.formatException(record.exc_info))
        return json.dumps(entry)

    def _mask(self, text: str) -> str:
        for value in self._concealed:
            text = text.replace(value, MASK)
        return text


def log_to_stderr() -> JsonLines:
    """Send all records from INFO on to standard error; returns the formatter, which conceals."""
    formatter = JsonLines()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    return formatter
