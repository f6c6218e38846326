"""Shared parts of the loop's tests: a journal that can be held and broken, a clock, timers and a stage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.core.conversation.conversation_kit import ASSEMBLED, NOW, new_conversation, send
from wonder_server.actors.directory import Directory
from wonder_server.actors.dispatch.partial_texts import PartialTexts
from wonder_server.actors.runs.replay import replay
from wonder_server.actors.runtime.actor import Actor, Batch, Outcome
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.adapters.in_memory.journal import MemoryJournal, MemoryShards
from wonder_server.adapters.in_memory.record_store import MemoryRecordStore
from wonder_server.adapters.placement.local import LocalPlacement
from wonder_server.core import ids
from wonder_server.core.actor.commands import CallModel, Command, RunTask, RunWorkflow
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model.inputs import Start
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey, Origin
from wonder_server.core.identity import ANONYMOUS, Principal, PrincipalKind
from wonder_server.core.json_types import JsonValue
from wonder_server.ports.journal import Commit, Event, Journal, Loaded

SHARD = "0"

LIMITS = LoopLimits(idle_actors=100, time_slice_s=60.0, reload_after_s=0.0, flush_after_s=3600.0)
"""Slices that do not end and volatile commits that are not written by time, since a test must not depend on
the load of the machine; no pause before a reload."""


EVERYWHERE = LocalPlacement(dict.fromkeys(range(ids.SHARDS), 0))
"""A placement of all shards on this node. Its epoch is that of a store whose epochs were never raised."""


def nth_conversation_id(number: int) -> str:
    return f"conv_01HF7YAT00000000000000{number:03}{SHARD}"


CONVERSATION_ID = nth_conversation_id(1)


class FakeClock:
    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        return self.now


class FakeTimers:
    """The event loop's ``call_later``, under the control of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set: list[tuple[float, asyncio.TimerHandle]] = []
        """Delays and handles of the timers that are set."""
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(self._loop, "call_later", self._call_later)

    def _call_later(
        self, delay: float, callback: Callable[..., None], *arguments: object
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(delay, callback, arguments, self._loop)
        self.set.append((delay, handle))
        return handle

    def fire(self) -> list[float]:
        """Fire all timers that are set now, and return the delays that they were set with."""
        fired, self.set = [each for each in self.set if not each[1].cancelled()], []
        for _, handle in fired:
            handle._run()
        return [delay for delay, _ in fired]


class TestJournal(MemoryJournal):
    """A journal in memory. Its commits wait while it is held, and fail while it is broken."""

    __test__ = False

    def __init__(
        self, planners: Sequence[Planner] = (CONVERSATION, RUN), store: MemoryRecordStore | None = None
    ) -> None:
        super().__init__(planners, store)
        self.transactions: list[list[Commit]] = []
        """The transactions so far, each with its commits."""
        self.loads = 0
        self.fails = False
        self.fails_for = ""
        """The id of an actor whose commits fail."""
        self.loads_fail = False
        self.unwritable_output: JsonValue = None
        """An output; a commit that holds an input with it fails permanently."""
        self._held: list[tuple[Sequence[Commit], asyncio.Future[object]]] | None = None

    def hold(self) -> None:
        self._held = []

    def release(self, count: int | None = None) -> None:
        """Complete the first ``count`` held commits. By default, complete all and hold no more."""
        waiting = self._held or []
        for commits, future in waiting[:count]:
            self._complete(commits, future)
        self._held = None if count is None else waiting[count:]

    @property
    def held(self) -> int:
        """Number of held commits."""
        return len(self._held or ())

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self._held is not None:
            self._held.append((list(commits), future))
        else:
            self._complete(commits, future)
        return future

    def write(self, commits: Sequence[Commit]) -> None:
        if self.fails or any(commit.actor_id == self.fails_for for commit in commits):
            raise error(Reason.STORAGE_UNAVAILABLE, "The disk is full.", transient=True)
        inputs = [entry.input for commit in commits for entry in commit.entries]
        if self.unwritable_output and any(
            getattr(event, "output", None) == self.unwritable_output for event in inputs
        ):
            raise ValueError("This cannot be written.")
        super().write(commits)
        self.transactions.append(list(commits))

    def _complete(self, commits: Sequence[Commit], future: asyncio.Future[object]) -> None:
        try:
            self.write(commits)
            future.set_result(None)
        except Exception as failure:
            future.set_exception(failure)

    async def load(self, actor_id: str) -> Loaded | None:
        self.loads += 1
        if self.loads_fail:
            raise error(Reason.STORAGE_UNAVAILABLE, "The disk is away.", transient=True)
        return await super().load(actor_id)


class NoHome:
    """A loop that does nothing."""

    def work(self, actor: Actor) -> None: ...

    def submit_if_due(self, actor: Actor) -> None: ...

    def on_flush_due(self, actor: Actor, batch: Batch) -> bool:
        return True


async def run_ready_tasks() -> None:
    """Run all tasks that are ready. No test waits for real time."""
    for _ in range(60):
        await asyncio.sleep(0)


class Stage:
    """A loop whose handlers are the test: it records commands and events."""

    def __init__(
        self,
        journal: TestJournal | None = None,
        *,
        limits: LoopLimits = LIMITS,
        conversation: Planner = CONVERSATION,
        run: Planner = RUN,
    ) -> None:
        self.journal = journal or TestJournal((conversation, run))
        self.clock = FakeClock()
        self.commands: list[Command] = []
        self.events: list[Event] = []
        self.streams = StreamHub(1000, 1_000_000)
        self.directory = Directory(self.streams, MemoryShards(self.journal))
        self.partial_texts = PartialTexts(self.streams)
        self.loop = self.directory.start_loops(
            (conversation, run),
            LoopPorts(
                journal_of=self._journal_of,
                clock=self.clock,
                dispatch=self._dispatch,
                publish=self._publish,
                on_result=self._on_result,
                complete_input=self.partial_texts.complete_input,
                on_planned=self._on_planned,
                on_discarded=self.streams.release_text,
            ),
            limits,
            EVERYWHERE,
        )

    def _journal_of(self, actor_id: str) -> Journal:
        return self.journal

    def _dispatch(self, actor_id: str, command: Command) -> None:
        self.commands.append(command)

    def _on_result(self, operation_id: str) -> None:
        """Do nothing; a stage with handlers releases their quota."""

    def _on_planned(self, actor_id: str, _state: object, event: object, decisions: Sequence[object]) -> None:
        self.partial_texts.hold_ended(actor_id, decisions)

    def _publish(self, actor_id: str, events: list[Event]) -> None:
        assert all(event.actor_id == actor_id for event in events)
        self.events.extend(events)
        self.streams.publish(actor_id, events)

    def ask_in_background(
        self,
        event: object,
        request: IdempotencyKey | None = None,
        actor: str = CONVERSATION_ID,
        *,
        caller: str = "",
        fresh: bool = False,
    ) -> asyncio.Task[Outcome]:
        asking = self.loop.ask(actor, event, request, caller=caller, fresh=fresh)
        return asyncio.get_running_loop().create_task(asking)

    async def open(self, actor: str = CONVERSATION_ID) -> None:
        await self.loop.ask(actor, new_conversation(actor))

    async def send(self, seed: str = "seed", actor: str = CONVERSATION_ID, **fields: object) -> Outcome:
        return await self.loop.ask(actor, send(seed, **fields))

    def state(self, actor: str = CONVERSATION_ID) -> ConversationState:
        state = self.loop.peek(actor)
        assert isinstance(state, ConversationState)
        return state

    def run_commands(self) -> list[RunWorkflow]:
        return [command for command in self.commands if isinstance(command, RunWorkflow)]

    def tasks(self) -> list[RunTask]:
        return [command for command in self.commands if isinstance(command, RunTask)]

    def model_calls(self) -> list[CallModel]:
        return [command for command in self.commands if isinstance(command, CallModel)]

    def start(self, command: RunWorkflow, *, fresh: bool = False) -> None:
        """Start the run of a command, as its handler does."""
        self.loop.tell(
            command.run_id,
            Start(
                run_id=command.run_id,
                workflow=command.workflow,
                input=command.input,
                scope=command.scope,
                parent=command.parent,
                volatile=command.volatile,
            ),
            fresh=fresh,
        )

    def sequences(self, actor: str = CONVERSATION_ID) -> list[int]:
        return [event.sequence for event in self.events if event.actor_id == actor]

    def recorded(self, actor: str) -> list[str]:
        """Return the names of an actor's recorded events, published or not."""
        return [event.emit.name for event in self.journal.actors[actor].events]

    def names(self, actor: str = CONVERSATION_ID) -> list[str]:
        return [event.emit.name for event in self.events if event.actor_id == actor]


async def error_reason(asking: asyncio.Task[Outcome]) -> Reason:
    with pytest.raises(WonderError) as refused:
        await asking
    return refused.value.fault.reason


async def wait_for_assembly(stage: Stage, **fields: object) -> str:
    """Start a turn that waits for its model. Return the id of the model's operation."""
    await stage.open()
    await stage.send(**fields)
    stage.loop.report_success(CONVERSATION_ID, stage.run_commands()[-1].operation_id, ASSEMBLED)
    await run_ready_tasks()
    return stage.model_calls()[-1].operation_id


async def assert_replays(stage: Stage, actor: str = CONVERSATION_ID) -> None:
    planner = RUN if actor.startswith("run_") else CONVERSATION
    result = replay(planner, await stage.journal.entries(actor, 0, 1000))
    assert result.difference is None
    assert result.steps


def origin(request_id: str = "", name: str = "") -> Origin:
    """Return the origin of a request: of the token ``name``, or of an anonymous caller."""
    principal = Principal(kind=PrincipalKind.TOKEN, subject=name) if name else ANONYMOUS
    return Origin(principal, request_id)
