"""Calls of agents by tools and by nodes of runs: one turn each, whose end is reported to the caller (C8 to
C10).

``delegate``: a new conversation holds this one turn and this one agent, so the agent sees only its input.
``loop_in``: the agent joins the conversation of the tool's turn or of the run, and answers to all
participants.

A call may be dispatched twice. Its conversation is the same both times and recognizes the parent's
operation. This module looks up turns that the conversation no longer holds in memory.
"""

from __future__ import annotations

import json

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import Archive, NullArchive
from wonder_server.actors.usage.budget_enforcement import AgentBudgets
from wonder_server.core import ids
from wonder_server.core.actor import trace
from wonder_server.core.actor.commands import CallAgent, Parent, Scope, branch_of
from wonder_server.core.budget import Budget
from wonder_server.core.conversation.model.inputs import (
    MAX_CONTENT_BYTES,
    CancelCall,
    Create,
    ModelUsageReported,
    Send,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import (
    Caller,
    Conversation,
    Operation,
    Participant,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planning.agent_calls import answer, called_turn, is_final
from wonder_server.core.coordinator.values import ExecutionStatus, NodeExecution
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonValue
from wonder_server.core.model import Usage
from wonder_server.logs import logger
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.records import Query

_log = logger("actors")

MAX_SCANNED_TURNS = 100_000
"""Maximum number of active turns that a start examines."""


class AgentCalls:
    """Starts and cancels the turns that tools and runs wait for."""

    def __init__(
        self,
        *,
        access: ActorAccess,
        agents: AgentPinning,
        archive: Archive | None = None,
        budgets: AgentBudgets | None = None,
    ) -> None:
        self._budgets = budgets or AgentBudgets()
        self._archive = archive or NullArchive()
        self._directory = access.directory
        self._records = access.records
        self._streams = access.streams
        self._agents = agents
        self._clock = access.clock

    async def begin(self, command: CallAgent) -> None:
        """Start the turn, unless it has started already. Its end is reported to the command's parent.

        Errors: LIMIT_EXCEEDED (call depth, call cycle), AGENT_NOT_FOUND, CONVERSATION_NOT_FOUND,
        INPUT_INVALID, PAYLOAD_TOO_LARGE. The conversation reports its own rejections to the parent.
        """
        if command.dispatches > 1 and await self._has_begun(command):
            return
        scope = command.scope
        if scope.depth >= scope.max_depth:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"The chain of agent calls has reached its maximum depth of {scope.max_depth}.",
                limit=str(scope.max_depth),
            )
        if command.agent_id in scope.call_chain:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"Agent {command.agent_id} waits for this work already. "
                "Agents must not call each other in a cycle.",
                agent_id=command.agent_id,
            )
        content = input_text(command.input)
        agent = await self._agents.pin_agent(command.agent_id)
        if command.mode == "loop_in":
            await self._ensure_joinable(command.conversation_id)
        else:
            if command.dispatches == 1:
                self._directory.register_new(command.conversation_id)
            # An existing conversation does not change. Both inputs take one commit.
            self._directory.tell(command.conversation_id, self._new_conversation(command, agent))
        send = Send(
            seed=ids.random_id("seed", self._clock.now_ms()),
            agent=agent,
            caller=_caller(command),
            content=content,
            parent=command.parent,
            loop_in=command.mode == "loop_in",
            depth=scope.depth + 1,
            budget=await self._budget(scope),
            max_depth=scope.max_depth,
            call_chain=scope.call_chain,
            trace_id=trace.scope_trace_id(scope),
        )
        self._directory.tell(command.conversation_id, await self._budgets.check_turn(send))

    def cancel(self, conversation_id: str, operation_id: str) -> None:
        """Cancel the turn of an operation whose parent no longer waits, if it has started and not ended."""
        state = self._directory.peek(conversation_id)
        turn = called_turn(state, operation_id) if isinstance(state, ConversationState) else None
        partial_text = self._streams.partial_text(conversation_id, turn.id) if turn is not None else ""
        self._directory.tell(
            conversation_id, CancelCall(operation_id=operation_id, partial_text=partial_text)
        )
        if turn is not None:
            self._charge_caller(turn)

    def _charge_caller(self, turn: Turn) -> None:
        """Charge the caller's turn with the usage of a cancelled delegate, which sends no answer."""
        parent = turn.parent
        if parent is None or not parent.actor_id.startswith("conv_") or turn.status is not TurnStatus.ACTIVE:
            return
        if parent.actor_id == turn.conversation_id or not turn.caller.turn_id or not turn.model_calls:
            return
        usage = Usage(
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            cost_micros=turn.cost_micros,
            estimated=bool(turn.unpriced_calls),
        )
        usage_input = ModelUsageReported(
            turn_id=turn.caller.turn_id, run_id="", usage=usage, calls=turn.model_calls, metered=True
        )
        self._directory.tell(parent.actor_id, usage_input)

    async def cancel_orphans(self) -> int:
        """Cancel the turns whose parents no longer wait for them, after a start. Return their number.

        Damaged records are skipped.
        """
        query = Query(
            table="turns", statuses=(TurnStatus.ACTIVE.value,), limit=MAX_SCANNED_TURNS, lenient=True
        )
        orphans = 0
        for turn in await self._records.find(query):
            parent = turn.parent
            if parent is not None and not await self._is_awaited(turn, parent):
                self.cancel(turn.conversation_id, parent.operation_id)
                orphans += 1
        return orphans

    async def _is_awaited(self, turn: Turn, parent: Parent) -> bool:
        """Return True if ``parent`` waits for this turn and not for another attempt, or if its record is
        damaged."""
        try:
            return await self._awaits(turn, parent)
        except WonderError as problem:
            _log.error("orphans_unknown", turn=turn.id, problem=str(problem))
            return True

    async def _awaits(self, turn: Turn, parent: Parent) -> bool:
        if parent.actor_id.startswith("conv_"):
            waiting = await self._records.get("operations", parent.operation_id, parent.actor_id)
            return isinstance(waiting, Operation) and waiting.run_id == turn.conversation_id
        # The id of a node's execution is the id of its operation.
        node = await self._records.get("executions", parent.operation_id, parent.actor_id)
        return (
            isinstance(node, NodeExecution)
            and node.status is ExecutionStatus.RUNNING
            and node.carried_out_by == turn.conversation_id
        )

    def _new_conversation(self, command: CallAgent, agent: PinnedAgent) -> Create:
        return delegate_conversation(
            command.conversation_id,
            agent,
            command.scope.project_id,
            # Archiving and deletion of the caller find the conversation by it.
            command.parent.actor_id,
            self._clock.now_ms(),
            branch_of(command.scope),
        )

    async def _ensure_joinable(self, conversation_id: str) -> None:
        known = ids.is_id("conv", conversation_id) and await self._records.get(
            "conversations", conversation_id, conversation_id
        )
        if not known:
            raise error(
                Reason.CONVERSATION_NOT_FOUND,
                f"Conversation {conversation_id[:64]!r} does not exist or was deleted.",
                id=conversation_id[:64],
            )
        await self._archive.ensure_restored(conversation_id)

    async def _budget(self, scope: Scope) -> Budget | None:
        """Return the turn's budget: the remainder of its caller's turn, conversation and lifetime budgets."""
        if not scope.agent_id:
            return scope.budget
        try:
            caller = await self._agents.pin_agent(scope.agent_id)
        except WonderError:
            # The agent or its persona was deleted meanwhile; its work continues as it began.
            return scope.budget
        return await self._budgets.delegate_budget(caller, scope.budget)

    async def _has_begun(self, command: CallAgent) -> bool:
        """Return True if the turn has started for this attempt. If it has ended, report its end again."""
        query = Query(
            table="turns",
            actor=command.conversation_id,
            alias=command.parent.operation_id,
            by_ordinal=True,
            limit=1,
        )
        found: list[Turn] = await self._records.find(query)
        if not found or not is_final(found[0]):
            return False
        if found[0].status is TurnStatus.ACTIVE:
            return found[0].parent == command.parent
        parent, result = command.parent, answer(found[0], command.parent)
        if result.fault is not None:
            self._directory.report_failure(parent.actor_id, parent.operation_id, result.fault)
        else:
            self._directory.report_success(parent.actor_id, parent.operation_id, result.output)
        return True


def _called_by_turn(command: CallAgent) -> bool:
    """Return True if a tool of a turn made the call, not a node of a run."""
    return command.parent.actor_id.startswith("conv_")


def _caller(command: CallAgent) -> Caller:
    if _called_by_turn(command):
        return Caller(type="agent", agent_id=command.scope.agent_id, turn_id=command.scope.turn_id)
    return Caller(type="workflow", run_id=command.parent.actor_id)


def delegate_conversation(
    conversation_id: str, agent: PinnedAgent, project_id: str, called_by: str, now: int, branch: str
) -> Create:
    """Build the conversation of one delegated turn, with the agent as its only participant.

    Without a project, it belongs to the agent's first. Without a branch, the turn uses no repositories.
    """
    member = Participant(type="agent", id=agent.agent_id, name=agent.name, joined_ms=now)
    conversation = Conversation(
        id=conversation_id,
        project_id=project_id or agent.home(),
        participants=(member,),
        created_ms=now,
        updated_ms=now,
        called_by=called_by,
        branch=branch,
    )
    return Create(conversation=conversation)


def input_text(given: JsonValue) -> str:
    """Return the message for an agent's input: a string, alone or as the only field of an object,
    unchanged; anything else as JSON.

    Errors: INPUT_INVALID, PAYLOAD_TOO_LARGE.
    """
    (only,) = given.values() if isinstance(given, dict) and len(given) == 1 else (given,)
    content = only if isinstance(only, str) else json.dumps(given, ensure_ascii=False)
    if given == {} or not content.strip():
        raise error(
            Reason.INPUT_INVALID, "The agent's input is empty. Give it a text or an object.", field="input"
        )
    size_bytes = len(content.encode("utf-8", "replace"))
    if size_bytes > MAX_CONTENT_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"The agent's input has {size_bytes} bytes; the maximum is {MAX_CONTENT_BYTES}. "
            "Put longer text into a document.",
            field="input",
            limit=str(MAX_CONTENT_BYTES),
        )
    return content
