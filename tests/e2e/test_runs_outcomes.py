"""Runs that do not go well, over gRPC with a real server: what is documented happens (features G1 to G9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, struct
from tests.e2e.effects import Effects, counting
from tests.e2e.outcome_graphs import DEFINITIONS, EXPIRING, LATE
from tests.e2e.process import Server, serving
from tests.e2e.run_view import RunView, get, outcome, runs
from tests.rpc.rpc_kit import rejected
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import errors_pb2, library_pb2, run_pb2
from wonder.v1 import library_service_pb2 as library
from wonder_server.core.ids import shard_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = "e2e/outcomes"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def effects() -> AsyncIterator[Effects]:
    async with counting() as effects:
        yield effects


async def prepare(client: Client, effects: Effects) -> None:
    expiring = [EXPIRING.format(policy=policy) for policy in ("fail", "approve", "reject")]
    late = [LATE.format(policy=policy) for policy in ("fail", "proceed")]
    await client.apply(LIBRARY, "---".join([DEFINITIONS, *expiring, *late]))
    await client.agent("snail", f"{LIBRARY}/slow_speaker")
    allowed = library_pb2.NetworkPolicy(http_allow=[effects.address])
    project = library_pb2.Project(name="outcomes", network=allowed)
    await client.library.CreateProject(library.CreateProjectRequest(project=project))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(tmp_path_factory: pytest.TempPathFactory, effects: Effects) -> AsyncIterator[Client]:
    """Of a server with two shards, shared by all tests that leave it standing."""
    folder = tmp_path_factory.mktemp("outcomes") / "data"
    async with serving(folder, environment={"WONDER_SHARD_COUNT": "2"}) as server, server.client() as client:
        await prepare(client, effects)
        # The first request takes its time.
        await start(client, "task", {"url": f"{effects.url}/first"}, wait_ms=10_000)
        yield client
        for run in await runs(client, include_children=True):
            replayed = await client.coordinator.ReplayRun(pb.ReplayRunRequest(run_id=run.id))
            assert replayed.identical, (run.workflow, replayed.first_difference)
    assert not [line for line in server.log if line.get("level") == "error"]


async def start(
    client: Client, workflow: str, input: dict[str, Any] | None = None, **fields: Any
) -> run_pb2.Run:
    """A new run of this library, in the project that may reach the counting server."""
    request = pb.StartRunRequest(workflow_id=f"{LIBRARY}/{workflow}", input=struct(**(input or {})), **fields)
    request.context.project_id = "outcomes"
    return (await client.coordinator.StartRun(request)).run


async def ended(client: Client, run: run_pb2.Run) -> tuple[run_pb2.Run, RunView]:
    """Return the ended run and its whole record."""
    view = RunView(run.id)
    async with asyncio.timeout(60):
        await view.watch(client)
    outcome(view)  # Its laws hold.
    return await get(client, run.id), view


async def reached(client: Client, run: run_pb2.Run, *statuses: str) -> run_pb2.Run:
    """Wait until the live tokens have these statuses, in any order; return the run."""
    wanted = sorted(run_pb2.TokenStatus.Value(f"TOKEN_STATUS_{status}") for status in statuses)
    async with asyncio.timeout(60):
        while True:
            now = await get(client, run.id)
            if sorted(token.status for token in now.tokens if token.status not in _OVER) == wanted:
                return now
            await asyncio.sleep(0.01)


_OVER = (
    run_pb2.TOKEN_STATUS_COMPLETED,
    run_pb2.TOKEN_STATUS_FAILED,
    run_pb2.TOKEN_STATUS_CANCELLED,
)


async def approval(client: Client, gate: run_pb2.Gate) -> str:
    """The reason why it is too late to approve."""
    request = pb.ResolveGateRequest(
        gate_id=gate.id, decision=pb.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
    )
    return (await rejected(client.coordinator.ResolveGate(request)))[0]


def reason(run: run_pb2.Run) -> str:
    return errors_pb2.ErrorReason.Name(run.error.reason).removeprefix("ERROR_REASON_")


def output(run: run_pb2.Run) -> dict[str, Any]:
    assert run.status == run_pb2.RUN_STATUS_COMPLETED, run.error
    return MessageToDict(run.output)


# --- what takes too long ------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["action", "task", "node", "run"])
async def test_what_hangs_is_given_up_in_its_time_and_hung_up_on(
    client: Client, effects: Effects, what: str
) -> None:
    path = f"/hang/{what}"
    run, view = await ended(client, await start(client, f"{what}_hangs", {"url": effects.url + path}))
    assert (run.status, reason(run)) == (run_pb2.RUN_STATUS_FAILED, "TIMEOUT")
    # On a slow machine its time may be over before the request is sent.
    await effects.until(lambda: effects.closed[path] == effects.counts[path])
    assert effects.counts[path] <= 1
    assert view.names[-1] == "workflow_failed"
    if what != "run":
        assert run.error.metadata["node"] == "hang"


async def test_what_must_not_be_done_twice_and_takes_too_long_has_an_unknown_outcome(
    client: Client, effects: Effects
) -> None:
    run, _ = await ended(client, await start(client, "post_hangs", {"url": f"{effects.url}/hang/post"}))
    assert reason(run) == "OUTCOME_UNKNOWN"
    assert effects.counts["/hang/post"] == 1


async def test_a_child_that_takes_too_long_is_cancelled(client: Client) -> None:
    run, _ = await ended(client, await start(client, "child_hangs"))
    assert reason(run) == "TIMEOUT"
    (child,) = await runs(client, parent_run_id=run.id)
    child, _ = await ended(client, child)
    assert child.status == run_pb2.RUN_STATUS_CANCELLED


async def test_a_child_that_fails_fails_its_parent_with_its_reason(client: Client) -> None:
    run, view = await ended(client, await start(client, "child_fails"))
    (child,) = await runs(client, parent_run_id=run.id)
    assert run.status == child.status == run_pb2.RUN_STATUS_FAILED
    assert reason(run) == reason(child) and "This cannot be." in run.error.message
    assert run.error.metadata["node"] == "child"
    assert [e.carried_out_by for e in view.executions("node_failed")] == [child.id]


@pytest.mark.parametrize("policy", ["fail", "approve", "reject"])
async def test_an_unanswered_gate_follows_its_policy(client: Client, policy: str) -> None:
    run, view = await ended(client, await start(client, f"expires_{policy}"))
    (gate,) = (event.gate_resolved for event in view.events if event.HasField("gate_resolved"))
    stands = {"fail": "EXPIRED", "approve": "APPROVED", "reject": "REJECTED"}[policy]
    assert gate.status == run_pb2.GateStatus.Value(f"GATE_STATUS_{stands}")
    assert gate.resolution.user_id == ""
    if policy == "fail":
        assert reason(run) == "TIMEOUT"
    else:
        assert output(run) == {"decision": stands.lower(), "by": ""}
    # Never early.
    opened = next(e.gate_opened for e in view.events if e.HasField("gate_opened"))
    assert gate.resolution.resolve_time.ToMilliseconds() >= opened.expire_time.ToMilliseconds()
    late = pb.ResolveGateRequest(
        gate_id=gate.id, decision=pb.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
    )
    assert (await rejected(client.coordinator.ResolveGate(late)))[0] == "GATE_RESOLVED"


@pytest.mark.parametrize("policy", ["fail", "proceed"])
async def test_a_branch_that_is_late_is_given_up_or_gone_on_without(client: Client, policy: str) -> None:
    run, view = await ended(client, await start(client, f"late_{policy}"))
    assert [e.node_id for e in view.executions("node_cancelled")] == ["never"]
    if policy == "fail":
        assert reason(run) == "TIMEOUT"
    else:
        assert output(run) == {"n": ["quick"]}


# --- cancel -------------------------------------------------------------------------------------------

STANDS: dict[str, tuple[str, ...]] = {
    "signal": ("WAITING_FOR_SIGNAL",),
    "gate": ("WAITING_FOR_HUMAN",),
    "child": ("WAITING_FOR_SUBWORKFLOW",),
    "agent": ("WAITING_FOR_AGENT",),
    "task": ("WAITING_FOR_TASK",),
    "backoff": ("PENDING",),
    "limits": ("FORKED", "WAITING_FOR_TASK", "WAITING_FOR_TASK"),
}


@pytest.mark.parametrize("where", STANDS)
async def test_a_cancel_ends_everything_that_works_for_the_run(
    client: Client, effects: Effects, where: str
) -> None:
    path = f"/hang/cancel/{where}"
    given = {"url": effects.url + path, "base": effects.url, "name": "cancel"}
    run = await start(client, where, given)
    await reached(client, run, *STANDS[where])
    at_work = {"task": 1, "limits": 2}.get(where, 0)
    await effects.until(lambda: effects.counts[path] == at_work)
    request = pb.CancelRunRequest(run_id=run.id, reason="Enough.", request_id=f"cancel/{where}")
    answer = await client.coordinator.CancelRun(request)
    assert answer.run.status == run_pb2.RUN_STATUS_CANCELLED
    assert (reason(answer.run), answer.run.error.message) == ("CANCELLED", "Enough.")
    run, view = await ended(client, run)
    assert {how for _, _, how in outcome(view).executed} <= {"node_cancelled", "node_completed"}
    assert all(token.status in _OVER for token in run.tokens) and not run.pending_gates
    # What worked for it was stopped.
    await effects.until(lambda: effects.closed[path] == at_work)
    for child in await runs(client, parent_run_id=run.id):
        assert (await ended(client, child))[0].status == run_pb2.RUN_STATUS_CANCELLED
    # What comes too late changes nothing.
    effects.release()
    again = await client.coordinator.CancelRun(request)
    assert again.run.etag == answer.run.etag == run.etag
    anew = client.coordinator.CancelRun(pb.CancelRunRequest(run_id=run.id))
    assert (await rejected(anew))[0] == "RUN_NOT_ACTIVE"
    signal = pb.SignalRunRequest(run_id=run.id, signal=run_pb2.Signal(name="go"))
    assert (await rejected(client.coordinator.SignalRun(signal)))[0] == "RUN_NOT_ACTIVE"
    gate = view.gate("ask")
    if gate is not None:
        assert await approval(client, gate) == "GATE_RESOLVED"
    assert (await get(client, run.id)).last_sequence == view.cursor


async def test_a_run_that_is_over_is_not_cancelled(client: Client) -> None:
    run = await start(client, "each", {"by": 2}, wait_ms=10_000)
    assert output(run) == {"all": [2, 4, 6], "word": "none"}
    call = client.coordinator.CancelRun(pb.CancelRunRequest(run_id=run.id))
    assert (await rejected(call))[0] == "RUN_NOT_ACTIVE"


# --- signals and gates --------------------------------------------------------------------------------


async def signal(client: Client, run: run_pb2.Run, payload: float, request_id: str = "") -> int:
    sent = run_pb2.Signal(name="go")
    sent.payload.number_value = payload
    request = pb.SignalRunRequest(run_id=run.id, signal=sent, request_id=request_id)
    return int((await client.coordinator.SignalRun(request)).sequence)


async def test_a_signal_is_for_one_node_and_the_next_waits_for_the_next(client: Client) -> None:
    run = await start(client, "two_waits")
    first = await signal(client, run, 1, "one")
    # Said again, it is the same signal; and the second node does not have it.
    assert await signal(client, run, 1, "one") == first
    now = await reached(client, run, "WAITING_FOR_SIGNAL")
    assert [token.node_id for token in now.tokens if token.status not in _OVER] == ["second"]
    await signal(client, run, 2)
    run, view = await ended(client, run)
    assert output(run) == {"first": 1, "second": 2}
    assert view.names.count("signal.received") == 2
    assert await signal(client, run, 1, "one") == first, "repeated after the end too"


async def test_gates_in_parallel_take_only_their_own_answers(client: Client) -> None:
    run = await start(client, "two_gates")
    await reached(client, run, "FORKED", "WAITING_FOR_HUMAN", "WAITING_FOR_HUMAN")
    answer = await client.coordinator.ListGates(pb.ListGatesRequest(run_id=run.id))
    gates = {gate.node_id: gate for gate in answer.gates}

    async def resolve(node_id: str, shown: str, user_id: str) -> run_pb2.Gate:
        request = pb.ResolveGateRequest(
            gate_id=gates[node_id].id,
            decision=pb.GATE_DECISION_APPROVE,
            shown_hash=gates[shown].shown_hash,
            user_id=user_id,
        )
        return (await client.coordinator.ResolveGate(request)).gate

    for node_id, shown in (("left", "right"), ("right", "left")):
        assert await rejected(resolve(node_id, shown, "eve")) == ("GATE_RESOLVED", ["shown_hash"])
    answers = await asyncio.gather(
        *(resolve("left", "left", user) for user in ("ann", "bob", "cid")),
        *(resolve("right", "right", user) for user in ("ann", "bob", "cid")),
        return_exceptions=True,
    )
    taken = [gate for gate in answers if isinstance(gate, run_pb2.Gate)]
    assert sorted(gate.node_id for gate in taken) == ["left", "right"], "each is answered once"
    run, _ = await ended(client, run)
    assert output(run)["by"] == {gate.node_id: gate.resolution.user_id for gate in taken}


# --- time ---------------------------------------------------------------------------------------------


async def test_a_wait_that_ends_while_the_server_is_down_comes_once_with_the_next(
    data: Path, effects: Effects
) -> None:
    server = await Server(data).start()
    async with server.client() as client:
        await prepare(client, effects)
        run = await start(client, "pause")
        began = time.monotonic()
        await reached(client, run, "WAITING_FOR_SIGNAL")
    await server.kill()
    async with serving(data) as early, early.client() as client:
        status = (await get(client, run.id)).status
        # It is not early because of a restart; on a slow machine its time may have come.
        assert status == run_pb2.RUN_STATUS_WAITING or time.monotonic() - began >= 2
    await asyncio.sleep(max(0.0, began + 2.1 - time.monotonic()))
    async with serving(data) as late, late.client() as client:
        run, view = await ended(client, run)
        assert output(run) == {"received": False}
        (execution,) = view.executions("node_completed")
        waited = execution.complete_time.ToMilliseconds() - execution.create_time.ToMilliseconds()
        assert waited >= 2000


# --- starting, listing, watching ----------------------------------------------------------------------


async def test_a_start_waits_for_the_requested_time_and_no_longer(client: Client, effects: Effects) -> None:
    done = await start(client, "each", {"by": 2}, wait_ms=10_000, metadata=struct(of="mine"))
    assert done.status == run_pb2.RUN_STATUS_COMPLETED
    assert MessageToDict(done.metadata) == {"of": "mine"}
    waiting = await start(client, "signal", wait_ms=50, request_id="waits")
    assert waiting.status == run_pb2.RUN_STATUS_WAITING
    call = asyncio.create_task(start(client, "signal", wait_ms=10_000, request_id="waits"))
    await signal(client, waiting, 5)
    assert (await call).id == waiting.id and output(await call) == {"got": 5}
    # Shorter than the workflow says, not longer.
    given = {"url": f"{effects.url}/hang/start"}
    short = await start(client, "task", given, timeout_ms=100, wait_ms=10_000)
    assert reason(short) == "TIMEOUT"
    longer = await start(client, "run_hangs", given, timeout_ms=3_600_000, wait_ms=10_000)
    assert reason(longer) == "TIMEOUT"


async def test_runs_of_all_shards_are_listed_by_what_is_asked(client: Client) -> None:
    made = [await start(client, "signal", request_id=f"list/{n}") for n in range(12)]
    assert len({shard_of(run.id) % 2 for run in made}) == 2, "in both shard files"
    ids = [run.id for run in made]
    began = made[0].create_time

    async def listed(**asked: Any) -> list[str]:
        found = await runs(client, workflow_id=f"{LIBRARY}/signal", start_time=began, **asked)
        times = [run.create_time.ToMilliseconds() for run in found]
        assert times == sorted(times, reverse=True), "newest first"
        return sorted(run.id for run in found)

    assert await listed() == sorted(ids)
    assert await listed(project_id="outcomes") == sorted(ids)
    assert await listed(project_id="default") == []
    assert await listed(end_time=began) == []
    for run in made[::3]:
        await signal(client, run, 1)
    for run in made[1::3]:
        await client.coordinator.CancelRun(pb.CancelRunRequest(run_id=run.id))
    for run in made[::3]:
        await ended(client, run)
    assert await listed(statuses=[run_pb2.RUN_STATUS_COMPLETED]) == sorted(ids[::3])
    assert await listed(statuses=[run_pb2.RUN_STATUS_CANCELLED]) == sorted(ids[1::3])
    rest = [run_pb2.RUN_STATUS_WAITING, run_pb2.RUN_STATUS_RUNNING]
    assert await listed(statuses=rest) == sorted(ids[2::3])
    for run in made[2::3]:
        await client.coordinator.CancelRun(pb.CancelRunRequest(run_id=run.id))


async def test_a_watcher_resumes_at_any_cursor_and_sees_progress_if_it_asks(client: Client) -> None:
    run = await start(client, "watched")
    busy, quiet = RunView(run.id), RunView(run.id)
    async with asyncio.TaskGroup() as watchers:
        watchers.create_task(busy.watch(client, include_progress=True))
        watchers.create_task(quiet.watch(client))
        # Progress is not recorded: the task starts after its watcher is there.
        await busy.until(lambda: busy.events)
        await signal(client, run, 1)
    assert busy.events == quiet.events and not quiet.progress
    steps = [p.step.step_id for p in busy.progress if p.HasField("step") and p.node_id == "nap"]
    assert {"nap", "note"} <= set(steps)
    for cursor in range(busy.cursor + 1):
        late = RunView(run.id, cursor=cursor)
        await late.watch(client) if cursor < busy.cursor else None
        assert late.events == busy.events[cursor:]
    beyond = RunView(run.id, cursor=busy.cursor + 1)
    assert (await rejected(beyond.watch(client)))[0] == "CURSOR_OUT_OF_RANGE"


# --- forks --------------------------------------------------------------------------------------------


async def fork(client: Client, run: run_pb2.Run, **fields: Any) -> run_pb2.Run:
    return (await client.coordinator.ForkRun(pb.ForkRunRequest(run_id=run.id, **fields))).run


async def test_a_run_is_forked_at_every_node_inside_a_fan_out_too(client: Client) -> None:
    run = await start(client, "each", {"by": 2}, wait_ms=10_000)
    for ordinal in range(1, run.node_execution_count + 1):
        forked, _ = await ended(client, await fork(client, run, before_node_execution=ordinal))
        assert output(forked) == {"all": [2, 4, 6], "word": "none"}, ordinal
        assert forked.forked_from_run_id == run.id
    assert (await get(client, run.id)).etag == run.etag, "the old one stays as it was"


async def test_a_fork_goes_on_with_another_input_state_or_revision(client: Client) -> None:
    run = await start(client, "each", {"by": 101}, wait_ms=10_000)
    assert run.status == run_pb2.RUN_STATUS_FAILED
    run = await get(client, run.id)
    changed = await fork(client, run, before_node_execution=2, input=struct(by=3))
    # Before the first branch: all three run again with it; what had come is kept where they had.
    assert output((await ended(client, changed))[0])["all"] == [3, 6, 9]
    meet = next(e.ordinal for e in run.node_executions if e.node_id == "meet")
    state = struct(n=[1, 2, 3], all=["x"], word="yes")
    changed = await fork(client, run, before_node_execution=meet, state=state, input=struct(by=1))
    assert output((await ended(client, changed))[0]) == {"all": ["x"], "word": "yes"}


MENDED = """
name: mended
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '3'}, output_mapping: {state.n: result.value}}
    - {id: check, task_id: WHAT, input_mapping: {value: state.n}, output_mapping: {output.n: result.value}}
  transitions: [{from_node_id: begin, to_node_id: check}]
"""


async def test_a_failed_run_goes_on_with_the_workflow_mended(client: Client) -> None:
    broken = MENDED.replace("WHAT", "fails").replace("result.value}}\n  tr", "'1'}}\n  tr")
    await client.apply(LIBRARY, broken)
    run = await start(client, "mended", wait_ms=10_000)
    assert run.status == run_pb2.RUN_STATUS_FAILED
    await client.apply(LIBRARY, MENDED.replace("WHAT", "note"))
    forked = await fork(client, run, before_node_execution=2, workflow_revision=2)
    assert output((await ended(client, forked))[0]) == {"n": 3}
    same = await fork(client, run, before_node_execution=2)
    assert reason((await ended(client, same))[0]) == reason(run)


async def test_a_running_run_is_forked_and_both_go_on(client: Client) -> None:
    run = await start(client, "two_waits")
    await signal(client, run, 1)
    now = await reached(client, run, "WAITING_FOR_SIGNAL")
    forked = await fork(client, run, after_sequence=now.last_sequence, request_id="fork of running")
    again = await fork(client, run, after_sequence=now.last_sequence, request_id="fork of running")
    assert again.id == forked.id
    await signal(client, run, 2)
    await signal(client, forked, 3)
    assert output((await ended(client, run))[0]) == {"first": 1, "second": 2}
    assert output((await ended(client, forked))[0]) == {"first": 1, "second": 3}
