"""Connections of remote workers: registration, draining and shutdown (feature H4)."""

from __future__ import annotations

import asyncio

import pytest

from tests.services.workers.workers_kit import (
    Time,
    assignments_of,
    join,
    kind,
    messages_of,
    only_assignment,
    operations,
    run_pending,
    submit,
)
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.services.workers import (
    Draining,
    Registration,
    Settled,
    WorkerKind,
    WorkerPool,
    check_registration,
)

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


# --- registration -----------------------------------------------------------------------------------


async def test_kinds_are_listed_with_the_number_of_their_workers(pool: WorkerPool) -> None:
    first = join(pool, kind("ocr", description="Reads pages."), "translate")
    join(pool, "ocr", name="second")
    assert [(each.kind.name, each.kind.description, each.workers) for each in pool.kinds()] == [
        ("ocr", "Reads pages.", 2),
        ("translate", "", 1),
    ]
    pool.disconnected(first)
    assert [(each.kind.name, each.workers) for each in pool.kinds()] == [("ocr", 1)]


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (kind(input_schema=TEXT), "input_schema"),
        (kind(output_schema=TEXT), "output_schema"),
        (kind(idempotent=True), "idempotent"),
    ],
)
async def test_workers_must_agree_on_a_kind(pool: WorkerPool, other: WorkerKind, field: str) -> None:
    first = join(pool, "ocr", name="first")
    with pytest.raises(WonderError) as problem:
        join(pool, "translate", other, name="second")
    (fault,) = problem.value.faults
    assert fault.reason is Reason.DEFINITION_INVALID
    assert fault.field == f"register.kinds[1].{field}"
    assert "'first'" in fault.message
    assert [each.kind.name for each in pool.kinds()] == ["ocr"]
    pool.disconnected(first)
    join(pool, other)


async def test_two_workers_may_have_one_name_and_differ_in_how_much_they_take(pool: WorkerPool) -> None:
    join(pool, kind(max_concurrency=1), max_concurrency=2)
    join(pool, kind(max_concurrency=3), max_concurrency=4)
    assert pool.kinds()[0].workers == 2


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"name": ""}, ["register.name"]),
        ({"name": "ä" * 65}, ["register.name"]),
        ({"kinds": ()}, ["register.kinds"]),
        ({"kinds": tuple(kind(f"k{n}") for n in range(101))}, ["register.kinds"]),
        ({"max_concurrency": 0}, ["register.max_concurrency"]),
        ({"max_concurrency": 1_001}, ["register.max_concurrency"]),
        ({"kinds": (kind("Ocr"), kind(""))}, ["register.kinds[0].name", "register.kinds[1].name"]),
        ({"kinds": (kind("http"),)}, ["register.kinds[0].name"]),
        ({"kinds": (kind("a"), kind("a"), kind("a"))}, ["register.kinds[1].name"]),
        ({"kinds": (kind(max_concurrency=-1),)}, ["register.kinds[0].max_concurrency"]),
        ({"kinds": (kind(description="x" * 5_000),)}, ["register.kinds[0].description"]),
        (
            {"kinds": (kind(input_schema={"properties": {"a": {"type": "txt"}}}),)},
            ["register.kinds[0].input_schema.properties.a.type"],
        ),
        (
            {"kinds": (kind(output_schema={"$ref": "https://example.com/x"}),)},
            ["register.kinds[0].output_schema.$ref"],
        ),
    ],
)
def test_a_registration_is_rejected_with_all_its_faults(given: JsonDict, fields: list[str]) -> None:
    registration = Registration(**{"name": "w", "kinds": (kind(),), **given})
    with pytest.raises(WonderError) as problem:
        check_registration(registration, {"http"})
    assert [fault.field for fault in problem.value.faults] == fields


def test_a_valid_registration_passes() -> None:
    check_registration(Registration(name="w", kinds=(kind(input_schema=TEXT, max_concurrency=4),)))


# --- draining and shutdown --------------------------------------------------------------------------


async def test_a_draining_worker_finishes_its_jobs_and_receives_no_more(pool: WorkerPool) -> None:
    leaving = join(pool, max_concurrency=5)
    asked = await submit(pool, "op_1")
    given = await only_assignment(leaving)
    unsent = await submit(pool, "op_2")
    pool.drain_worker(leaving)
    after = await submit(pool, "op_3")
    assert await messages_of(leaving) == []
    pool.completed(leaving, given.lease_id, {"done": 1})
    assert await asked.result() == {"done": 1}
    assert await messages_of(leaving) == [Settled(lease_id=given.lease_id)]
    assert await leaving.next_message() is None
    pool.disconnected(leaving)
    assert await unsent.waits() and await after.waits()
    assert operations(await assignments_of(join(pool, max_concurrency=5))) == ["op_2", "op_3"]


async def test_an_idle_worker_drains_at_once(pool: WorkerPool) -> None:
    worker = join(pool)
    pool.drain_worker(worker)
    assert await worker.next_message() is None


async def test_a_stopping_server_accepts_results_and_assigns_no_jobs(pool: WorkerPool) -> None:
    busy, idle = join(pool, "ocr"), join(pool, "translate")
    asked = await submit(pool, "op_1")
    given = await only_assignment(busy)
    pool.drain(5_000)
    after = await submit(pool, "op_2", "translate")
    assert await messages_of(busy) == [Draining(grace_ms=5_000)]
    assert await idle.next_message() == Draining(grace_ms=5_000)
    with pytest.raises(WonderError) as problem:
        await idle.next_message()
    assert problem.value.fault.reason is Reason.SERVER_DRAINING
    assert problem.value.fault.retry_after_ms
    pool.completed(busy, given.lease_id, {"done": 1})
    assert await asked.result() == {"done": 1}
    await pool.wait_until_idle()
    assert await busy.next_message() == Settled(lease_id=given.lease_id)
    with pytest.raises(WonderError):
        await busy.next_message()
    assert await after.waits()
    await after.cancel()


async def test_an_unsent_job_stays_queued_when_the_server_stops(pool: WorkerPool) -> None:
    worker = join(pool)
    asked = await submit(pool, "op_1")
    pool.drain(1_000)
    assert await worker.next_message() == Draining(grace_ms=1_000)
    with pytest.raises(WonderError):
        await worker.next_message()
    await pool.wait_until_idle()
    assert await asked.waits()
    await asked.cancel()


async def test_a_stopping_server_waits_for_all_assignments(pool: WorkerPool) -> None:
    worker = join(pool, max_concurrency=2)
    await submit(pool, "op_1")
    await submit(pool, "op_2")
    first, second = await assignments_of(worker)
    pool.drain(1_000)
    idle = asyncio.ensure_future(pool.wait_until_idle())
    pool.completed(worker, first.lease_id, {})
    await run_pending()
    assert not idle.done()
    pool.completed(worker, second.lease_id, {})
    await idle


async def test_a_stopping_server_accepts_no_worker(pool: WorkerPool) -> None:
    pool.drain(1_000)
    with pytest.raises(WonderError) as problem:
        join(pool)
    assert problem.value.fault.reason is Reason.SERVER_DRAINING


async def test_a_pool_that_closes_ends_every_stream(pool: WorkerPool, time: Time) -> None:
    worker = join(pool)
    asked = await submit(pool)
    await only_assignment(worker)
    pool.close()
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN
    with pytest.raises(WonderError):
        await worker.next_message()
    assert time.pending == 0
