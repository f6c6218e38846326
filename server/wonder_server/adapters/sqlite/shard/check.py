"""Check of a shard's store: seals, parts, copied columns, gaps in sequences, accounts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wonder_server.adapters.sqlite.connection import Columns
from wonder_server.adapters.sqlite.shard import archive_objects, row_seals
from wonder_server.adapters.sqlite.shard.identity import STORED_IDENTITY, identity_problem
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, columns_of, reading, rows_of
from wonder_server.codec.interning import decode
from wonder_server.codec.journal_rows import begins_archived, read_row
from wonder_server.codec.message_texts import MARK, PARTS_MARK, message_ordinals
from wonder_server.codec.seals import Seals
from wonder_server.codec.tables import (
    FILTER_COLUMNS,
    INTERNED_TABLES,
    MESSAGES,
    SEALED,
    SEALED_BY_KEY,
    SHARED,
)
from wonder_server.codec.usage_seals import COLUMNS as SUMS
from wonder_server.codec.usage_seals import verified_account
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict


def check_shard(path: Path, count: int = 0) -> CheckResult:
    """Check ``shards/NN.db``. With ``count``, the file must identify as shard ``NN`` of so many."""

    def check_records(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
        if count:
            stored = None
            if columns_of(connection, "identity"):
                stored = connection.execute(STORED_IDENTITY).fetchone()
            if problem := identity_problem(stored, int(path.stem), count):
                found.add_problem(f"{seals.store}: the file {problem}")
        _ShardCheck(connection, seals, found).run()

    return check_store(path, f"{path.parent.name}/{path.name}", check_records)


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
        self._messages: dict[str, set[int]] = {}
        """The ordinals of the stored messages, damaged or not, by conversation."""
        self._sequences: dict[tuple[str, str], list[int]] = {}
        """The sequences of intact rows, by table and actor."""
        self._archived: set[str] = set()
        """The actors with an entry that erased the record before it."""
        self._damaged_rows: dict[tuple[str, str], list[int]] = {}
        """The sequences of damaged rows, by table and actor."""

    def run(self) -> None:
        damaged: list[Columns] = []
        for _, row in self._intact_rows("actors", "1", damaged):
            self._actors[row["id"]] = row
        self._damaged_actors = {row["id"] for row in damaged}
        with self._reading(MESSAGES):
            self._read_messages()
        self._check_parts()
        for table in (*SEALED, *SEALED_BY_KEY[1:]):
            self._check_table(table)
        self._check_gaps()
        with self._reading("entries"):
            self._check_epochs()
        self._check_accounts()
        self._check_archive_objects()

    @contextmanager
    def _reading(self, table: str) -> Iterator[None]:
        with reading(self._found, self._store, f"table {table}"):
            self._found.unreadable.add(table)
            yield
            self._found.unreadable.discard(table)

    def _intact_rows(self, table: str, rowid: str, damaged: list[Columns]) -> Iterator[tuple[int, Columns]]:
        """Yield the intact rows. Add a problem for each damaged row, and add the row to ``damaged``."""
        for at, row in rows_of(self._connection, self._found, self._store, table, rowid):
            try:
                row_seals.check(self._seals, table, row, at)
            except WonderError as problem:
                self._found.add_problem(problem)
                damaged.append(row)
            except KeyError as column:
                self._found.add_problem(
                    f"{self._store}: table {table} has no column {column}: its schema is damaged"
                )
                return
            else:
                yield at, row

    def _read_messages(self) -> None:
        """Read the ordinals of all messages. Their rows are checked with their table."""
        if columns_of(self._connection, MESSAGES):
            for actor, ordinal in self._connection.execute(f"SELECT actor, ordinal FROM {MESSAGES}"):
                self._messages.setdefault(actor, set()).add(ordinal)

    def _check_parts(self) -> None:
        """Read the hashes of all parts, and add a problem for each missing part that a part refers to."""
        damaged: list[Columns] = []
        references: list[tuple[str, str | int]] = []
        for _, row in self._intact_rows("parts", "rowid", damaged):
            self._parts.setdefault(row["root"], set()).add(row["hash"])
            data = row_seals.unpacked("parts", row)["data"]
            references += [(row["root"], each) for each in _references(data)]
        for row in damaged:  # A damaged part is reported already and does not count as missing.
            self._parts.setdefault(row["root"], set()).add(row["hash"])
        for root, reference in references:
            if not self._has(root, reference):
                self._found.add_problem(
                    f"{self._store}: the {_named(reference)} of {root or 'all runs'} is missing"
                )

    def _has(self, root: str, reference: str | int) -> bool:
        """Return True if the part with this hash, or the message with this ordinal, is or may be stored."""
        if not self._found.unreadable.isdisjoint(("parts", MESSAGES)):
            return True
        if isinstance(reference, int):
            return reference in self._messages.get(root, ())
        return reference in self._parts.get(root, ()) or reference in self._parts.get(SHARED, ())

    def _check_table(self, table: str) -> None:
        damaged: list[Columns] = []
        for _, stored in self._intact_rows(table, "rowid" if table in SEALED else "1", damaged):
            row: Columns = row_seals.unpacked(table, stored)
            owner = row["actor"]
            if owner in self._damaged_actors:
                continue
            if table != "requests_answered" and owner not in self._actors:
                if "actors" not in self._found.unreadable:
                    self._found.add_problem(
                        f"{self._store}: table {table} has a row of {owner}, which does not exist"
                    )
                continue
            self._check_row(table, owner, row)
        if table in ("entries", "events"):
            for each in damaged:
                self._damaged_rows.setdefault((table, each["actor"]), []).append(each["sequence"])

    def _check_row(self, table: str, owner: str, row: Columns) -> None:
        if table == "events":
            self._sequences.setdefault((table, owner), []).append(row["sequence"])
        if table == "entries":
            lines = read_row(row["sequence"], row["at_ms"], row["input"].encode(), row["decisions"].encode())
            self._sequences.setdefault((table, owner), []).extend(line.sequence for line in lines)
            if lines[0].sequence > 1 and begins_archived(lines):
                self._archived.add(owner)
            self._check_references(
                table, row, [each for line in lines for text in line[2:] for each in _references(text)]
            )
        data = row.get("data", "")
        if _has_parts(table, owner, data):
            self._check_references(table, row, _references(data))
        elif data.startswith(MARK.decode()):
            # Such a value has no parts: {"$": …} in it is user data.
            self._check_references(table, row, message_ordinals(data.encode()))
        if table in FILTER_COLUMNS or "created_ms" in row:
            _compare_copies(self._store, table, row, self._found)
        if table == "conversations":
            conversation = _json_object(row["data"])
            if conversation.get("archive"):
                self._found.objects[conversation["archive"]] = f"conversation {owner}"
            for agent in _agents(conversation):
                self._found.agents[agent] = f"conversation {owner}"

    def _check_references(self, table: str, row: Columns, references: Sequence[str | int]) -> None:
        """Add a problem for each of a row's references to a part or message that is missing."""
        owner = row["actor"]
        root = self._actors[owner]["root"]
        for reference in references:
            if not self._has(root, reference):
                name = row.get("id", row.get("sequence"))
                self._found.add_problem(
                    f"{self._store}: the {_named(reference)} of {table} {owner}/{name} is missing"
                )

    def _check_gaps(self) -> None:
        """Add a problem for missing journal entries and events: sequences have no gaps up to the head.

        Damaged rows are reported already and do not count as missing. The record of an archived conversation
        begins with the commit that erased it, and a compact run has no events.
        """
        for actor, row in self._actors.items():
            heads = {"entries": row["entry_head"], "events": 0 if row.get("brief") else row["event_head"]}
            for table, head in heads.items():
                found = self._sequences.get((table, actor), [])
                first = 1
                if actor in self._archived or (
                    table == "events" and ("entries", actor) in self._damaged_rows
                ):
                    first = min(found, default=head + 1)
                damaged = self._damaged_rows.get((table, actor), ())
                lost = _lost(found, (first, head), damaged, grouped=table == "entries")
                if lost > 0:
                    self._found.add_problem(f"{self._store}: {lost} of the {table} of {actor} are missing")

    def _check_epochs(self) -> None:
        """Add a problem for each entry whose epoch is below that of the entry before it.

        A second writer would leave such an entry: the store refuses commits of an earlier epoch.
        """
        if "epoch" not in columns_of(self._connection, "entries"):
            return
        for actor, sequence, before, epoch in self._connection.execute(_FALLEN_EPOCHS):
            self._found.add_problem(
                f"{self._store}: the entry {actor}/{sequence} has epoch {epoch}, the one before it {before}"
            )

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

    def _check_archive_objects(self) -> None:
        if columns_of(self._connection, archive_objects.TABLE):
            for _, problem in archive_objects.verified(self._connection, self._seals):
                if problem is not None:
                    self._found.add_problem(problem)


_FALLEN_EPOCHS: Final = """
SELECT actor, sequence, earlier, epoch
FROM (
    SELECT actor, sequence, epoch, lag(epoch) OVER (PARTITION BY actor ORDER BY sequence) AS earlier
    FROM entries
)
WHERE earlier > epoch
"""


def _lost(found: Sequence[int], expected: tuple[int, int], damaged: Sequence[int], *, grouped: bool) -> int:
    """Return the number of missing sequences, except those of a damaged row. ``expected`` are the first and
    the last sequence.

    ``grouped``: a damaged row has the sequence of its last entry, and the missing entries before it may have
    been in it.
    """
    present, lost, missing = set(found), 0, 0
    for sequence in range(expected[0], expected[1] + 1):
        if sequence in present:
            lost, missing = lost + missing, 0
        elif sequence not in damaged:
            missing += 1
        elif grouped:
            missing = 0
    return lost + missing


def _compare_copies(store: str, table: str, row: Columns, found: CheckResult) -> None:
    """Add a problem for each column that differs from the field of the sealed value it copies.

    Such columns serve order and filters. Fields inside a part are not compared.
    """
    try:
        value = decode(row["data"])
    except ValueError:
        return
    copies = {"created_ms": "created_ms"} | FILTER_COLUMNS.get(table, {})
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


def _named(reference: str | int) -> str:
    return f"message {reference}" if isinstance(reference, int) else f"part {reference}"


def _references(text: str | bytes) -> list[str | int]:
    """Return the hashes of the parts, and the ordinals of the messages, that a stored value refers to."""
    whole = text.decode() if isinstance(text, bytes) else text
    if '{"$":' not in whole and '{"$m":' not in whole:
        return []
    references: list[str | int] = []
    try:
        pending = [decode(text)]
    except ValueError:
        return []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if len(value) == 1 and isinstance(value.get("$"), str):
                references.append(value["$"])
            if len(value) == 1 and isinstance(value.get("$m"), int):
                references.append(value["$m"])
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return references


def _has_parts(table: str, actor: str, data: str) -> bool:
    """Return True if a value may refer to parts."""
    is_event_of_run = table == "events" and actor.startswith("run_")
    return table in INTERNED_TABLES or is_event_of_run or data.startswith(PARTS_MARK.decode())


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
