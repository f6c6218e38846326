"""Tests of fallbacks: another model goes on with a turn whose provider is unavailable."""

from __future__ import annotations

import dataclasses

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    TRANSIENT,
    Driven,
    agent,
    call,
    kinds,
    pin,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import SwitchModel
from wonder_server.core.conversation.model.values import OperationKind, TurnStatus
from wonder_server.core.definitions.specs import ModelProfile, PinnedAgent, PinnedProfile
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.model import from_provider

ASSEMBLY, MODEL = OperationKind.ASSEMBLY, OperationKind.MODEL
OVERLOADED = from_provider(
    dataclasses.replace(TRANSIENT, retry_after_ms=10**9), "offline", "m", "127.0.0.1:1"
)
"""A fault that is not retried, since the provider asks for a pause that is too long."""


def with_fallbacks(*dialects: str) -> PinnedAgent:
    found = tuple(
        PinnedProfile(
            pin=pin(f"spare{number}"),
            spec=ModelProfile(provider=f"p{number}", model=f"m{number}", format=dialect),
        )
        for number, dialect in enumerate(dialects, start=1)
    )
    return dataclasses.replace(agent(), fallbacks=found)


def begun(*dialects: str) -> Driven:
    driven = Driven(agent=with_fallbacks(*dialects))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    return driven


def test_the_next_model_goes_on_under_the_same_message_and_the_record_names_it() -> None:
    driven = begun("openai_chat", "openai_chat")
    failed = driven.pending(MODEL)
    decided = driven.fail(MODEL, OVERLOADED)
    [switch] = [each.switch for each in decided if isinstance(each, SwitchModel)]
    assert (switch.from_provider, switch.to_provider, switch.to_model) == ("offline", "p1", "m1")
    assert (switch.from_profile, switch.to_profile) == ("team/profile@1", "team/spare1@1")
    assert "127.0.0.1:1" in switch.fault.message and "team/profile@1" in switch.fault.message
    driven.succeed(ASSEMBLY, ASSEMBLED)
    again = driven.pending(MODEL)
    assert again.message_id == failed.message_id and again.dispatches == failed.dispatches + 1
    driven.answer(text_answer("done"))
    [move] = driven.state.moves[driven.turn.id]
    assert (move.provider, move.model_profile) == ("p1", "team/spare1@1")
    assert driven.turn.status is TurnStatus.COMPLETED


def test_each_fallback_is_used_once_and_then_the_turn_fails_with_the_last_fault() -> None:
    driven = begun("openai_chat", "openai_chat")
    for _ in range(2):
        assert "SwitchModel" in kinds(driven.fail(MODEL, OVERLOADED))
        driven.succeed(ASSEMBLY, ASSEMBLED)
    assert "SwitchModel" not in kinds(driven.fail(MODEL, OVERLOADED))
    assert driven.turn.status is TurnStatus.FAILED and driven.turn.fault is not None
    assert driven.turn.fault.metadata["model_profile"] == "team/spare2@1"


@pytest.mark.parametrize(
    ("fault", "is_worth_another"),
    [
        (OVERLOADED, True),
        (Fault(reason=Reason.TIMEOUT, message="Silent.", transient=True, retry_after_ms=10**9), True),
        (Fault(reason=Reason.MODEL_FAILED, message="Used up.", metadata={"kind": "quota"}), True),
        (Fault(reason=Reason.MODEL_FAILED, message="Key refused.", metadata={"kind": "auth"}), False),
        (Fault(reason=Reason.MODEL_FAILED, message="Refused.", metadata={"kind": "refused"}), False),
        (Fault(reason=Reason.MODEL_UNAVAILABLE, message="Remote."), False),
        (Fault(reason=Reason.BUDGET_EXHAUSTED, message="No money."), False),
        (Fault(reason=Reason.FILE_NOT_FOUND, message="No file."), False),
    ],
)
def test_only_an_unavailable_provider_is_worth_another(fault: Fault, is_worth_another: bool) -> None:
    driven = begun("openai_chat")
    assert ("SwitchModel" in kinds(driven.fail(MODEL, fault))) is is_worth_another
    assert (driven.turn.status is TurnStatus.ACTIVE) is is_worth_another


def test_attempts_come_first_and_text_that_arrived_makes_no_message() -> None:
    driven = begun("openai_chat")
    for _ in range(2):
        operation = driven.pending(MODEL)
        driven.step(inputs.Failed(operation_id=operation.id, fault=TRANSIENT, partial_text="Hal", jitter=0))
        driven.wait_for_timer(MODEL)
    operation = driven.pending(MODEL)
    decided = driven.step(inputs.Failed(operation_id=operation.id, fault=TRANSIENT, partial_text="Half"))
    assert "SwitchModel" in kinds(decided) and "AppendMessage" not in kinds(decided)


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_moves_before_a_switch_are_written_in_the_format_of_the_other_model(dialect: str) -> None:
    driven = begun(dialect)
    driven.answer(text_answer("Let me look.", call("find")))
    driven.complete("find", {"found": 7})
    driven.fail(MODEL, OVERLOADED)
    field = {"openai_responses": "input", "gemini": "contents"}.get(dialect, "messages")
    driven.succeed(ASSEMBLY, {"request": {field: [{"role": "user", "content": "hello"}]}})
    written = driven.request()[field]
    assert len(written) >= 3 and written[0] == {"role": "user", "content": "hello"}
    assert "Let me look." in str(written[1:]) and "found" in str(written[2:]) and "find" in str(written)
    driven.answer(text_answer("It is 7."))
    first, second = driven.state.moves[driven.turn.id]
    assert (first.provider, second.provider) == ("offline", "p1")


def test_later_moves_of_a_switched_turn_have_messages_of_their_own() -> None:
    driven = begun("openai_chat")
    failed = driven.pending(MODEL).message_id
    driven.fail(MODEL, OVERLOADED)
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("Let me look.", call("find")))
    driven.complete("find", {"found": 7})
    later = driven.pending(MODEL)
    assert later.message_id != failed and later.dispatches == 1


def test_moves_of_earlier_rules_name_no_provider() -> None:
    driven = Driven(begin=False)
    driven.step(replace(send(), rules=3))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("done"))
    [move] = driven.state.moves[driven.turn.id]
    assert (move.provider, move.model_profile) == ("", "")
