"""A hook that fails leaves a line in the log, whatever becomes of its turn."""

from __future__ import annotations

from structlog.testing import capture_logs

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    NOW,
    Driven,
    new_conversation,
    send,
    text_answer,
)
from wonder_server.actors.conversation.hook_failures import log_failed_hooks
from wonder_server.actors.runtime.actor import Actor, Envelope
from wonder_server.actors.runtime.step import step
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.conversation.planner import CONVERSATION

CONVERSATION_ID = "conv_01HF7YAT0000000000000000A0"


class Stepped(Driven):
    """A conversation whose inputs go through an actor's steps."""

    def __init__(self, **agent_fields: object) -> None:
        self.actor = Actor(id=CONVERSATION_ID, planner=CONVERSATION, state=ConversationState())
        super().__init__(**agent_fields)
        self.actor.state = self.state
        self.lines: list[dict[str, object]] = []

    def seen(self, event: inputs.Input) -> None:
        with capture_logs() as lines:
            step(self.actor, Envelope(event), self.now + 1, log_failed_hooks)
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
    assert (line["reason"], line["why"]) == (BUSINESS.reason.value, BUSINESS.message)
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
    assert [(line["event"], line["why"]) for line in driven.lines] == [
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
    assert [(line["event"], line["why"]) for line in driven.lines] == [
        ("summarization_failed", BUSINESS.message)
    ]


def test_a_successful_hook_is_not_logged() -> None:
    driven = Stepped(begin=False)
    driven.now = NOW
    driven.seen(send())
    driven.seen(new_conversation())
    assert driven.lines == []
