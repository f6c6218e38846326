"""Partial texts: readers see exactly the text that the record of an interrupted message holds."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import CONVERSATION_ID, Stage, error_reason, run_ready_tasks
from tests.core.conversation.conversation_kit import ASSEMBLED, called
from wonder_server.actors.streaming.items import Delta
from wonder_server.core.actor.commands import CallModel
from wonder_server.core.conversation.model.inputs import CancelCall, CancelTurn, TimerFired
from wonder_server.core.conversation.model.lifecycle_inputs import Complete, Leave
from wonder_server.core.conversation.model.values import TurnStatus
from wonder_server.core.errors import Reason

INTERRUPTIONS = ("CancelTurn", "CancelCall", "Complete", "Leave", "TimerFired")


class StreamingStage(Stage):
    """A turn whose model has streamed "Once", and a reader. The test is the model."""

    call: CallModel

    async def start(self) -> None:
        await self.open()
        await self.loop.ask(CONVERSATION_ID, called(extraction=False, max_turn_ms=60_000))
        self.loop.report_success(CONVERSATION_ID, self.run_commands()[-1].operation_id, ASSEMBLED)
        await run_ready_tasks()
        (self.call,) = self.model_calls()
        self.streams.begin_message(CONVERSATION_ID, self.call.turn_id, self.call.message_id, 1)
        self.stream("Once")
        self.reader, (so_far,) = self.streams.subscribe(CONVERSATION_ID)
        self.shown = so_far.text

    def stream(self, text: str) -> None:
        self.streams.append_text(CONVERSATION_ID, self.call.turn_id, self.call.message_id, text)

    def shown_text(self) -> str:
        """Return the text that the reader has seen. Every piece continues it."""
        for item in self.reader.take():
            if isinstance(item, Delta):
                assert item.offset == len(self.shown)
                self.shown += item.text
        return self.shown

    def interruption(self, kind: str) -> object:
        """Return an input that ends the turn."""
        match kind:
            case "CancelTurn":
                return CancelTurn(turn_id=self.call.turn_id)
            case "CancelCall":
                return CancelCall(operation_id="op_parent")
            case "Complete":
                return Complete(cancel_turns=True)
            case "Leave":
                return Leave(type="agent", id="agt_1")
        self.clock.now = self.state().operations[self.call.operation_id].wake_ms
        return TimerFired(operation_id=self.call.operation_id)

    def partial_message(self) -> str:
        """Return the text of the recorded partial message."""
        (event,) = [event for event in self.events if event.emit.message_id == self.call.message_id]
        assert event.emit.value.partial
        return str(event.emit.value.content)

    def status(self) -> TurnStatus:
        return self.state().turns[self.call.turn_id].status


@pytest.mark.parametrize("kind", INTERRUPTIONS)
async def test_a_reader_sees_exactly_the_text_of_the_record(kind: str) -> None:
    stage = StreamingStage()
    await stage.start()
    stage.journal.hold()
    interrupting = stage.ask_in_background(stage.interruption(kind))
    stage.stream(" upon")  # The input is sent and not planned.
    await run_ready_tasks()
    stage.stream(" a time")  # The end is planned and not committed.
    assert stage.shown_text() == "Once upon"
    assert [so_far.text for so_far in stage.streams.subscribe(CONVERSATION_ID)[1]] == ["Once upon"]
    stage.journal.release()
    await interrupting
    (message,) = [
        event.emit.value for event in stage.events if event.emit.message_id == stage.call.message_id
    ]
    assert message.partial and message.content == stage.shown_text() == "Once upon"


@pytest.mark.usefixtures("_without_logs")
@pytest.mark.parametrize("kind", INTERRUPTIONS)
async def test_text_is_shown_again_if_the_commit_of_the_end_fails(kind: str) -> None:
    stage = StreamingStage()
    await stage.start()
    stage.journal.hold()
    interrupting = stage.ask_in_background(stage.interruption(kind))
    await run_ready_tasks()
    stage.stream(" upon")
    assert stage.shown_text() == "Once"
    stage.journal.fails = True
    stage.journal.release()
    assert await error_reason(interrupting) is Reason.STORAGE_UNAVAILABLE
    assert stage.shown_text() == "Once upon"
    stage.stream(" a time")
    assert stage.shown_text() == "Once upon a time"


@pytest.mark.usefixtures("_without_logs")
async def test_an_end_that_is_committed_later_records_the_text_shown_meanwhile() -> None:
    stage = StreamingStage()
    await stage.start()
    stage.journal.hold()
    stage.loop.tell(CONVERSATION_ID, stage.interruption("CancelTurn"))
    await run_ready_tasks()
    stage.stream(" upon")
    stage.journal.fails = True
    stage.journal.release()
    await asyncio.sleep(0)
    stage.journal.fails = False
    assert stage.shown_text() == "Once upon"
    await run_ready_tasks()
    stage.stream(" a time")
    assert stage.partial_message() == stage.shown_text() == "Once upon"


async def test_a_rejected_input_holds_no_text() -> None:
    stage = StreamingStage()
    await stage.start()
    stage.journal.hold()
    for event, reason in (
        (Complete(), Reason.RESOURCE_IN_USE),
        (CancelTurn(turn_id="turn_x"), Reason.TURN_NOT_FOUND),
    ):
        rejected = stage.ask_in_background(event)
        await run_ready_tasks()
        assert await error_reason(rejected) is reason
    for event in (
        Leave(type="user", id="ann"),
        CancelCall(operation_id="op_x"),
        TimerFired(operation_id="op_x"),
    ):
        stage.loop.tell(CONVERSATION_ID, event)
    stage.loop.tell(CONVERSATION_ID, TimerFired(operation_id=stage.call.operation_id))
    await run_ready_tasks()
    stage.stream(" upon")
    assert stage.shown_text() == "Once upon"
    assert stage.status() is TurnStatus.ACTIVE


async def test_a_cancel_of_an_ended_turn_leaves_nothing_behind() -> None:
    stage = StreamingStage()
    await stage.start()
    await stage.loop.ask(CONVERSATION_ID, stage.interruption("CancelTurn"))
    again = stage.ask_in_background(stage.interruption("CancelTurn"))
    assert await error_reason(again) is Reason.TURN_NOT_ACTIVE
    stage.stream(" upon")
    assert stage.shown_text() == "Once"
    assert stage.streams.partial_texts(CONVERSATION_ID) == {}
