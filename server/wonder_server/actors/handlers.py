"""Handlers: they carry out what was decided, after it is on disk, and send back what came of it.

One asyncio task per operation. A command may come twice (after a crash, or for a retry); the operation's
id is the key that keeps effects single. When the server stops, handlers are cancelled and say nothing:
their operations are still in the outbox, and the next start hands them out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, assert_never

from wonder_server.actors.incidents import unexpected
from wonder_server.actors.loop import Loop
from wonder_server.actors.streams import Streams
from wonder_server.core.commands import (
    Answer,
    ApplyMemory,
    CallModel,
    Command,
    RunTask,
    RunWorkflow,
    Scope,
    Stop,
)
from wonder_server.core.conversation.inputs import Failed, ModelAnswered
from wonder_server.core.coordinator.inputs import CancelRun, Start
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.ports.model import Finished, Model, TextDelta

Work = Callable[[], Awaitable[Callable[[], None]]]
"""Does an operation and returns how to report it. Called in the operation's own task, so that one that is
stopped before it began leaves nothing behind."""


class TaskOutcome(Protocol):
    """How a task ended: exactly one of the two is set."""

    @property
    def output(self) -> dict[str, Any] | None: ...

    @property
    def fault(self) -> Fault | None: ...


class Tasks(Protocol):
    """What runs tasks: the executor."""

    async def execute(self, task: PinnedTask, input: Mapping[str, Any], context: Scope, /) -> TaskOutcome: ...


class MemoryOperations(Protocol):
    """What applies a memory operation that an extraction returned as data."""

    async def apply(self, operation: Mapping[str, Any], scope: Scope) -> dict[str, Any]: ...


class Handlers:
    """Carries out commands. Give it the loop with `attach` before the first command."""

    def __init__(self, *, tasks: Tasks, model: Model, memory: MemoryOperations, streams: Streams) -> None:
        self._tasks = tasks
        self._model = model
        self._memory = memory
        self._streams = streams
        self._loop: Loop | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def attach(self, loop: Loop) -> None:
        """Where results go."""
        self._loop = loop

    @property
    def running(self) -> int:
        """Operations under way."""
        return len(self._running)

    def dispatch(self, actor_id: str, command: Command) -> None:
        """Start carrying ``command`` out; returns at once."""
        if self._stopping:
            return
        match command:
            case CallModel():
                self._begin(command.operation_id, actor_id, lambda: self._call_model(actor_id, command))
            case RunTask():
                self._begin(command.operation_id, actor_id, lambda: self._run_task(actor_id, command))
            case ApplyMemory():
                self._begin(command.operation_id, actor_id, lambda: self._apply_memory(actor_id, command))
            case RunWorkflow():
                self._start_run(command)
            case Stop():
                self._stop(command)
            case Answer():
                raise AssertionError("the loop delivers answers itself")
            case _:
                assert_never(command)

    async def stop(self) -> None:
        """Cancel everything under way; nothing of it is reported."""
        self._stopping = True
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # --- one operation --------------------------------------------------------------------------

    @property
    def _actors(self) -> Loop:
        assert self._loop is not None, "attach comes first"
        return self._loop

    def _begin(self, operation_id: str, actor_id: str, work: Work) -> None:
        before = self._running.pop(operation_id, None)
        if before is not None:
            before.cancel()
        task = asyncio.get_running_loop().create_task(self._carry_out(operation_id, actor_id, work))
        self._running[operation_id] = task

    async def _carry_out(self, operation_id: str, actor_id: str, work: Work) -> None:
        """Do the work, then report it; a cancelled operation reports nothing."""
        try:
            report = await work()
        except WonderError as problem:
            report = partial(self._actors.failed, actor_id, operation_id, problem.fault)
        except Exception:
            fault = unexpected("handler_failed", actor=actor_id, operation=operation_id)
            report = partial(self._actors.failed, actor_id, operation_id, fault)
        finally:
            if self._running.get(operation_id) is asyncio.current_task():
                del self._running[operation_id]
        if not self._stopping:
            report()

    async def _call_model(self, actor_id: str, command: CallModel) -> Callable[[], None]:
        streams, message_id = self._streams, command.message_id
        streams.begin(actor_id, command.turn_id, message_id, command.dispatches)
        chunks = self._model.stream(command.profile, command.request)
        result, said = None, list[str]()
        fault = Fault(
            reason=Reason.MODEL_UNAVAILABLE, message="The model's answer broke off.", transient=True
        )
        try:
            async for chunk in chunks:
                if isinstance(chunk, TextDelta):
                    said.append(chunk.text)
                    streams.say(actor_id, message_id, chunk.text)
                elif isinstance(chunk, Finished):
                    result = chunk.result
        except WonderError as problem:
            fault = problem.fault
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        if result is None:
            failed = Failed(operation_id=command.operation_id, fault=fault, spoken="".join(said))
            return lambda: self._actors.tell(actor_id, failed)
        answered = ModelAnswered(operation_id=command.operation_id, result=result)
        return lambda: self._actors.tell(actor_id, answered)

    async def _run_task(self, actor_id: str, command: RunTask) -> Callable[[], None]:
        outcome = await self._tasks.execute(command.task, command.input, command.scope)
        fault = outcome.fault
        if fault is not None:
            return lambda: self._actors.failed(actor_id, command.operation_id, fault)
        output = outcome.output or {}
        return lambda: self._actors.succeeded(actor_id, command.operation_id, output)

    async def _apply_memory(self, actor_id: str, command: ApplyMemory) -> Callable[[], None]:
        output = await self._memory.apply(command.operation, command.scope)
        return lambda: self._actors.succeeded(actor_id, command.operation_id, output)

    def _start_run(self, command: RunWorkflow) -> None:
        start = Start(
            run_id=command.run_id,
            workflow=command.workflow,
            input=command.input,
            scope=command.scope,
            parent=command.parent,
            volatile=command.volatile,
        )
        if command.fresh:
            self._actors.new(command.run_id)
        self._actors.tell(command.run_id, start)

    def _stop(self, command: Stop) -> None:
        task = self._running.pop(command.operation_id, None)
        if task is not None:
            task.cancel()
        if command.run_id:
            self._actors.tell(command.run_id, CancelRun(reason="Nobody waits for it any more."))
