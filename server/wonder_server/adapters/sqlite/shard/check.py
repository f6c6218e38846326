"""Check of a shard's store: seals, parts, copied columns, gaps in sequences, accounts."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from wonder_server.adapters.sqlite.codec.interning import decode
from wonder_server.adapters.sqlite.connection import Columns
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard import row_seals
from wonder_server.adapters.sqlite.shard.schema import COLUMNS, INTERNED_TABLES, SEALED, SEALED_BY_KEY, SHARED
from wonder_server.adapters.sqlite.shard.usage_seals import COLUMNS as SUMS
from wonder_server.adapters.sqlite.shard.usage_seals import verified_account
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, columns_of, rows_of
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict


def check_shard(path: Path) -> CheckResult:
    """Check ``shards/NN.db``."""
    return check_store(path, f"{path.parent.name}/{path.name}", _check_records)


def _check_records(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    _ShardCheck(connection, seals, found).run()


class _ShardCheck:
    """One check of all records of a shard. Adds problems and references to other stores to ``found``."""

    def __init__(self, connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
        self._connection = connection
        self._seals = seals
        self._store = seals.store
        self._found = found
        self._actors: dict[str, Columns] = {}
        self._damaged_actors: set[str] = set()
        self._parts: dict[str, set[str]] = {}
        """The hashes of the stored parts, by root."""
        self._sequences: dict[tuple[str, str], list[int]] = {}
        """The sequences of intact rows, by table and actor."""
        self._damaged_rows: Counter[tuple[str, str]] = Counter()
        """The number of damaged rows with a sequence, by table and actor."""

    def run(self) -> None:
        damaged: list[Columns] = []
        for _, row in self._intact_rows("actors", "1", damaged):
            self._actors[row["id"]] = row
        self._damaged_actors = {row["id"] for row in damaged}
        self._check_parts()
        for table in (*SEALED, *SEALED_BY_KEY[1:]):
            self._check_table(table)
        self._check_gaps()
        self._check_accounts()

    def _intact_rows(self, table: str, rowid: str, damaged: list[Columns]) -> Iterator[tuple[int, Columns]]:
        """Yield the intact rows. Add a problem for each damaged row, and add the row to ``damaged``."""
        for at, row in rows_of(self._connection, self._found, self._store, table, rowid):
            try:
                row_seals.check(self._seals, table, row, at)
            except WonderError as problem:
                self._found.add_problem(problem)
                damaged.append(row)
            else:
                yield at, row

    def _check_parts(self) -> None:
        """Read the hashes of all parts, and add a problem for each missing part that a part refers to."""
        damaged: list[Columns] = []
        references: list[tuple[str, str]] = []
        for _, row in self._intact_rows("parts", "rowid", damaged):
            self._parts.setdefault(row["root"], set()).add(row["hash"])
            references += [(row["root"], digest) for digest in _references(row["data"])]
        for row in damaged:  # A damaged part is reported already and does not count as missing.
            self._parts.setdefault(row["root"], set()).add(row["hash"])
        for root, digest in references:
            if not self._has_part(root, digest):
                self._found.add_problem(
                    f"{self._store}: the part {digest} of {root or 'all runs'} is missing"
                )

    def _has_part(self, root: str, digest: str) -> bool:
        return digest in self._parts.get(root, ()) or digest in self._parts.get(SHARED, ())

    def _check_table(self, table: str) -> None:
        damaged: list[Columns] = []
        for _, row in self._intact_rows(table, "rowid" if table in SEALED else "1", damaged):
            owner = row["actor"]
            if owner in self._damaged_actors:
                continue
            if table != "requests_answered" and owner not in self._actors:
                self._found.add_problem(
                    f"{self._store}: table {table} has a row of {owner}, which does not exist"
                )
                continue
            self._check_row(table, owner, row)
        if table in ("entries", "events"):
            self._damaged_rows.update((table, row["actor"]) for row in damaged)

    def _check_row(self, table: str, owner: str, row: Columns) -> None:
        if table in ("entries", "events"):
            self._sequences.setdefault((table, owner), []).append(row["sequence"])
        if table in INTERNED_TABLES or table == "entries" or (table == "events" and _is_run(owner)):
            self._check_references(table, owner, row)
        if table in COLUMNS or "created_ms" in row:
            _compare_copies(self._store, table, row, self._found)
        if table == "conversations":
            conversation = _json_object(row["data"])
            if conversation.get("archive"):
                self._found.objects[conversation["archive"]] = f"conversation {owner}"
            for agent in _agents(conversation):
                self._found.agents[agent] = f"conversation {owner}"

    def _check_references(self, table: str, owner: str, row: Columns) -> None:
        """Add a problem for each missing part that a row refers to."""
        root = self._actors[owner]["root"]
        for text in (row[column] for column in ("data", "input", "decisions") if column in row):
            for digest in _references(text):
                if not self._has_part(root, digest):
                    name = row.get("id", row.get("sequence"))
                    self._found.add_problem(
                        f"{self._store}: the part {digest} of {table} {owner}/{name} is missing"
                    )

    def _check_gaps(self) -> None:
        """Add a problem for missing journal entries and events: sequences have no gaps up to the head.

        Damaged rows are reported already and do not count as missing.
        """
        for (table, actor), sequences in self._sequences.items():
            head = self._actors[actor]["entry_head" if table == "entries" else "event_head"]
            lost = head - min(sequences) + 1 - len(sequences) - self._damaged_rows[table, actor]
            if lost > 0:
                self._found.add_problem(f"{self._store}: {lost} of the {table} of {actor} are missing")

    def _check_accounts(self) -> None:
        connection = self._connection
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'accounts'").fetchone():
            return
        for _, row in rows_of(connection, self._found, self._store, "accounts", "1"):
            if "seal" in columns_of(connection, "accounts"):
                try:
                    verified_account(self._seals, row["agent"], [row[name] for name in SUMS], row["seal"])
                except WonderError as problem:
                    self._found.add_problem(problem)


def _compare_copies(store: str, table: str, row: Columns, found: CheckResult) -> None:
    """Add a problem for each column that differs from the field of the sealed value it copies.

    Such columns serve order and filters. Fields inside a part are not compared.
    """
    try:
        value = decode(row["data"])
    except ValueError:
        return
    copies = {"created_ms": "created_ms"} | COLUMNS.get(table, {})
    for path, column in copies.items():
        field, is_known = value, True
        for name in path.split("."):
            is_known = is_known and isinstance(field, dict) and "$" not in field
            # Stored values omit empty fields.
            field = field.get(name) or "" if isinstance(field, dict) else ""
        if column == "created_ms":
            is_known = bool(field)
        if is_known and not isinstance(field, dict) and field != row.get(column, field):
            found.add_problem(
                f"{store}: column {column} of the record {row['id']} in table {table} is damaged"
            )


def _references(text: object) -> list[str]:
    """Return the hashes of the parts that a stored value refers to."""
    if not isinstance(text, str) or '{"$":' not in text:
        return []
    references: list[str] = []
    try:
        pending = [decode(text)]
    except ValueError:
        return []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if len(value) == 1 and isinstance(value.get("$"), str):
                references.append(value["$"])
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return references


def _is_run(actor: object) -> bool:
    return str(actor).startswith("run_")


def _json_object(text: str) -> JsonDict:
    """Decode a JSON object; return an empty one for anything else."""
    try:
        value = decode(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _agents(conversation: JsonDict) -> list[str]:
    participants = conversation.get("participants") or ()
    members = [each for each in participants if isinstance(each, dict) and each.get("type") == "agent"]
    return [str(each.get("id")) for each in members]
