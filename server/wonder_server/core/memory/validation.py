"""Validation of memories and filters. Each check raises a WonderError that names the field."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.memory.ranking import Weights
from wonder_server.core.memory.records import ROLES, Change, Draft, Filter, Source

MAX_CONTENT_BYTES: Final = 1 << 20
MAX_METADATA_BYTES: Final = 64 << 10
MAX_METADATA_DEPTH: Final = 30
MAX_INTEGER: Final = 1 << 53
"""Largest integer that a JSON number represents exactly."""
MAX_NAME: Final = 128
SOURCE_TEXTS: Final = (
    *("conversation_id", "turn_id", "message_id", "move_id", "run_id", "speaker", "speaker_id"),
)
"""The texts of a source."""
MAX_KEY: Final = 256
MAX_TYPES: Final = 100
MAX_LINKS: Final = 100
MIN_TIME_MS: Final = -62_135_596_800_000
MAX_TIME_MS: Final = 253_402_300_799_999
"""Range of a time: the years 1 to 9999, as of a Timestamp."""


def check_draft(draft: Draft, path: str = "") -> None:
    """Check a memory to be written; ``path`` precedes the field's name."""
    check_name(draft.type, f"{path}type")
    check_content(draft.content, f"{path}content")
    check_significance(draft.significance, f"{path}significance")
    check_metadata(draft.metadata, f"{path}metadata")
    check_links(draft.contradicts_ids, f"{path}contradicts_ids")
    check_links(draft.archives_ids, f"{path}archives_ids")
    check_source(draft.source, f"{path}source.")
    check_time(draft.said_ms, f"{path}said_at")
    check_id(draft.subject, f"{path}subject")
    if len(draft.idempotency_key) > MAX_KEY:
        raise error(
            Reason.FIELD_INVALID, f"A key has at most {MAX_KEY} characters.", field=f"{path}request_id"
        )


def check_change(change: Change) -> None:
    """Check a change of a memory."""
    if change.type is not None:
        check_name(change.type, "type")
    if change.content is not None:
        check_content(change.content, "content")
    if change.significance is not None:
        check_significance(change.significance, "significance")
    if change.metadata is not None:
        check_metadata(change.metadata, "metadata")
    if change.contradicts_ids is not None:
        check_links(change.contradicts_ids, "contradicts_ids")
    check_time(change.said_ms, "said_at")
    check_id(change.subject or "", "subject")


def check_filter(wanted: Filter) -> None:
    """Check the types and the metadata of a filter."""
    if len(wanted.types) > MAX_TYPES:
        raise error(Reason.FIELD_INVALID, f"Give at most {MAX_TYPES} types.", field="types")
    for position, name in enumerate(wanted.types):
        check_name(name, f"types[{position}]")
    check_metadata(wanted.metadata, "metadata")
    check_id(wanted.subject, "subject")
    check_time(wanted.said_start_ms, "said_start_time")
    check_time(wanted.said_end_ms, "said_end_time")


def check_source(source: Source, path: str) -> None:
    """Check the lengths of a source's ids and names, and its ordinal."""
    for name in SOURCE_TEXTS:
        check_id(getattr(source, name), f"{path}{name}")
    if not 0 <= source.ordinal <= MAX_INTEGER:
        raise error(Reason.FIELD_INVALID, "An ordinal counts from 1; 0 is not known.", field=f"{path}ordinal")
    if source.role not in ROLES:
        raise error(
            Reason.FIELD_INVALID, f"role is {source.role!r:.100}. Use user or agent.", field=f"{path}role"
        )


def check_id(value: str, path: str) -> None:
    """Check the length of an id or a name, which may be empty."""
    if len(value) > MAX_NAME or not _encodable(value):
        raise error(
            Reason.FIELD_INVALID,
            f"{path} has {len(value)} characters; the maximum is {MAX_NAME} of valid Unicode text.",
            field=path,
        )


def check_time(value_ms: int | None, path: str) -> None:
    """Check that a time is in the years 1 to 9999."""
    if value_ms is not None and not MIN_TIME_MS <= value_ms <= MAX_TIME_MS:
        raise error(
            Reason.FIELD_INVALID,
            f"{value_ms} ms is not a time between the years 1 and 9999. Give milliseconds since 1970.",
            field=path,
        )


def check_links(ids: Sequence[str], path: str) -> None:
    """Check the number of linked memories. The store checks that they exist."""
    if len(ids) > MAX_LINKS:
        raise error(Reason.FIELD_INVALID, f"Give at most {MAX_LINKS} memories.", field=path)


def check_name(value: str, path: str) -> None:
    """Check a type or an agent's id."""
    if not 1 <= len(value) <= MAX_NAME or not _encodable(value):
        raise error(Reason.FIELD_INVALID, f"Give 1 to {MAX_NAME} characters.", field=path)


def check_content(content: str, path: str) -> None:
    """Check that a content is not blank and has at most 1 MiB of UTF-8."""
    if not content.strip():
        raise error(Reason.FIELD_INVALID, "The content is empty.", field=path)
    if not _encodable(content):
        raise error(Reason.FIELD_INVALID, "The content is not valid Unicode text.", field=path)
    if len(content.encode()) > MAX_CONTENT_BYTES:
        raise error(Reason.PAYLOAD_TOO_LARGE, f"The content exceeds {MAX_CONTENT_BYTES} bytes.", field=path)


def check_significance(value: float, path: str) -> None:
    """Check that a significance is between 0 and 1."""
    if not 0.0 <= value <= 1.0:  # Also refuses NaN.
        raise error(Reason.FIELD_INVALID, "Significance must be between 0 and 1.", field=path)


def check_metadata(metadata: JsonDict, path: str) -> None:
    """Check that metadata is a JSON object of at most 30 levels and 64 KiB with integers that JSON represents
    exactly."""
    if not metadata:
        return
    _check_json(metadata, path, MAX_METADATA_DEPTH)
    text = json.dumps(metadata, ensure_ascii=False)
    if not _encodable(text):
        raise error(Reason.FIELD_INVALID, "The metadata is not valid Unicode text.", field=path)
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise error(Reason.PAYLOAD_TOO_LARGE, f"Metadata exceeds {MAX_METADATA_BYTES} bytes.", field=path)


def check_weights(weights: Weights) -> None:
    """Check that weights are finite, not negative, and not all 0."""
    values = (weights.relevance, weights.significance, weights.recency)
    if not all(math.isfinite(value) and value >= 0 for value in values) or not 0 < sum(values) < math.inf:
        raise error(
            Reason.FIELD_INVALID, "Weights are numbers from 0 up, and not all are 0.", field="weights"
        )
    if weights.vector is not None and not 0.0 <= weights.vector <= 1.0:  # Also refuses NaN.
        raise error(Reason.FIELD_INVALID, "weights.vector must be between 0 and 1.", field="weights.vector")


def _check_json(value: JsonValue, path: str, levels: int) -> None:
    if isinstance(value, dict | list):
        if levels == 0:
            raise error(
                Reason.PAYLOAD_TOO_DEEP, f"Nesting is limited to {MAX_METADATA_DEPTH} levels.", field=path
            )
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            raise error(Reason.FIELD_INVALID, "The keys of an object are strings.", field=path)
        for child in value.values() if isinstance(value, dict) else value:
            _check_json(child, path, levels - 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise error(Reason.NUMBER_OUT_OF_RANGE, "Numbers are finite.", field=path)
    elif isinstance(value, int):  # A bool as well, which is in range.
        if abs(value) > MAX_INTEGER:
            raise error(Reason.NUMBER_OUT_OF_RANGE, "Integers go up to 2^53; use a string.", field=path)
    elif value is not None and not isinstance(value, str):
        raise error(Reason.FIELD_INVALID, "The metadata is not JSON.", field=path)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
