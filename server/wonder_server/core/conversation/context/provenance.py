"""Where the parts of a request come from (feature D6).

A context-assembly workflow that is asked to ``explain`` puts out ``sources``, a list of ``{source, source_id,
text}``, each with the words that it put into the request. They are looked for there, so that a workflow need
not know how its request is written; it may say the place itself, as ``path``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wonder_server.core.token_estimates import text_tokens

SOURCES = ("persona", "memory", "turn", "artifact", "repository", "tool", "active_turn", "message")
MAX_BLOCKS = 2000
EXCERPT = 200
_SAYING = frozenset({"content", "text", "system", "instructions", "input", "description"})
"""Keys under which requests say things to a model, rather than settings or ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One part of a request. ``path`` is a JSON pointer, empty if it was not found; ``source`` is one of
    `SOURCES`, or empty where nothing is known."""

    path: str
    source: str
    source_id: str
    excerpt: str
    tokens: int


def blocks(request: dict[str, Any], sources: Any) -> list[Block]:
    """The parts of ``request`` in the order of ``sources``, then those that no source speaks of. What is said
    in a source but not in the request, since it was left out, is left out here too."""
    texts = list(_texts(request, ""))
    found: list[Block] = []
    covered: set[str] = set()
    whole: set[str] = set()
    for source in sources if isinstance(sources, list) else ():
        if not isinstance(source, dict) or len(found) >= MAX_BLOCKS:
            continue
        text, path = source.get("text"), source.get("path")
        if not isinstance(text, str) or not text:
            continue
        place = path if isinstance(path, str) and path else _place(texts, text, whole)
        if place is None:
            continue
        covered.add(place)
        kind, source_id = source.get("source"), source.get("source_id")
        found.append(
            Block(
                path=place,
                source=kind if kind in SOURCES else "",
                source_id=source_id if isinstance(source_id, str) else "",
                excerpt=text[:EXCERPT],
                tokens=text_tokens(text),
            )
        )
    for place, text in texts:
        said = text and place.rpartition("/")[2] in _SAYING and place not in covered
        if said and len(found) < MAX_BLOCKS:
            found.append(
                Block(path=place, source="", source_id="", excerpt=text[:EXCERPT], tokens=text_tokens(text))
            )
    return found


def _place(texts: list[tuple[str, str]], text: str, whole: set[str]) -> str | None:
    """Where ``text`` stands: as a whole text that is not taken yet, else within one."""
    for place, other in texts:
        if other == text and place not in whole:
            whole.add(place)
            return place
    return next((place for place, other in texts if text in other), None)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}/{index}")
