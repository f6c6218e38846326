"""A hook that fails leaves a line in the log, whatever becomes of its turn, and counts until it succeeds."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.actors.kit import FakeClock, NoHome
from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    NOW,
    Driven,
    new_conversation,
    send,
    text_answer,
)
from wonder_server.actors.conversation import hook_failures
from wonder_server.actors.conversation.hook_failures import ERROR_AFTER, HookFailures
from wonder_server.actors.runtime.actor import Actor, Envelope
from wonder_server.actors.runtime.step import step
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.ports.hook_failures import Hook

CONVERSATION_ID = "conv_01HF7YAT0000000000000000A0"


class Stepped(Driven):
    """A conversation whose inputs go through an actor's steps."""

    def __init__(self, **agent_fields: object) -> None:
        self.actor = Actor(id=CONVERSATION_ID, planner=CONVERSATION, home=NoHome(), state=ConversationState())
        super().__init__(**agent_fields)
        self.actor.state = self.state
        self.lines: list[dict[str, object]] = []
        self.clock = FakeClock()
        self.failures = HookFailures(self.clock)

    def seen(self, event: inputs.Input) -> None:
        with capture_logs() as lines:
            step(self.actor, Envelope(event), self.now + 1, self.failures.on_planned)
        self.lines.extend(lines)


def test_a_failed_extraction_is_logged_with_its_reason_and_its_run() -> None:
    driven = Stepped()
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Done."))
    operation = driven.pending(OperationKind.EXTRACTION)
    driven.seen(inputs.Failed(operation_id=operation.id, fault=BUSINESS))
    (line,) = driven.lines
    assert line["event"] == "memory_extraction_failed" and line["log_level"] == "warning"
    assert (line["conversation"], line["turn"], line["run"]) == (
        CONVERSATION_ID,
        driven.turn.id,
        operation.run_id,
    )
    assert (line["reason"], line["problem"]) == (BUSINESS.reason.value, BUSINESS.message)
    assert driven.turn.status.value == "completed"


def test_an_extraction_with_invalid_output_is_logged() -> None:
    driven = Stepped()
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Done."))
    operation_id = driven.pending(OperationKind.EXTRACTION).id
    driven.seen(inputs.Succeeded(operation_id=operation_id, output={"memory_operations": "none"}))
    assert [line["event"] for line in driven.lines] == ["memory_extraction_failed"]


def test_a_failed_assembly_is_logged() -> None:
    driven = Stepped()
    operation_id = driven.pending(OperationKind.ASSEMBLY).id
    driven.seen(inputs.Failed(operation_id=operation_id, fault=BUSINESS))
    assert [(line["event"], line["problem"]) for line in driven.lines] == [
        ("context_assembly_failed", BUSINESS.message)
    ]


def test_a_failed_summary_is_logged() -> None:
    driven = Stepped(context=60, summarize=True, begin=False)
    for number in range(4):
        driven.step(send(f"seed {number}", "word " * 20, context=60, summarize=True, extraction=False))
        if any(op.kind is OperationKind.SUMMARY for op in driven.state.operations.values()):
            break
        driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
        driven.answer(text_answer("word " * 20))
    operation_id = driven.pending(OperationKind.SUMMARY).id
    driven.seen(inputs.Failed(operation_id=operation_id, fault=BUSINESS))
    assert [(line["event"], line["problem"]) for line in driven.lines] == [
        ("summarization_failed", BUSINESS.message)
    ]


def test_a_successful_hook_is_not_logged() -> None:
    driven = Stepped(begin=False)
    driven.now = NOW
    driven.seen(send())
    driven.seen(new_conversation())
    assert driven.lines == []


# --- the count --------------------------------------------------------------------------------------


def extract(driven: Stepped, seed: str, *, fails: bool) -> None:
    """Take a turn whose memory extraction fails or succeeds."""
    driven.step(send(seed))
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Done."))
    operation_id = driven.pending(OperationKind.EXTRACTION).id
    if fails:
        driven.seen(inputs.Failed(operation_id=operation_id, fault=BUSINESS))
    else:
        driven.seen(inputs.Succeeded(operation_id=operation_id, output={}))


def test_failures_in_a_row_are_counted_until_a_success_and_soon_are_errors() -> None:
    driven = Stepped(begin=False)
    first_ms = driven.clock.now
    for number in range(ERROR_AFTER):
        extract(driven, f"seed {number}", fails=True)
        driven.clock.now += 1000
    (failure,) = driven.failures.of_agent("agt_1")
    assert (failure.hook, failure.count) == (Hook.EXTRACTION, ERROR_AFTER)
    assert (failure.first_ms, failure.last_ms) == (first_ms, driven.clock.now - 1000)
    assert (failure.conversation_id, failure.turn_id) == (CONVERSATION_ID, driven.turn.id)
    assert failure.fault == BUSINESS and failure.workflow == "team/extraction@1" and failure.run_id
    assert [line["in_a_row"] for line in driven.lines] == [1, 2, 3, 4, 5]
    assert [line["log_level"] for line in driven.lines] == ["warning"] * 4 + ["error"]
    assert driven.failures.of_agent("agt_2") == []
    extract(driven, "seed of a success", fails=False)
    assert driven.failures.of_agent("agt_1") == []
    extract(driven, "seed of a new row", fails=True)
    assert driven.failures.of_agent("agt_1")[0].count == 1


def test_each_hook_of_an_agent_has_its_own_count() -> None:
    driven = Stepped(begin=False)
    extract(driven, "one", fails=True)
    driven.step(send("two"))
    driven.seen(inputs.Failed(operation_id=driven.pending(OperationKind.ASSEMBLY).id, fault=BUSINESS))
    found = driven.failures.of_agent("agt_1")
    assert [(each.hook, each.count) for each in found] == [(Hook.ASSEMBLY, 1), (Hook.EXTRACTION, 1)]


def test_the_oldest_count_is_forgotten_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_failures, "MAX_COUNTED", 1)
    driven = Stepped(begin=False)
    extract(driven, "one", fails=True)
    driven.step(send("two"))
    driven.seen(inputs.Failed(operation_id=driven.pending(OperationKind.ASSEMBLY).id, fault=BUSINESS))
    assert [each.hook for each in driven.failures.of_agent("agt_1")] == [Hook.ASSEMBLY]
