"""Remote workers as operators have them: processes that are killed, hang, are stopped (features H4, I4)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from google.protobuf.json_format import MessageToDict
from grpc import aio

from tests.e2e.client import PATIENCE_S, Client, struct
from tests.e2e.launch import ROOT
from tests.e2e.process import Server, serving
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2, run_pb2, task_pb2
from wonder.v1 import executor_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLE = ROOT / "examples" / "worker"
PATHS = os.pathsep.join(str(ROOT / part) for part in (".", "server", "gen/python", "sdk/python"))
TASK = """
name: {name}
task:
  steps:
    - id: act
      action: {{kind: worker, config: {{name: {kind}}}, timeout_ms: {timeout_ms}, backoff_ms: 1{more}}}
      input_mapping: {{input: input}}
      output_mapping: {{output.by: result.by, output.attempt: result.attempt}}
"""
WORKFLOW = """
name: run_{name}
workflow:
  nodes:
    - id: act
      task_id: {name}
      input_mapping: {{hold: input.hold}}
      output_mapping: {{output.by: result.by}}
"""
SHORT_LEASES = {"WONDER_WORKER_LEASE_SECONDS": "2"}


class WorkerProcess:
    """A process of `tests.e2e.worker_process`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def until(self, event: str) -> dict[str, Any]:
        """Return the next line with this event."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            async for line in self.process.stdout:
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]
        raise AssertionError(f"ended before '{event}': {self.lines}")

    def go(self) -> None:
        """Release the held call."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


class Shop:
    """A server, its client, and the workers that a test starts."""

    def __init__(self, server: Server, client: Client, stack: AsyncExitStack) -> None:
        self.server, self.client, self._stack = server, client, stack

    async def worker(self, name: str) -> WorkerProcess:
        """Start a worker and wait until it is registered."""
        before = await self.workers()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.e2e.worker_process", name, self.server.address,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": PATHS},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._stack.push_async_callback(_end, process)
        await self.until_workers(before + 1)
        return WorkerProcess(process)

    async def workers(self) -> int:
        """Return the number of workers for ``again`` that the server knows."""
        answer = await self.client.executor.ListActionKinds(pb.ListActionKindsRequest(page_size=100))
        return next((each.worker_count for each in answer.action_kinds if each.name == "again"), 0)

    async def until_workers(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.workers() != count:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0.01)

    def ask(self, task: str, **input: Any) -> asyncio.Task[task_pb2.TaskResult]:
        request = pb.ExecuteTaskRequest(task_id=f"e2e/workers/{task}", input=struct(**input))

        async def execute() -> task_pb2.TaskResult:
            return (await self.client.executor.ExecuteTask(request, timeout=60)).result

        return asyncio.create_task(execute())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    await process.wait()
    assert process.stdin is not None
    process.stdin.close()


@asynccontextmanager
async def shop(server: Server) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(server.client())
        tasks = [
            TASK.format(name="once", kind="once", timeout_ms=60_000, more=""),
            TASK.format(name="again", kind="again", timeout_ms=60_000, more=""),
            TASK.format(name="defined", kind="once", timeout_ms=60_000, more=", idempotent: true"),
            TASK.format(name="absent", kind="absent", timeout_ms=50, more=""),
            WORKFLOW.format(name="once"),
            WORKFLOW.format(name="defined"),
        ]
        await client.apply("e2e/workers", "\n---\n".join(tasks))
        yield Shop(server, client, stack)


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Shop]:
    """Start a server for one test."""
    async with serving(tmp_path / "data") as server, shop(server) as opened:
        yield opened


def output(result: task_pb2.TaskResult) -> dict[str, Any]:
    assert not result.HasField("error"), result.error
    given: dict[str, Any] = MessageToDict(result.output)
    return given


async def test_a_worker_does_what_a_task_asks_for_and_its_progress_is_seen(here: Shop) -> None:
    await here.worker("ada")
    assert output(await here.ask("once")) == {"by": "ada", "attempt": 1}
    items = [
        item
        async for item in here.client.executor.StreamTask(
            pb.StreamTaskRequest(task_id="e2e/workers/once", input=struct(a=1))
        )
    ]
    progress = [item.progress.progress for item in items if item.HasField("progress")]
    assert [(each.message, each.fraction) for each in progress] == [("at it", 0.25)]


async def test_what_a_worker_reports_fails_the_task_or_is_tried_again(here: Shop) -> None:
    ada = await here.worker("ada")
    result = await here.ask("once", fail="The scanner is out of paper.")
    assert result.error.reason == errors_pb2.ERROR_REASON_TASK_FAILED
    assert result.error.message == "The scanner is out of paper."
    assert result.steps[0].attempts == 1
    result = await here.ask("once", fail="Busy.", fail_until=9)
    assert result.steps[0].attempts == 3
    operation = (await ada.until("begun"))["operation"]
    attempts = [(await ada.until("begun")) for _ in range(3)]
    assert {each["operation"] for each in attempts} != {operation} and len(
        {each["operation"] for each in attempts}
    ) == 1
    assert [each["attempt"] for each in attempts] == [1, 2, 3]


async def test_without_a_worker_the_task_says_so(here: Shop) -> None:
    result = await here.ask("absent")
    assert result.error.reason == errors_pb2.ERROR_REASON_TIMEOUT
    assert "No worker for 'absent' is connected" in result.error.message
    assert result.steps[0].attempts == 1


async def test_idempotent_work_of_a_killed_worker_is_done_by_another(here: Shop) -> None:
    ada = await here.worker("ada")
    asked = here.ask("again", hold=1)
    begun = await ada.until("begun")
    bob = await here.worker("bob")
    ada.signal(signal.SIGKILL)
    assert output(await asked) == {"by": "bob", "attempt": 2}
    assert (await bob.until("begun"))["operation"] == begun["operation"]
    await here.until_workers(1)


async def test_other_work_of_a_killed_worker_ends_as_unknown(here: Shop) -> None:
    ada = await here.worker("ada")
    asked = here.ask("once", hold=1)
    begun = await ada.until("begun")
    await here.worker("bob")
    ada.signal(signal.SIGKILL)
    result = await asked
    assert result.error.reason == errors_pb2.ERROR_REASON_OUTCOME_UNKNOWN
    assert result.error.metadata["operation_id"] == begun["operation"]
    assert result.steps[0].attempts == 1
    # The remaining worker goes on.
    assert output(await here.ask("once"))["by"] == "bob"


async def test_a_worker_that_hangs_loses_its_work_and_its_answer_comes_too_late(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", environment=SHORT_LEASES) as server, shop(server) as here:
        ada = await here.worker("ada")
        asked = here.ask("again", hold=1)
        await ada.until("begun")
        await here.worker("bob")
        ada.signal(signal.SIGSTOP)
        assert output(await asked) == {"by": "bob", "attempt": 2}
        await here.until_workers(1)
        ada.go()
        ada.signal(signal.SIGCONT)
        await here.until_workers(2)


async def test_a_cancelled_task_stops_its_worker(here: Shop) -> None:
    ada = await here.worker("ada")
    asked = here.ask("once", hold=1)
    begun = await ada.until("begun")
    asked.cancel()
    assert (await ada.until("cancelled"))["operation"] == begun["operation"]
    assert output(await here.ask("once"))["by"] == "ada"


async def test_a_worker_that_is_terminated_finishes_what_it_has(here: Shop) -> None:
    ada = await here.worker("ada")
    asked = here.ask("once", hold=1)
    await ada.until("begun")
    ada.signal(signal.SIGTERM)
    bob = await here.worker("bob")
    assert output(await here.ask("once"))["by"] == "bob"
    await bob.until("done")
    ada.go()
    assert output(await asked) == {"by": "ada", "attempt": 1}
    await ada.until("left")
    assert await ada.ended() == 0


async def test_a_server_that_stops_takes_results_and_workers_come_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as server:
        async with shop(server) as opened:
            ada = await opened.worker("ada")
            asked = opened.ask("once", hold=1)
            await ada.until("begun")
            server.terminate()
            await server.logged("draining")
            ada.go()
            assert output(await asked) == {"by": "ada", "attempt": 1}
            assert await server.ended() == 0
            async with (
                serving(data, "--listen", server.address) as again,
                shop(again) as reopened,
            ):
                await reopened.until_workers(1)
                assert output(await reopened.ask("once"))["by"] == "ada"


async def test_workers_let_go_of_what_they_have_when_the_server_is_killed_and_come_back(
    tmp_path: Path,
) -> None:
    server = await Server(tmp_path / "data").start()
    async with shop(server) as opened:
        ada = await opened.worker("ada")
        asked = opened.ask("again", hold=1)
        await ada.until("begun")
        await server.kill()
        await ada.until("cancelled")
        with pytest.raises(aio.AioRpcError):
            await asked
        async with (
            serving(tmp_path / "data", "--listen", server.address) as again,
            shop(again) as reopened,
        ):
            await reopened.until_workers(1)
            assert output(await reopened.ask("again"))["by"] == "ada"


@pytest.mark.parametrize("task", ["once", "defined"])
async def test_a_runs_work_after_a_crash_of_the_server_is_repeated_only_if_its_definition_says_so(
    data: Path, task: str
) -> None:
    start = runs.StartRunRequest(
        workflow_id=f"e2e/workers/run_{task}", input=struct(hold=1), request_id="r", wait_ms=30_000
    )
    server = await Server(data).start()
    async with shop(server) as opened:
        ada = await opened.worker("ada")
        started = asyncio.ensure_future(opened.client.coordinator.StartRun(start))
        begun = await ada.until("begun")
        await server.kill()
        await ada.until("cancelled")
        await asyncio.gather(started, return_exceptions=True)
        async with serving(data, "--listen", server.address) as again, again.client() as client:
            asked = asyncio.ensure_future(client.coordinator.StartRun(start))
            if task == "defined":
                assert (await ada.until("begun"))["operation"] == begun["operation"]
                ada.go()
            run = (await asked).run
            if task == "defined":
                assert run.status == run_pb2.RUN_STATUS_COMPLETED, run
                assert MessageToDict(run.output) == {"by": "ada"}
            else:
                assert run.status == run_pb2.RUN_STATUS_FAILED
                assert run.error.reason == errors_pb2.ERROR_REASON_OUTCOME_UNKNOWN


async def test_the_example(here: Shop) -> None:
    documents = [
        document
        for file in sorted(EXAMPLE.glob("*.yaml"))
        if file.name != "library.yaml"
        for document in yaml.safe_load_all(file.read_text())
    ]
    await here.client.apply("examples/words", "\n---\n".join(map(json.dumps, documents)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE / "worker.py"),
        env={**os.environ, "PYTHONPATH": PATHS, "WONDER_SERVER": here.server.address},
    )  # fmt: skip
    try:
        request = pb.ExecuteTaskRequest(
            task_id="examples/words/count_words",
            input=struct(text="one fish two fish red fish two"),
        )
        result = (await here.client.executor.ExecuteTask(request, timeout=60)).result
        assert output(result) == {"total": 7, "frequent": ["fish", "two"]}
        request.input.CopyFrom(struct(text=" "))
        result = (await here.client.executor.ExecuteTask(request, timeout=60)).result
        assert result.error.message == "There is no text to count words in."
        # A job in the background of a shell ignores SIGINT, and so do those that it starts.
        deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        process.send_signal(signal.SIGTERM if deaf else signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
