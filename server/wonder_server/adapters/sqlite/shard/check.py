"""Check the store of a shard: seals, parts, copied columns, gaps, accounts."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wonder_server.adapters.sqlite.codec.interning import decode
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard import row_seals
from wonder_server.adapters.sqlite.shard.schema import COLUMNS, INTERNED_TABLES, SEALED, SEALED_BY_KEY, SHARED
from wonder_server.adapters.sqlite.shard.usage_seals import COLUMNS as SUMS
from wonder_server.adapters.sqlite.shard.usage_seals import verified_account
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, columns_of, rows_of
from wonder_server.core.errors import WonderError


def check_shard(path: Path) -> CheckResult:
    """Check ``shards/NN.db``."""
    return check_store(path, f"{path.parent.name}/{path.name}", _shard)


def _shard(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    damaged: list[dict[str, Any]] = []
    actors = {row["id"]: row for _, row in _intact_rows(connection, seals, found, "actors", "1", damaged)}
    damaged_actors = {row["id"] for row in damaged}
    parts: dict[str, set[str]] = {}
    within: list[tuple[str, Any]] = []
    damaged.clear()
    for _, row in _intact_rows(connection, seals, found, "parts", damaged=damaged):
        parts.setdefault(row["root"], set()).add(row["hash"])
        within += [(row["root"], digest) for digest in _references(row["data"])]
    for row in damaged:  # They are there: only what has no row is missing.
        parts.setdefault(row["root"], set()).add(row["hash"])
    for root, digest in within:
        if digest not in parts.get(root, ()) and digest not in parts.get(SHARED, ()):
            found.add_problem(f"{seals.store}: the part {digest} of {root or 'all runs'} is missing")
    numbers: dict[tuple[str, str], list[int]] = {}
    lost: Counter[tuple[str, str]] = Counter()
    for table in (*SEALED, *SEALED_BY_KEY[1:]):
        damaged.clear()
        for _, row in _intact_rows(
            connection, seals, found, table, "rowid" if table in SEALED else "1", damaged
        ):
            owner = row["actor"]
            if owner in damaged_actors:
                continue
            if table != "requests_answered" and owner not in actors:
                found.add_problem(f"{seals.store}: table {table} has a row of {owner}, which does not exist")
                continue
            if table in ("entries", "events"):
                numbers.setdefault((table, owner), []).append(row["sequence"])
            if table in INTERNED_TABLES or table == "entries" or (table == "events" and _is_run(owner)):
                root = actors[owner]["root"]
                for text in (row[column] for column in ("data", "input", "decisions") if column in row):
                    for digest in _references(text):
                        if digest not in parts.get(root, ()) and digest not in parts.get(SHARED, ()):
                            named = row.get("id", row.get("sequence"))
                            found.add_problem(
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
    _check_gaps(seals.store, actors, numbers, lost, found)
    _accounts(connection, seals, found)


def _accounts(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'accounts'").fetchone():
        return
    for _, row in rows_of(connection, found, seals.store, "accounts", "1"):
        if "seal" in columns_of(connection, "accounts"):
            try:
                verified_account(seals, row["agent"], [row[name] for name in SUMS], row["seal"])
            except WonderError as problem:
                found.add_problem(problem)


def _intact_rows(
    connection: sqlite3.Connection,
    seals: Seals,
    found: CheckResult,
    table: str,
    place: str = "rowid",
    damaged: list[dict[str, Any]] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows that are whole; the others are noted, and added to ``damaged``."""
    for at, row in rows_of(connection, found, seals.store, table, place):
        try:
            row_seals.check(seals, table, row, at)
        except WonderError as problem:
            found.add_problem(problem)
            if damaged is not None:
                damaged.append(row)
        else:
            yield at, row


def _compare_copies(store: str, table: str, row: Mapping[str, Any], found: CheckResult) -> None:
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
            found.add_problem(
                f"{store}: column {column} of the record {row['id']} in table {table} is damaged"
            )


def _check_gaps(
    store: str,
    actors: Mapping[str, Any],
    numbers: Mapping[tuple[str, str], list[int]],
    damaged: Mapping[tuple[str, str], int],
    found: CheckResult,
) -> None:
    """Note what is missing of journals and events, which are numbered without gaps up to their head.
    ``damaged`` rows are noted already, and not missing."""
    for (table, actor), sequences in numbers.items():
        head = actors[actor]["entry_head" if table == "entries" else "event_head"]
        there = sorted(sequences)
        lost = head - there[0] + 1 - len(there) - damaged.get((table, actor), 0)
        if lost > 0:
            found.add_problem(f"{store}: {lost} of the {table} of {actor} are missing")


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
        conversation = decode(text)
    except ValueError:
        return []
    return [conversation["archive"]] if isinstance(conversation, dict) and conversation.get("archive") else []


def _agents(text: str) -> list[str]:
    try:
        conversation = decode(text)
    except ValueError:
        return []
    there = conversation.get("participants") if isinstance(conversation, dict) else None
    members = [each for each in there or () if isinstance(each, dict) and each.get("type") == "agent"]
    return [str(each.get("id")) for each in members]
