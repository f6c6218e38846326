"""What agents spend is added up the same everywhere: one suite for the port ``Accounts``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.journal_subjects import (
    Shards,
    commit,
    conversation,
    emitted,
    opened,
    put_conversation,
    room_id,
)
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.sqlite.accounts import SqliteAccounts
from wonder_server.core.budget import CHARGES, Account
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.records import Erase, Put
from wonder_server.ports.accounts import Accounts
from wonder_server.ports.journal import Commit, Event

A, B = "agt_a", "agt_b"
ONE = Account(input_tokens=10, output_tokens=2, cost_micros=7, model_calls=1, unpriced_calls=1, busy_ms=50)


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def shards(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shards]:
    async with opened(request.param, tmp_path) as store:
        yield store


def accounts_of(shards: Shards) -> Accounts:
    return shards if isinstance(shards, MemoryShards) else SqliteAccounts(shards)


def charge(agent: str, row_id: str, spent: Account = ONE) -> Put:
    return Put(CHARGES, row_id, spent, parent=agent)


async def write(shards: Shards, number: int, *charges: Put, events: tuple[Event, ...] = ()) -> None:
    made = commit(room_id(number), put_conversation(conversation(number)), *charges, events=events)
    await shards.of(room_id(number)).commit([made])


async def test_who_has_spent_nothing_has_an_account_too(shards: Shards) -> None:
    assert await accounts_of(shards).accounts([A]) == {A: Account()}


async def test_charges_add_up_over_conversations_and_shards(shards: Shards) -> None:
    await asyncio.gather(*(write(shards, number, charge(A, "1"), charge(B, "2")) for number in range(3)))
    await write(shards, 0, charge(A, "3", Account(input_tokens=5)), charge(A, "4"))
    found = await accounts_of(shards).accounts([A, B, "agt_c"])
    assert found[A] == Account(
        input_tokens=45, output_tokens=8, cost_micros=28, model_calls=4, unpriced_calls=4, busy_ms=200
    )
    assert (found[B].input_tokens, found["agt_c"]) == (30, Account())


async def test_what_was_spent_outlives_the_conversation(shards: Shards) -> None:
    await write(shards, 0, charge(A, "1"))
    gone = Commit(room_id(0), CONVERSATION, changes=[Erase(whole=True)])
    await shards.of(room_id(0)).commit([gone])
    assert (await accounts_of(shards).accounts([A]))[A] == ONE


async def test_a_commit_that_fails_charges_nothing(shards: Shards) -> None:
    first = (emitted(1),)
    await write(shards, 0, charge(A, "1"), events=first)
    with pytest.raises(Exception):  # noqa: B017 (each store has its own)
        await write(shards, 0, charge(A, "2"), events=first)
    assert (await accounts_of(shards).accounts([A]))[A] == ONE
