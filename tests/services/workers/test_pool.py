"""The pool of remote workers: jobs, results, concurrency and timeouts (features H4, I4)."""

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
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonValue
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.services.workers import (
    AssignmentMessage,
    Cancelled,
    Progress,
    Settled,
    WorkerPool,
    session,
)

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


# --- one worker, one job ----------------------------------------------------------------------------


async def test_a_worker_executes_a_job_and_its_output_is_the_result(pool: WorkerPool, time: Time) -> None:
    worker = join(pool)
    asked = await submit(pool, "op_7", input={"page": 3}, timeout_ms=5_000)
    given = await only_assignment(worker)
    assert (given.job.operation_id, given.attempt, given.job.input) == ("op_7", 1, {"page": 3})
    assert given.deadline_ms == time.now_ms() + 5_000
    pool.completed(worker, given.lease_id, {"text": "hello"})
    assert await asked.result() == {"text": "hello"}
    assert await messages_of(worker) == [Settled(lease_id=given.lease_id)]


async def test_an_input_that_no_message_can_carry_is_not_assigned(pool: WorkerPool) -> None:
    worker = join(pool)
    deep: list[JsonValue] = []
    for _ in range(30):
        deep = [deep]
    asked = await submit(pool, input={"a": deep})
    assert (await asked.fault()).reason is Reason.PAYLOAD_TOO_DEEP
    assert await messages_of(worker) == []


async def test_a_job_waits_for_the_first_worker(pool: WorkerPool) -> None:
    asked = await submit(pool)
    assert await asked.waits()
    worker = join(pool)
    pool.completed(worker, (await only_assignment(worker)).lease_id, {})
    assert await asked.result() == {}


async def test_a_job_without_a_worker_times_out_with_that_reason(pool: WorkerPool, time: Time) -> None:
    asked = await submit(pool, timeout_ms=5_000)
    await time.advance(4.999)
    assert await asked.waits()
    await time.advance(0.001)
    fault = await asked.fault()
    assert fault.reason is Reason.TIMEOUT
    assert fault.message == "No worker for 'ocr' is connected: the job waited 5000 ms."
    assert not fault.transient
    assert await messages_of(join(pool)) == []


async def test_a_timeout_names_the_reason_that_all_workers_are_busy(pool: WorkerPool, time: Time) -> None:
    join(pool)
    first = await submit(pool, "op_1")
    second = await submit(pool, "op_2", timeout_ms=5_000)
    await time.advance(5)
    assert "All workers for 'ocr' were busy" in (await second.fault()).message
    assert await first.waits()


async def test_progress_reaches_the_caller(pool: WorkerPool) -> None:
    worker, progress = join(pool), list[Progress]()
    asked = await submit(pool, on_progress=progress.append)
    given = await only_assignment(worker)
    pool.progress(worker, given.lease_id, Progress(message="page 2", fraction=0.5))
    pool.progress(worker, "lease_unknown", Progress(message="lost"))
    pool.completed(worker, given.lease_id, {})
    pool.progress(worker, given.lease_id, Progress(message="late"))
    await asked.result()
    assert progress == [Progress(message="page 2", fraction=0.5)]


async def test_a_waiting_job_reports_once_that_no_worker_is_available(pool: WorkerPool, time: Time) -> None:
    progress = list[Progress]()
    asked = await submit(pool, on_progress=progress.append)
    await time.advance(1)
    assert progress == [Progress(message="waits for a worker of 'ocr': no worker for 'ocr' is connected")]
    worker = join(pool)
    given = await only_assignment(worker)
    other = await submit(pool, "op_2", on_progress=progress.append)
    assert progress[1:] == [Progress(message="waits for a worker of 'ocr': all are busy")]
    pool.completed(worker, given.lease_id, {})
    await asked.result()
    assert await other.waits() and len(progress) == 2


async def test_a_worker_receives_no_jobs_of_other_kinds(pool: WorkerPool) -> None:
    other = join(pool, "translate")
    asked = await submit(pool, kind="ocr")
    assert await messages_of(other) == []
    assert await asked.waits()


# --- invalid input and output ------------------------------------------------------------------------


async def test_input_that_does_not_fit_is_not_assigned(pool: WorkerPool) -> None:
    worker = join(pool, kind(input_schema=TEXT))
    fault = await (await submit(pool, input={"text": 7})).fault()
    assert fault.reason is Reason.INPUT_INVALID
    assert "input.text: must be a text" in fault.message
    assert await messages_of(worker) == []


async def test_input_that_waits_is_checked_when_its_kind_is_declared(pool: WorkerPool) -> None:
    asked, good = await submit(pool, "op_1", input={}), await submit(pool, "op_2", input={"text": "a"})
    worker = join(pool, kind(input_schema=TEXT), max_concurrency=5)
    assert (await asked.fault()).reason is Reason.INPUT_INVALID
    assert operations(await assignments_of(worker)) == ["op_2"]
    assert await good.waits()


async def test_output_that_does_not_fit_fails_the_job_and_frees_the_worker(pool: WorkerPool) -> None:
    worker = join(pool, kind(output_schema=TEXT))
    asked, after = await submit(pool, "op_1"), await submit(pool, "op_2")
    given = await only_assignment(worker)
    pool.completed(worker, given.lease_id, {"text": None})
    fault = await asked.fault()
    assert fault.reason is Reason.TASK_FAILED
    assert not fault.transient
    assert "output.text: must be a text" in fault.message
    refusal, following = await messages_of(worker)
    assert isinstance(refusal, Settled) and not refusal.accepted and refusal.fault == fault
    assert isinstance(following, AssignmentMessage) and following.job.operation_id == "op_2"
    assert await after.waits()


async def test_output_that_is_too_large_fails_the_job(pool: WorkerPool) -> None:
    worker = join(pool)
    asked = await submit(pool)
    pool.completed(worker, (await only_assignment(worker)).lease_id, {"text": "x" * (5 << 20)})
    assert (await asked.fault()).reason is Reason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("is_retriable", [True, False])
async def test_a_job_fails_with_the_fault_of_its_worker(pool: WorkerPool, is_retriable: bool) -> None:
    worker = join(pool)
    asked = await submit(pool)
    given = await only_assignment(worker)
    said = Fault(reason=Reason.ASSERTION_FAILED, message="No page.", transient=is_retriable, retry_after_ms=9)
    pool.failed(worker, given.lease_id, said)
    assert await asked.fault() == said
    assert isinstance(asked.task.exception(), NotStartedError) == is_retriable
    assert await messages_of(worker) == [Settled(lease_id=given.lease_id)]


async def test_the_attempts_of_an_operation_are_counted(pool: WorkerPool) -> None:
    worker = join(pool)
    for attempt in (1, 2, 3):
        asked = await submit(pool, "op_1")
        given = await only_assignment(worker)
        assert given.attempt == attempt
        pool.failed(worker, given.lease_id, Fault(reason=Reason.TASK_FAILED, message="Busy.", transient=True))
        await asked.fault()
        await messages_of(worker)


async def test_a_result_for_an_unknown_lease_is_rejected(pool: WorkerPool) -> None:
    ada, bob = join(pool, name="ada"), join(pool, name="bob")
    asked = await submit(pool)
    given = await only_assignment(ada)
    for lease_id in ("lease_unknown", "", given.lease_id):
        pool.completed(bob, lease_id, {"from": "bob"})
    refusals = await messages_of(bob)
    assert [word.fault.reason for word in refusals if isinstance(word, Settled) and word.fault] == [
        Reason.FIELD_INVALID
    ] * 3
    assert await asked.waits()
    pool.completed(ada, given.lease_id, {"from": "ada"})
    assert await asked.result() == {"from": "ada"}


async def test_only_the_first_result_counts(pool: WorkerPool) -> None:
    worker = join(pool)
    asked = await submit(pool)
    given = await only_assignment(worker)
    pool.completed(worker, given.lease_id, {"n": 1})
    pool.completed(worker, given.lease_id, {"n": 2})
    pool.failed(worker, given.lease_id, Fault(reason=Reason.TASK_FAILED, message="No."))
    assert await asked.result() == {"n": 1}
    first, *others = await messages_of(worker)
    assert isinstance(first, Settled) and first.accepted
    assert all(isinstance(word, Settled) and not word.accepted for word in others) and len(others) == 2


async def test_the_server_stops_reading_from_a_worker_that_does_not_read(pool: WorkerPool) -> None:
    worker = join(pool)
    for _ in range(session.MAX_BACKLOG):
        pool.completed(worker, "lease_unknown", {})
    reading = asyncio.ensure_future(worker.wait_for_capacity())
    await run_pending()
    assert not reading.done()
    await worker.next_message()
    await reading


# --- concurrency and order --------------------------------------------------------------------------


async def test_a_worker_never_exceeds_its_concurrency_and_jobs_keep_their_order(
    pool: WorkerPool,
) -> None:
    worker = join(pool, max_concurrency=2)
    for number in range(5):
        await submit(pool, f"op_{number}")
    first, second = await assignments_of(worker)
    assert operations([first, second]) == ["op_0", "op_1"]
    pool.completed(worker, second.lease_id, {})
    words = await messages_of(worker)
    assert [word.job.operation_id for word in words if isinstance(word, AssignmentMessage)] == ["op_2"]


async def test_a_kind_can_have_a_lower_concurrency_than_its_worker(pool: WorkerPool) -> None:
    worker = join(pool, kind("ocr", max_concurrency=1), "translate", max_concurrency=3)
    for number in range(3):
        await submit(pool, f"ocr_{number}", "ocr")
    for number in range(3):
        await submit(pool, f"translate_{number}", "translate")
    given = await assignments_of(worker)
    assert operations(given) == ["ocr_0", "translate_0", "translate_1"]
    pool.completed(worker, given[0].lease_id, {})
    assert operations([w for w in await messages_of(worker) if isinstance(w, AssignmentMessage)]) == ["ocr_1"]


async def test_the_job_that_waited_longest_is_next_among_all_kinds(pool: WorkerPool) -> None:
    await submit(pool, "op_1", "ocr")
    await submit(pool, "op_2", "translate")
    await submit(pool, "op_3", "ocr")
    assert operations(await assignments_of(join(pool, "translate", "ocr", max_concurrency=3))) == [
        "op_1",
        "op_2",
        "op_3",
    ]


async def test_a_job_goes_to_the_worker_with_the_least_load(pool: WorkerPool) -> None:
    small, large = join(pool, max_concurrency=2), join(pool, max_concurrency=6)
    for number in range(8):
        await submit(pool, f"op_{number}")
        if number == 3:
            assert (len(small.assignments), len(large.assignments)) == (1, 3)
    assert (len(small.assignments), len(large.assignments)) == (2, 6)


async def test_idle_workers_take_turns(pool: WorkerPool) -> None:
    workers, got = [join(pool, name=str(n)) for n in range(3)], list[str]()
    for number in range(6):
        await submit(pool, f"op_{number}")
        (busy,) = [worker for worker in workers if worker.assignments]
        got.append(busy.name)
        pool.completed(busy, next(iter(busy.assignments)), {})
    assert got == ["0", "1", "2"] * 2


async def test_a_worker_of_a_project_gets_no_other_projects_work(pool: WorkerPool, time: Time) -> None:
    worker = join(pool, projects=frozenset({"proj_1"}), max_concurrency=9)
    asked = await submit(pool, "op_other", project="proj_2", timeout_ms=5_000)
    mine = await submit(pool, "op_mine", project="proj_1")
    assert operations(await assignments_of(worker)) == ["op_mine"]
    assert await messages_of(join(pool, projects=frozenset({"proj_1", "proj_3"}))) == []
    await time.advance(5)
    assert "that works for this project" in (await asked.fault()).message
    assert await mine.waits()


# --- cancellation and timeouts ----------------------------------------------------------------------


async def test_a_cancel_reaches_the_worker_and_frees_its_capacity(pool: WorkerPool) -> None:
    worker = join(pool)
    asked, after = await submit(pool, "op_1"), await submit(pool, "op_2")
    given = await only_assignment(worker)
    await asked.cancel()
    cancelled, following = await messages_of(worker)
    assert isinstance(cancelled, Cancelled) and cancelled.lease_id == given.lease_id
    assert cancelled.fault.reason is Reason.CANCELLED
    assert isinstance(following, AssignmentMessage) and following.job.operation_id == "op_2"
    pool.completed(worker, given.lease_id, {"late": True})
    (late,) = await messages_of(worker)
    assert isinstance(late, Settled) and late.fault == cancelled.fault
    assert await after.waits()


async def test_a_job_that_is_cancelled_before_it_is_sent_is_never_sent(pool: WorkerPool) -> None:
    worker = join(pool)
    await (await submit(pool, "op_1")).cancel()
    await (await submit(pool, "op_2")).cancel()
    await submit(pool, "op_1")
    given = await only_assignment(worker)
    assert (given.job.operation_id, given.attempt) == ("op_1", 1)


async def test_a_cancelled_job_leaves_the_queue(pool: WorkerPool) -> None:
    await (await submit(pool, "op_1")).cancel()
    await submit(pool, "op_2")
    assert operations(await assignments_of(join(pool, max_concurrency=5))) == ["op_2"]


@pytest.mark.parametrize(
    ("declared", "defined", "reason"),
    [
        (False, None, Reason.OUTCOME_UNKNOWN),
        (True, None, Reason.TIMEOUT),
        (False, True, Reason.TIMEOUT),
        (True, False, Reason.OUTCOME_UNKNOWN),
    ],
)
async def test_work_that_takes_too_long_is_stopped_and_only_repeated_if_it_may_be(
    pool: WorkerPool, time: Time, declared: bool, defined: bool | None, reason: Reason
) -> None:
    worker = join(pool, kind(idempotent=declared))
    asked = await submit(pool, "op_1", timeout_ms=5_000, idempotent=defined)
    given = await only_assignment(worker)
    await time.advance(5)
    fault = await asked.fault()
    assert (fault.reason, fault.transient) == (reason, reason is Reason.TIMEOUT)
    assert fault.metadata["operation_id"] == "op_1"
    assert ("`idempotent: true`" in fault.message) == (reason is Reason.OUTCOME_UNKNOWN)
    (cancelled,) = await messages_of(worker)
    assert isinstance(cancelled, Cancelled) and cancelled.lease_id == given.lease_id
    assert cancelled.fault.reason is Reason.TIMEOUT
    pool.completed(worker, given.lease_id, {})
    (late,) = await messages_of(worker)
    assert isinstance(late, Settled) and not late.accepted
