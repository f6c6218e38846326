"""JSON encoding of values in a shard, with repeated content stored once (*interning*).

Requests to models repeat most of the previous request: twenty turns of history, the same instructions, the
same tools. Stored in full, a conversation's record would grow quadratically. So the codec interns large
content: it stores an object once per conversation as a *part*, under the hash of its content, and writes the
reference ``{"$": hash}`` in its place. Parts may contain references to parts, like trees in git. User data
cannot forge a reference: the codec prefixes every key of user data that begins with ``$`` with another ``$``.

The text of a message of the conversation is not interned: values refer to the message (`message_texts`).

A frozen value becomes an object of its fields. The codec first interns the lists, objects and pinned
definitions in it, each once per write; short ones stay inline. Then it encodes the whole value. Only if the
result is still long does it intern the value's texts too.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from wonder_server.codec.fields import (
    CONTAINERS,
    PINNED,
    SCALARS,
    Path,
    StoredValue,
    ValueClass,
    container_fields,
    field_names,
    has_text,
    may_be_long,
)
from wonder_server.codec.list_members import MIN_LENGTH, ListMembers
from wonder_server.codec.message_texts import (
    MARK,
    MESSAGE_REFERENCE,
    MIN_BYTES,
    NO_TEXTS,
    PARTS_MARK,
    MessageTexts,
)
from wonder_server.codec.stored_names import tag_of

INLINE_MAX_BYTES: Final = 1536
"""Shorter lists and objects stay inline in a frozen value. Its texts stay inline if the whole value is
shorter."""
PLAIN_MAX_BYTES: Final = 4096
"""Maximum size of a value of a table without parts. A larger one has parts too, and a mark that says so: the
result of a tool stands in the journal, in its move and in two events."""
MIN_OBJECT_BYTES: Final = 160
"""Members of an interned list or object become parts from this size in bytes. Frozen values never do, because
no two are equal."""
MIN_STRING_BYTES: Final = 1024
_PIN_LIMIT: Final = 512
"""Maximum number of pinned definitions in the cache of an `Interner`."""
_VALUE_LIMIT: Final = 8192
"""Maximum number of other values in the cache of an `Interner`."""
_MIN_LIST_LENGTH: Final = 4
"""The codec interns the members of a list of at least this length without encoding the list first."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_encode_lines = msgspec.json.Encoder().encode_lines
"""Encode many values in one call, one per line. JSON from this encoder contains no line breaks."""


@dataclass(frozen=True, slots=True)
class _Pin:
    """An interned pinned definition: its reference, all parts it consists of, and one name for the set of
    parts."""

    value: StoredValue
    reference: msgspec.Raw
    name: str
    parts: dict[str, bytes]


class _InternedValue(NamedTuple):
    """An interned list or object that contains no references."""

    data: bytes
    digest: str
    reference: msgspec.Raw


class Interner:
    """Intern the values of one shard. Not thread-safe: the shard's writer thread owns it.

    The interner caches pinned definitions by identity, and recent values by identity and content. Of twenty
    turns in a model request one is new; the others mostly are the same objects as in the previous request.
    """

    def __init__(self) -> None:
        self._pins: dict[int, _Pin] = {}
        self._by_identity: dict[int, tuple[StoredValue, _InternedValue]] = {}
        self._by_content: dict[bytes, _InternedValue] = {}

    def session(self) -> InternSession:
        """Return a session for values that are written together."""
        return InternSession(self)

    def intern_pin(self, value: StoredValue) -> _Pin:
        """Return a pinned definition in interned form, from the cache if possible."""
        pin = self._pins.get(id(value))
        if pin is None or pin.value is not value:
            if len(self._pins) >= _PIN_LIMIT:
                self._pins.clear()
            pin = self._pins[id(value)] = InternSession(self).definition(value)
        return pin

    def known_values(self, ids: Iterable[int]) -> Mapping[int, tuple[StoredValue, _InternedValue]]:
        """Return all cached values by the id of the value; an empty mapping if none has an id in ``ids``."""
        return _NONE if self._by_identity.keys().isdisjoint(ids) else self._by_identity

    def intern_value(self, value: StoredValue, data: bytes) -> _InternedValue:
        """Intern a value that is not cached by identity, from its JSON.

        A value that is not None must never change. It is found by its identity from now on.
        """
        if max(len(self._by_identity), len(self._by_content)) >= _VALUE_LIMIT:
            self._by_identity.clear()
            self._by_content.clear()
        found = self._by_content.get(data)
        if found is None:
            digest = part_name(data)
            found = self._by_content[data] = _InternedValue(data, digest, msgspec.Raw(_reference(digest)))
        if value is not None:
            self._by_identity[id(value)] = value, found
        return found


_NONE: Final[Mapping[int, tuple[StoredValue, _InternedValue]]] = {}


class InternSession:
    """Encode values that are written together, and collect the parts they refer to.

    ``parts`` maps hash to content. Pinned definitions, of which every turn and run has many, are kept apart:
    ``pins`` maps a name for all parts of a definition to these parts. The name is the hash of the definition,
    or of its parts if the definition is too small to be a part. A shard that has stored a name has all its
    parts.
    """

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self.messages = NO_TEXTS
        """The messages that the values may refer to."""
        self.members = ListMembers()
        """The members of the lists in the values."""
        self._texts: dict[int, tuple[StoredValue, str]] = {}
        """Texts of values without parts, by id: one value is often both a row and an event."""
        self._plain_texts: dict[int, tuple[StoredValue, str]] = {}
        """Texts of values in tables without parts, by id."""
        self._replacements: dict[int, tuple[StoredValue, StoredValue]] = {}
        """Lists and objects by id, with what is written in their place: themselves if they are short. The
        session holds the values, because an id is valid only while its object exists."""
        self._long_ids: set[int] = set()
        """The ids of the lists and objects that were replaced by a reference."""
        self.parts: dict[str, bytes] = {}
        self.pins: dict[str, dict[str, bytes]] = {}

    def text(self, value: StoredValue) -> str:
        """Encode a frozen value as JSON with references. The value itself never becomes a part."""
        known = self._texts.get(id(value))
        if known is not None:
            return known[1]
        short = self._with_references(value)
        data = encode(short)
        if len(data) >= INLINE_MAX_BYTES and has_text(value, MIN_STRING_BYTES):
            return self._refer(encode(self._without_texts(value, self.messages)), self.messages).decode()
        text = self._refer(data, self.messages).decode()
        if short is value:
            self._texts[id(value)] = value, text
        return text

    def plain_text(self, value: StoredValue) -> str:
        """Encode a frozen value as JSON without parts and without escaped keys, unless it is large.

        JSON that refers to messages begins with `MARK`. A value with keys of user data that look like a
        reference does not refer to messages. A large value is encoded as `text` and begins with `PARTS_MARK`.
        """
        known = self._plain_texts.get(id(value))
        if known is not None:
            return known[1]
        data = encode(value)
        if MESSAGE_REFERENCE not in data:
            short = self._refer(data, self.messages)
            data = data if short is data else MARK + short
        text = data.decode() if len(data) <= PLAIN_MAX_BYTES else PARTS_MARK.decode() + self.text(value)
        self._plain_texts[id(value)] = value, text
        return text

    def tagged(self, value: StoredValue, messages: MessageTexts = NO_TEXTS) -> str:
        """Encode a value as ``["TagOfItsClass", {…}]`` (see `stored_names`), which refers to ``messages``."""
        return self.all_tagged((value,), messages)[1:-1]

    def all_tagged(self, values: Sequence[StoredValue], messages: MessageTexts = NO_TEXTS) -> str:
        """Encode values as a JSON list of ``["TagOfItsClass", {…}]``, which refers to ``messages``."""
        data = _encode_lines([(tag_of(value.__class__), self._with_references(value)) for value in values])
        if len(data) >= INLINE_MAX_BYTES:
            lines = data.splitlines()
            for index, value in enumerate(values):
                if len(lines[index]) >= INLINE_MAX_BYTES and has_text(value, MIN_STRING_BYTES):
                    lines[index] = encode((tag_of(value.__class__), self._without_texts(value, messages)))
            data = b"\n".join(lines)
        data = self._refer(data.strip(), messages)
        return f"[{data.decode().replace(chr(10), ',')}]"

    def definition(self, value: StoredValue) -> _Pin:
        """Intern a pinned definition by its fields. `Interner.intern_pin` caches the result."""
        own = field_names(value.__class__)
        body = self._object_body(own, [getattr(value, name) for name in own])
        reference = self._store_part(body)
        parts = {digest: data for within in self.pins.values() for digest, data in within.items()}
        parts.update(self.parts)
        # A definition below MIN_OBJECT_BYTES is no part itself but may contain parts: name it by these.
        name = ",".join(parts) if reference is body else part_name(body)
        return _Pin(value, msgspec.Raw(reference), name, parts)

    def _with_references(self, value: StoredValue) -> StoredValue:
        """Replace what is long in a frozen value, except texts, by references. Return ``value`` if nothing
        is."""
        paths, items_of = container_fields(value.__class__)
        items = items_of(value)
        if not any(items):
            return value
        found = []
        for path, item in zip(paths, items, strict=True):
            if item:
                known = self._replacements.get(id(item))
                replacement = self._reference(item) if known is None else known[1]
                if replacement is not item:
                    found.append((path, replacement))
        return _replace_at(value, found) if found else value

    def _without_texts(self, value: StoredValue, messages: MessageTexts) -> StoredValue:
        """Replace what is long in a frozen value, texts included, by references. A long text may be one of
        ``messages``."""
        found: list[tuple[Path, StoredValue]] = []
        for name in may_be_long(value.__class__):
            item = getattr(value, name)
            if item:
                replacement = self._reference(item, messages)
                if replacement is not item:
                    found.append(((name,), replacement))
        return _replace_at(value, found) if found else value

    def _reference(self, value: StoredValue, messages: MessageTexts | None = None) -> StoredValue:
        """Return the value or reference to write in place of ``value``.

        With ``messages`` that includes long texts, of which some may be messages.
        """
        cls = value.__class__
        if cls is str:
            if messages is None or len(value) < MIN_STRING_BYTES:
                return value
            data = encode(value)
            return msgspec.Raw(messages.reference(data) or self._store_part(data))
        if cls in CONTAINERS:
            known = self._replacements.get(id(value))
            return self._container_reference(value) if known is None else known[1]
        if cls in SCALARS:
            return value
        if cls in PINNED:
            return self._pin_reference(value)
        return self._with_references(value) if messages is None else self._without_texts(value, messages)

    def _pin_reference(self, value: StoredValue) -> msgspec.Raw:
        pin = self._interner.intern_pin(value)
        if pin.parts:
            self.pins[pin.name] = pin.parts
        return pin.reference

    def _container_reference(self, value: StoredValue) -> StoredValue:
        """Return the replacement of a list or object that is not in the session yet, and keep it there."""
        body, replacement = self._container_body(value), value
        if body is not None:
            replacement = msgspec.Raw(self._store_part(body))
            self._long_ids.add(id(value))
        self._replacements[id(value)] = value, replacement
        return replacement

    def _container_body(self, value: StoredValue) -> bytes | None:
        """Encode a list or object member by member; return None if it is short and needs no escaping."""
        if value.__class__ is dict:
            self._intern_members(value)
            if self._long_ids.isdisjoint(map(id, value.values())) and _is_short_and_plain(encode(value)):
                return None
            return self._object_body(value, value.values())
        if (
            len(value) < _MIN_LIST_LENGTH
            and self._long_ids.isdisjoint(map(id, value))
            and _is_short_and_plain(encode(value))
        ):
            return None
        bodies = (
            self._member_bodies(value)[0]
            if len(value) < MIN_LENGTH
            else self.members.bodies(value, self._member_bodies)
        )
        body = b"[%b]" % b",".join(bodies)
        return None if _is_short_and_plain(body, references=body.count(MESSAGE_REFERENCE)) else body

    def _intern_members(self, value: dict[str, StoredValue]) -> None:
        """Intern the members of an object that are probably long, before the object itself.

        Encoding the object first would encode these members twice.
        """
        for item in value.values():
            if item and (
                item.__class__ is dict or (item.__class__ is list and len(item) >= _MIN_LIST_LENGTH)
            ):
                if id(item) not in self._replacements:
                    self._container_reference(item)

    def _object_body(self, names: Iterable[str], items: Iterable[StoredValue]) -> bytes:
        keys = _encode_lines([str(name) for name in names]).splitlines()
        pairs = zip(keys, self._member_bodies(items)[0], strict=True)
        return b"{%b}" % b",".join([_escaped(key) + b":" + piece for key, piece in pairs])

    def _member_bodies(self, items: Iterable[StoredValue]) -> tuple[list[bytes], int]:
        """Encode the members of a list or object, each inline or as a reference. Return them, and the size of
        their JSON."""
        if self.messages:
            items = [self._message_reference(item) if item.__class__ is str else item for item in items]
        ids = list(map(id, items))
        known = self._interner.known_values(ids)
        if known or not self._long_ids.isdisjoint(ids):
            items = [self._known_member(item, known) for item in items]
        data = _encode_lines(items)
        lines, short = data.splitlines(), self._refer(data, self.messages)
        bodies = [
            referring
            if len(referring) < MIN_OBJECT_BYTES and (b"$" not in line or item.__class__ is msgspec.Raw)
            else self._member_body(item, line, referring)
            for item, line, referring in zip(
                items, lines, lines if short is data else short.splitlines(), strict=True
            )
        ]
        return bodies, len(data)

    def _message_reference(self, text: str) -> StoredValue:
        """Return the reference of a member that is a message; the text itself if it is not."""
        reference = self.messages.reference(encode(text)) if len(text) >= MIN_BYTES // 4 else None
        return text if reference is None else msgspec.Raw(reference)

    def _known_member(
        self, item: StoredValue, known: Mapping[int, tuple[StoredValue, _InternedValue]]
    ) -> StoredValue:
        """Return the reference of a member that was interned before; the member itself if it was not."""
        found = known.get(id(item))
        if found is not None:
            piece = found[1]
            self.parts[piece.digest] = piece.data
            return piece.reference
        return self._replacements[id(item)][1] if id(item) in self._long_ids else item

    def _member_body(self, item: StoredValue, data: bytes, referring: bytes) -> bytes:
        """Encode a member inline or as a reference. Its JSON is ``data``, and ``referring`` with references
        to messages."""
        cls = item.__class__
        if cls in CONTAINERS:
            if not _is_short_and_plain(data):
                replacement = self._reference(item)
                # With references to messages it may be short.
                return self._store_part(referring) if replacement is item else bytes(replacement)
            if len(referring) < MIN_OBJECT_BYTES:
                return referring
            # References depend on the conversation, so the identity of the member does not determine them.
            is_same = len(data) == len(referring)
            piece = self._interner.intern_value(item if is_same else None, referring)
            self.parts[piece.digest] = piece.data
            return bytes(piece.reference)
        if cls is str:
            return referring if len(referring) < MIN_STRING_BYTES else self._store_part(data)
        if cls in PINNED:
            return bytes(self._pin_reference(item))
        if cls in SCALARS or cls is msgspec.Raw or _is_short_and_plain(data):
            return referring
        return self._refer(encode(self._without_texts(item, self.messages)), self.messages)

    @staticmethod
    def _refer(data: bytes, messages: MessageTexts) -> bytes:
        return messages.refer(data) if messages else data

    def _store_part(self, body: bytes) -> bytes:
        """Make ``body`` a part and return its reference. Return ``body`` if it is shorter than the
        minimum."""
        if len(body) < MIN_OBJECT_BYTES:
            return body
        digest = part_name(body)
        self.parts[digest] = body
        return _reference(digest)


def _replace_at(value: StoredValue, found: Sequence[tuple[Path, StoredValue]]) -> StoredValue:
    """Return a frozen value, or its fields as a dict, with the values at these paths replaced."""
    changed: dict[str, StoredValue] = {}
    within: dict[str, list[tuple[Path, StoredValue]]] = {}
    for path, replacement in found:
        if len(path) == 1:
            changed[path[0]] = replacement
        else:
            within.setdefault(path[0], []).append((path[1:], replacement))
    for name, deeper in within.items():
        changed[name] = _replace_at(getattr(value, name), deeper)
        changed[name] = _replace_at(getattr(value, name), deeper)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    return {name: getattr(value, name) for name in field_names(value.__class__)} | changed


def part_name(data: bytes) -> str:
    """Return the name of a part: the BLAKE2b hash of its content, 16 bytes in hex."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _reference(digest: str) -> bytes:
    return b'{"$":"%b"}' % digest.encode()


def _escaped(name: bytes) -> bytes:
    return b'"$' + name[1:] if name.startswith(b'"$') else name


def _is_short_and_plain(data: bytes, references: int = 0) -> bool:
    """Return True if JSON is shorter than `INLINE_MAX_BYTES` and has no key to escape: it stays inline.

    ``references`` is the number of references to messages in it.
    """
    # JSON is full of quotation marks, so the search for "$" alone is several times faster and goes first.
    return len(data) < INLINE_MAX_BYTES and (b"$" not in data or data.count(b'"$') == references)


class References(Protocol):
    """The parts and messages that references name."""

    def __call__(self, digest: str) -> StoredValue:
        """Return a decoded part, its references resolved."""
        ...

    def message(self, ordinal: int) -> str:
        """Return the text of a message of the conversation."""
        ...


def resolve(value: StoredValue, references: References) -> StoredValue:
    """Replace every reference in ``value``."""
    if isinstance(value, dict):
        if len(value) == 1:
            if "$" in value:
                return references(value["$"])
            if "$m" in value:
                return references.message(value["$m"])
        return {
            (key[1:] if key.startswith("$") else key): resolve(item, references)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [resolve(item, references) for item in value]
    return value


def build(body: StoredValue, cls: ValueClass) -> StoredValue:
    """Convert builtins to a dataclass. Ignore unknown fields (of newer writers); default missing ones."""
    if cls in _known_classes:
        return msgspec.convert(body, type=cls)
    with _class_lock:
        try:
            return msgspec.convert(body, type=cls)
        finally:
            _known_classes.add(cls)


def read(data: str | bytes, cls: ValueClass) -> StoredValue:
    """Decode JSON without references directly to ``cls``, with the rules of `build`."""
    reader = _readers.get(cls)
    if reader is None:
        with _class_lock:
            reader = _readers[cls] = msgspec.json.Decoder(cls).decode
    return reader(data)


_readers: dict[type, Callable[[str | bytes], StoredValue]] = {}
_known_classes: set[type] = set()
_class_lock = threading.Lock()
"""Held for the first use of a class: msgspec crashes when two threads meet a dataclass for the first time."""
