"""Accounts of agents: one suite for the port ``Accounts``."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.conformance.ports.journal_subjects import (
    Shards,
    commit,
    conversation,
    conversation_id,
    emitted,
    opened,
    put_conversation,
)
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.usage import SqliteAccounts
from wonder_server.codec.usage_seals import initial_seal
from wonder_server.core.actor.changes import Erase, Put
from wonder_server.core.budget import CHARGES, Account, add_accounts
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.frozen import replace
from wonder_server.ports.accounts import Accounts
from wonder_server.ports.journal import Commit, Event

A, B = "agt_a", "agt_b"
ONE = Account(
    input_tokens=10,
    output_tokens=2,
    cost_micros=7,
    model_calls=1,
    unpriced_calls=1,
    busy_ms=50,
    cached_input_tokens=5,
    cache_write_input_tokens=3,
    reasoning_tokens=1,
)


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def shards(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shards]:
    async with opened(request.param, tmp_path) as store:
        yield store


def accounts_of(shards: Shards) -> Accounts:
    return shards if isinstance(shards, MemoryShards) else SqliteAccounts(shards.shards)


def charge(agent: str, row_id: str, spent: Account = ONE) -> Put:
    return Put(CHARGES, row_id, spent, parent=agent)


async def write(shards: Shards, number: int, *charges: Put, events: tuple[Event, ...] = ()) -> None:
    made = commit(conversation_id(number), put_conversation(conversation(number)), *charges, events=events)
    await shards.of(conversation_id(number)).commit([made])


async def test_an_agent_without_usage_has_an_account(shards: Shards) -> None:
    assert await accounts_of(shards).accounts([A]) == {A: Account()}


async def test_charges_add_up_over_conversations_and_shards(shards: Shards) -> None:
    await asyncio.gather(*(write(shards, number, charge(A, "1"), charge(B, "2")) for number in range(3)))
    await write(shards, 0, charge(A, "3", Account(input_tokens=5)), charge(A, "4"))
    found = await accounts_of(shards).accounts([A, B, "agt_c"])
    assert found[A] == Account(
        input_tokens=45,
        output_tokens=8,
        cost_micros=28,
        model_calls=4,
        unpriced_calls=4,
        busy_ms=200,
        cached_input_tokens=20,
        cache_write_input_tokens=12,
        reasoning_tokens=4,
    )
    assert (found[B].input_tokens, found["agt_c"]) == (30, Account())


async def test_a_call_priced_later_no_longer_counts_as_unpriced(
    shards: Shards,
) -> None:
    begun = Account(model_calls=1, unpriced_calls=1)
    await write(shards, 0, charge(A, "1", begun), charge(A, "2", begun))
    await write(shards, 0, charge(A, "3", Account(cost_micros=7, unpriced_calls=-1)))
    await write(shards, 1, charge(A, "4", Account(unpriced_calls=-1)))
    found = (await accounts_of(shards).accounts([A]))[A]
    assert found == Account(model_calls=2, cost_micros=7)


async def test_usage_outlives_the_conversation(shards: Shards) -> None:
    await write(shards, 0, charge(A, "1"))
    gone = Commit(conversation_id(0), changes=[Erase(whole=True)])
    await shards.of(conversation_id(0)).commit([gone])
    assert (await accounts_of(shards).accounts([A]))[A] == ONE


async def test_a_commit_that_fails_charges_nothing(shards: Shards) -> None:
    first = (emitted(1),)
    await write(shards, 0, charge(A, "1"), events=first)
    with pytest.raises(Exception):  # noqa: B017 (each store raises its own error)
        await write(shards, 0, charge(A, "2"), events=first)
    assert (await accounts_of(shards).accounts([A]))[A] == ONE


# --- damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "cost_micros = cost_micros - 4",
        "input_tokens = 0",
        "output_tokens = output_tokens | (1 << 62)",
        "reasoning_tokens = reasoning_tokens + 1",
        "cache_write_input_tokens = 4",
        "busy_ms = 'long'",
        "seal = seal + 1",
        "seal = NULL",
    ],
)
async def test_a_damaged_account_is_named_and_does_not_affect_others(tmp_path: Path, change: str) -> None:
    async with opened("sqlite", tmp_path, count=1) as shards:
        await write(shards, 0, charge(A, "1"), charge(B, "2"))
    with closing(sqlite3.connect(tmp_path / "shards" / "00.db")) as connection:
        assert connection.execute(f"UPDATE accounts SET {change} WHERE agent = ?", (A,)).rowcount == 1
        connection.commit()
    async with opened("sqlite", tmp_path, count=1) as shards:
        await write(shards, 0, charge(A, "3"), charge(B, "4"))
        accounts = accounts_of(shards)
        with pytest.raises(WonderError, match=f"The record {A} in table accounts of shards/00.db") as found:
            await accounts.accounts([A, B])
        assert found.value.fault.reason is Reason.STORAGE_UNAVAILABLE
        assert await accounts.accounts([B]) == {B: add_accounts((ONE, ONE))}
        with capture_logs() as said:
            assert await accounts.accounts([A, B], lenient=True) == {B: add_accounts((ONE, ONE))}
        assert A in said[0]["problem"]
    assert [line for line in check_shard(tmp_path / "shards" / "00.db").problems if A in line]


async def test_old_accounts_without_a_seal_get_one(tmp_path: Path) -> None:
    path = tmp_path / "00.db"
    connect(path, MIGRATIONS[:8]).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO accounts VALUES (?, 1, 2, 3, 4, 5, 6)", (A,))
        connection.commit()
    for damage, problems in (("cost_micros = cost_micros", 0), ("cost_micros = 2", 1)):
        connect(path, MIGRATIONS).close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE accounts SET {damage}")
            connection.commit()
        assert len(check_shard(path).problems) == problems


async def test_accounts_without_cached_tokens_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    path = folder / "00.db"
    connect(path, MIGRATIONS[:14]).close()
    with closing(connect(path, MIGRATIONS[:14])) as connection:
        row = "actor, id, parent, ordinal, status, alias, live, created_ms, data, seal"
        sums = "input_tokens, output_tokens, cost_micros, model_calls, unpriced_calls, busy_ms"
        connection.execute(
            f"INSERT INTO charges ({row}, {sums})"
            " VALUES ('conv_1', 'a', ?, 0, '', '', 0, 0, '', ?, 10, 2, 7, 1, 1, 50)",
            (A, initial_seal(A)),
        )
        connection.commit()
    async with opened("sqlite", tmp_path, count=1) as shards:
        before = replace(ONE, cached_input_tokens=0, cache_write_input_tokens=0, reasoning_tokens=0)
        assert await accounts_of(shards).accounts([A]) == {A: before}
        await write(shards, 0, charge(A, "1"))
        assert await accounts_of(shards).accounts([A]) == {A: add_accounts((before, ONE))}
    assert not check_shard(path).problems
