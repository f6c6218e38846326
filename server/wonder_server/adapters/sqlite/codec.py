"""How values become text in a shard, and the sharing of what repeats.

Requests to models repeat most of what earlier ones said: twenty turns of history, the same instructions,
the same tools. Written whole, a conversation's record would grow by squares. So large pieces are *folded*:
an object of some size is stored once per conversation as a *part*, under the hash of its content, and the
place where it stood holds ``{"$": hash}``. Parts may hold parts, as trees in git do. User data cannot
forge such a reference: its own keys that begin with ``$`` get another one.

Most values are short, and nothing in a short one is worth folding: those are written as they are, each
encoded once however often it stands in a write. Frozen values become objects of their fields.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from wonder_server.core.definitions.specs import PinnedAgent, PinnedTask, PinnedWorkflow

WHOLE_BELOW = 1536
"""Values that are shorter than this, in bytes, are written as they are."""
OBJECT_FROM = 160
"""Objects and lists in longer ones, of about this many bytes and more, become parts. Frozen values do not: no
other is the same."""
STRING_FROM = 1024
_REF_SIZE = 40
_CACHED = (PinnedAgent, PinnedWorkflow, PinnedTask)
_CACHE_LIMIT = 512

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


_FIELDS: dict[Any, tuple[str, ...]] = {}


def _names(cls: Any) -> tuple[str, ...]:
    known = _FIELDS.get(cls)
    if known is None:
        # What is no dataclass is a msgspec.Struct.
        known = getattr(cls, "__struct_fields__", None)
        known = tuple(field.name for field in fields(cls)) if known is None else known
        _FIELDS[cls] = known
    return known


@dataclass(frozen=True, slots=True)
class _Pin:
    """A pinned definition, folded: what stands in its place, and all parts that it is made of."""

    value: Any
    folded: tuple[Any, int]
    parts: dict[str, bytes]


class Folder:
    """Folds the values of one shard. Pinned definitions, which recur by identity, are folded once.

    Used by one thread only.
    """

    def __init__(self) -> None:
        self._pins: dict[int, _Pin] = {}

    def begin(self) -> Folding:
        """A folding of values that will be written together."""
        return Folding(self)

    def pinned(self, value: Any) -> _Pin:
        """A pinned definition, folded now or before."""
        pin = self._pins.get(id(value))
        if pin is None or pin.value is not value:
            if len(self._pins) >= _CACHE_LIMIT:
                self._pins.clear()
            folding = Folding(self)
            folded = folding.fold_object({n: getattr(value, n) for n in _names(value.__class__)})
            parts = {digest: data for each in folding.pins.values() for digest, data in each.items()}
            pin = self._pins[id(value)] = _Pin(value, folded, {**parts, **folding.parts})
        return pin


class Folding:
    """One folding: values in, text out, and the parts they refer to.

    ``parts`` are by their hash. Those of pinned definitions, of which every turn and run has many, are
    apart in ``pins``, under the hash of the definition as a whole, or of its parts if it is no part itself:
    who has stored that has stored all.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._texts: dict[int, str] = {}
        """Of values that are written whole: one value is often a row, an event and part of a decision."""
        self._memo: dict[int, tuple[Any, int]] = {}
        self._long: set[int] = set()
        """Of what was too long to be written as it is: what holds it need not be tried."""
        self._kept: list[Any] = []
        self.parts: dict[str, bytes] = {}
        self.pins: dict[str, dict[str, bytes]] = {}

    def text(self, value: Any) -> str:
        """A frozen value as JSON, its large pieces folded. It is never a part itself."""
        text = self._texts.get(id(value))
        if text is not None:
            return text
        if not self._is_long(value):
            data = encode(value)
            if _is_plain(data):
                text = self._texts[id(value)] = data.decode()
                self._kept.append(value)  # an id is only good while its object lives
                return text
        return encode(self._shortened(value, self._field)).decode()

    def whole(self, value: Any) -> str:
        """A frozen value as JSON, nothing folded and nothing escaped."""
        # What is known is short, with nothing to escape: the same either way.
        return self._texts.get(id(value)) or encode(value).decode()

    def tagged(self, value: Any) -> str:
        """``["ItsClass", {…}]``."""
        return f'["{value.__class__.__name__}",{self.text(value)}]'

    def all_tagged(self, values: Sequence[Any]) -> str:
        """A list of those. What is short on the average is written as it is."""
        if not any(map(self._is_long, values)):
            data = encode([(value.__class__.__name__, value) for value in values])
            if len(data) < WHOLE_BELOW * len(values) and b'"$' not in data:
                return data.decode()
        return f"[{','.join([self.tagged(value) for value in values])}]"

    def fold_object(self, value: dict[str, Any]) -> tuple[Any, int]:
        size, body = 2, {}
        for key, item in value.items():
            folded, length = self._fold(item)
            body["$" + key if key.startswith("$") else key] = folded
            size += length + len(key) + 4
        return self._part(body, size)

    def _field(self, value: Any) -> tuple[Any, int]:
        """A field of a frozen value. What is short stays as it is, and is not even looked into."""
        if value.__class__ not in _CONTAINERS or id(value) in self._memo:
            return self._fold(value)
        data = encode(value)
        if _is_plain(data):
            return msgspec.Raw(data), len(data)
        return self._remember(value, self._split(value))

    def _fold(self, value: Any) -> tuple[Any, int]:
        cls = value.__class__
        if cls is str:
            size = len(value) + 2
            return (value, size) if size < STRING_FROM else self._kept_part(encode(value))
        if cls in _SCALARS:
            return value, 8
        known = self._memo.get(id(value))
        return self._remember(value, self._fold_container(value)) if known is None else known

    def _remember(self, value: Any, folded: tuple[Any, int]) -> tuple[Any, int]:
        self._memo[id(value)] = folded
        self._kept.append(value)
        return folded

    def _fold_container(self, value: Any) -> tuple[Any, int]:
        if isinstance(value, _CACHED):
            return self._fold_pinned(value)
        is_container = value.__class__ in _CONTAINERS
        if is_container or not self._is_long(value):
            data = encode(value)
            if _is_plain(data):
                long = is_container and len(data) >= OBJECT_FROM
                return self._kept_part(data) if long else (msgspec.Raw(data), len(data))
        return self._split(value)

    def _split(self, value: Any) -> tuple[Any, int]:
        """What is long, by its members."""
        self._long.add(id(value))
        if isinstance(value, dict):
            return self.fold_object(value)
        if isinstance(value, (list, tuple)):
            folded = [self._item(item) for item in value]
            return self._part([item for item, _ in folded], 2 + sum([length + 1 for _, length in folded]))
        return self._shortened(value, self._fold), WHOLE_BELOW

    def _item(self, value: Any) -> tuple[Any, int]:
        """An item of a list. Nearly all are short objects, each of which stands in no other."""
        if value.__class__ is dict and id(value) not in self._memo:
            data = encode(value)
            if _is_plain(data):
                return self._kept_part(data) if len(data) >= OBJECT_FROM else (msgspec.Raw(data), len(data))
        return self._fold(value)

    def _is_long(self, value: Any) -> bool:
        """Whether a frozen value is known to be long: it holds a pinned definition, or what is long."""
        cls = value.__class__
        if _holds_pins(cls):
            return True
        containers, structs = _deep(cls)
        for name in containers:
            if id(getattr(value, name)) in self._long:
                return True
        for name in structs:
            item = getattr(value, name)
            if item is not None and self._is_long(item):
                return True
        return False

    def _shortened(self, value: Any, fold: Callable[[Any], tuple[Any, int]]) -> Any:
        """A frozen value whose fields are folded; only those are looked at that can be long."""
        found = {}
        for name in _rich(value.__class__):
            item = getattr(value, name)
            cls = item.__class__
            if cls not in _SCALARS and (cls is not str or len(item) >= STRING_FROM):
                found[name] = fold(item)[0]
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **found)
        plain = {name: getattr(value, name) for name in _names(value.__class__)}
        return {**plain, **found}

    def _fold_pinned(self, value: Any) -> tuple[Any, int]:
        pin = self._folder.pinned(value)
        body = pin.folded[0]
        if isinstance(body, dict) and len(body) == 1 and "$" in body:
            self.pins[body["$"]] = pin.parts
        elif pin.parts:  # Too small to be a part itself, but not all that is in it.
            self.pins[",".join(pin.parts)] = pin.parts
        return pin.folded

    def _part(self, body: Any, size: int) -> tuple[Any, int]:
        return (body, size) if size < OBJECT_FROM else self._kept_part(encode(body))

    def _kept_part(self, data: bytes) -> tuple[Any, int]:
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        self.parts[digest] = data
        return {"$": digest}, _REF_SIZE


_CONTAINERS: frozenset[Any] = frozenset({dict, list, tuple})
_SCALARS: frozenset[Any] = frozenset({type(None), bool, int, float})


@cache
def _rich(cls: Any) -> tuple[str, ...]:
    """The fields of a frozen value that can be long."""
    hints = get_type_hints(cls)
    return tuple(name for name in _names(cls) if not _is_brief(hints[name]))


@cache
def _deep(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a frozen value that can hold what is long: containers, and values that have such."""
    hints = get_type_hints(cls)
    values = {name: _value_class(hints[name]) for name in _names(cls)}
    structs = [name for name, held in values.items() if held is not None and any(_deep(held))]
    plain = [name for name, held in values.items() if held is None and not _is_flat(hints[name])]
    return tuple(plain), tuple(structs)


def _value_class(hint: Any) -> Any:
    """The class of frozen values that a field holds, or None."""
    found = [each for each in (hint, *get_args(hint)) if each is not type(None)]
    only = found[-1] if len(found) <= 2 else None
    return only if isinstance(only, type) and issubclass(only, msgspec.Struct) else None


def _is_flat(hint: Any) -> bool:
    kinds = get_args(hint) or (hint,)
    return all(kind in (str, type(None)) or _is_brief(kind) for kind in kinds)


def _is_brief(hint: Any) -> bool:
    return hint in (bool, int, float) or (isinstance(hint, type) and issubclass(hint, Enum))


def _is_plain(data: bytes) -> bool:
    """Whether JSON is short, with nothing to escape: then it is written as it is."""
    return len(data) < WHOLE_BELOW and b'"$' not in data


@cache
def _holds_pins(cls: Any) -> bool:
    """Whether values of this class hold a pinned definition, which is long and known already."""
    return any(_mentions_pins(hint) for hint in get_type_hints(cls).values())


def _mentions_pins(hint: Any) -> bool:
    if hint in _CACHED:
        return True
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return _holds_pins(hint)
    return any(_mentions_pins(each) for each in get_args(hint))


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


def names(types: tuple[type, ...]) -> Mapping[str, type]:
    """Classes by their name, for tagged values."""
    return {cls.__name__: cls for cls in types}
