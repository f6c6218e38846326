"""How values become text in a shard, and the sharing of what repeats.

Requests to models repeat most of what earlier ones said: twenty turns of history, the same instructions,
the same tools. Written whole, a conversation's record would grow by squares. So large pieces are *folded*:
an object of some size is stored once per conversation as a *part*, under the hash of its content, and the
place where it stood holds ``{"$": hash}``. Parts may hold parts, as trees in git do. User data cannot
forge such a reference: its own keys that begin with ``$`` get another one.

Frozen values become objects of their fields. Long are the lists and objects in them, and pinned definitions:
those are looked at first, each once however often it stands in a write, and what is short stays as it is.
Then the whole is encoded, and only if that is still long its texts are looked at as well.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from wonder_server.adapters.sqlite.codec.fields import (
    CONTAINERS,
    PINNED,
    SCALARS,
    container_fields,
    field_names,
    has_text,
    may_be_long,
)
from wonder_server.adapters.sqlite.codec.stored_names import tag_of

INLINE_MAX_BYTES: Final = 1536
"""Lists and objects that are shorter than this, in bytes, stay where they are in a frozen value, and so do
its texts if all of it is then."""
MIN_OBJECT_BYTES: Final = 160
"""Objects and lists in longer ones, of this many bytes and more, become parts. Frozen values do not: no other
is the same."""
MIN_STRING_BYTES: Final = 1024
_PIN_LIMIT: Final = 512
_PIECE_LIMIT: Final = 8192
_MIN_LIST_LENGTH: Final = 4
"""A list of so many is taken for a long one."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_encode_lines = msgspec.json.Encoder().encode_lines
"""Many values by one call. JSON has no line break in it, so what this gives can be taken apart by line."""


@dataclass(frozen=True, slots=True)
class _Pin:
    """A pinned definition, folded: what stands in its place, all parts that it is made of, and a name for all
    of them."""

    value: Any
    reference: msgspec.Raw
    name: str
    parts: dict[str, bytes]


class _InternedValue(NamedTuple):
    """A list or object in a longer one, that is a part with no parts in it."""

    data: bytes
    digest: str
    reference: msgspec.Raw


class Interner:
    """Folds the values of one shard. Used by one thread only.

    It knows pinned definitions by their identity, and the pieces that it met last: of twenty turns that are
    told to a model one is new, and the others mostly are the same objects as before.
    """

    def __init__(self) -> None:
        self._pins: dict[int, _Pin] = {}
        self._by_identity: dict[int, tuple[Any, _InternedValue]] = {}
        self._by_content: dict[bytes, _InternedValue] = {}

    def session(self) -> InternSession:
        """A folding of values that will be written together."""
        return InternSession(self)

    def intern_pin(self, value: Any) -> _Pin:
        """A pinned definition, folded now or before."""
        pin = self._pins.get(id(value))
        if pin is None or pin.value is not value:
            if len(self._pins) >= _PIN_LIMIT:
                self._pins.clear()
            pin = self._pins[id(value)] = InternSession(self).definition(value)
        return pin

    def known_values(self, ids: Iterable[int]) -> Mapping[int, tuple[Any, _InternedValue]]:
        """Values and their pieces by the id of the value; none at all if these ids are not among them."""
        return _NONE if self._by_identity.keys().isdisjoint(ids) else self._by_identity

    def intern_value(self, value: Any, data: bytes) -> _InternedValue:
        """A piece that is not known by its identity, as JSON ``data``. Values are never changed."""
        if len(self._by_identity) >= _PIECE_LIMIT:
            self._by_identity.clear()
            self._by_content.clear()
        found = self._by_content.get(data)
        if found is None:
            digest = part_name(data)
            found = self._by_content[data] = _InternedValue(data, digest, msgspec.Raw(_reference(digest)))
        self._by_identity[id(value)] = value, found
        return found


_NONE: Final[Mapping[int, tuple[Any, _InternedValue]]] = {}


class InternSession:
    """One folding: values in, text out, and the parts they refer to.

    ``parts`` are by their hash. Those of pinned definitions, of which every turn and run has many, are
    apart in ``pins``, under the hash of the definition as a whole, or of its parts if it is no part itself:
    who has stored that has stored all.
    """

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._texts: dict[int, tuple[Any, str]] = {}
        """Of values that are written as they are: one value is often a row and an event."""
        self._replacements: dict[int, tuple[Any, Any]] = {}
        """Lists and objects by their id, held because it is good only while they live, and what is written in
        their place: themselves if they are short."""
        self._long_ids: set[int] = set()
        """The ids of those that are not."""
        self.parts: dict[str, bytes] = {}
        self.pins: dict[str, dict[str, bytes]] = {}

    def text(self, value: Any) -> str:
        """A frozen value as JSON, its large pieces folded. It is never a part itself."""
        known = self._texts.get(id(value))
        if known is not None:
            return known[1]
        short = self._with_references(value)
        data = encode(short)
        if len(data) >= INLINE_MAX_BYTES and has_text(value, MIN_STRING_BYTES):
            return encode(self._without_texts(value)).decode()
        text = data.decode()
        if short is value:
            self._texts[id(value)] = value, text
        return text

    def plain_text(self, value: Any) -> str:
        """A frozen value as JSON, nothing folded and nothing escaped."""
        known = self._texts.get(id(value))
        return encode(value).decode() if known is None else known[1]

    def tagged(self, value: Any) -> str:
        """Encode a value as ``["TagOfItsClass", {…}]`` (see `stored_names`)."""
        return self.all_tagged((value,))[1:-1]

    def all_tagged(self, values: Sequence[Any]) -> str:
        """A list of those."""
        data = _encode_lines([(tag_of(value.__class__), self._with_references(value)) for value in values])
        if len(data) >= INLINE_MAX_BYTES:
            lines = data.splitlines()
            for at, value in enumerate(values):
                if len(lines[at]) >= INLINE_MAX_BYTES and has_text(value, MIN_STRING_BYTES):
                    lines[at] = encode((tag_of(value.__class__), self._without_texts(value)))
            data = b"\n".join(lines)
        return f"[{data.strip().decode().replace(chr(10), ',')}]"

    def definition(self, value: Any) -> _Pin:
        """A pinned definition by its fields; `Folder.pinned` knows those that were folded before."""
        own = field_names(value.__class__)
        body = self._object_body(own, [getattr(value, name) for name in own])
        folded = self._store_part(body)
        parts = {digest: data for within in self.pins.values() for digest, data in within.items()}
        parts.update(self.parts)
        # Too small to be a part itself, but not all that is in it?
        name = ",".join(parts) if folded is body else part_name(body)
        return _Pin(value, msgspec.Raw(folded), name, parts)

    def _with_references(self, value: Any) -> Any:
        """A frozen value with references in place of what is long in it, but for its texts; itself if nothing
        is."""
        paths, items_of = container_fields(value.__class__)
        items = items_of(value)
        if not any(items):
            return value
        found = []
        for path, item in zip(paths, items, strict=True):
            if item:
                known = self._replacements.get(id(item))
                kept = self._reference(item) if known is None else known[1]
                if kept is not item:
                    found.append((path, kept))
        return _replace_at(value, found) if found else value

    def _without_texts(self, value: Any) -> Any:
        """A frozen value with references in place of its long texts too."""
        found: list[tuple[tuple[str, ...], Any]] = []
        for name in may_be_long(value.__class__):
            item = getattr(value, name)
            if item:
                kept = self._reference(item, texts=True)
                if kept is not item:
                    found.append(((name,), kept))
        return _replace_at(value, found) if found else value

    def _reference(self, value: Any, *, texts: bool = False) -> Any:
        """What is written in the place of a value that was not met before."""
        cls = value.__class__
        if cls is str:
            return (
                msgspec.Raw(self._store_part(encode(value)))
                if texts and len(value) >= MIN_STRING_BYTES
                else value
            )
        if cls in CONTAINERS:
            known = self._replacements.get(id(value))
            return self._container_reference(value) if known is None else known[1]
        if cls in SCALARS:
            return value
        if cls in PINNED:
            return self._pin_reference(value)
        return self._without_texts(value) if texts else self._with_references(value)

    def _pin_reference(self, value: Any) -> msgspec.Raw:
        pin = self._interner.intern_pin(value)
        if pin.parts:
            self.pins[pin.name] = pin.parts
        return pin.reference

    def _container_reference(self, value: Any) -> Any:
        """What is written in the place of a list or object that was not met before."""
        body, kept = self._container_body(value), value
        if body is not None:
            kept = msgspec.Raw(self._store_part(body))
            self._long_ids.add(id(value))
        self._replacements[id(value)] = value, kept
        return kept

    def _container_body(self, value: Any) -> bytes | None:
        """A list or object by its members; None if it is short, with nothing to escape."""
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
        body = b"[%b]" % b",".join(self._member_bodies(value))
        return None if _is_short_and_plain(body) else body

    def _intern_members(self, value: dict[str, Any]) -> None:
        """Fold those members of an object before it that may well be long: else they would be encoded once
        more, to find out that it is."""
        for item in value.values():
            if item and (
                item.__class__ is dict or (item.__class__ is list and len(item) >= _MIN_LIST_LENGTH)
            ):
                if id(item) not in self._replacements:
                    self._container_reference(item)

    def _object_body(self, names: Iterable[str], items: Iterable[Any]) -> bytes:
        keys = _encode_lines([str(name) for name in names]).splitlines()
        pairs = zip(keys, self._member_bodies(items), strict=True)
        return b"{%b}" % b",".join([_escaped(key) + b":" + piece for key, piece in pairs])

    def _member_bodies(self, items: Iterable[Any]) -> list[bytes]:
        """What is written in the places of the members of a list or object."""
        ids = list(map(id, items))
        known = self._interner.known_values(ids)
        if known or not self._long_ids.isdisjoint(ids):
            items = [self._known_member(item, known) for item in items]
        return [
            line
            if len(line) < MIN_OBJECT_BYTES and (b"$" not in line or item.__class__ is msgspec.Raw)
            else self._member_body(item, line)
            for item, line in zip(items, _encode_lines(items).splitlines(), strict=True)
        ]

    def _known_member(self, item: Any, known: Mapping[int, tuple[Any, _InternedValue]]) -> Any:
        """What is written in the place of a member that may be known."""
        found = known.get(id(item))
        if found is not None:
            piece = found[1]
            self.parts[piece.digest] = piece.data
            return piece.reference
        return self._replacements[id(item)][1] if id(item) in self._long_ids else item

    def _member_body(self, item: Any, data: bytes) -> bytes:
        """What is written in the place of a member that is ``data`` as JSON."""
        cls = item.__class__
        if cls in CONTAINERS:
            if not _is_short_and_plain(data):
                return bytes(self._container_reference(item))
            if len(data) < MIN_OBJECT_BYTES:
                return data
            piece = self._interner.intern_value(item, data)
            self.parts[piece.digest] = piece.data
            return bytes(piece.reference)
        if cls is str:
            return data if len(data) < MIN_STRING_BYTES else self._store_part(data)
        if cls in PINNED:
            return bytes(self._pin_reference(item))
        if cls in SCALARS or cls is msgspec.Raw or _is_short_and_plain(data):
            return data
        return encode(self._without_texts(item))

    def _store_part(self, body: bytes) -> bytes:
        """A reference to what is long enough for that, which is then a part."""
        if len(body) < MIN_OBJECT_BYTES:
            return body
        digest = part_name(body)
        self.parts[digest] = body
        return _reference(digest)


def _replace_at(value: Any, found: Sequence[tuple[tuple[str, ...], Any]]) -> Any:
    """A frozen value with other things in these places."""
    changed: dict[str, Any] = {}
    within: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for path, kept in found:
        if len(path) == 1:
            changed[path[0]] = kept
        else:
            within.setdefault(path[0], []).append((path[1:], kept))
    for name, deeper in within.items():
        changed[name] = _replace_at(getattr(value, name), deeper)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    return {name: getattr(value, name) for name in field_names(value.__class__)} | changed


def part_name(data: bytes) -> str:
    """The name of a part: the hash of its content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _reference(digest: str) -> bytes:
    return b'{"$":"%b"}' % digest.encode()


def _escaped(name: bytes) -> bytes:
    return b'"$' + name[1:] if name.startswith(b'"$') else name


def _is_short_and_plain(data: bytes) -> bool:
    """Whether JSON is short, with nothing to escape: then it is written as it is."""
    # There are quotation marks all over: looking for the other first is several times faster.
    return len(data) < INLINE_MAX_BYTES and (b"$" not in data or b'"$' not in data)


def resolve_parts(value: Any, part: Callable[[str], Any]) -> Any:
    """``value`` with every reference replaced by what ``part(hash)`` (decoded, still folded) gives."""
    if isinstance(value, dict):
        if len(value) == 1 and "$" in value:
            return resolve_parts(part(value["$"]), part)
        return {
            (key[1:] if key.startswith("$") else key): resolve_parts(item, part)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [resolve_parts(item, part) for item in value]
    return value


def build(body: Any, cls: type) -> Any:
    """A dataclass from builtins; unknown fields of newer writers are ignored, missing ones default."""
    if cls in _known_classes:
        return msgspec.convert(body, type=cls)
    with _class_lock:
        try:
            return msgspec.convert(body, type=cls)
        finally:
            _known_classes.add(cls)


def read(data: str | bytes, cls: type) -> Any:
    """`build` of what was written and never folded, without a detour over builtins."""
    reader = _readers.get(cls)
    if reader is None:
        with _class_lock:
            reader = _readers[cls] = msgspec.json.Decoder(cls).decode
    return reader(data)


_readers: dict[type, Callable[[str | bytes], Any]] = {}
_known_classes: set[type] = set()
_class_lock = threading.Lock()
"""msgspec crashes the process when two threads meet a dataclass for the first time at once."""
