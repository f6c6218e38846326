"""Workers that are lost, and leases that run out (features H4, I4)."""

from __future__ import annotations

import pytest

from tests.services.workers_kit import (
    LEASE_S,
    Time,
    ask,
    assigned,
    join,
    kind,
    one,
    operations,
    settled,
    told,
)
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.services.workers import Cancelled, Settled, Workers
from wonder_server.services.workers.handout import MAX_LOSSES

IDEMPOTENT = kind(idempotent=True)


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture
async def pool(time: Time) -> Workers:
    return Workers(time, lease_ms=int(LEASE_S * 1000))


# --- lost workers -----------------------------------------------------------------------------------


async def test_lost_idempotent_work_goes_to_another_worker_under_the_same_operation(pool: Workers) -> None:
    first = join(pool, IDEMPOTENT, name="first")
    asked = await ask(pool, "op_1")
    lost = await one(first)
    second = join(pool, IDEMPOTENT, name="second")
    pool.gone(first)
    given = await one(second)
    assert (given.job.operation_id, given.attempt) == ("op_1", 2)
    assert given.lease_id != lost.lease_id
    pool.completed(first, lost.lease_id, {"from": "the dead"})
    pool.completed(second, given.lease_id, {"from": "second"})
    assert await asked.result() == {"from": "second"}


async def test_lost_work_that_must_not_be_done_twice_is_reported(pool: Workers) -> None:
    first, second = join(pool, name="first"), join(pool, name="second")
    asked = await ask(pool, "op_1")
    await one(first)
    pool.gone(first)
    fault = await asked.fault()
    assert fault.reason is Reason.OUTCOME_UNKNOWN
    assert not fault.transient
    assert fault.metadata == {"operation_id": "op_1", "worker": "first"}
    assert fault.message.startswith("The worker 'first' went away before it answered.")
    assert await told(second) == []


async def test_a_definition_may_say_that_its_action_is_idempotent(pool: Workers) -> None:
    first, second = join(pool, name="first"), join(pool, name="second")
    await ask(pool, "op_1", idempotent=True)
    await one(first)
    pool.gone(first)
    assert (await one(second)).attempt == 2


async def test_a_definition_may_say_that_its_action_is_not_idempotent(pool: Workers) -> None:
    first, second = join(pool, IDEMPOTENT, name="first"), join(pool, IDEMPOTENT, name="second")
    asked = await ask(pool, "op_1", idempotent=False)
    await one(first)
    pool.gone(first)
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN
    assert await told(second) == []


async def test_what_never_went_out_is_not_lost(pool: Workers) -> None:
    first, second = join(pool, name="first"), join(pool, name="second")
    await ask(pool, "op_1")
    pool.gone(first)
    assert (await one(second)).attempt == 1


async def test_lost_work_waits_for_a_worker_in_front_of_the_line(pool: Workers) -> None:
    worker = join(pool, IDEMPOTENT, max_concurrency=3)
    for number in range(6):
        await ask(pool, f"op_{number}")
    assert len(await assigned(worker)) == 3
    pool.gone(worker)
    later = join(pool, IDEMPOTENT, max_concurrency=9)
    assert operations(await assigned(later)) == [f"op_{number}" for number in range(6)]


async def test_what_never_went_out_goes_back_to_the_front_of_the_line(pool: Workers) -> None:
    worker = join(pool, max_concurrency=2)
    for number in range(4):
        await ask(pool, f"op_{number}")
    pool.gone(worker)
    later = join(pool, max_concurrency=9)
    assert operations(await assigned(later)) == [f"op_{number}" for number in range(4)]


async def test_work_that_kills_its_workers_is_given_up(pool: Workers) -> None:
    asked = await ask(pool, "op_1")
    for attempt in range(1, MAX_LOSSES + 1):
        assert await asked.waits()
        worker = join(pool, IDEMPOTENT, name=f"victim {attempt}")
        assert (await one(worker)).attempt == attempt
        pool.gone(worker)
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN
    assert await told(join(pool, IDEMPOTENT)) == []


async def test_a_worker_goes_once(pool: Workers, time: Time) -> None:
    worker = join(pool)
    pool.gone(worker)
    pool.gone(worker)
    assert pool.kinds() == []
    assert time.pending == 0


# --- leases -----------------------------------------------------------------------------------------


async def test_heartbeats_extend_the_leases_that_they_name_and_no_others(pool: Workers, time: Time) -> None:
    worker = join(pool, max_concurrency=2)
    kept, dropped = await ask(pool, "op_kept"), await ask(pool, "op_dropped")
    held, forgotten = await assigned(worker)
    for _ in range(9):
        await time.passes(10)
        pool.heard(worker)
        pool.extend(worker, [held.lease_id, "lease_of_nobody"])
    assert (await dropped.fault()).reason is Reason.OUTCOME_UNKNOWN
    assert await kept.waits()
    (cancelled,) = await told(worker)
    assert isinstance(cancelled, Cancelled) and cancelled.lease_id == forgotten.lease_id
    pool.completed(worker, forgotten.lease_id, {})
    pool.completed(worker, held.lease_id, {"done": True})
    late, taken = await told(worker)
    assert isinstance(late, Settled) and not late.accepted
    assert isinstance(taken, Settled) and taken.accepted
    assert await kept.result() == {"done": True}


async def test_a_lease_runs_out_when_it_is_time_and_not_before(pool: Workers, time: Time) -> None:
    worker = join(pool)
    asked = await ask(pool)
    given = await one(worker)
    await time.passes(10)
    pool.heard(worker)
    pool.extend(worker, [given.lease_id])
    await time.passes(LEASE_S - 0.001)
    assert await asked.waits()
    pool.heard(worker)  # it lives, but says nothing of its lease
    await time.passes(0.001)
    assert (await asked.fault()).reason is Reason.OUTCOME_UNKNOWN


async def test_work_whose_lease_ran_out_goes_to_another_worker_not_to_the_same(
    pool: Workers, time: Time
) -> None:
    careless = join(pool, IDEMPOTENT, name="careless")
    asked = await ask(pool, "op_1")
    await one(careless)
    for _ in range(4):
        await time.passes(10)
        pool.heard(careless)
    (cancelled,) = await told(careless)
    assert isinstance(cancelled, Cancelled)
    assert await asked.waits()
    other = join(pool, IDEMPOTENT, name="other")
    assert (await one(other)).attempt == 2
    assert await told(careless) == []


async def test_a_worker_that_is_not_heard_of_is_sent_away(pool: Workers, time: Time) -> None:
    silent = join(pool, IDEMPOTENT, name="silent")
    asked = await ask(pool)
    await one(silent)
    await time.passes(LEASE_S)
    assert silent.gone
    with pytest.raises(WonderError) as problem:
        while await silent.take():
            pass
    assert problem.value.fault.reason is Reason.TIMEOUT
    other = join(pool, IDEMPOTENT, name="other")
    pool.completed(other, (await one(other)).lease_id, {})
    assert await asked.result() == {}


async def test_a_worker_that_misses_heartbeats_gets_nothing_meanwhile(pool: Workers, time: Time) -> None:
    worker = join(pool)
    await time.passes(21)
    await ask(pool)
    assert await told(worker) == []
    pool.heard(worker)
    assert len(await assigned(worker)) == 1


async def test_an_idle_worker_that_sends_heartbeats_stays(pool: Workers, time: Time) -> None:
    worker = join(pool)
    for _ in range(20):
        await time.passes(10)
        pool.heard(worker)
        pool.extend(worker, [])
    assert not worker.gone
    assert len(pool.kinds()) == 1


async def test_work_for_a_worker_that_does_not_read_goes_to_another_even_if_done_once(
    pool: Workers, time: Time
) -> None:
    deaf, other = join(pool, name="deaf"), join(pool, name="other")
    await ask(pool, "op_1")
    for _ in range(3):
        await time.passes(10)
        for worker in (deaf, other):
            pool.heard(worker)
    assert (await one(other)).attempt == 1
    assert await told(deaf) == []


async def test_nothing_is_left_of_what_is_over(pool: Workers, time: Time) -> None:
    worker = join(pool, max_concurrency=3)
    for number in range(9):
        asked = await ask(pool, f"op_{number}")
        given = await one(worker)
        match number % 3:
            case 0:
                pool.completed(worker, given.lease_id, {})
            case 1:
                pool.failed(worker, given.lease_id, Fault(reason=Reason.TASK_FAILED, message="No."))
            case _:
                asked.task.cancel()
        await settled()
        assert asked.task.done()
        if not asked.task.cancelled():
            asked.task.exception()
        await told(worker)
    assert worker.held == {}
    assert pool.waiting == 0
    assert time.pending == 1  # whether the worker is still there
