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

from wonder_server.adapters.sqlite.codec_fields import (
    CONTAINERS,
    PINNED,
    SCALARS,
    containers,
    field_names,
    has_text,
    rich,
)
from wonder_server.adapters.sqlite.stored_names import tag_of

WHOLE_BELOW: Final = 1536
"""Lists and objects that are shorter than this, in bytes, stay where they are in a frozen value, and so do
its texts if all of it is then."""
OBJECT_FROM: Final = 160
"""Objects and lists in longer ones, of this many bytes and more, become parts. Frozen values do not: no other
is the same."""
STRING_FROM: Final = 1024
_PIN_LIMIT: Final = 512
_PIECE_LIMIT: Final = 8192
_MANY: Final = 4
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
    folded: msgspec.Raw
    name: str
    parts: dict[str, bytes]


class _Piece(NamedTuple):
    """A list or object in a longer one, that is a part with no parts in it."""

    data: bytes
    digest: str
    reference: msgspec.Raw


class Folder:
    """Folds the values of one shard. Used by one thread only.

    It knows pinned definitions by their identity, and the pieces that it met last: of twenty turns that are
    told to a model one is new, and the others mostly are the same objects as before.
    """

    def __init__(self) -> None:
        self._pins: dict[int, _Pin] = {}
        self._same: dict[int, tuple[Any, _Piece]] = {}
        self._equal: dict[bytes, _Piece] = {}

    def begin(self) -> Folding:
        """A folding of values that will be written together."""
        return Folding(self)

    def pinned(self, value: Any) -> _Pin:
        """A pinned definition, folded now or before."""
        pin = self._pins.get(id(value))
        if pin is None or pin.value is not value:
            if len(self._pins) >= _PIN_LIMIT:
                self._pins.clear()
            pin = self._pins[id(value)] = Folding(self).definition(value)
        return pin

    def known(self, ids: Iterable[int]) -> Mapping[int, tuple[Any, _Piece]]:
        """Values and their pieces by the id of the value; none at all if these ids are not among them."""
        return _NONE if self._same.keys().isdisjoint(ids) else self._same

    def piece(self, value: Any, data: bytes) -> _Piece:
        """A piece that is not known by its identity, as JSON ``data``. Values are never changed."""
        if len(self._same) >= _PIECE_LIMIT:
            self._same.clear()
            self._equal.clear()
        found = self._equal.get(data)
        if found is None:
            digest = part_name(data)
            found = self._equal[data] = _Piece(data, digest, msgspec.Raw(_reference(digest)))
        self._same[id(value)] = value, found
        return found


_NONE: Final[Mapping[int, tuple[Any, _Piece]]] = {}


class Folding:
    """One folding: values in, text out, and the parts they refer to.

    ``parts`` are by their hash. Those of pinned definitions, of which every turn and run has many, are
    apart in ``pins``, under the hash of the definition as a whole, or of its parts if it is no part itself:
    who has stored that has stored all.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._texts: dict[int, tuple[Any, str]] = {}
        """Of values that are written as they are: one value is often a row and an event."""
        self._known: dict[int, tuple[Any, Any]] = {}
        """Lists and objects by their id, held because it is good only while they live, and what is written in
        their place: themselves if they are short."""
        self._long: set[int] = set()
        """The ids of those that are not."""
        self.parts: dict[str, bytes] = {}
        self.pins: dict[str, dict[str, bytes]] = {}

    def text(self, value: Any) -> str:
        """A frozen value as JSON, its large pieces folded. It is never a part itself."""
        known = self._texts.get(id(value))
        if known is not None:
            return known[1]
        short = self._shortened(value)
        data = encode(short)
        if len(data) >= WHOLE_BELOW and has_text(value, STRING_FROM):
            return encode(self._without_texts(value)).decode()
        text = data.decode()
        if short is value:
            self._texts[id(value)] = value, text
        return text

    def whole(self, value: Any) -> str:
        """A frozen value as JSON, nothing folded and nothing escaped."""
        known = self._texts.get(id(value))
        return encode(value).decode() if known is None else known[1]

    def tagged(self, value: Any) -> str:
        """Encode a value as ``["TagOfItsClass", {…}]`` (see `stored_names`)."""
        return self.all_tagged((value,))[1:-1]

    def all_tagged(self, values: Sequence[Any]) -> str:
        """A list of those."""
        data = _encode_lines([(tag_of(value.__class__), self._shortened(value)) for value in values])
        if len(data) >= WHOLE_BELOW:
            lines = data.splitlines()
            for at, value in enumerate(values):
                if len(lines[at]) >= WHOLE_BELOW and has_text(value, STRING_FROM):
                    lines[at] = encode((tag_of(value.__class__), self._without_texts(value)))
            data = b"\n".join(lines)
        return f"[{data.strip().decode().replace(chr(10), ',')}]"

    def definition(self, value: Any) -> _Pin:
        """A pinned definition by its fields; `Folder.pinned` knows those that were folded before."""
        own = field_names(value.__class__)
        body = self._object(own, [getattr(value, name) for name in own])
        folded = self._part(body)
        parts = {digest: data for within in self.pins.values() for digest, data in within.items()}
        parts.update(self.parts)
        # Too small to be a part itself, but not all that is in it?
        name = ",".join(parts) if folded is body else part_name(body)
        return _Pin(value, msgspec.Raw(folded), name, parts)

    def _shortened(self, value: Any) -> Any:
        """A frozen value with references in place of what is long in it, but for its texts; itself if nothing
        is."""
        paths, items_of = containers(value.__class__)
        items = items_of(value)
        if not any(items):
            return value
        found = []
        for path, item in zip(paths, items, strict=True):
            if item:
                known = self._known.get(id(item))
                kept = self._stand_in(item) if known is None else known[1]
                if kept is not item:
                    found.append((path, kept))
        return _with(value, found) if found else value

    def _without_texts(self, value: Any) -> Any:
        """A frozen value with references in place of its long texts too."""
        found: list[tuple[tuple[str, ...], Any]] = []
        for name in rich(value.__class__):
            item = getattr(value, name)
            if item:
                kept = self._stand_in(item, texts=True)
                if kept is not item:
                    found.append(((name,), kept))
        return _with(value, found) if found else value

    def _stand_in(self, value: Any, *, texts: bool = False) -> Any:
        """What is written in the place of a value that was not met before."""
        cls = value.__class__
        if cls is str:
            return msgspec.Raw(self._part(encode(value))) if texts and len(value) >= STRING_FROM else value
        if cls in CONTAINERS:
            known = self._known.get(id(value))
            return self._container(value) if known is None else known[1]
        if cls in SCALARS:
            return value
        if cls in PINNED:
            return self._pin(value)
        return self._without_texts(value) if texts else self._shortened(value)

    def _pin(self, value: Any) -> msgspec.Raw:
        pin = self._folder.pinned(value)
        if pin.parts:
            self.pins[pin.name] = pin.parts
        return pin.folded

    def _container(self, value: Any) -> Any:
        """What is written in the place of a list or object that was not met before."""
        body, kept = self._folded(value), value
        if body is not None:
            kept = msgspec.Raw(self._part(body))
            self._long.add(id(value))
        self._known[id(value)] = value, kept
        return kept

    def _folded(self, value: Any) -> bytes | None:
        """A list or object by its members; None if it is short, with nothing to escape."""
        if value.__class__ is dict:
            self._look_into(value)
            if self._long.isdisjoint(map(id, value.values())) and _is_plain(encode(value)):
                return None
            return self._object(value, value.values())
        if len(value) < _MANY and self._long.isdisjoint(map(id, value)) and _is_plain(encode(value)):
            return None
        body = b"[%b]" % b",".join(self._pieces(value))
        return None if _is_plain(body) else body

    def _look_into(self, value: dict[str, Any]) -> None:
        """Fold those members of an object before it that may well be long: else they would be encoded once
        more, to find out that it is."""
        for item in value.values():
            if item and (item.__class__ is dict or (item.__class__ is list and len(item) >= _MANY)):
                if id(item) not in self._known:
                    self._container(item)

    def _object(self, names: Iterable[str], items: Iterable[Any]) -> bytes:
        keys = _encode_lines([str(name) for name in names]).splitlines()
        pairs = zip(keys, self._pieces(items), strict=True)
        return b"{%b}" % b",".join([_escaped(key) + b":" + piece for key, piece in pairs])

    def _pieces(self, items: Iterable[Any]) -> list[bytes]:
        """What is written in the places of the members of a list or object."""
        ids = list(map(id, items))
        known = self._folder.known(ids)
        if known or not self._long.isdisjoint(ids):
            items = [self._place(item, known) for item in items]
        return [
            line
            if len(line) < OBJECT_FROM and (b"$" not in line or item.__class__ is msgspec.Raw)
            else self._piece(item, line)
            for item, line in zip(items, _encode_lines(items).splitlines(), strict=True)
        ]

    def _place(self, item: Any, known: Mapping[int, tuple[Any, _Piece]]) -> Any:
        """What is written in the place of a member that may be known."""
        found = known.get(id(item))
        if found is not None:
            piece = found[1]
            self.parts[piece.digest] = piece.data
            return piece.reference
        return self._known[id(item)][1] if id(item) in self._long else item

    def _piece(self, item: Any, data: bytes) -> bytes:
        """What is written in the place of a member that is ``data`` as JSON."""
        cls = item.__class__
        if cls in CONTAINERS:
            if not _is_plain(data):
                return bytes(self._container(item))
            if len(data) < OBJECT_FROM:
                return data
            piece = self._folder.piece(item, data)
            self.parts[piece.digest] = piece.data
            return bytes(piece.reference)
        if cls is str:
            return data if len(data) < STRING_FROM else self._part(data)
        if cls in PINNED:
            return bytes(self._pin(item))
        if cls in SCALARS or cls is msgspec.Raw or _is_plain(data):
            return data
        return encode(self._without_texts(item))

    def _part(self, body: bytes) -> bytes:
        """A reference to what is long enough for that, which is then a part."""
        if len(body) < OBJECT_FROM:
            return body
        digest = part_name(body)
        self.parts[digest] = body
        return _reference(digest)


def _with(value: Any, found: Sequence[tuple[tuple[str, ...], Any]]) -> Any:
    """A frozen value with other things in these places."""
    changed: dict[str, Any] = {}
    within: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for path, kept in found:
        if len(path) == 1:
            changed[path[0]] = kept
        else:
            within.setdefault(path[0], []).append((path[1:], kept))
    for name, deeper in within.items():
        changed[name] = _with(getattr(value, name), deeper)
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


def _is_plain(data: bytes) -> bool:
    """Whether JSON is short, with nothing to escape: then it is written as it is."""
    # There are quotation marks all over: looking for the other first is several times faster.
    return len(data) < WHOLE_BELOW and (b"$" not in data or b'"$' not in data)


def unfold(value: Any, part: Callable[[str], Any]) -> Any:
    """``value`` with every reference replaced by what ``part(hash)`` (decoded, still folded) gives."""
    if isinstance(value, dict):
        if len(value) == 1 and "$" in value:
            return unfold(part(value["$"]), part)
        return {(key[1:] if key.startswith("$") else key): unfold(item, part) for key, item in value.items()}
    if isinstance(value, list):
        return [unfold(item, part) for item in value]
    return value


def build(body: Any, cls: type) -> Any:
    """A dataclass from builtins; unknown fields of newer writers are ignored, missing ones default."""
    if cls in _known:
        return msgspec.convert(body, type=cls)
    with _learning:
        try:
            return msgspec.convert(body, type=cls)
        finally:
            _known.add(cls)


def read(data: str | bytes, cls: type) -> Any:
    """`build` of what was written and never folded, without a detour over builtins."""
    reader = _readers.get(cls)
    if reader is None:
        with _learning:
            reader = _readers[cls] = msgspec.json.Decoder(cls).decode
    return reader(data)


_readers: dict[type, Callable[[str | bytes], Any]] = {}
_known: set[type] = set()
_learning = threading.Lock()
"""msgspec crashes the process when two threads meet a dataclass for the first time at once."""
