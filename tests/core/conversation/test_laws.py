"""Laws of the conversation planner, over random sequences of inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    CONVERSATION_ID,
    NOW,
    TOOLS,
    TRANSIENT,
    Driven,
    call,
    called,
    new_conversation,
    run_without_waiting,
    send,
    text_answer,
    tool,
)
from tests.replacing import replace
from wonder_server.actors.runs.replay import replay
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.core.actor.changes import Emit
from wonder_server.core.actor.commands import Answer
from wonder_server.core.actor.gates import ResolveGate
from wonder_server.core.budget import Budget
from wonder_server.core.conversation.context.hook_inputs import assembly_input
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import (
    CompleteTurn,
    EndTurnByCancel,
    FailTurn,
    Refuse,
    RefuseCall,
    RepeatAnswer,
)
from wonder_server.core.conversation.model.event_payloads import HistoryTruncation
from wonder_server.core.conversation.model.state import RECENT_TURNS, ConversationState
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ToolCall, Usage
from wonder_server.ports.journal import Commit, Entry, Event

OUTPUTS: tuple[Any, ...] = (
    ASSEMBLED,
    {"memory_operations": [{"content": "a"}, {"content": "b"}]},
    {},
    None,
    [],
    "text",
    {"text": "Red.", "turn_id": "turn_9", "usage": {"input_tokens": 5, "model_calls": 1}},
    {"request": {"messages": None}},
    {"request": {"messages": [{"role": "user", "content": "x" * 40}] * 3}},
    {"summary": "So far.", "usage": {"input_tokens": 7, "cost_micros": None}},
    {"summary": " "},
    {"request": {"messages": []}, "memory_operations": None},
    {"request": {"messages": [{"role": "user", "content": None}]}, "memory_operations": ["x"]},
)
GUARDED = (
    *TOOLS,
    tool("guarded", approval="always"),
    tool("guarded_async", approval="input.q != 'free'", is_async=True),
)
RESULTS = (
    text_answer("an answer"),
    text_answer(""),
    text_answer("", call("find", "same"), call("flow", "same"), call("once", "same")),
    text_answer("thinking", call("retried"), call("mapped", "c2")),
    text_answer("", call("nothing"), call("broken"), call("find", arguments={"q": 7})),
    text_answer("", call("find"), call("peer"), ToolCall(id="", name="", arguments=None, malformed="{")),
    text_answer("", call("slow"), call("slow"), call("slow_flow"), call("slow_peer")),
    text_answer("I am at it.", call("slow_peer"), call("find"), call("guest"), call("mirror")),
    text_answer("", call("slow", "c1")),
    text_answer("", call("guarded"), call("find"), call("guarded", "c2", {"q": "y"})),
    text_answer("", call("guarded_async"), call("guarded_async", "c2", {"q": "free"})),
    replace(text_answer("cut", call("slow"), call("find")), stop_reason="length"),
    replace(text_answer("I will not."), stop_reason="refusal"),
    replace(text_answer("dear", call("find")), usage=Usage(input_tokens=30, output_tokens=30, cost_micros=2)),
)
TOO_LONG = replace(BUSINESS, metadata={"kind": "context_length"})
AGENTS: tuple[JsonDict, ...] = (
    {},
    {"max_moves": 0},
    {"max_moves": 1},
    {"max_moves": 2, "dialect": "anthropic_messages"},
    {"max_moves": 2, "extraction": False},
    {"max_moves": 3, "dialect": "anthropic_messages"},
    {"tools": (), "max_moves": 1},
    {"max_tokens_per_turn": 40},
    {"max_cost_micros_per_turn": 1, "max_turn_ms": 5},
    {"max_turn_ms": 60_000},
    {"tools": GUARDED},
    {"tools": GUARDED, "max_turn_ms": 9, "max_moves": 3},
    {"context": 90},
    {"context": 90, "summarize": True},
    {"context": 60, "summarize": True, "max_turn_ms": 4, "max_tokens_per_turn": 9},
)
BUDGETS = (
    Budget(),
    Budget(max_tokens=60),
    Budget(max_cost_micros=3, max_duration_ms=9),
    Budget(max_duration_ms=100_000),
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            "send answer answer answer succeed succeed succeed fail refuse wake elapse restart cancel "
            "create reload call call give_up resolve resolve measure".split()
        ),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    min_size=10,
    max_size=60,
)


@dataclass
class Walk:
    """One conversation, recorded step by step as the loop records it."""

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    state: ConversationState = field(default_factory=ConversationState)
    now: int = NOW
    entries: int = 0
    events: int = 0
    seen: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    awaited: dict[str, int] = field(default_factory=dict)
    """Number of answers to the parent, by turn id."""

    def step(self, event: inputs.Input) -> None:
        self.now += 1
        decisions = CONVERSATION.plan(self.state, event, self.now)
        assert CONVERSATION.plan(self.state, event, self.now) == decisions
        if any(isinstance(decision, Refuse) for decision in decisions):
            assert len(decisions) == 1
            assert CONVERSATION.rejection(decisions) is not None
            return
        commit = Commit(CONVERSATION_ID)
        for decision in decisions:
            CONVERSATION.apply(self.state, decision)
            for change in CONVERSATION.record(self.state, decision):
                if isinstance(change, Emit):
                    assert change.kind in CONVERSATION.event_types
                    assert isinstance(change.value, CONVERSATION.event_types[change.kind])
                    self.events += 1
                    commit.events.append(Event(self.events, self.now, CONVERSATION_ID, change))
                else:
                    commit.changes.append(change)
            if isinstance(decision, CompleteTurn | FailTurn | EndTurnByCancel):
                self.ends[decision.turn.id] = self.ends.get(decision.turn.id, 0) + 1
        for decision in decisions:
            for command in CONVERSATION.commands(self.state, decision):
                if isinstance(command, Answer) and not isinstance(decision, RepeatAnswer | RefuseCall):
                    turn_id = (command.fault.metadata if command.fault else command.output)["turn_id"]
                    self.awaited[turn_id] = self.awaited.get(turn_id, 0) + 1
        if decisions:
            self.entries += 1
            commit.entries.append(Entry(self.entries, self.now, event, decisions))
        commit.entry_head, commit.event_head = self.entries, self.events
        # The journal rejects a gap in the events.
        run_without_waiting(self.journal.commit([commit]))
        self.seen.extend(each for each in self.state.operations if each not in self.seen)

    def check(self) -> None:
        for turn in self.state.active_turns():
            assert self.state.pending(turn.id), "an active turn has nothing to wait for"
        for operation in self.state.operations.values():
            assert operation.turn_id in self.state.turn_work
        waiting_calls = {op.gate_id for op in self.state.operations.values() if op.status == "approval"}
        assert waiting_calls == set(self.state.gates), "a gate without its call, or a call without its gate"
        models = [op.turn_id for op in self.state.operations.values() if op.kind is OperationKind.MODEL]
        assert len(set(models)) == len(models), "two calls of the model in one turn"
        assert set(self.state.requests) <= set(self.state.turn_work) == set(self.state.moves)
        assert set(self.ends.values()) <= {1}, "a turn ended twice"
        assert set(self.awaited.values()) <= {1}, "a parent got two answers"
        waiting = [turn.parent for turn in self.state.active_turns() if turn.parent is not None]
        assert len(set(waiting)) == len(waiting), "two turns work for one operation"
        ended = {t.id for t in self.state.turns.values() if t.parent is not None} & self.ends.keys()
        assert ended <= self.awaited.keys(), "a parent got no answer"
        restored = self.restored()
        assert restored == self.state
        assert list(restored.turns) == list(self.state.turns)
        active = [turn for turn in restored.turns.values() if turn.status is TurnStatus.ACTIVE]
        assert active == self.state.active_turns()
        said = [message for messages in self.state.messages.values() for message in messages]
        assert self.state.message_count == len(said)
        assert self.state.character_count == sum(len(message.content) for message in said)
        self.check_assembly_inputs(restored)

    def check_assembly_inputs(self, restored: ConversationState) -> None:
        """Compare the assembly's input from the history cache with one computed without it."""
        for turn in self.state.active_turns():
            for cut in (None, HistoryTruncation(first=3), HistoryTruncation(first=turn.ordinal)):
                restored.history_cache = {}
                assert assembly_input(
                    self.state, turn, self.state.turn_work[turn.id].agent, NOW, cut
                ) == assembly_input(restored, turn, self.state.turn_work[turn.id].agent, NOW, cut)

    def restored(self) -> ConversationState:
        loaded = run_without_waiting(self.journal.load(CONVERSATION_ID))
        assert loaded is not None
        assert (loaded.entry_head, loaded.event_head) == (self.entries, self.events)
        state = CONVERSATION.restore(loaded.rows)
        assert isinstance(state, ConversationState)
        return state

    def check_async_results_reported(self) -> None:
        """Assert that a completed turn's requests contain each asynchronous result once."""
        written = self.journal.actors[CONVERSATION_ID]
        for turn in (put.value for put in written.table("turns").values()):
            if turn.status is TurnStatus.COMPLETED:
                moves = [m.value for m in written.table("moves").values() if m.value.turn_id == turn.id]
                reported = [entry.operation_id for move in moves for entry in move.reported]
                ran = [e.operation_id for move in moves for e in move.invocations if e.is_async]
                assert sorted(reported) == sorted(ran)

    def replayed(self) -> None:
        entries = run_without_waiting(self.journal.entries(CONVERSATION_ID, 0, 10_000))
        verdict = replay(CONVERSATION, entries)
        assert verdict.difference is None, verdict.difference
        assert verdict.steps == len(entries) == self.entries

    def drain(self) -> None:
        """Fail all pending operations until none is left."""
        for _ in range(200):
            for operation_id in list(self.state.operations):
                self.now += 1_000_000
                self.step(inputs.TimerFired(operation_id=operation_id))
                self.step(inputs.WaitsMeasured(operation_id=operation_id, waited_ms=0))
                self.step(inputs.Failed(operation_id=operation_id, fault=BUSINESS))
            for gate in list(self.state.gates.values()):
                self.step(ResolveGate(gate_id=gate.id, approve=False, shown_hash=gate.shown_hash))
            if not self.state.operations:
                return
        raise AssertionError("still busy")


def input_of(walk: Walk, name: str, which: int, variant: int) -> inputs.Input:
    """Return the input of one step, selected by two numbers."""
    pending = list(walk.state.operations)
    # Mostly pending operations, sometimes one that has ended or never existed.
    known = [*pending, *pending, *walk.seen[-3:], "op_0"]
    operation_id = known[which % len(known)]
    if name in ("wake", "elapse"):
        operation = walk.state.operations.get(operation_id)
        if name == "elapse" and operation is not None:
            walk.now = max(walk.now, operation.wake_ms)
        return inputs.TimerFired(operation_id=operation_id)
    if name == "resolve":
        return _resolution(walk, which, variant)
    if name in ("send", "create", "call", "cancel", "give_up"):
        return _request_of(walk, name, which, variant)
    return _result_of(walk, name, operation_id, which, variant)


def _request_of(walk: Walk, name: str, which: int, variant: int) -> inputs.Input:
    partial_text = "so far" if variant % 2 else ""
    match name:
        case "create":
            return new_conversation()
        case "call":
            return called(f"op_{which % 3}", loop_in=variant % 2 == 1, **AGENTS[variant % len(AGENTS)])
        case "cancel":
            turns = [*walk.state.turns, "turn_0"]
            return inputs.CancelTurn(turn_id=turns[which % len(turns)], partial_text=partial_text)
        case "give_up":
            return inputs.CancelCall(operation_id=f"op_{which % 3}", partial_text=partial_text)
        case _:
            return send(f"seed {walk.now}", **AGENTS[variant % len(AGENTS)])


def _resolution(walk: Walk, which: int, variant: int) -> inputs.Input:
    gates = list(walk.state.gates.values())
    if not gates:
        return ResolveGate(gate_id="gate_0", approve=True, shown_hash="")
    gate = gates[which % len(gates)]
    answers = (None, None, {"q": "edited"}, {"q": 7})
    return ResolveGate(
        gate_id=gate.id,
        approve=variant % 3 > 0,
        shown_hash=gate.shown_hash,
        answer=answers[variant % len(answers)],
        comment="no" if variant % 2 else "",
    )


def _result_of(walk: Walk, name: str, operation_id: str, which: int, variant: int) -> inputs.Input:
    match name:
        case "answer":
            models = [op.id for op in walk.state.operations.values() if op.kind is OperationKind.MODEL]
            operation_id = models[which % len(models)] if models else operation_id
            return inputs.ModelAnswered(operation_id=operation_id, result=RESULTS[variant % len(RESULTS)])
        case "succeed":
            return inputs.Succeeded(operation_id=operation_id, output=OUTPUTS[variant % len(OUTPUTS)])
        case "measure":
            return inputs.WaitsMeasured(
                operation_id=operation_id, waited_ms=1_000 * variant, waits=which % 2 == 1
            )
        case "fail":
            return inputs.Failed(operation_id=operation_id, fault=TRANSIENT)
        case "refuse":
            return inputs.Failed(operation_id=operation_id, fault=TOO_LONG if variant % 2 else BUSINESS)
        case _:
            return inputs.Restarted(operation_id=operation_id)


@given(steps=STEPS)
def test_no_order_of_inputs_breaks_a_law(steps: list[tuple[str, int, int]]) -> None:
    walk = Walk()
    opened = new_conversation()
    budget = BUDGETS[steps[0][1] % len(BUDGETS)]
    walk.step(replace(opened, conversation=replace(opened.conversation, budget=budget)))
    walk.step(send("first", **AGENTS[steps[0][2] % len(AGENTS)]))
    for name, which, what in steps:
        if name == "reload":
            walk.state = walk.restored()
        else:
            walk.step(input_of(walk, name, which, what))
        walk.check()
    walk.drain()
    walk.check()
    assert not walk.state.active_turns()
    assert len(walk.ends) == walk.state.conversation.turn_count  # type: ignore[union-attr]
    walk.check_async_results_reported()
    walk.replayed()


def test_a_conversation_that_has_been_reloaded_cancels_in_the_same_order() -> None:
    """Decisions do not depend on whether the state was built by inputs or loaded."""
    walk = Walk()
    walk.step(new_conversation())
    walk.step(send())
    walk.step(inputs.Succeeded(operation_id=walk.seen[0], output=ASSEMBLED))
    # The workflow's deadline lies behind the tasks': loaded by deadline, they would come first.
    calls = [call("flow", "c1"), call("find", "c2"), call("find", "c3")]
    walk.step(inputs.ModelAnswered(operation_id=walk.seen[1], result=text_answer("", *calls)))
    walk.state = walk.restored()
    (turn_id,) = walk.state.turns
    walk.step(inputs.CancelTurn(turn_id=turn_id))
    walk.replayed()


def test_the_state_of_a_long_conversation_is_the_state_that_a_load_returns() -> None:
    walk = Walk()
    walk.step(new_conversation())
    walk.step(send("slow", extraction=False))
    for number in range(RECENT_TURNS + 15):
        walk.step(send(f"seed {number}", extraction=False))
        operation = list(walk.state.operations.values())[-1]
        walk.step(inputs.Succeeded(operation_id=operation.id, output=ASSEMBLED))
        operation = list(walk.state.operations.values())[-1]
        walk.step(inputs.ModelAnswered(operation_id=operation.id, result=text_answer("ok")))
        if number % 20 == 0 or number > RECENT_TURNS - 3:  # Each check loads the conversation.
            walk.check()
    assert len(walk.state.turns) == RECENT_TURNS + 1
    for number in range(3):
        walk.step(send(f"at once {number}"))
        walk.check()
    walk.drain()
    walk.check()
    assert len(walk.state.turns) == RECENT_TURNS
    assert walk.state.turns.keys() == walk.state.messages.keys()


def test_a_turn_sees_only_earlier_turns_up_to_its_limit() -> None:
    driven = Driven(extraction=False)
    for number in range(3):
        driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
        driven.answer(text_answer(f"answer {number}"))
        decisions = driven.step(send(f"seed {number}", content=f"question {number}", extraction=False))
    (command,) = (c for d in decisions for c in CONVERSATION.commands(driven.state, d))
    said_before = [message["content"] for message in command.input["history"]]  # type: ignore[union-attr]
    assert said_before[-2:] == ["question 1", "answer 2"]
    assert len(said_before) == 6
    assert all(turn.status is TurnStatus.COMPLETED for turn in list(driven.state.turns.values())[:-1])
