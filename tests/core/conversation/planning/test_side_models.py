"""Tests of the models of memory extraction and summaries, and of their fallbacks."""

from __future__ import annotations

import dataclasses

import pytest

from tests.core.conversation.context.test_window import small, text
from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    TRANSIENT,
    Driven,
    agent,
    commands,
    kinds,
    pin,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import RunWorkflow, Stop
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import ExtractionEnded, SwitchModel
from wonder_server.core.conversation.model.values import TURN_RULES, OperationKind, TurnStatus
from wonder_server.core.conversation.planning.summarization import SUMMARY_TIMEOUT_MS
from wonder_server.core.definitions.specs import ModelProfile, PinnedAgent, PinnedProfile
from wonder_server.core.errors import Fault, Reason

ASSEMBLY, MODEL = OperationKind.ASSEMBLY, OperationKind.MODEL
EXTRACTION, SUMMARY = OperationKind.EXTRACTION, OperationKind.SUMMARY
AUTH = Fault(reason=Reason.MODEL_FAILED, message="Key refused.", metadata={"kind": "auth"})


def profiles(*names: str) -> tuple[PinnedProfile, ...]:
    return tuple(
        PinnedProfile(
            pin=pin(name), spec=ModelProfile(provider=name, model=f"{name}-m", format="openai_chat")
        )
        for name in names
    )


def extracting(who: PinnedAgent, rules: int = TURN_RULES) -> Driven:
    """Return a conversation whose turn has ended and whose extraction is pending."""
    driven = Driven(begin=False)
    driven.step(replace(send(agent=who), rules=rules))
    driven.succeed(ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("done"))
    return driven


def used(driven: Driven) -> str:
    """Return the provider that the extraction's input names."""
    (command,) = [each for each in commands(driven, driven.decided) if isinstance(each, RunWorkflow)][-1:]
    return str(command.input["model_profile"]["provider"])


def test_the_extraction_gets_its_own_profile_and_the_record_names_it() -> None:
    driven = extracting(dataclasses.replace(agent(), extraction_profiles=profiles("cheap")))
    assert used(driven) == "cheap" and driven.pending(EXTRACTION).target == "team/cheap@1"
    ended = driven.succeed(EXTRACTION, {})
    [outcome] = [each.outcome for each in ended if isinstance(each, ExtractionEnded)]
    assert outcome.model_profile == "team/cheap@1"


@pytest.mark.parametrize(
    "who",
    [
        dataclasses.replace(agent(), extraction_profiles=profiles("offline", "a", "b")),
        dataclasses.replace(agent(), fallbacks=profiles("a", "b")),
    ],
)
def test_each_fallback_is_tried_once_and_then_the_attempts_of_the_hook_remain(who: PinnedAgent) -> None:
    driven = extracting(who)
    for provider in ("a", "b"):
        decided = driven.fail(EXTRACTION, TRANSIENT)
        assert kinds(decided) == ["CancelOperation", "SwitchModel", "DispatchWorkflow"]
        [switch] = [each.switch for each in decided if isinstance(each, SwitchModel)]
        assert (switch.hook, switch.to_provider) == ("memory_extraction", provider)
        assert used(driven) == provider
    # The turn's own model stays.
    assert driven.state.turn_work[driven.turn.id].agent.profile == who.profile
    assert kinds(driven.fail(EXTRACTION, TRANSIENT)) == ["RetryOperation"]


@pytest.mark.parametrize(("fault", "rules"), [(AUTH, TURN_RULES), (TRANSIENT, 4)])
def test_another_provider_is_of_no_use(fault: Fault, rules: int) -> None:
    driven = extracting(dataclasses.replace(agent(), fallbacks=profiles("a")), rules)
    assert "SwitchModel" not in kinds(driven.fail(EXTRACTION, fault))
    assert driven.turn.status is TurnStatus.COMPLETED


def test_without_fallbacks_the_extraction_is_tried_again() -> None:
    driven = extracting(agent())
    assert used(driven) == "offline" and driven.pending(EXTRACTION).target == ""
    assert kinds(driven.fail(EXTRACTION, TRANSIENT)) == ["RetryOperation"]


def test_a_silent_model_is_stopped_and_the_next_one_goes_on() -> None:
    driven = extracting(dataclasses.replace(agent(), extraction_profiles=profiles("mute", "a")))
    silent = driven.pending(EXTRACTION)
    decided = driven.wait_for_timer(EXTRACTION)
    stops = [each for each in commands(driven, decided) if isinstance(each, Stop)]
    assert [(each.operation_id, each.child_id) for each in stops] == [(silent.id, silent.run_id)]
    assert used(driven) == "a" and driven.pending(EXTRACTION).run_id != silent.run_id
    # What the stopped run still reports changes nothing.
    assert driven.step(inputs.Succeeded(operation_id=silent.id, output={}, run_id=silent.run_id)) == ()


def summarizing(who: PinnedAgent) -> Driven:
    """Return a conversation whose turn waits for a summary."""
    driven = Driven(begin=False)
    for number in range(40):
        driven.step(replace(send(f"turn {number}", text(number), agent=who), rules=TURN_RULES))
        while driven.turn.status is TurnStatus.ACTIVE:
            (operation,) = driven.state.pending(driven.turn.id)
            if operation.kind is SUMMARY:
                return driven
            if operation.kind is MODEL:
                driven.answer(text_answer(text(number)))
            else:
                driven.succeed(operation.kind, ASSEMBLED)
    raise AssertionError("no summary was needed")


def summarized(driven: Driven) -> int:
    """Return the number of messages in the newest summary's input."""
    found = [each for each in commands(driven, driven.decided) if isinstance(each, RunWorkflow)]
    return len(found[-1].input["messages"])


def test_a_summary_is_as_long_as_its_own_model_takes() -> None:
    who = small(1500, summarize=True)
    tiny = dataclasses.replace(profiles("cheap")[0].spec, context_window_tokens=400)
    own = dataclasses.replace(profiles("cheap")[0], spec=tiny)
    assert summarized(summarizing(who)) > summarized(
        summarizing(dataclasses.replace(who, summary_profiles=(own,)))
    )


def test_the_turn_waits_for_a_summary_by_the_next_model_and_goes_on_without_one() -> None:
    driven = summarizing(
        dataclasses.replace(small(1500, summarize=True), summary_profiles=profiles("mute", "a"))
    )
    assert driven.pending(SUMMARY).target == "team/mute@1"
    decided = driven.fail(SUMMARY, TRANSIENT)
    assert kinds(decided) == ["CancelOperation", "SwitchModel", "DispatchWorkflow", "MarkWaiting"]
    again = driven.pending(SUMMARY)
    assert again.target == "team/a@1" and again.timeout_ms == SUMMARY_TIMEOUT_MS
    for _ in range(2):
        driven.fail(SUMMARY, TRANSIENT)
        driven.wait_for_timer(SUMMARY)
    driven.fail(SUMMARY, TRANSIENT)
    assert driven.pending(ASSEMBLY) and driven.turn.status is TurnStatus.ACTIVE
