"""Reading the stores of a stopped server whole, to find every damaged record.

Nothing is changed: a store of an older version is read as it is, and what has no seal is counted as
unchecked. Each problem is one line; a table that cannot be read to its end is a problem of its own.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from wonder_server.adapters.sqlite import memory_fields, shard_seals
from wonder_server.adapters.sqlite.account_sums import COLUMNS as SUMS
from wonder_server.adapters.sqlite.account_sums import checked
from wonder_server.adapters.sqlite.catalog import SEALED_TABLES, catalog_key
from wonder_server.adapters.sqlite.codec import decode
from wonder_server.adapters.sqlite.connection import UNREADABLE, any_text
from wonder_server.adapters.sqlite.memory_rows import FIELDS, STORE, memory_of
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard_schema import COLUMNS, FOLDED_TABLES, SEALED, SEALED_BY_KEY, SHARED
from wonder_server.core.errors import WonderError

_MOST_PROBLEMS: Final = 100
"""Of one file, that SQLite itself is asked for."""


@dataclass(slots=True)
class Found:
    """The result for one store."""

    records: int = 0
    unchecked: int = 0
    """Records from before there were seals."""
    problems: list[str] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)
    """Objects that records refer to, each with one of those records."""
    agents: dict[str, str] = field(default_factory=dict)
    """Agents that conversations have, each with one of those conversations."""
    known_agents: set[str] = field(default_factory=set)
    """Agents that are there, or were deleted."""

    def add(self, problem: WonderError | str) -> None:
        self.problems.append(problem if isinstance(problem, str) else problem.fault.message.split(". ")[0])


def check_shard(path: Path) -> Found:
    """Check ``shards/NN.db``."""
    return _checked(path, f"{path.parent.name}/{path.name}", _shard)


def check_catalog(path: Path) -> Found:
    """Check ``catalog.db``."""
    return _checked(path, path.name, _catalog)


def check_memory(path: Path) -> Found:
    """Check ``memory.db``."""
    return _checked(path, path.name, _memory)


def _checked(path: Path, name: str, look: Callable[[sqlite3.Connection, Seals, Found], None]) -> Found:
    found = Found()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.text_factory = any_text
            for row in connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})"):
                if row[0] != "ok":
                    found.add(f"{name}: {' '.join(row[0].split())}")
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
            for table, row_id, parent, _ in broken[:_MOST_PROBLEMS]:
                found.add(f"{name}: row {row_id} of {table} refers to a row of {parent} that is missing")
            sealed = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unsealed'"
            is_sealed = connection.execute(sealed).fetchone() is not None
            seals = Seals.of(connection, name) if is_sealed else Seals(name, _Everything())
            look(connection, seals, found)
    except UNREADABLE as failure:
        found.add(f"{name}: it cannot be read: {failure}")
    return found


class _Everything(dict[str, int]):
    """The places of a store that is older than seals."""

    def get(self, _key: object, _default: object = None) -> Any:
        return 1 << 63


def _rows(
    connection: sqlite3.Connection, found: Found, name: str, table: str, place: str = "rowid"
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table, each with its place; where they cannot be read any further, that is noted."""
    try:
        rows = connection.execute(f"SELECT {place}, * FROM {table}")
        names = [column[0] for column in rows.description[1:]]
        for at, *values in rows:
            row = {"seal": None, **dict(zip(names, values, strict=True))}
            found.records += 1
            found.unchecked += row["seal"] is None and table != "parts"
            yield at, row
    except UNREADABLE as failure:
        found.add(f"{name}: table {table} cannot be read to its end: {failure}")


# --- a shard ------------------------------------------------------------------------------------------


def _shard(connection: sqlite3.Connection, seals: Seals, found: Found) -> None:
    damaged: list[dict[str, Any]] = []
    actors = {row["id"]: row for _, row in _each(connection, seals, found, "actors", "1", damaged)}
    damaged_actors = {row["id"] for row in damaged}
    parts: dict[str, set[str]] = {}
    within: list[tuple[str, Any]] = []
    damaged.clear()
    for _, row in _each(connection, seals, found, "parts", damaged=damaged):
        parts.setdefault(row["root"], set()).add(row["hash"])
        within += [(row["root"], digest) for digest in _references(row["data"])]
    for row in damaged:  # They are there: only what has no row is missing.
        parts.setdefault(row["root"], set()).add(row["hash"])
    for root, digest in within:
        if digest not in parts.get(root, ()) and digest not in parts.get(SHARED, ()):
            found.add(f"{seals.store}: the part {digest} of {root or 'all runs'} is missing")
    numbers: dict[tuple[str, str], list[int]] = {}
    lost: Counter[tuple[str, str]] = Counter()
    for table in (*SEALED, *SEALED_BY_KEY[1:]):
        damaged.clear()
        for _, row in _each(connection, seals, found, table, "rowid" if table in SEALED else "1", damaged):
            owner = row["actor"]
            if owner in damaged_actors:
                continue
            if table != "requests_answered" and owner not in actors:
                found.add(f"{seals.store}: table {table} has a row of {owner}, which does not exist")
                continue
            if table in ("entries", "events"):
                numbers.setdefault((table, owner), []).append(row["sequence"])
            if table in FOLDED_TABLES or table == "entries" or (table == "events" and _is_run(owner)):
                root = actors[owner]["root"]
                for text in (row[column] for column in ("data", "input", "decisions") if column in row):
                    for digest in _references(text):
                        if digest not in parts.get(root, ()) and digest not in parts.get(SHARED, ()):
                            named = row.get("id", row.get("sequence"))
                            found.add(
                                f"{seals.store}: the part {digest} of {table} {owner}/{named} is missing"
                            )
            if table in COLUMNS or "created_ms" in row:
                _compare_copies(seals.store, table, row, found)
            if table == "conversations":
                for key in _objects(row["data"]):
                    found.objects[key] = f"conversation {owner}"
                for agent in _agents(row["data"]):
                    found.agents[agent] = f"conversation {owner}"
        if table in ("entries", "events"):
            lost.update((table, row["actor"]) for row in damaged)
    _gaps(seals.store, actors, numbers, lost, found)
    _accounts(connection, seals, found)


def _accounts(connection: sqlite3.Connection, seals: Seals, found: Found) -> None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'accounts'").fetchone():
        return
    for _, row in _rows(connection, found, seals.store, "accounts", "1"):
        if "seal" in _columns(connection, "accounts"):
            try:
                checked(seals, row["agent"], [row[name] for name in SUMS], row["seal"])
            except WonderError as problem:
                found.add(problem)


def _each(
    connection: sqlite3.Connection,
    seals: Seals,
    found: Found,
    table: str,
    place: str = "rowid",
    damaged: list[dict[str, Any]] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows that are whole; the others are noted, and added to ``damaged``."""
    for at, row in _rows(connection, found, seals.store, table, place):
        try:
            shard_seals.check(seals, table, row, at)
        except WonderError as problem:
            found.add(problem)
            if damaged is not None:
                damaged.append(row)
        else:
            yield at, row


def _compare_copies(store: str, table: str, row: Mapping[str, Any], found: Found) -> None:
    """Note columns that are copies of a field of the sealed value, for order and filters, and differ from it.
    What lies in a part is left out."""
    try:
        value = decode(row["data"])
    except ValueError:
        return
    copies = {"created_ms": "created_ms"} | COLUMNS.get(table, {})
    for path, column in copies.items():
        at, is_known = value, True
        for name in path.split("."):
            is_known = is_known and isinstance(at, dict) and "$" not in at
            # A field that is empty is not written.
            at = at.get(name) or "" if isinstance(at, dict) else ""
        if column == "created_ms":
            is_known = bool(at)
        if is_known and not isinstance(at, dict) and at != row.get(column, at):
            found.add(f"{store}: column {column} of the record {row['id']} in table {table} is damaged")


def _gaps(
    store: str,
    actors: Mapping[str, Any],
    numbers: Mapping[tuple[str, str], list[int]],
    damaged: Mapping[tuple[str, str], int],
    found: Found,
) -> None:
    """Note what is missing of journals and events, which are numbered without gaps up to their head.
    ``damaged`` rows are noted already, and not missing."""
    for (table, actor), sequences in numbers.items():
        head = actors[actor]["entry_head" if table == "entries" else "event_head"]
        there = sorted(sequences)
        lost = head - there[0] + 1 - len(there) - damaged.get((table, actor), 0)
        if lost > 0:
            found.add(f"{store}: {lost} of the {table} of {actor} are missing")


def _references(text: object) -> list[str]:
    """The parts that a stored value refers to."""
    if not isinstance(text, str) or '{"$":' not in text:
        return []
    references: list[str] = []
    try:
        left = [decode(text)]
    except ValueError:
        return []
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if len(value) == 1 and isinstance(value.get("$"), str):
                references.append(value["$"])
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return references


def _is_run(actor: object) -> bool:
    return str(actor).startswith("run_")


def _objects(text: str) -> list[str]:
    try:
        room = decode(text)
    except ValueError:
        return []
    return [room["archive"]] if isinstance(room, dict) and room.get("archive") else []


def _agents(text: str) -> list[str]:
    try:
        room = decode(text)
    except ValueError:
        return []
    there = room.get("participants") if isinstance(room, dict) else None
    members = [each for each in there or () if isinstance(each, dict) and each.get("type") == "agent"]
    return [str(each.get("id")) for each in members]


# --- the catalog, memories --------------------------------------------------------------------------------


def _catalog(connection: sqlite3.Connection, seals: Seals, found: Found) -> None:
    for table in SEALED_TABLES:
        for _, row in _rows(connection, found, seals.store, table, "1"):
            if table == "agents":
                found.known_agents.add(str(row["id"]))
            key, content = catalog_key(table, row)
            try:
                seals.check(table, key, content, row["seal"], 1)
            except WonderError as problem:
                found.add(problem)
    lacking = (
        "SELECT library || '/' || name FROM definitions WHERE NOT EXISTS"
        " (SELECT 1 FROM revisions WHERE definition_id = id AND revision = version)"
    )
    for (name,) in connection.execute(lacking).fetchall():
        found.add(f"{seals.store}: the newest revision of {name} is missing")


def _memory(connection: sqlite3.Connection, seals: Seals, found: Found) -> None:
    if _columns(connection, "deleted_agents"):
        deleted = connection.execute("SELECT agent_id FROM deleted_agents WHERE is_sure").fetchall()
        found.known_agents.update(str(agent) for (agent,) in deleted)
    if "seal" not in _columns(connection, "memories"):
        count = connection.execute("SELECT count(*) FROM memories").fetchone()[0]
        found.records += count
        found.unchecked += count
        return
    marks: dict[int, int] = {}
    try:
        for row in connection.execute(f"SELECT {FIELDS} FROM memories"):
            found.records += 1
            found.unchecked += row[-3] is None
            try:
                memory = memory_of(row)
            except WonderError as problem:
                found.add(problem)
            else:
                marks[row[-2]] = _folded(memory_fields.marks(memory.agent_id, memory.metadata))
                if memory.content_ref:
                    found.objects[memory.content_ref] = f"memory {memory.id}"
    except UNREADABLE as failure:
        found.add(f"{STORE}: table memories cannot be read to its end: {failure}")
    for key, mark in connection.execute("SELECT memory_key, mark FROM fields"):
        if key in marks:
            marks[key] ^= mark
    for key in (key for key, rest in marks.items() if rest):
        found.add(f"{STORE}: what filters find of the metadata of row {key} of memories is damaged")
    _vectors(connection, seals, found)


def _folded(marks: Iterable[int]) -> int:
    """One number for some marks, in any order."""
    folded = 0
    for mark in marks:
        folded ^= mark
    return folded


def _vectors(connection: sqlite3.Connection, seals: Seals, found: Found) -> None:
    for key, row in _rows(connection, found, STORE, "embeddings", "key"):
        place = row["memory_key"], row["agent_id"], row["embedder"], row["passage"]
        try:
            # Of an older store none has a seal, and nothing says up to which that may be.
            if row["seal"] is not None or "indexed" in _columns(connection, "memories"):
                seals.check("embeddings", place, row["vector"], row["seal"], key)
        except WonderError as problem:
            found.add(problem)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
