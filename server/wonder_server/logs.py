"""Logs: structlog on standard error, as JSON lines for machines or in colour for people.

Every line is an event with fields. No line contains a user's content. The secrets of the settings are
replaced in every line, since an exception's text may quote the key that a provider refused. Secrets of fewer
than eight characters are replaced only where they stand alone, and never in field names or events.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LIBRARY_TEXT: Final = 500
"""Maximum number of characters of a library's message, which may quote the content of a request."""
MIN_SUBSTRING_SECRET: Final = 8
"""Minimum number of characters of a secret that is replaced inside of words too."""
_SAFE_FIELDS: Final = frozenset({"event", "level", "timestamp", "component", "rpc", "reason", "address"})
"""Fields whose values the server sets itself, so that they contain no secret."""


def configure(
    log_format: str, log_level: str, *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Set up logging for the process.

    ``log_format`` is auto, json or console; ``log_level`` is debug, info, warning or error. ``secrets`` are
    texts that no line may show.
    """
    out = sys.stderr if stream is None else stream
    pretty = log_format == "console" or (log_format == "auto" and out.isatty())
    level = getattr(logging, log_level.upper())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if pretty else "iso", utc=not pretty),
    ]
    secrets = tuple(secrets)
    redact_values = _redact_values(secrets)
    rendered: list[Processor] = (
        [
            redact_values,
            structlog.dev.ConsoleRenderer(
                colors=out.isatty(),
                # Other formatters show local variables, which may be secrets, and can take minutes.
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
        if pretty
        else [structlog.processors.format_exc_info, redact_values, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *rendered, _redact(secrets)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryHandler()], force=True)


class _LibraryHandler(logging.Handler):
    """Handler that logs warnings and errors of libraries, which use the module ``logging``."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line."""
        try:
            text = record.getMessage()
            if len(text) > LIBRARY_TEXT:
                text = f"{text[:LIBRARY_TEXT]}…"
            # Formatted here, so that no renderer adds local variables.
            caught = record.exc_info
            fields = {"exception": "".join(traceback.format_exception(*caught)).rstrip()} if caught else {}
            logger("libraries").log(
                record.levelno, "library_message", library=record.name, text=text, **fields
            )
        except Exception:
            self.handleError(record)


def _redact(secrets: Iterable[str]) -> Processor:
    """Return a processor that replaces long secrets in a rendered line.

    `_redact_values` replaces short ones, which may occur in a line by chance.
    """
    hidden = tuple(secret for secret in secrets if len(secret) >= MIN_SUBSTRING_SECRET)

    def redact(_logger: WrappedLogger, _method: str, line: EventDict | str) -> str:
        text = str(line)
        for secret in hidden:
            text = text.replace(secret, "[secret]")
        return text

    return redact


def _redact_values(secrets: Iterable[str]) -> Processor:
    """Return a processor that replaces short secrets where they stand alone in a value.

    Field names, the event and the fields that the server sets itself stay as they are.
    """
    short = sorted(
        {secret for secret in secrets if 0 < len(secret) < MIN_SUBSTRING_SECRET}, key=len, reverse=True
    )
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(secret)}(?!\w)" for secret in short))

    def shown(value: object) -> object:
        match value:
            case str():
                return pattern.sub("[secret]", value)
            case Mapping():
                return {key: shown(each) for key, each in value.items()}
            case list() | tuple():
                return [shown(each) for each in value]
            case _:
                return value

    def redact(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        if not short:
            return line
        return {key: value if key in _SAFE_FIELDS else shown(value) for key, value in line.items()}

    return redact


def logger(component: str) -> FilteringBoundLogger:
    """Return a logger whose lines name a component of the server in the field ``component``."""
    log: FilteringBoundLogger = structlog.get_logger(component=component)
    return log
