"""The models of memory extraction and summaries, and the fallbacks of models.

A persona may name a model profile for each of these hooks; without one the hook uses the model of the turn.
The hook's run makes the attempts of its ``llm`` action. If it fails because the provider is unavailable, the
hook starts again with the next fallback of its profile.
"""

from __future__ import annotations

import dataclasses

from wonder_server.core.conversation.model.decisions import (
    CancelOperation,
    DispatchWorkflow,
    MarkWaiting,
    SwitchModel,
)
from wonder_server.core.conversation.model.event_payloads import ModelSwitch
from wonder_server.core.conversation.model.operations import Decisions, hook_operation, next_child
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationKind
from wonder_server.core.definitions.specs import PinnedAgent, PinnedProfile
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.model import explained

RULES_OF_HOOK_FALLBACKS = 5
"""Version of `TURN_RULES` from which on memory extraction and summaries go on with a fallback."""

_QUOTA = "quota"

_HOOKS = {
    OperationKind.EXTRACTION: ("extraction_profiles", "memory_extraction"),
    OperationKind.SUMMARY: ("summary_profiles", "summary"),
}
"""The field of the pinned agent with the profiles of each hook, and the name of the hook in events."""


def with_model(operation: Operation, agent: PinnedAgent) -> Operation:
    """Return a hook's operation with its model profile as target, if the hook has a model of its own."""
    name = own_model(agent, operation.kind)
    return replace(operation, target=name) if name else operation


def own_model(agent: PinnedAgent, kind: OperationKind) -> str:
    """Return the pinned model profile of a hook; "" for that of the turn."""
    profiles = _profiles(agent, kind)
    return str(profiles[0].pin) if profiles else ""


def _profiles(agent: PinnedAgent, kind: OperationKind) -> tuple[PinnedProfile, ...]:
    if kind is OperationKind.EXTRACTION:
        return agent.extraction_profiles
    return agent.summary_profiles if kind is OperationKind.SUMMARY else ()


def switch_hook(
    state: ConversationState, operation: Operation, fault: Fault, ids: Minter, now: int
) -> Decisions:
    """Start memory extraction or a summary again with the next fallback of its model profile.

    Returns no decisions if there is none, or if another provider would not help.
    """
    if operation.kind not in _HOOKS or not is_worth_another(fault):
        return ()
    turn, work = state.turns[operation.turn_id], state.turn_work[operation.turn_id]
    agent = work.agent
    used, *following = _profiles(agent, operation.kind) or (agent.profile, *agent.fallbacks)
    if work.rules < RULES_OF_HOOK_FALLBACKS or not following:
        return ()
    field, hook = _HOOKS[operation.kind]
    switched = dataclasses.replace(agent, **{field: tuple(following)})  # type: ignore[arg-type]
    run_id = next_child(operation, ids)
    again = replace(
        hook_operation(ids.new("op"), turn, operation.kind, run_id, now),
        input=operation.input,
        timeout_ms=operation.timeout_ms,
        wake_ms=now + operation.timeout_ms,
        target=str(following[0].pin),
    )
    waiting = operation.kind is OperationKind.SUMMARY
    return (
        CancelOperation(operation=operation),
        SwitchModel(
            turn_id=turn.id,
            work=replace(work, agent=switched),
            switch=switch_between(used, following[0], fault, hook),
        ),
        DispatchWorkflow(operation=again),
        *((MarkWaiting(turn_id=turn.id, operation_id=again.id),) if waiting else ()),
    )


def switch_between(
    used: PinnedProfile, following: PinnedProfile, fault: Fault, hook: str = ""
) -> ModelSwitch:
    """Return the payload of the event about a switch from one model to another."""
    return ModelSwitch(
        from_profile=str(used.pin),
        from_provider=used.spec.provider,
        from_model=used.spec.model,
        to_profile=str(following.pin),
        to_provider=following.spec.provider,
        to_model=following.spec.model,
        fault=explained(fault, str(used.pin)),
        hook=hook,
    )


def is_worth_another(fault: Fault) -> bool:
    """Return True for a provider that is unreachable, silent, overloaded or out of quota.

    A refused key or request fails the turn: its operator or author must learn of it.
    """
    if fault.reason in (Reason.MODEL_UNAVAILABLE, Reason.TIMEOUT):
        return fault.transient
    return fault.reason is Reason.MODEL_FAILED and fault.metadata.get("kind") == _QUOTA
