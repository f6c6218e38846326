"""Large data folders: copies of recorded conversations and runs, written through the store.

A server records one of each kind. `copy_actors` writes as many copies of them as wanted, each with ids of its
own: it renames the ids in the journal, applies the decisions again, and commits their rows and events. So a
copy differs from a recorded actor in its ids alone, and 100,000 runs take half a minute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, is_dataclass
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import msgspec

from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.codec.fields import PINNED
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.ids import SHARDS, shard_of
from wonder_server.ports.journal import Commit, Entry
from wonder_server.record.journals import StoredJournals

_AT_ONCE = 100
"""Actors in one commit."""
_OWN_ID = re.compile(r"\b(?!(?:agt|def|lib|proj)_)[a-z]+_([0-9A-HJKMNP-TV-Z]{26})")
"""Ids of things inside a conversation or a run. The others name definitions, agents and projects."""
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Rename = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded actor: its id, its root and its journal."""

    actor_id: str
    root: str
    entries: Sequence[Entry]

    @property
    def planner(self) -> Planner:
        return CONVERSATION if self.actor_id.startswith("conv_") else RUN


@asynccontextmanager
async def open_shards(folder: Path) -> Any:
    """Yield the journals of a data folder whose server is stopped."""
    shards = await SqliteShards.open(folder / "shards", 1)
    try:
        yield StoredJournals.on(shards.files, (CONVERSATION, RUN))
    finally:
        await shards.close()


async def read_actors(shards: StoredJournals, actor_ids: Sequence[str]) -> list[Recorded]:
    """Return the journals of these actors."""
    found = []
    for actor_id in actor_ids:
        planner = CONVERSATION if actor_id.startswith("conv_") else RUN
        entries = await shards.of(actor_id).entries(actor_id, 0, 1_000_000)
        state = planner.new_state()
        for entry in entries:
            for decision in entry.decisions:
                planner.apply(state, decision)
        found.append(Recorded(actor_id, planner.root(actor_id, state), entries))
    return found


async def copy_actors(
    shards: StoredJournals, recorded: Sequence[Recorded], count: int, *, compact: bool = False
) -> None:
    """Write ``count`` copies of these actors, which belong together.

    ``compact``: they are ended runs that are stored in compact form.
    """
    commits: list[Commit] = []
    # A server has written to this folder before, and the store refuses commits of earlier epochs.
    epochs = await shards.raise_epochs(range(SHARDS))
    for number in range(1, count + 1):
        rename = _renaming(number)
        commits += [_commit(actor, rename, compact=compact) for actor in recorded]
        if len(commits) >= _AT_ONCE or number == count:
            for commit in commits:
                commit.epoch = epochs[shard_of(commit.actor_id)]
            await shards.of(recorded[0].actor_id).commit(commits)
            commits = []


def _commit(actor: Recorded, rename: Rename, *, compact: bool) -> Commit:
    planner, state = actor.planner, actor.planner.new_state()
    made = Commit(rename(actor.actor_id), root=rename(actor.root), compact=compact)
    for entry in actor.entries:
        decisions = tuple(_renamed(decision, rename) for decision in entry.decisions)
        made.entries.append(Entry(entry.sequence, entry.at_ms, _renamed(entry.input, rename), decisions))
        for decision in decisions:
            planner.apply(state, decision)
            if not compact:
                made.add(planner.record(state, decision), entry.at_ms)
    made.entry_head = len(made.entries)
    if compact:
        assert planner.compact_row is not None
        row = planner.compact_row(state)
        assert row is not None, "only a run that has ended is compact"
        made.changes = [row]
        made.event_head = sum(planner.event_count(entry.decisions) for entry in made.entries)
    return made


def _renaming(number: int) -> Rename:
    """Return the renaming of ids in the copy of this number: it replaces eight of their random characters,
    and keeps their time and their shard."""
    digits = "".join(_DIGITS[number >> shift & 31] for shift in range(35, -1, -5))

    def rename(text: str) -> str:
        if "_" not in text:
            return text
        return _OWN_ID.sub(lambda found: f"{found[0][:-26]}{found[1][:12]}{digits}{found[1][20:]}", text)

    return rename


def _renamed(value: Any, rename: Rename) -> Any:
    """Return ``value`` with its ids renamed. Pinned definitions have none and stay the same objects."""
    cls = value.__class__
    if cls is str:
        return rename(value)
    if cls is dict:
        return {_renamed(key, rename): _renamed(item, rename) for key, item in value.items()}
    if cls in (list, tuple):
        return cls(_renamed(item, rename) for item in value)
    if cls in PINNED:
        return value
    changed = {name: _renamed(item, rename) for name, item in _fields(value)}
    if not changed:
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    return replace_fields(value, **changed)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a frozen value that may hold ids."""
    if isinstance(value, msgspec.Struct):
        names: Sequence[str] = value.__struct_fields__
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        return
    for name in names:
        item = getattr(value, name)
        if item and item.__class__ not in (int, float, bool):
            yield name, item
