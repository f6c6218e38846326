"""The loop, written once: receive ─▶ plan ─▶ apply ─▶ dispatch.

Every conversation and every workflow run is an actor: a mailbox and a working set. While its mailbox is
empty it has no task and no thread, and when nothing is pending either it may leave memory altogether.

One *round* takes what lies in the mailbox, plans each input against the working set, applies the decisions
to it, and writes it all in one commit: inputs and decisions (the journal), rows, events and outbox. Only
then are events shown, commands handed out and callers answered. While a commit is under way the next
inputs gather, so a busy actor commits in batches.

A run whose work so far may simply be done again (`Planner.must_commit`) is not committed: its writes are
kept and travel with its answer, into the commit of whoever waits for it.

If a commit fails, the working set is thrown away with it: callers are told, and the actor is loaded again
from what is on disk. Results of operations are not lost with it: they are told again. An input that breaks
the planner, or that cannot be written, fails what it was about instead.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wonder_server.actors.incidents import unexpected
from wonder_server.actors.requests import first_answer
from wonder_server.actors.wakes import Wakes
from wonder_server.core.commands import Answer, Command
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.planner import Planner
from wonder_server.core.records import Delete, Emit, Put
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Answered, Commit, Entry, Event, Journal, Request

_log = logger("actors")

ROUND = 64
"""Inputs that one commit takes at most."""

REQUESTS_AT_HAND = 256
"""Requests that an actor in memory remembers the answers to; older ones are looked up."""

RELOAD_AFTER_S = 1.0
"""How long an actor waits after a failed round before it is loaded again, unless somebody asks sooner."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a caller of `Loop.ask` is told, once it is on disk.

    ``decisions`` are empty if the request was carried out before; ``answer`` is what it was told then, and
    is told now: ids by name, and ``first_sequence`` and ``last_sequence`` of the events it led to.
    """

    decisions: tuple[Any, ...]
    answer: dict[str, str]


@dataclass(slots=True)
class _Envelope:
    input: Any
    reply: asyncio.Future[Outcome] | None = None
    request: Request | None = None
    carried: tuple[Commit, ...] = ()


@dataclass(slots=True)
class _Actor:
    id: str
    planner: Planner
    state: Any = None
    entry_head: int = 0
    event_head: int = 0
    mailbox: deque[_Envelope] = field(default_factory=deque)
    running: bool = False
    on_disk: bool = False
    """Whether it was ever written; then what is on disk may not fall behind, volatile or not."""
    kept: list[Commit] = field(default_factory=list)
    """Writes of a volatile run, waiting for its answer to carry them."""
    answered: OrderedDict[tuple[str, str], Answered] = field(default_factory=OrderedDict)
    """Requests carried out lately, by scope and id."""
    knows_all_answered: bool = False
    """Whether ``answered`` holds every request there ever was, so that the store need not be asked."""


@dataclass(slots=True)
class _Interrupted:
    """What an actor is to be told first when it is loaded: inputs, and that each operation of its outbox
    is to be handed out again."""

    left: list[_Envelope] = field(default_factory=list)
    restart: bool = False


@dataclass(slots=True)
class _Round:
    """What one round has gathered: what to write, and what to do once it is written."""

    commit: Commit
    must_commit: bool = False
    carried: list[Commit] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    wakes: dict[str, int] = field(default_factory=dict)
    """Operation id -> when it wants to be woken; 0 to forget it."""
    replies: list[tuple[_Envelope, Outcome | WonderError]] = field(default_factory=list)


class Loop:
    """All actors of this process.

    ``journal_of(actor_id)`` finds the actor's shard; ``dispatch(actor_id, command)`` hands a command to its
    handler and returns at once; ``publish(actor_id, events)`` shows events to whoever is attached.
    """

    def __init__(
        self,
        planners: Iterable[Planner],
        journal_of: Callable[[str], Journal],
        clock: Clock,
        *,
        dispatch: Callable[[str, Command], None],
        publish: Callable[[str, list[Event]], None],
        idle_limit: int,
        idle_bytes: int,
    ) -> None:
        self._planners: Mapping[str, Planner] = {p.prefix: p for p in planners}
        self._journal_of = journal_of
        self._clock = clock
        self._dispatch = dispatch
        self._publish = publish
        self._idle_limit = idle_limit
        self._idle_bytes_limit = idle_bytes
        self._idle_bytes = 0
        self._actors: dict[str, _Actor] = {}
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._interrupted: dict[str, _Interrupted] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakes = Wakes(clock, self._wake)
        self._stopping = False

    # --- receive --------------------------------------------------------------------------------

    def new(self, actor_id: str) -> None:
        """Say that the actor of this fresh id was never written, so that the store need not be asked."""
        if actor_id not in self._actors and not self._stopping:
            actor = self._actor(actor_id)
            actor.state, actor.knows_all_answered = actor.planner.new_state(), True

    async def ask(self, actor_id: str, event: Any, request: Request | None = None) -> Outcome:
        """Send an input and wait until what it led to is on disk.

        Raises the fault that the planner refuses with, REQUEST_ID_REUSED, or STORAGE_UNAVAILABLE.
        """
        if self._stopping:
            raise error(
                Reason.SERVER_DRAINING, "The server is shutting down; try again.", retry_after_ms=1000
            )
        reply: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._post(actor_id, _Envelope(event, reply, request))
        return await reply

    def tell(self, actor_id: str, event: Any, carried: tuple[Commit, ...] = ()) -> None:
        """Send an input that nobody waits for."""
        self._post(actor_id, _Envelope(event, carried=carried))

    def succeeded(self, actor_id: str, operation_id: str, output: Any) -> None:
        """An operation of the actor came to a good end."""
        self.tell(actor_id, self.planner_of(actor_id).succeeded(operation_id, output, ""))

    def failed(self, actor_id: str, operation_id: str, fault: Any) -> None:
        """An operation of the actor failed."""
        self.tell(actor_id, self.planner_of(actor_id).failed(operation_id, fault, ""))

    def planner_of(self, actor_id: str) -> Planner:
        return self._planners[actor_id.partition("_")[0]]

    def peek(self, actor_id: str) -> Any | None:
        """The actor's working set if it is in memory; for a look, it may be ahead of what is on disk."""
        actor = self._actors.get(actor_id)
        return None if actor is None else actor.state

    @property
    def live(self) -> int:
        """Actors in memory."""
        return len(self._actors)

    def _post(self, actor_id: str, envelope: _Envelope) -> None:
        if self._stopping:
            return
        actor = self._actor(actor_id)
        actor.mailbox.append(envelope)
        self._run(actor)

    def _actor(self, actor_id: str) -> _Actor:
        actor = self._actors.get(actor_id)
        if actor is None:
            actor = self._actors[actor_id] = _Actor(actor_id, self.planner_of(actor_id))
        return actor

    def _run(self, actor: _Actor) -> None:
        if actor.running:
            return
        actor.running = True
        self._idle_bytes -= self._idle.pop(actor.id, 0)
        task = asyncio.get_running_loop().create_task(self._drain(actor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self, actor: _Actor) -> None:
        try:
            if actor.state is None:
                await self._load(actor)
            while actor.mailbox:
                await self._round(actor)
        except WonderError as problem:
            self._give_up(actor, problem)
        except Exception:
            self._give_up(actor, WonderError(unexpected("actor_failed", actor=actor.id)))
        finally:
            actor.running = False
        self._settle(actor)

    async def _load(self, actor: _Actor) -> None:
        planner = actor.planner
        loaded = await self._journal_of(actor.id).load(actor.id, planner)
        interrupted = self._interrupted.pop(actor.id, None) or _Interrupted()
        told = interrupted.left
        if loaded is None:
            actor.state = planner.new_state()
            actor.knows_all_answered = True
        else:
            actor.state = planner.restore(loaded.rows)
            actor.entry_head, actor.event_head = loaded.entry_head, loaded.event_head
            actor.on_disk = True
            for operation in loaded.rows["operations"]:
                self._wakes.set(actor.id, operation.id, operation.wake_ms)
            if interrupted.restart:
                # After the results that are told again: what they close is not done again.
                told += [_Envelope(planner.restarted(each)) for each in planner.pending(actor.state)]
        actor.mailbox.extendleft(reversed(told))

    # --- plan, apply ----------------------------------------------------------------------------

    async def _round(self, actor: _Actor) -> None:
        gathered = _Round(Commit(actor.id, actor.planner))
        taken: list[_Envelope] = []
        try:
            while actor.mailbox and len(taken) < ROUND:
                envelope = actor.mailbox.popleft()
                taken.append(envelope)
                if not await self._repeated(actor, envelope, gathered):
                    self._step(actor, envelope, gathered)
            await self._commit(actor, gathered)
        except BaseException:
            # What was taken but not written goes back, for `_give_up` to answer.
            actor.mailbox.extendleft(reversed(taken))
            raise
        self._after(actor, gathered)

    async def _repeated(self, actor: _Actor, envelope: _Envelope, gathered: _Round) -> bool:
        """Answer a request that was carried out before."""
        request = envelope.request
        if request is None or envelope.reply is None:
            return False
        before = actor.answered.get((request.scope, request.id))
        if before is None and not actor.knows_all_answered:
            before = await self._journal_of(actor.id).answered(request.scope, request.id)
        try:
            told = first_answer(before, request)
        except WonderError as reused:
            gathered.replies.append((envelope, reused))
            return True
        if told is None:
            return False
        gathered.replies.append((envelope, Outcome((), told)))
        return True

    def _step(self, actor: _Actor, envelope: _Envelope, gathered: _Round) -> None:
        planner, state, commit = actor.planner, actor.state, gathered.commit
        gathered.carried.extend(envelope.carried)
        now, before = self._clock.now_ms(), actor.event_head
        decisions = planner.plan(state, envelope.input, now)
        fault = planner.refusal(decisions)
        if fault is not None:
            gathered.replies.append((envelope, WonderError(fault)))
            return
        for decision in decisions:
            planner.apply(state, decision)
            for change in planner.record(state, decision):
                self._note(actor, change, gathered, now)
        for decision in decisions:
            gathered.commands.extend(planner.commands(state, decision))
        if decisions:
            actor.entry_head += 1
            commit.entries.append(Entry(actor.entry_head, now, envelope.input, decisions))
            gathered.must_commit |= planner.must_commit(state, decisions)
        answer = {
            **planner.answer(decisions),
            "first_sequence": str(before + 1),
            "last_sequence": str(actor.event_head),
        }
        if envelope.request is not None:
            commit.requests.append((envelope.request, answer))
            _remember(actor, envelope.request, answer)
        gathered.replies.append((envelope, Outcome(decisions, answer)))

    def _note(self, actor: _Actor, change: Put | Delete | Emit, gathered: _Round, now: int) -> None:
        if isinstance(change, Emit):
            actor.event_head += 1
            gathered.commit.events.append(Event(actor.event_head, now, actor.id, change))
            return
        gathered.commit.changes.append(change)
        if change.table == "operations":
            gathered.wakes[change.id] = change.ordinal if isinstance(change, Put) else 0

    async def _commit(self, actor: _Actor, gathered: _Round) -> None:
        commit = gathered.commit
        commit.entry_head, commit.event_head = actor.entry_head, actor.event_head
        commit.root = actor.planner.root(actor.id, actor.state)
        own = [commit] if commit.entries or commit.requests else []
        asked = any(envelope.reply is not None for envelope, _ in gathered.replies)
        if not (gathered.must_commit or asked or actor.on_disk) and (own or actor.kept):
            actor.kept += [*gathered.carried, *own]
            return
        writes = [*actor.kept, *gathered.carried, *own]
        if writes:
            await self._journal_of(actor.id).commit(writes)
            actor.on_disk |= bool(own or actor.kept)
            actor.kept = []
            for written in writes:
                self._publish(written.actor_id, written.events)

    # --- dispatch -------------------------------------------------------------------------------

    def _after(self, actor: _Actor, gathered: _Round) -> None:
        for operation_id, wake_ms in gathered.wakes.items():
            self._wakes.set(actor.id, operation_id, wake_ms)
        for envelope, outcome in gathered.replies:
            _reply(envelope, outcome)
        for command in gathered.commands:
            if isinstance(command, Answer):
                self._answer_parent(actor, command)
            else:
                self._dispatch(actor.id, command)

    def _answer_parent(self, actor: _Actor, answer: Answer) -> None:
        parent, planner = answer.parent, self.planner_of(answer.parent.actor_id)
        carried, actor.kept = tuple(actor.kept), []
        event = (
            planner.succeeded(parent.operation_id, answer.output, answer.run_id)
            if answer.fault is None
            else planner.failed(parent.operation_id, answer.fault, answer.run_id)
        )
        self.tell(parent.actor_id, event, carried)

    def _wake(self, actor_id: str, operation_id: str) -> None:
        self.tell(actor_id, self.planner_of(actor_id).woken(operation_id))

    # --- leaving memory, failing, stopping ------------------------------------------------------

    def _settle(self, actor: _Actor) -> None:
        """After its last round: run on, stay because work is pending, or become idle."""
        if self._actors.get(actor.id) is not actor or self._stopping:
            return
        if actor.mailbox:
            self._run(actor)
            return
        if actor.state is None or actor.planner.pending(actor.state) or actor.kept:
            return
        if actor.planner.kind == "run":
            del self._actors[actor.id]
            return
        self._idle[actor.id] = actor.planner.weight(actor.state)
        self._idle_bytes += self._idle[actor.id]
        while len(self._idle) > self._idle_limit or self._idle_bytes > self._idle_bytes_limit:
            oldest, weight = self._idle.popitem(last=False)
            self._idle_bytes -= weight
            del self._actors[oldest]

    def _give_up(self, actor: _Actor, problem: WonderError) -> None:
        """Throw the working set away; tell callers; load again later, and tell again what is left."""
        fault = problem.fault
        _log.error("round_failed", actor=actor.id, reason=fault.reason, problem=str(problem))
        self._actors.pop(actor.id, None)
        self._wakes.forget(actor.id)
        interrupted = self._interrupted.setdefault(actor.id, _Interrupted())
        # A volatile run that was never written begins again with what was kept of it.
        kept = [_Envelope(e.input) for c in actor.kept if c.actor_id == actor.id for e in c.entries]
        for envelope in [*kept, *actor.mailbox]:
            if envelope.reply is not None:
                _reply(envelope, problem)
            elif fault.transient:
                interrupted.left.append(envelope)
            else:
                self._fail_operation(actor, envelope.input, fault, interrupted)
        interrupted.restart |= not fault.transient
        actor.mailbox.clear()
        asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self._reload, actor.id)

    def _fail_operation(self, actor: _Actor, event: Any, fault: Fault, interrupted: _Interrupted) -> None:
        """``event`` cannot be taken, now or ever: let what it was about fail instead."""
        operation_id, parent = getattr(event, "operation_id", ""), getattr(event, "parent", None)
        if parent is not None:
            self.failed(parent.actor_id, parent.operation_id, fault)
        elif operation_id:
            failed = actor.planner.failed(operation_id, fault, "")
            if type(failed) is not type(event):
                interrupted.left.append(_Envelope(failed))

    def _reload(self, actor_id: str) -> None:
        if actor_id in self._interrupted and not self._stopping:
            self._run(self._actor(actor_id))

    def resume(self, actor_ids: Iterable[str]) -> None:
        """After a start, before anything is sent: hand out again what these actors' outboxes hold."""
        self._interrupted.update({actor_id: _Interrupted(restart=True) for actor_id in actor_ids})
        for actor_id in list(self._interrupted):
            self._reload(actor_id)

    async def stop(self) -> None:
        """Take nothing more in; let commits under way finish. What is pending stays in the outbox."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._wakes.close()
        for actor in self._actors.values():
            for envelope in actor.mailbox:
                _reply(envelope, error(Reason.SERVER_DRAINING, "The server is shutting down; try again."))


def _reply(envelope: _Envelope, outcome: Outcome | WonderError) -> None:
    """Tell whoever asked, if somebody did and still waits."""
    if envelope.reply is None or envelope.reply.done():
        return
    if isinstance(outcome, WonderError):
        envelope.reply.set_exception(outcome)
    else:
        envelope.reply.set_result(outcome)


def _remember(actor: _Actor, request: Request, answer: dict[str, str]) -> None:
    actor.answered[request.scope, request.id] = Answered(request.fingerprint, answer)
    if len(actor.answered) > REQUESTS_AT_HAND:
        actor.answered.popitem(last=False)
        actor.knows_all_answered = False
