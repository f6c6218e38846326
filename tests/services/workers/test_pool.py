"""The pool of remote workers: lines, leases, lost work, drain (features H4, I4)."""

from __future__ import annotations

import asyncio
from typing import Any

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
from wonder_server.core.task.effects import NotStartedError
from wonder_server.services.workers import (
    AssignmentMessage,
    Cancelled,
    Draining,
    Progress,
    Registration,
    Settled,
    WorkerKind,
    WorkerPool,
    check_registration,
)
from wonder_server.services.workers import session as seats

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture
async def pool(time: Time) -> WorkerPool:
    return WorkerPool(time, lease_ms=int(LEASE_S * 1000))


# --- one worker, one job ----------------------------------------------------------------------------


async def test_a_worker_gets_what_is_asked_for_and_its_output_is_the_answer(
    pool: WorkerPool, time: Time
) -> None:
    worker = join(pool)
    asked = await submit(pool, "op_7", input={"page": 3}, timeout_ms=5_000)
    given = await only_assignment(worker)
    assert (given.job.operation_id, given.attempt, given.job.input) == ("op_7", 1, {"page": 3})
    assert given.deadline_ms == time.now_ms() + 5_000
    pool.completed(worker, given.lease_id, {"text": "hello"})
    assert await asked.result() == {"text": "hello"}
    assert await messages_of(worker) == [Settled(lease_id=given.lease_id)]


async def test_an_input_that_no_message_can_carry_as_it_is_goes_to_nobody(pool: WorkerPool) -> None:
    worker = join(pool)
    deep: list[Any] = []
    for _ in range(30):
        deep = [deep]
    asked = await submit(pool, input={"a": deep})
    assert (await asked.fault()).reason is Reason.PAYLOAD_TOO_DEEP
    assert await messages_of(worker) == []


async def test_what_is_asked_for_before_there_is_a_worker_waits_for_one(pool: WorkerPool) -> None:
    asked = await submit(pool)
    assert await asked.waits()
    worker = join(pool)
    pool.completed(worker, (await only_assignment(worker)).lease_id, {})
    assert await asked.result() == {}


async def test_a_job_that_nobody_came_for_says_that_there_is_no_worker(pool: WorkerPool, time: Time) -> None:
    asked = await submit(pool, timeout_ms=5_000)
    await time.advance(4.999)
    assert await asked.waits()
    await time.advance(0.001)
    fault = await asked.fault()
    assert fault.reason is Reason.TIMEOUT
    assert fault.message == "No worker for 'ocr' is connected: the job waited 5000 ms."
    assert not fault.transient
    assert await messages_of(join(pool)) == []


async def test_that_all_are_busy_is_said_too(pool: WorkerPool, time: Time) -> None:
    join(pool)
    first = await submit(pool, "op_1")
    second = await submit(pool, "op_2", timeout_ms=5_000)
    await time.advance(5)
    assert "All workers for 'ocr' were busy" in (await second.fault()).message
    assert await first.waits()


async def test_progress_reaches_who_asked(pool: WorkerPool) -> None:
    worker, heard = join(pool), list[Progress]()
    asked = await submit(pool, on_progress=heard.append)
    given = await only_assignment(worker)
    pool.progress(worker, given.lease_id, Progress(message="page 2", fraction=0.5))
    pool.progress(worker, "lease_of_nobody", Progress(message="lost"))
    pool.completed(worker, given.lease_id, {})
    pool.progress(worker, given.lease_id, Progress(message="late"))
    await asked.result()
    assert heard == [Progress(message="page 2", fraction=0.5)]


async def test_that_nobody_is_there_to_take_it_is_told_once(pool: WorkerPool, time: Time) -> None:
    heard = list[Progress]()
    asked = await submit(pool, on_progress=heard.append)
    await time.advance(1)
    assert heard == [Progress(message="waits for a worker of 'ocr': no worker for 'ocr' is connected")]
    worker = join(pool)
    given = await only_assignment(worker)
    other = await submit(pool, "op_2", on_progress=heard.append)
    assert heard[1:] == [Progress(message="waits for a worker of 'ocr': all are busy")]
    pool.completed(worker, given.lease_id, {})
    await asked.result()
    assert await other.waits() and len(heard) == 2


async def test_a_worker_without_kinds_of_its_own_to_do_is_left_alone(pool: WorkerPool) -> None:
    other = join(pool, "translate")
    asked = await submit(pool, kind="ocr")
    assert await messages_of(other) == []
    assert await asked.waits()


# --- what a worker says may be wrong ----------------------------------------------------------------


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
async def test_what_a_worker_reports_is_what_the_job_fails_with(pool: WorkerPool, is_retriable: bool) -> None:
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


async def test_a_lease_that_there_never_was_or_of_another_worker_is_not_settled(pool: WorkerPool) -> None:
    ada, bob = join(pool, name="ada"), join(pool, name="bob")
    asked = await submit(pool)
    given = await only_assignment(ada)
    for lease_id in ("lease_of_nobody", "", given.lease_id):
        pool.completed(bob, lease_id, {"from": "bob"})
    refusals = await messages_of(bob)
    assert [word.fault.reason for word in refusals if isinstance(word, Settled) and word.fault] == [
        Reason.FIELD_INVALID
    ] * 3
    assert await asked.waits()
    pool.completed(ada, given.lease_id, {"from": "ada"})
    assert await asked.result() == {"from": "ada"}


async def test_an_answer_that_comes_twice_counts_once(pool: WorkerPool) -> None:
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


async def test_a_worker_that_does_not_read_is_not_listened_to_for_ever(pool: WorkerPool) -> None:
    worker = join(pool)
    for _ in range(seats.MAX_BACKLOG):
        pool.completed(worker, "lease_of_nobody", {})
    assert not worker._has_capacity.is_set()
    await worker.next_message()
    await worker.wait_for_capacity()


# --- how much at once, and who ----------------------------------------------------------------------


async def test_never_more_at_once_than_a_worker_takes_and_first_come_first_served(pool: WorkerPool) -> None:
    worker = join(pool, max_concurrency=2)
    for number in range(5):
        await submit(pool, f"op_{number}")
    first, second = await assignments_of(worker)
    assert operations([first, second]) == ["op_0", "op_1"]
    pool.completed(worker, second.lease_id, {})
    words = await messages_of(worker)
    assert [word.job.operation_id for word in words if isinstance(word, AssignmentMessage)] == ["op_2"]


async def test_a_kind_may_be_taken_less_often_than_all_kinds_together(pool: WorkerPool) -> None:
    worker = join(pool, kind("ocr", max_concurrency=1), "translate", max_concurrency=3)
    for number in range(3):
        await submit(pool, f"ocr_{number}", "ocr")
    for number in range(3):
        await submit(pool, f"translate_{number}", "translate")
    given = await assignments_of(worker)
    assert operations(given) == ["ocr_0", "translate_0", "translate_1"]
    pool.completed(worker, given[0].lease_id, {})
    assert operations([w for w in await messages_of(worker) if isinstance(w, AssignmentMessage)]) == ["ocr_1"]


async def test_among_kinds_who_waited_longest_is_next(pool: WorkerPool) -> None:
    await submit(pool, "op_1", "ocr")
    await submit(pool, "op_2", "translate")
    await submit(pool, "op_3", "ocr")
    assert operations(await assignments_of(join(pool, "translate", "ocr", max_concurrency=3))) == [
        "op_1",
        "op_2",
        "op_3",
    ]


async def test_work_goes_to_the_worker_with_the_least_to_do(pool: WorkerPool) -> None:
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


# --- cancelled, or too late -------------------------------------------------------------------------


async def test_a_cancel_reaches_the_worker_and_makes_room(pool: WorkerPool) -> None:
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


async def test_what_is_cancelled_before_it_went_out_never_does(pool: WorkerPool) -> None:
    worker = join(pool)
    await (await submit(pool, "op_1")).cancel()
    await (await submit(pool, "op_2")).cancel()
    await submit(pool, "op_1")
    given = await only_assignment(worker)
    assert (given.job.operation_id, given.attempt) == ("op_1", 1)


async def test_what_is_cancelled_in_line_leaves_it(pool: WorkerPool) -> None:
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


# --- who may come -----------------------------------------------------------------------------------


async def test_kinds_are_listed_with_how_many_carry_them_out(pool: WorkerPool) -> None:
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
def test_a_registration_is_refused_with_every_place_that_is_wrong(
    given: dict[str, Any], fields: list[str]
) -> None:
    registration = Registration(**{"name": "w", "kinds": (kind(),), **given})
    with pytest.raises(WonderError) as problem:
        check_registration(registration, {"http"})
    assert [fault.field for fault in problem.value.faults] == fields


def test_a_registration_that_is_right_passes() -> None:
    check_registration(Registration(name="w", kinds=(kind(input_schema=TEXT, max_concurrency=4),)))


# --- the worker goes, the server stops --------------------------------------------------------------


async def test_a_worker_that_leaves_finishes_what_it_has_and_gets_nothing_new(pool: WorkerPool) -> None:
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


async def test_a_worker_with_nothing_to_do_leaves_at_once(pool: WorkerPool) -> None:
    worker = join(pool)
    pool.drain_worker(worker)
    assert await worker.next_message() is None


async def test_a_server_that_stops_still_takes_results_and_assigns_nothing(pool: WorkerPool) -> None:
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


async def test_what_has_not_gone_out_when_the_server_stops_stays_here(pool: WorkerPool) -> None:
    worker = join(pool)
    asked = await submit(pool, "op_1")
    pool.drain(1_000)
    assert await worker.next_message() == Draining(grace_ms=1_000)
    with pytest.raises(WonderError):
        await worker.next_message()
    await pool.wait_until_idle()
    assert await asked.waits()
    await asked.cancel()


async def test_a_server_that_stops_waits_for_all_that_workers_have(pool: WorkerPool) -> None:
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


async def test_nobody_joins_a_server_that_stops(pool: WorkerPool) -> None:
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
