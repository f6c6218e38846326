"""Permissions of an agent's tools: kinds of action, the depth of agent calls, and `decline` (C7, C8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTask, PinnedTool, PinnedWorkflow
from wonder_server.core.json_types import JsonDict

RULES_OF_DECLINES: Final = 4
"""Version of `TURN_RULES` from which on called agents can decline."""

DECLINE: Final = "decline"
DECLINE_DEFINITION: Final[JsonDict] = {
    "id": "",
    "name": DECLINE,
    "description": "Decline the task, if you cannot or must not do it. This ends your work. Your caller gets "
    "the reason instead of an answer.",
    "input_schema": {
        "type": "object",
        "properties": {"reason": {"type": "string", "description": "Why, and what would be needed instead."}},
        "required": ["reason"],
    },
    "target_type": "platform",
    "async": False,
}


def forbidden_action(tool: PinnedTool, allowed: Sequence[str]) -> str:
    """Return a kind of action that ``tool`` uses and ``allowed`` excludes; "" if there is none.

    ``allowed`` lists kinds or families (``memory.*``); an empty list allows all kinds. A called agent is
    limited by its own persona instead.
    """
    if not allowed:
        return ""
    kinds = dict.fromkeys(kinds_of(tool))
    return next((kind for kind in kinds if not any(_matches(kind, pattern) for pattern in allowed)), "")


def call_refusal(turn: Turn, agent_id: str) -> str:
    """Return the reason why ``turn`` may not call the agent, as a sentence for the model; "" if it may."""
    if agent_id in (turn.agent_id, *turn.call_chain):
        whose = "you yourself" if agent_id == turn.agent_id else "an agent that waits for your answer"
        return f"This would call {whose}: agents may not call each other in a cycle."
    if turn.depth >= turn.max_depth:
        if not turn.max_depth:
            return "No other agent may be called from here."
        return f"Agents called agents {turn.depth} deep already, and {turn.max_depth} is the limit here."
    return ""


def kinds_of(tool: PinnedTool) -> Iterator[str]:
    """Yield the kinds of action that ``tool`` uses, with repetitions."""
    if tool.task is not None:
        yield from _task_kinds(tool.task)
    if tool.workflow is not None:
        yield from _workflow_kinds(tool.workflow)


def _task_kinds(task: PinnedTask) -> Iterator[str]:
    for step in task.spec.steps:
        if step.action is not None:
            yield step.action.kind


def _workflow_kinds(workflow: PinnedWorkflow) -> Iterator[str]:
    for task in workflow.tasks.values():
        yield from _task_kinds(task)
    for inner in workflow.workflows.values():
        yield from _workflow_kinds(inner)


def _matches(kind: str, pattern: str) -> bool:
    family = pattern.removesuffix("*")
    return kind.startswith(family) if family != pattern else kind == pattern


def may_decline(state: ConversationState, turn: Turn, agent: PinnedAgent) -> bool:
    """Return True if the turn is offered the tool `decline`: in delegated turns that a tool, a node or, by
    CallAgent, an agent has started.

    The planner ends the turn itself; no operation is dispatched. A tool of the persona with the same name
    takes its place.
    """
    work, conversation = state.turn_work.get(turn.id), state.conversation
    if work is None or work.rules < RULES_OF_DECLINES or conversation is None or not conversation.called_by:
        return False
    if turn.parent is None and turn.caller.type != "agent":
        return False
    return all(tool.spec.name != DECLINE for tool in agent.tools)
