"""Encoding of commits: the rows that a store writes for them.

SQLite releases the interpreter lock for each statement, and other stores answer each over a network. So the
commits of one write are first collected by table, with only the last change of each row. A store then writes
many rows with each statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from wonder_server.codec.interning import Interner, InternSession, encode
from wonder_server.codec.journal_rows import write_rows
from wonder_server.codec.list_members import NO_MEMBERS, KnownMembers, ListMembers
from wonder_server.codec.message_texts import NO_TEXTS, MessageTexts
from wonder_server.codec.packing import pack_all
from wonder_server.codec.seals import seal
from wonder_server.codec.stored_names import stored_event
from wonder_server.codec.tables import (
    EXACT_TABLES,
    FILTER_COLUMNS,
    INTERNED_TABLES,
    MESSAGES,
    PACKED_TABLES,
    SHARED,
)
from wonder_server.codec.usage_seals import initial_seal
from wonder_server.core import ids
from wonder_server.core.actor.changes import Change, Delete, Erase, Put, field_at
from wonder_server.core.budget import CHARGES
from wonder_server.ports.journal import (
    CREATIONS,
    DELETIONS,
    KEPT,
    Commit,
    external_ref_taken,
    reference_key,
)
from wonder_server.ports.record_store import (
    ActorReads,
    Erasure,
    Fence,
    MovedRequest,
    Reference,
    StoredRow,
    StoredValue,
    WriteBatch,
)

JOIN: Final = b"\n"
"""The seal of a journal row covers its two columns, joined by this."""

_CONVERSATION: Final = "conv_"

Pin = tuple[str, str]
"""A root, and the hash of a part or pinned definition stored for it."""


@dataclass(slots=True)
class Known:
    """Facts about a store that writes need not read or write again."""

    pins: set[Pin] = field(default_factory=set)
    """Parts and definitions that are stored."""
    references: dict[str, str] = field(default_factory=dict)
    """The conversation that has an external reference, by `reference_key`."""
    texts: dict[str, MessageTexts] = field(default_factory=dict)
    """The texts of messages that values may refer to, by conversation."""
    text_bytes: int = 0
    """Total size of ``texts``."""
    members: dict[str, KnownMembers] = field(default_factory=dict)
    """The encoded members of lists, by conversation, the one written last at the end."""
    member_count: int = 0
    """Total number of ``members``."""

    def add(self, other: Known) -> None:
        """Add the facts of a write that succeeded."""
        if len(self.pins) > MAX_KNOWN:
            self.pins.clear()
        if len(self.references) > MAX_KNOWN:
            self.references.clear()
        if self.text_bytes > MAX_TEXT_BYTES or len(self.texts) > MAX_KNOWN:
            self.texts.clear()
            self.text_bytes = 0
        self.pins |= other.pins
        self.references |= other.references
        for conversation_id, texts in other.texts.items():
            before = self.texts.get(conversation_id, NO_TEXTS)
            self.text_bytes += texts.size - before.size
            self.texts[conversation_id] = texts
        for conversation_id, members in other.members.items():
            self.member_count += len(members) - len(self.members.pop(conversation_id, NO_MEMBERS))
            self.members[conversation_id] = members
        while self.member_count > MAX_MEMBERS:
            self.member_count -= len(self.members.pop(next(iter(self.members))))


MAX_KNOWN: Final = 20_000
"""Number of facts of one kind above which `Known` starts again."""
MAX_TEXT_BYTES: Final = 16 << 20
"""Size of the known texts above which `Known` starts again: those of 4,000 conversations with 40 messages of
20 words."""
MAX_MEMBERS: Final = 32_768
"""Number of members above which `Known` forgets those of the conversations that were written longest ago. A
turn with a history of 20 turns has 100 members."""

LoadTexts = Callable[[ActorReads, str], MessageTexts]
"""Returns the texts of the messages that are stored of a conversation."""


def _no_texts(_reads: ActorReads, _conversation_id: str) -> MessageTexts:
    return NO_TEXTS


class _Contents:
    """The contents of rows, which are packed together before the rows are written.

    `add` appends a content and a seal to the values of a table. Both are set by `fill`.
    """

    def __init__(self) -> None:
        self._places: list[tuple[list[StoredValue], int, tuple[object, ...] | None, bytes]] = []
        self._contents: list[bytes] = []

    def add(
        self, values: list[StoredValue], content: bytes, key: tuple[object, ...] | None, *, end: bytes = b""
    ) -> None:
        """Append the stored form of ``content``, the column ``end`` if there is one, and the seal.

        The seal covers ``key``, the stored form and ``end``. Without a key there is no seal.
        """
        self._places.append((values, len(values), key, end))
        self._contents.append(content)
        values.append(None)
        if end:
            values.append("")
        if key is not None:
            values.append(None)

    def fill(self) -> None:
        """Set all contents and seals."""
        for (values, place, key, end), stored in zip(self._places, pack_all(self._contents), strict=True):
            values[place] = stored
            if key is not None:
                data = stored if isinstance(stored, bytes) else stored.encode()
                values[place + (2 if end else 1)] = seal(key, data + end)


class Encoder:
    """The rows that several commits write: `add` each commit, then take the `batch`.

    ``kinds`` gives the kind of a planner by the prefix of its actors' ids.
    """

    def __init__(
        self, interner: Interner, kinds: Mapping[str, str], load_texts: LoadTexts = _no_texts
    ) -> None:
        self._interner = interner
        self._kinds = kinds
        self._load_texts = load_texts
        self._commits: list[tuple[Commit, InternSession]] = []
        """The commits whose entries and events are to be encoded."""
        self._messages: dict[str, list[tuple[int, str]]] = {}
        """The messages that the commits add, by conversation: ordinals and contents."""
        self._created: set[str] = set()
        """The actors that the commits write first."""
        self._sessions: dict[str, InternSession] = {}
        self._fences: list[Fence] = []
        self._actors: dict[str, StoredRow] = {}
        self._changes: dict[tuple[str, str, str], tuple[Change, InternSession]] = {}
        self._entries: list[StoredValue] = []
        self._events: list[StoredValue] = []
        self._requests: list[StoredValue] = []
        self._contents = _Contents()
        self._erased: list[tuple[str, Erase]] = []

    @property
    def erases(self) -> bool:
        """Return True if a commit removes a record."""
        return bool(self._erased)

    def add(self, commit: Commit) -> None:
        """Add a commit. Its changes replace earlier changes of the same rows."""
        actor, root = commit.actor_id, commit.root or commit.actor_id
        self._fences.append(Fence(actor, ids.shard_of(actor), commit.epoch))
        changes = commit.changes
        erase = next((change for change in changes if isinstance(change, Erase)), None)
        if erase is not None:
            self._erased.append((actor, erase))
            changes = changes[changes.index(erase) + 1 :]
            if erase.whole:
                self._add_requests(commit)
                return
        session = self._sessions.get(root)
        if session is None:
            session = self._sessions[root] = self._interner.session()
        kind = self._kinds[actor.partition("_")[0]]
        heads = commit.entry_head, commit.event_head
        self._actors[actor] = (
            *(actor, kind, root, *heads, int(commit.compact)),
            seal(("actors", actor, *heads), b""),
        )
        if commit.entries and commit.entries[0].sequence == 1:
            self._created.add(actor)
        found = self._changes
        for change in changes:
            row = change.table, actor, change.id
            if isinstance(change, Delete) and row in found and _is_insert(found[row][0]):
                del found[row]
                continue
            found[row] = (change, session)
            if change.table == MESSAGES and isinstance(change, Put):
                self._messages.setdefault(actor, []).append((change.ordinal, change.value.content))
        self._commits.append((commit, session))
        self._add_requests(commit)

    def _encode_commits(self, reads: ActorReads, known: Known) -> dict[str, MessageTexts]:
        """Encode the entries and events of all commits. Return the texts of the conversations.

        Entries of a conversation repeat the messages that the same write adds, so that the journal alone has
        them all. Everything else refers to these messages too.
        """
        erased = {actor for actor, _ in self._erased}
        before = {
            root: NO_TEXTS if root in erased else self._known_texts(reads, root, known)
            for root in self._sessions
        }
        after: dict[str, MessageTexts] = {}
        for root, session in self._sessions.items():
            session.messages = before[root].with_messages(self._messages.get(root, ()))
            session.members = ListMembers(known.members.get(root, NO_MEMBERS))
            # An unchanged value may be older than that of a write that has just ended.
            if root.startswith(_CONVERSATION) and session.messages is not known.texts.get(root):
                after[root] = session.messages
        for commit, session in self._commits:
            root = commit.root or commit.actor_id
            self._add_entries(commit, session, before[root] if root == commit.actor_id else session.messages)
            self._add_events(commit, session, self._kinds[commit.actor_id.partition("_")[0]])
        return after

    def _known_texts(self, reads: ActorReads, root: str, known: Known) -> MessageTexts:
        """Return the texts of messages that were stored before this write."""
        texts = known.texts.get(root)
        if texts is None:
            is_new = root in self._created or not root.startswith(_CONVERSATION)
            texts = NO_TEXTS if is_new else self._load_texts(reads, root)
        return texts

    def _add_entries(self, commit: Commit, session: InternSession, messages: MessageTexts) -> None:
        values = self._entries
        texts = [
            (
                *(entry.sequence, entry.at_ms),
                session.tagged(entry.input, messages),
                session.all_tagged(entry.decisions, messages),
            )
            for entry in commit.entries
        ]
        for sequence, at_ms, content in write_rows(texts):
            step = commit.actor_id, sequence, at_ms, commit.epoch
            values += step
            self._contents.add(values, content, ("entries", *step), end=JOIN)

    def _add_events(self, commit: Commit, session: InternSession, planner_kind: str) -> None:
        values = self._events
        text = session.text if planner_kind == "run" else session.plain_text
        for event in commit.events:
            emit = event.emit
            name, kind = stored_event(planner_kind, emit.name)
            key = commit.actor_id, event.sequence, event.at_ms, name, kind, emit.turn_id, emit.message_id
            values += key
            self._contents.add(values, text(emit.value).encode(), ("events", *key))

    def _add_requests(self, commit: Commit) -> None:
        values = self._requests
        for request, answer in commit.requests:
            data = encode(answer)
            key = request.scope, request.id, commit.actor_id, request.fingerprint
            values += (*key, data.decode(), seal(("requests_answered", *key), data))

    def batch(self, reads: ActorReads, known: Known) -> tuple[WriteBatch, Known]:
        """Return everything to write except known parts, and the facts that were not known.

        ALREADY_EXISTS if two conversations take the same external reference.
        """
        references, claimed = self._references(known)
        texts = self._encode_commits(reads, known)
        batch = WriteBatch(
            self._fences,
            [_erasure(reads, actor, erase) for actor, erase in self._erased],
            references,
            {
                "actors": [value for row in self._actors.values() for value in row],
                "entries": self._entries,
                "events": self._events,
                "requests_answered": self._requests,
            },
        )
        rows, deletes = batch.rows, batch.deletes
        for (table, actor, row_id), (change, session) in self._changes.items():
            if isinstance(change, Delete):
                deletes.setdefault(table, []).extend((actor, row_id))
            elif isinstance(change, Put):
                values = rows.get(table)
                if values is None:
                    values = rows[table] = []
                self._add_row(values, actor, change, session)
        rows["parts"], pins = self._parts(known.pins)
        self._contents.fill()
        return batch, Known(set(pins), claimed, texts, members=self._members())

    def _members(self) -> dict[str, KnownMembers]:
        """Return the members of lists that this write has encoded, by conversation."""
        kept = {
            root: session.members.kept()
            for root, session in self._sessions.items()
            if root.startswith(_CONVERSATION)
        }
        return {root: members for root, members in kept.items() if members}

    def _references(self, known: Known) -> tuple[list[Reference], dict[str, str]]:
        """Return the external references to check, and the conversations that take them."""
        wanted: list[Reference] = []
        found: dict[str, str] = {}
        for actor in self._actors:
            # The row of a conversation has the id of its actor.
            change, _ = self._changes.get(("conversations", actor, actor), (None, None))
            if not isinstance(change, Put) or not change.alias:
                continue
            key = reference_key(change.parent, change.alias)
            if known.references.get(key) == actor:
                continue
            if found.get(key, actor) != actor:
                raise external_ref_taken(found[key])
            found[key] = actor
            wanted.append(Reference(actor, change.parent, change.alias))
        return wanted, found

    def _add_row(self, values: list[StoredValue], actor: str, change: Put, session: InternSession) -> None:
        """Append the values of a row."""
        table = change.table
        key = actor, change.id, change.parent, change.ordinal, change.status, change.alias, int(change.live)
        if table in INTERNED_TABLES:
            data = session.text(change.value)
        elif table in EXACT_TABLES:
            data = encode(change.value).decode()
        else:
            data = session.plain_text(change.value)
        values += (*key, change.created_ms)
        if table == CHARGES:
            values += (data, initial_seal(change.parent))
        elif table in PACKED_TABLES:
            self._contents.add(values, data.encode(), (table, *key))
        else:
            values += (data, seal((table, *key), data.encode()))
        if table in FILTER_COLUMNS:
            values += [field_at(change.value, path) for path in FILTER_COLUMNS[table]]

    def _parts(self, stored: set[Pin]) -> tuple[list[StoredValue], list[Pin]]:
        """Return the values of parts that are not in ``stored``, and the pins to add to it."""
        found: dict[Pin, bytes] = {}
        pins: list[Pin] = []
        for root, session in self._sessions.items():
            for digest, data in session.parts.items():
                if (root, digest) not in stored:
                    found[root, digest] = data
            owner = SHARED if root.startswith("run_") else root
            for digest, parts in session.pins.items():
                if (owner, digest) not in stored:
                    pins.append((owner, digest))
                    found.update(((owner, part), data) for part, data in parts.items())
        values: list[StoredValue] = []
        for pin, data in found.items():
            values += pin
            self._contents.add(values, data, None)
        return values, [*pins, *found]


def _erasure(reads: ActorReads, actor: str, erase: Erase) -> Erasure:
    """Return the stored form of an erasure.

    An actor that is erased as a whole keeps the requests of `KEPT`, any other those that created it and the
    children.
    """
    if erase.whole:
        return Erasure(actor, erase.children, KEPT, whole=True)
    moved = [request for child in erase.children for request in _moved_requests(reads, child, actor)]
    return Erasure(actor, erase.children, frozenset({DELETIONS, *CREATIONS}), tuple(moved))


def _moved_requests(reads: ActorReads, actor: str, owner: str) -> list[MovedRequest]:
    """Return the requests that created an actor, sealed for ``owner``: a seal covers the owner.

    The rows need no check here. Archiving has just exported them, and refuses damaged rows.
    """
    return [
        MovedRequest(
            scope, request_id, seal(("requests_answered", scope, request_id, owner, fingerprint), answer)
        )
        for scope, request_id, fingerprint, answer in reads.requests_of(actor, CREATIONS)
    ]


def _is_insert(change: Change) -> bool:
    return isinstance(change, Put) and change.fresh
