"""Decoding of stored rows, events and journals to values. Runs in the thread of the store."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from math import inf
from typing import Final

import msgspec

from wonder_server.codec.fields import StoredValue
from wonder_server.codec.interning import build, decode, part_name, read, resolve
from wonder_server.codec.journal_rows import JournalLine, begins_archived, read_row
from wonder_server.codec.message_texts import (
    MARK,
    MAX_TEXTS,
    NO_TEXTS,
    PARTS_MARK,
    MessageTexts,
    with_texts,
)
from wonder_server.codec.packing import unpack, unpacked_size
from wonder_server.codec.seals import Seals
from wonder_server.codec.stored_names import classes_by_tag, event_name, stored_event, stored_path
from wonder_server.codec.tables import FILTER_COLUMNS, INTERNED_TABLES, MESSAGES
from wonder_server.core.actor.changes import Emit
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.model.values import Message
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.ports.journal import Entry, Event
from wonder_server.ports.record_store import ActorReads, EventSelection, Reads, RowSelection, StoredRow
from wonder_server.ports.records import EventQuery, Position, Query, QueryResult
from wonder_server.record.content_filters import Condition, meets

_log = logger("store")

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError)
"""Errors of decoding a row without a seal, or a row that a bug wrote."""

_DATA: Final = -3
"""The index of the data among the columns of a row and of an event."""
_MAX_PARTS: Final = 500
"""Maximum number of parts in one statement."""


def rows(reads: Reads, query: Query, row_type: type, seals: Seals) -> QueryResult:
    """Return the rows for a query, each as ``((order, id), value)``.

    STORAGE_UNAVAILABLE if one is damaged, unless the query is lenient.
    """
    parts: dict[str, PartReader] = {}
    found, budget, count = QueryResult(), _ByteBudget(query.max_bytes), 0
    with closing(_selected(reads, query, row_type, seals)) as selected:
        for place, row in selected:
            if row is None:
                found.truncated, found.end = True, place
                break
            if not budget.add(data_size(row)):
                found.truncated = True
                break
            actor = row[0]
            part = parts.get(actor)
            if part is None:
                part = parts[actor] = PartReader(reads, actor, seals)
            count, before = count + 1, part.size
            try:
                found.append((place, row_value(query.table, row, part, row_type)))
            except WonderError as problem:
                if not query.lenient:
                    raise
                _log.error("damaged_record_skipped", problem=str(problem))
            budget.used += part.size - before
    if len(found) < count == query.limit:
        # Damaged rows were skipped, so a result below the limit does not mean that there are no more rows.
        found.truncated = True
    return found


def _selected(
    reads: Reads, query: Query, row_type: type, seals: Seals
) -> Generator[tuple[Position, StoredRow | None]]:
    """Yield the position and the columns of each selected row.

    After `Query.max_read` rows, or `Query.max_read_bytes`, yield None with the position of the last.
    """
    selection, conditions = selection_of(query, row_type)
    count = read = size = 0
    max_size = query.max_read_bytes or inf
    with closing(reads.rows(selection)) as selected:
        for order, *columns in selected:
            row = tuple(columns)
            place, read = (order, str(row[1])), read + 1
            is_excluded = query.text is not None and row[_DATA] is None
            size += 0 if is_excluded else data_size(row)
            if not is_excluded and meets(query.table, row, conditions, seals, query.text):
                yield place, row
                count += 1
                if count == query.limit:
                    return
            if read == query.max_read or size >= max_size:
                yield place, None
                return


def selection_of(query: Query, row_type: type) -> tuple[RowSelection, list[Condition]]:
    """Return the selection of a store for a query, and the conditions that are left to check.

    ``row_type`` is the class of the table's values.
    """
    own = FILTER_COLUMNS.get(query.table, {})
    conditions = [(stored_path(row_type, path), wanted) for path, wanted in query.fields if path not in own]
    return (
        RowSelection(
            query=query,
            columns=tuple((own[path], wanted) for path, wanted in query.fields if path in own),
            members=tuple((stored_path(row_type, path), wanted) for path, wanted in query.members),
            allowed=tuple((stored_path(row_type, path), wanted) for path, wanted in query.allowed),
            limit=query.max_read if conditions or query.text is not None else query.limit,
        ),
        conditions,
    )


def events(reads: Reads, planner: Planner, query: EventQuery, seals: Seals) -> QueryResult:
    """Return the events for a query."""
    names = tuple(stored_event(planner.kind, name)[0] for name in query.names)
    selection = EventSelection(query=query, prefix=f"{planner.prefix}_", names=names)
    found, budget = QueryResult(), _ByteBudget(query.max_bytes)
    with closing(reads.listed_events(selection)) as selected:
        for row in selected:
            if not budget.add(data_size(row)):
                found.truncated = True
                break
            part = PartReader(reads, row[0], seals)
            found.append(event(part, row, planner))
            budget.used += part.size
    return found


def data_size(row: Sequence[StoredValue]) -> int:
    """Return the size of the unpacked data of a row or an event; 0 if it is damaged."""
    data = row[_DATA]
    try:
        return unpacked_size(data) if type(data) is bytes else 0
    except ValueError:
        return 0


class _ByteBudget:
    """The bytes that one result may read. The first row always fits."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used = 0

    def add(self, size: int) -> bool:
        """Count a row of ``size`` bytes. Return False if it exceeds the budget."""
        fits = not self._max_bytes or not self.used or self.used + size <= self._max_bytes
        self.used += size + 1
        return fits


class PartReader:
    """Read the parts and messages that an actor's values refer to, each once."""

    def __init__(self, reads: ActorReads, actor_id: str, seals: Seals) -> None:
        self.reads = reads
        self.actor_id = actor_id
        self.seals = seals
        self._known: dict[str, StoredValue] = {}
        self._unresolved: set[str] = set()
        """The known parts that may have references. They are resolved when they are first used."""
        self._below: dict[str, set[str]] = {}
        """The parts that a known part refers to."""
        self._totals: dict[str, int] = {}
        """The sizes of parts with those below them."""
        self._sizes: dict[str, int] = {}
        self._messages: dict[int, str] = {}
        self.size = 0
        """Total bytes of the parts and messages read."""

    def __call__(self, digest: str) -> StoredValue:
        """Return a part, its references resolved. Raises KeyError for one that was not prefetched.

        Values that name the same part share it: the specification of a workflow is in many entries of a run.
        """
        if digest in self._unresolved:
            self._known[digest] = resolve(self._known[digest], self)
            self._unresolved.remove(digest)
        return self._known[digest]

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Keep messages that were read, so that they need not be read again."""
        self._messages |= {message.ordinal: message.content for message in messages}

    def message(self, ordinal: int) -> str:
        """Return the text of a message of the actor's conversation."""
        if ordinal not in self._messages:
            row = self.reads.message(self.actor_id, ordinal)
            if row is None:
                self.seals.raise_damaged("messages", (self.actor_id, ordinal))
            self._messages[ordinal] = content = _content(row, self.seals)
            self.size += len(content)
        return self._messages[ordinal]

    def decoded(self, data: bytes) -> StoredValue:
        """Return the JSON in ``data`` with all references resolved.

        Parts refer to parts, like trees in git. Each level of them is read with one statement. A value with
        `PARTS_MARK` counts all its parts, those that are known too: a client gets them with each value.
        """
        wanted = _references(data)
        missing = wanted - self._known.keys()
        if data[:1] == PARTS_MARK:
            self.size += sum(map(self._total, wanted - missing))
        while missing:
            below: set[str] = set()
            found = self._read(sorted(missing))
            for digest in missing:
                content = _unpacked_part(found.get(digest))
                if content is None or part_name(content) != digest:
                    self.seals.raise_damaged("parts", (self.actor_id, digest))
                self._known[digest] = decode(content)
                self._sizes[digest] = len(content)
                if _may_refer(content):
                    self._unresolved.add(digest)
                self.size += len(content)
                self._below[digest] = _references(content)
                below |= self._below[digest]
            missing = below - self._known.keys()
        # Most values have neither references nor keys with a dollar sign, and need no walk.
        return resolve(decode(data), self) if _may_refer(data) else decode(data)

    def _read(self, digests: list[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        for start in range(0, len(digests), _MAX_PARTS):
            found |= dict(self.reads.parts(self.actor_id, digests[start : start + _MAX_PARTS]))
        return found

    def _total(self, digest: str) -> int:
        """Return the size of a known part with all parts below it."""
        if digest not in self._totals:
            self._totals[digest] = self._sizes[digest] + sum(map(self._total, self._below[digest]))
        return self._totals[digest]


def _references(data: bytes) -> set[str]:
    """Return the parts that JSON refers to.

    Text cannot look like a reference, since JSON escapes its quotation marks.
    """
    if b'{"$":"' not in data:
        return set()
    return {digest.decode() for digest in _REFERENCE.findall(data)}


def _may_refer(data: bytes) -> bool:
    """Return True if JSON may have references or escaped keys."""
    return b'"$' in data


_REFERENCE: Final = re.compile(rb'\{"\$":"([^"\\]*)"\}')


def _content(row: StoredRow, seals: Seals) -> str:
    """Return the text of a message from its row."""
    *key, data, found, position = row
    stored = seals.check("messages", tuple(key), data, found, position)
    try:
        return str(decode(unpack(stored))["content"])
    except _UNREADABLE:
        seals.raise_damaged("messages", tuple(key))


def message_texts(reads: ActorReads, conversation_id: str, seals: Seals) -> MessageTexts:
    """Return the texts of the conversation's newest messages, which values that are written may refer to."""
    texts: list[tuple[int, str]] = []
    for row in reversed(reads.newest_rows(MESSAGES, conversation_id, MAX_TEXTS)):
        with suppress(WonderError):  # A damaged message is repeated.
            texts.append((row[3], _content(row, seals)))
    return NO_TEXTS.with_messages(texts)


def _unpacked_part(stored: object) -> bytes | None:
    """Return the content of a part; None if the part is missing or damaged."""
    try:
        return unpack(stored) if type(stored) is bytes else None
    except ValueError:
        return None


def row_value(table: str, row: StoredRow, part: PartReader, row_type: type) -> StoredValue:
    """Decode the value of a row with the columns `codec.tables.READ_ROW` and its position.

    Tables without interning are decoded directly: a ``$`` in them is user data, unless a mark comes first.
    """
    *key, data, found, position = row
    stored = part.seals.check(table, tuple(key), data, found, position)
    try:
        data = unpack(stored)
        if table in INTERNED_TABLES or data[:1] == PARTS_MARK:
            return build(part.decoded(data), row_type)
        return read(_with_texts(data, part), row_type)
    except _UNREADABLE:
        part.seals.raise_damaged(table, tuple(key))


def _with_texts(data: bytes, part: PartReader) -> bytes:
    """Return the JSON of a value without parts, with the texts of the messages that it refers to."""
    return with_texts(data, part.message) if data[:1] == MARK else data


def event(parts: PartReader, row: StoredRow, planner: Planner) -> Event:
    """Decode an event with the columns `codec.tables.READ_EVENT` and its position."""
    *key, data, found, position = row
    packed = parts.seals.check("events", tuple(key), data, found, position)
    actor, sequence, at_ms, stored, _, turn_id, message_id = key
    try:
        name = event_name(stored)
        cls = planner.event_types[name.replace(".", "_")]
        data = unpack(packed)
        has_parts = planner.kind == "run" or data[:1] == PARTS_MARK
        value = build(parts.decoded(data), cls) if has_parts else read(_with_texts(data, parts), cls)
    except _UNREADABLE:
        parts.seals.raise_damaged("events", tuple(key))
    return Event(sequence, at_ms, actor, Emit(name, value, turn_id, message_id))


def check_complete(
    reads: ActorReads, actor_id: str, after: int, found: Sequence[Event], seals: Seals
) -> None:
    """Raise STORAGE_UNAVAILABLE unless ``found`` are all events after ``after``: sequences have no gaps.

    An archived record lacks its first journal entries and its first events. A later start is then accepted. A
    reader without any event came while the record was archived, and the error is transient.
    """
    actor = reads.actor(actor_id)
    last = found[-1].sequence if found else after
    is_short = actor is not None and last < actor[1]
    begins_late = bool(found) and found[0].sequence > after + 1
    if not (is_short or begins_late):
        return
    is_archived = _is_archived(reads, actor_id, seals)
    if is_short and is_archived and not found:
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"{actor_id} was archived while its events were read. Try again.",
            transient=True,
        )
    if is_short:
        seals.raise_damaged("events", (actor_id, last + 1))
    if begins_late and not is_archived:
        seals.raise_damaged("events", (actor_id, after + 1))


def _is_archived(reads: ActorReads, actor_id: str, seals: Seals) -> bool:
    """Return True if the actor's first stored entry erased the record before it."""
    first = reads.entries(actor_id, 0, 1)
    return bool(first) and begins_archived(verified_lines(seals, actor_id, first[0]))


def _check_journal(
    reads: ActorReads, actor_id: str, page: tuple[int, int], found: Sequence[Entry], seals: Seals
) -> None:
    """Raise STORAGE_UNAVAILABLE unless ``found`` are all entries of a page up to the actor's last one.

    ``page`` is the sequence after which they begin, and the maximum number.
    """
    after, limit = page
    actor = reads.actor(actor_id) if len(found) < limit else None
    if actor is not None:
        entry_head, event_head, seal = actor
        seals.check("actors", (actor_id, entry_head, event_head), b"", seal, 1)
        last = found[-1].sequence if found else after
        if last < entry_head:
            seals.raise_damaged("entries", (actor_id, last + 1))
    if found and found[0].sequence > after + 1 and not _is_archived(reads, actor_id, seals):
        seals.raise_damaged("entries", (actor_id, after + 1))


def entries(part: PartReader, planner: Planner, after: int, limit: int) -> list[Entry]:
    """Return up to ``limit`` journal entries above ``after`` of the part reader's actor, in order.

    STORAGE_UNAVAILABLE if one is damaged or missing. The journal of an archived record begins late.
    """
    actor_id = part.actor_id
    inputs, decisions = classes_by_tag(planner.inputs), classes_by_tag(planner.decisions)
    seals = part.seals
    found: list[Entry] = []
    for row in part.reads.entries(actor_id, after, limit):
        for line in verified_lines(seals, actor_id, row):
            if found and line.sequence != found[-1].sequence + 1:
                seals.raise_damaged("entries", (actor_id, found[-1].sequence + 1))
            if line.sequence <= after:
                continue
            try:
                tag, body = part.decoded(line.input)
                value = build(body, inputs[tag])
                decided = tuple(build(item, decisions[kind]) for kind, item in part.decoded(line.decisions))
            except _UNREADABLE:
                seals.raise_damaged("entries", (actor_id, line.sequence))
            found.append(Entry(line.sequence, line.at_ms, value, decided))
            if len(found) == limit:
                break
        if len(found) == limit:
            break
    _check_journal(part.reads, actor_id, (after, limit), found, seals)
    return found


def journal_size(rows: Sequence[StoredRow]) -> int:
    """Return the size of journal rows in bytes, unpacked; 0 if one is damaged."""
    try:
        return sum([unpacked_size(row[3]) for row in rows])
    except (TypeError, ValueError):
        return 0


def verified_lines(seals: Seals, actor_id: str, row: StoredRow) -> list[JournalLine]:
    """Check the seal of a journal row, and return its entries. STORAGE_UNAVAILABLE."""
    sequence, at_ms, epoch, data, decisions, *seal = row
    whole = b"\n".join((data, decisions)) if type(data) is type(decisions) is bytes else None
    key = (actor_id, sequence, at_ms)
    seals.check("entries", (*key, epoch), whole, *seal, older=None if epoch else key)
    try:
        return read_row(sequence, at_ms, unpack(data), decisions)
    except ValueError:
        seals.raise_damaged("entries", (actor_id, sequence))
