"""Logging: one JSON object per line on standard error, or readable lines on a terminal.

Configured once, by whoever assembles the process. Events are constants in snake_case, ids are fields. What
the standard library's loggers get, such as from gRPC and the provider host, takes the same road.

Invariant: text of models, clients and providers is shown, never obeyed: no control character of it reaches a
terminal, from a log file either, and none of it begins a line as events do.
"""

import logging
import re
import sys
import textwrap
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog

from tyrum_gateway.telemetry.redaction import Redactor

OWN = ("tyrum", "tyrum_gateway", "tyrum_provider_host")
"""Loggers of this project that write in the gateway's process, with all below them."""


_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


class Level(StrEnum):
    """The least severe events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_BLOCKS = frozenset({"exception", "stack"})
"""Fields that are written on lines of their own."""

_IDS = ("provider", "instance", "generation")
"""What the provider host adds to its records."""

_CHATTY = ("alembic",)
"""Libraries whose information is noise to operators."""


def configure_logging(
    redactor: Redactor,
    *,
    level: Level = Level.INFO,
    stream: TextIO | None = None,
    console: bool | None = None,
) -> None:
    """Send every event of this process to one stream.

    Args:
        redactor: Masks secrets, last before rendering.
        level: The least severe events that are written; of foreign libraries at least warnings.
        stream: Where to; standard error by default.
        console: Readable lines instead of JSON; by default exactly when the stream is a terminal.
    """
    target = sys.stderr if stream is None else stream
    readable = target.isatty() if console is None else console
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # To text before redaction, so that a traceback cannot carry a secret past it.
        structlog.processors.format_exc_info,
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(
            colors=readable and target.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        if readable
        else structlog.processors.JSONRenderer(ensure_ascii=True, sort_keys=False)
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_logger, structlog.stdlib.ExtraAdder(allow=_IDS)],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redactor,
                *([_visible] if readable else []),
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    severity = logging.getLevelNamesMapping()[level.upper()]
    # Libraries narrate at `info` what is news to their authors only.
    root.setLevel(max(severity, logging.WARNING))
    for name in OWN:
        logging.getLogger(name).setLevel(severity)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(severity),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _name_logger(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Say which library a foreign record comes from."""
    del logger, method
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["logger"] = record.name
    return event


def _visible(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape what a terminal would obey; line breaks in other fields are quoted by the renderer."""
    del logger, method
    return {key: _shown(key, value) if isinstance(value, str) else value for key, value in event.items()}


def _shown(key: str, text: str) -> str:
    text = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
    if key in _BLOCKS:
        return textwrap.indent(text, "    ")
    return text.replace("\n", "\\n") if key == "event" else text
