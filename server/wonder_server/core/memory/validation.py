"""What may be stored as a memory, and asked for: each check raises the WonderError that names the field."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.memory.records import Change, Draft, Filter, Source, Weights

MAX_CONTENT_BYTES: Final = 1 << 20
MAX_METADATA_BYTES: Final = 64 << 10
MAX_METADATA_DEPTH: Final = 30
MAX_INTEGER: Final = 1 << 53
"""What a JSON number carries exactly."""
MAX_NAME: Final = 128
MAX_KEY: Final = 256
MAX_TYPES: Final = 100
MAX_LINKS: Final = 100


def check_draft(draft: Draft, path: str = "") -> None:
    """Refuse what may not be stored; ``path`` goes before the field's name."""
    check_name(draft.type, f"{path}type")
    check_content(draft.content, f"{path}content")
    check_significance(draft.significance, f"{path}significance")
    check_metadata(draft.metadata, f"{path}metadata")
    check_links(draft.contradicts_ids, f"{path}contradicts_ids")
    check_links(draft.archives_ids, f"{path}archives_ids")
    check_source(draft.source, f"{path}source.")
    if len(draft.idempotency_key) > MAX_KEY:
        raise error(
            Reason.FIELD_INVALID, f"A key has at most {MAX_KEY} characters.", field=f"{path}request_id"
        )


def check_change(change: Change) -> None:
    """The same for what is to be changed."""
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


def check_filter(wanted: Filter) -> None:
    """Types that can be, metadata that could have been written."""
    if len(wanted.types) > MAX_TYPES:
        raise error(Reason.FIELD_INVALID, f"Give at most {MAX_TYPES} types.", field="types")
    for position, name in enumerate(wanted.types):
        check_name(name, f"types[{position}]")
    check_metadata(wanted.metadata, "metadata")


def check_source(source: Source, path: str) -> None:
    """Ids and names of a bearable length, a place that is one."""
    for name in ("conversation_id", "turn_id", "move_id", "run_id", "speaker"):
        value = getattr(source, name)
        if len(value) > MAX_NAME or not _encodable(value):
            raise error(Reason.FIELD_INVALID, f"Give at most {MAX_NAME} characters.", field=f"{path}{name}")
    if not 0 <= source.ordinal <= MAX_INTEGER:
        raise error(Reason.FIELD_INVALID, "An ordinal counts from 1; 0 is not known.", field=f"{path}ordinal")


def check_links(ids: Sequence[str], path: str) -> None:
    """At most so many; whether they are there, the store knows."""
    if len(ids) > MAX_LINKS:
        raise error(Reason.FIELD_INVALID, f"Give at most {MAX_LINKS} memories.", field=path)


def check_name(value: str, path: str) -> None:
    """A type or an agent's id."""
    if not 1 <= len(value) <= MAX_NAME or not _encodable(value):
        raise error(Reason.FIELD_INVALID, f"Give 1 to {MAX_NAME} characters.", field=path)


def check_content(content: str, path: str) -> None:
    """Not blank, at most 1 MiB of UTF-8."""
    if not content.strip():
        raise error(Reason.FIELD_INVALID, "The content is empty.", field=path)
    if not _encodable(content):
        raise error(Reason.FIELD_INVALID, "The content is not valid Unicode text.", field=path)
    if len(content.encode()) > MAX_CONTENT_BYTES:
        raise error(Reason.PAYLOAD_TOO_LARGE, f"The content exceeds {MAX_CONTENT_BYTES} bytes.", field=path)


def check_significance(value: float, path: str) -> None:
    """A number in 0..1."""
    if not 0.0 <= value <= 1.0:  # Also refuses NaN.
        raise error(Reason.FIELD_INVALID, "Significance lies between 0 and 1.", field=path)


def check_metadata(metadata: dict[str, Any], path: str) -> None:
    """A JSON object of at most 30 levels and 64 KiB, its integers exact in JSON."""
    if not metadata:
        return
    _check_json(metadata, path, MAX_METADATA_DEPTH)
    text = json.dumps(metadata, ensure_ascii=False)
    if not _encodable(text):
        raise error(Reason.FIELD_INVALID, "The metadata is not valid Unicode text.", field=path)
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise error(Reason.PAYLOAD_TOO_LARGE, f"Metadata exceeds {MAX_METADATA_BYTES} bytes.", field=path)


def check_weights(weights: Weights) -> None:
    """Finite, none negative, not all zero."""
    values = (weights.relevance, weights.significance, weights.recency)
    if not all(math.isfinite(value) and value >= 0 for value in values) or not 0 < sum(values) < math.inf:
        raise error(
            Reason.FIELD_INVALID, "Weights are numbers from 0 up, and not all are 0.", field="weights"
        )
    if weights.vector is not None and not 0.0 <= weights.vector <= 1.0:  # Also refuses NaN.
        raise error(Reason.FIELD_INVALID, "It lies between 0 and 1.", field="weights.vector")


def _check_json(value: Any, path: str, levels: int) -> None:
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
