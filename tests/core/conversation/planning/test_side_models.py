"""Tests of the models of memory extraction and summaries, and of their fallbacks."""

from __future__ import annotations

import dataclasses

import pytest

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
from wonder_server.core.actor.commands import RunWorkflow
from wonder_server.core.conversation.model.decisions import ExtractionEnded, SwitchModel
from wonder_server.core.conversation.model.values import TURN_RULES, OperationKind, TurnStatus
from wonder_server.core.definitions.specs import ModelProfile, PinnedAgent, PinnedProfile
from wonder_server.core.errors import Fault, Reason

ASSEMBLY, MODEL, EXTRACTION = OperationKind.ASSEMBLY, OperationKind.MODEL, OperationKind.EXTRACTION
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
