"""Sources of the parts of a request (feature D6).

A context-assembly workflow that is called with ``explain`` returns ``sources``, a list of ``{source,
source_id, text}`` with the text that each put into the request. `blocks` finds the texts in the request, so
a workflow need not know the format of its request. A workflow may also give the path itself, as ``path``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.token_estimates import text_tokens

SOURCES = ("persona", "memory", "turn", "artifact", "repository", "tool", "active_turn", "message")
MAX_BLOCKS = 2000
EXCERPT = 200
_TEXT_KEYS = frozenset({"content", "text", "system", "instructions", "input", "description"})
"""Keys of text for the model. Other keys hold settings or ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One part of a request.

    ``path`` is a JSON pointer. ``source`` is one of `SOURCES`, or empty if unknown. ``tokens`` is an
    estimate.
    """

    path: str
    source: str
    source_id: str
    excerpt: str
    tokens: int


def blocks(request: JsonDict, sources: JsonValue) -> list[Block]:
    """Return the parts of ``request`` in the order of ``sources``, then the parts without a source.

    A source whose text the request does not contain is omitted.
    """
    texts = list(_texts(request, ""))
    found: list[Block] = []
    covered: set[str] = set()
    used: set[str] = set()
    for source in sources if isinstance(sources, list) else ():
        if not isinstance(source, dict) or len(found) >= MAX_BLOCKS:
            continue
        text, path = source.get("text"), source.get("path")
        if not isinstance(text, str) or not text:
            continue
        path = path if isinstance(path, str) and path else _path_of(texts, text, used)
        if path is None:
            continue
        covered.add(path)
        kind, source_id = source.get("source"), source.get("source_id")
        found.append(
            Block(
                path=path,
                source=kind if kind in SOURCES else "",
                source_id=source_id if isinstance(source_id, str) else "",
                excerpt=text[:EXCERPT],
                tokens=text_tokens(text),
            )
        )
    for path, text in texts:
        is_content = text and path.rpartition("/")[2] in _TEXT_KEYS and path not in covered
        if is_content and len(found) < MAX_BLOCKS:
            found.append(
                Block(path=path, source="", source_id="", excerpt=text[:EXCERPT], tokens=text_tokens(text))
            )
    return found


def _path_of(texts: list[tuple[str, str]], text: str, used: set[str]) -> str | None:
    """Return the path of ``text``: an unused equal text, else a text that contains it; None without one."""
    for path, other in texts:
        if other == text and path not in used:
            used.add(path)
            return path
    return next((path for path, other in texts if text in other), None)


def _texts(value: JsonValue, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}/{index}")
