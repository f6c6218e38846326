"""The stores that the suites of the ports ``Journal`` and ``Records`` test, and the values they write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.actor.changes import Delete, Emit, Erase, Put
from wonder_server.core.conversation.model.values import (
    Conversation,
    ConversationStatus,
    Message,
    Operation,
    OperationKind,
    Participant,
    Role,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.ports.journal import Commit, Entry, Event, Journal

Shards = MemoryShards | SqliteJournals
ROW_TYPES = {**RUN.row_types, **CONVERSATION.row_types}


JOURNALS = ["memory", pytest.param("sqlite", marks=pytest.mark.disk)]


@asynccontextmanager
async def opened(kind: str = "memory", folder: Path | None = None, count: int = 3) -> AsyncIterator[Shards]:
    if kind == "memory":
        yield MemoryShards()
        return
    assert folder is not None, "a journal in files needs a folder"
    shards = await SqliteJournals.open(folder / "shards", count)
    yield shards
    await shards.close()


def conversation_id(number: int) -> str:
    """Return an id. Consecutive numbers belong to the three shards in turn."""
    return f"conv_01HF7YAT000000000000000{number:02}{number % 3}"


CONVERSATION_ID = conversation_id(0)


def conversation(number: int, *, project: str = "proj_1", **fields: Any) -> Conversation:
    return Conversation(id=conversation_id(number), project_id=project, created_ms=number * 10, **fields)


def put_conversation(value: Conversation) -> Put:
    return Put(
        "conversations",
        value.id,
        value,
        parent=value.project_id,
        status=value.status.value,
        alias=value.external_ref,
        live=True,
        created_ms=value.created_ms,
    )


def message(
    number: int, *, turn: str = "turn_1", role: Role = Role.USER, owner: str = CONVERSATION_ID
) -> Put:
    value = Message(
        id=f"msg_{number:03}",
        conversation_id=owner,
        turn_id=turn,
        ordinal=number,
        role=role,
        author="ann",
        content=f"message {number}",
        created_ms=number * 10,
    )
    return Put(
        "messages",
        value.id,
        value,
        parent=turn,
        ordinal=number,
        status=role.value,
        created_ms=value.created_ms,
    )


def operation(number: int, *, live: bool = True, given: Any = None) -> Put:
    value = Operation(id=f"op_{number}", turn_id="turn_1", kind=OperationKind.TASK, input=given)
    return Put("operations", value.id, value, parent="turn_1", ordinal=number, live=live)


def emitted(
    sequence: int, *, owner: str = CONVERSATION_ID, name: str = "", turn: str = "", at_ms: int = 0
) -> Event:
    emit = Emit(name or "participant.joined", Participant(type="user", id=f"u{sequence}"), turn)
    return Event(sequence, at_ms or sequence * 100, owner, emit)


def commit(
    actor: str,
    *changes: Put | Delete | Erase,
    events: tuple[Event, ...] = (),
    entries: tuple[Entry, ...] = (),
    entry_head: int = 0,
    event_head: int = 0,
    root: str = "",
) -> Commit:
    made = Commit(actor, list(entries), list(changes), list(events))
    made.entry_head = entry_head or (entries[-1].sequence if entries else 0)
    made.event_head = event_head or (events[-1].sequence if events else 0)
    made.root = root or actor
    return made


COMPLETED = ConversationStatus.COMPLETED


async def unfinished(*journals: Journal) -> list[str]:
    """Return the ids of the actors with operations in their outboxes, read in pages of two."""
    found: list[str] = []
    for journal in journals:
        for planner in (CONVERSATION, RUN):
            page = await journal.unfinished(planner.prefix, "", 2)
            while page:
                found += [actor.actor_id for actor in page]
                page = await journal.unfinished(planner.prefix, found[-1], 2)
    return found
