"""Logs: structlog on standard error, as JSON lines for machines or in colour for people.

Every line is an event with fields. No line holds a user's content, and the secrets of the settings are
blotted out of every line, since an exception's text may quote the key that a provider refused.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LIBRARY_TEXT: Final = 500
"""Characters of what a library logs. It may quote what others sent."""


def configure(
    log_format: str, log_level: str, *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Set up logging for the process.

    ``log_format`` is auto, json or console; ``log_level`` debug, info, warning or error. ``secrets``
    are texts that no line may show.
    """
    out = sys.stderr if stream is None else stream
    pretty = log_format == "console" or (log_format == "auto" and out.isatty())
    level = getattr(logging, log_level.upper())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if pretty else "iso", utc=not pretty),
    ]
    rendered: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty())]
        if pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *rendered, _blot(secrets)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()], force=True)


class _Libraries(logging.Handler):
    """Writes warnings and errors of libraries (those that use the module ``logging``) as lines like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record: one line, whatever it holds."""
        try:
            text = record.getMessage()
            if len(text) > LIBRARY_TEXT:
                text = f"{text[:LIBRARY_TEXT]}…"
            fields = {"exc_info": record.exc_info} if record.exc_info else {}
            logger("libraries").log(record.levelno, "library", library=record.name, text=text, **fields)
        except Exception:
            self.handleError(record)


def _blot(secrets: Iterable[str]) -> Processor:
    hidden = tuple(secret for secret in secrets if secret)

    def blot(_logger: WrappedLogger, _method: str, line: EventDict | str) -> str:
        text = str(line)
        for secret in hidden:
            text = text.replace(secret, "[secret]")
        return text

    return blot


def logger(room: str) -> FilteringBoundLogger:
    """A logger whose lines say which part of the server speaks."""
    log: FilteringBoundLogger = structlog.get_logger(room=room)
    return log
