"""Lost workers and expired leases (features H4, I4)."""

from __future__ import annotations

import pytest

from tests.services.workers.workers_kit import (
    LEASE_S,
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
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.services.workers import Cancelled, Settled, WorkerPool
from wonder_server.services.workers.leases import MAX_LOSSES

IDEMPOTENT = kind(idempotent=True)


# --- lost workers -----------------------------------------------------------------------------------


async def test_lost_idempotent_work_goes_to_another_worker_under_the_same_operation(pool: WorkerPool) -> None:
    first = join(pool, IDEMPOTENT, name="first")
    asked = await submit(pool, "op_1")
    lost = await only_assignment(first)
    second = join(pool, IDEMPOTENT, name="second")
    pool.disconnected(first)
    given = await only_assignment(second)
    assert (given.job.operation_id, given.attempt) == ("op_1", 2)
    assert given.lease_id != lost.lease_id
    pool.completed(first, lost.lease_id, {"from": "the dead"})
    pool.completed(second, given.lease_id, {"from": "second"})
    assert await asked.result() == {"from": "second"}


async def test_lost_work_that_must_not_be_done_twice_is_reported(pool: WorkerPool) -> None:
    first, second = join(pool, name="first"), join(pool, name="second")
    asked = await submit(pool, "op_1")
    await only_assignment(first)
    pool.disconnected(first)
    fault = await asked.fault()
    assert fault.reason is Reason.OUTCOME_UNKNOWN
    assert not fault.transient
    assert fault.metadata == {"operation_id": "op_1", "worker": "first"}
    assert fault.message.startswith("The worker 'first' disconnected before it sent a result.")
    assert await messages_of(second) == []


async def test_a_definition_may_say_that_its_action_is_idempotent(pool: WorkerPool) -> None:
    first, second = join(pool, name="first"), join(pool, name="second")
    await submit(pool, "op_1", idempotent=True)
    await only_assignment(first)
    pool.disconnected(first)
    assert (await only_assignment(second)).attempt == 2


async def test_a_definition_may_say_that_its_action_is_not_idempotent(pool: WorkerPool) -> None:
    first, second = join(pool, IDEMPOTENT, name="first"), join(pool, IDEMPOTENT, name="second")
    asked = await submit(pool, "op_1", idempotent=False)
    await only_assignment(first)
    pool.disconnected(first)
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN
    assert await messages_of(second) == []


async def test_an_unsent_job_is_not_lost(pool: WorkerPool) -> None:
    first, second = join(pool, name="first"), join(pool, name="second")
    await submit(pool, "op_1")
    pool.disconnected(first)
    assert (await only_assignment(second)).attempt == 1


async def test_a_lost_job_waits_at_the_front_of_the_queue(pool: WorkerPool) -> None:
    worker = join(pool, IDEMPOTENT, max_concurrency=3)
    for number in range(6):
        await submit(pool, f"op_{number}")
    assert len(await assignments_of(worker)) == 3
    pool.disconnected(worker)
    later = join(pool, IDEMPOTENT, max_concurrency=9)
    assert operations(await assignments_of(later)) == [f"op_{number}" for number in range(6)]


async def test_an_unsent_job_returns_to_the_front_of_the_queue(pool: WorkerPool) -> None:
    worker = join(pool, max_concurrency=2)
    for number in range(4):
        await submit(pool, f"op_{number}")
    pool.disconnected(worker)
    later = join(pool, max_concurrency=9)
    assert operations(await assignments_of(later)) == [f"op_{number}" for number in range(4)]


async def test_a_job_that_loses_too_many_workers_fails(pool: WorkerPool) -> None:
    asked = await submit(pool, "op_1")
    for attempt in range(1, MAX_LOSSES + 1):
        assert await asked.waits()
        worker = join(pool, IDEMPOTENT, name=f"victim {attempt}")
        assert (await only_assignment(worker)).attempt == attempt
        pool.disconnected(worker)
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN
    assert await messages_of(join(pool, IDEMPOTENT)) == []


async def test_a_worker_disconnects_once(pool: WorkerPool, time: Time) -> None:
    worker = join(pool)
    pool.disconnected(worker)
    pool.disconnected(worker)
    assert pool.kinds() == []
    assert time.pending == 0


# --- leases -----------------------------------------------------------------------------------------


async def test_heartbeats_extend_the_leases_that_they_name_and_no_others(
    pool: WorkerPool, time: Time
) -> None:
    worker = join(pool, max_concurrency=2)
    kept, dropped = await submit(pool, "op_kept"), await submit(pool, "op_dropped")
    held, forgotten = await assignments_of(worker)
    for _ in range(9):
        await time.advance(10)
        pool.record_heartbeat(worker)
        pool.extend(worker, [held.lease_id, "lease_unknown"])
    assert (await dropped.fault()).reason is Reason.OUTCOME_UNKNOWN
    assert await kept.waits()
    (cancelled,) = await messages_of(worker)
    assert isinstance(cancelled, Cancelled) and cancelled.lease_id == forgotten.lease_id
    pool.completed(worker, forgotten.lease_id, {})
    pool.completed(worker, held.lease_id, {"done": True})
    late, taken = await messages_of(worker)
    assert isinstance(late, Settled) and not late.accepted
    assert isinstance(taken, Settled) and taken.accepted
    assert await kept.result() == {"done": True}


async def test_a_lease_runs_out_when_it_is_time_and_not_before(pool: WorkerPool, time: Time) -> None:
    worker = join(pool)
    asked = await submit(pool)
    given = await only_assignment(worker)
    await time.advance(10)
    pool.record_heartbeat(worker)
    pool.extend(worker, [given.lease_id])
    await time.advance(LEASE_S - 0.001)
    assert await asked.waits()
    pool.record_heartbeat(worker)  # it lives, but says nothing of its lease
    await time.advance(0.001)
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN


async def test_work_whose_lease_ran_out_goes_to_another_worker_not_to_the_same(
    pool: WorkerPool, time: Time
) -> None:
    careless = join(pool, IDEMPOTENT, name="careless")
    asked = await submit(pool, "op_1")
    await only_assignment(careless)
    for _ in range(4):
        await time.advance(10)
        pool.record_heartbeat(careless)
    (cancelled,) = await messages_of(careless)
    assert isinstance(cancelled, Cancelled)
    assert await asked.waits()
    other = join(pool, IDEMPOTENT, name="other")
    assert (await only_assignment(other)).attempt == 2
    assert await messages_of(careless) == []


async def test_a_silent_worker_is_disconnected(pool: WorkerPool, time: Time) -> None:
    silent = join(pool, IDEMPOTENT, name="silent")
    asked = await submit(pool)
    await only_assignment(silent)
    await time.advance(LEASE_S)
    assert silent.is_disconnected
    with pytest.raises(WonderError) as problem:
        while await silent.next_message():
            pass
    assert problem.value.fault.reason is Reason.TIMEOUT
    other = join(pool, IDEMPOTENT, name="other")
    pool.completed(other, (await only_assignment(other)).lease_id, {})
    assert await asked.result() == {}


async def test_a_worker_that_misses_heartbeats_receives_no_jobs(pool: WorkerPool, time: Time) -> None:
    worker = join(pool)
    await time.advance(21)
    await submit(pool)
    assert await messages_of(worker) == []
    pool.record_heartbeat(worker)
    assert len(await assignments_of(worker)) == 1


async def test_an_idle_worker_that_sends_heartbeats_stays(pool: WorkerPool, time: Time) -> None:
    worker = join(pool)
    for _ in range(20):
        await time.advance(10)
        pool.record_heartbeat(worker)
        pool.extend(worker, [])
    assert not worker.is_disconnected
    assert len(pool.kinds()) == 1


async def test_work_for_a_worker_that_does_not_read_goes_to_another_even_if_done_once(
    pool: WorkerPool, time: Time
) -> None:
    deaf, other = join(pool, name="deaf"), join(pool, name="other")
    await submit(pool, "op_1")
    for _ in range(3):
        await time.advance(10)
        for worker in (deaf, other):
            pool.record_heartbeat(worker)
    assert (await only_assignment(other)).attempt == 1
    assert await messages_of(deaf) == []


async def test_no_state_remains_after_the_last_job(pool: WorkerPool, time: Time) -> None:
    worker = join(pool, max_concurrency=3)
    for number in range(9):
        asked = await submit(pool, f"op_{number}")
        given = await only_assignment(worker)
        match number % 3:
            case 0:
                pool.completed(worker, given.lease_id, {})
            case 1:
                pool.failed(worker, given.lease_id, Fault(reason=Reason.TASK_FAILED, message="No."))
            case _:
                asked.task.cancel()
        await run_pending()
        assert asked.task.done()
        if not asked.task.cancelled():
            asked.task.exception()
        await messages_of(worker)
    assert worker.assignments == {}
    assert pool.waiting_count == 0
    assert time.pending == 1  # whether the worker is still there
