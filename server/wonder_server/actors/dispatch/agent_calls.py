"""Calls of agents by tools and by nodes of runs: one turn each, whose end is reported to the caller (C8 to
C10).

``delegate``: a new conversation holds this one turn and this one agent, so the agent sees only its input.
``loop_in``: the agent joins the conversation of the tool's turn or of the run, and answers to all
participants.

A call may be dispatched twice. Its conversation is the same both times and recognizes the parent's
operation. This module looks up turns that the conversation no longer holds in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from wonder_server.actors.access import InternalAccess
from wonder_server.actors.archive.archiver import Archive, NullArchive
from wonder_server.actors.dispatch.descendant_quota import root_of
from wonder_server.actors.usage.budget_enforcement import Budgets
from wonder_server.core import ids
from wonder_server.core.actor import trace
from wonder_server.core.actor.commands import CallAgent, Parent, Scope, branch_of
from wonder_server.core.actor.queries import ReadCalledTurn
from wonder_server.core.budget import Budget
from wonder_server.core.content.parts import MAX_MESSAGE_FILES, TEXT, ContentPart, Parts, files_in
from wonder_server.core.conversation.model.inputs import (
    MAX_CONTENT_BYTES,
    CancelCall,
    Create,
    ModelUsageReported,
    Send,
)
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.values import (
    TURN_RULES,
    Caller,
    Conversation,
    Operation,
    Participant,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planning.agent_calls import answer, is_final
from wonder_server.core.coordinator.model.values import ExecutionStatus, NodeExecution
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.identity import SERVER, Principal, server_in
from wonder_server.core.json_types import JsonValue
from wonder_server.core.model import Usage
from wonder_server.logs import logger
from wonder_server.ports.access import ByPrincipal, working_principal
from wonder_server.ports.files import NO_FILES, FileLookup, part_of
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.placement import owner_moved
from wonder_server.ports.records import Query

_log = logger("actors")

MAX_SCANNED_TURNS = 100_000
"""Limit above the number of active turns in a page of conversations."""

_READ_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses between the attempts of a call whose reads the store refuses."""


class AgentCalls:
    """Starts and cancels the turns that tools and runs wait for."""

    def __init__(
        self,
        *,
        access: InternalAccess,
        agents: ByPrincipal[AgentPinning],
        archive: Archive | None = None,
        budgets: Budgets | None = None,
        files: FileLookup = NO_FILES,
    ) -> None:
        """``files`` finds those of every project: each call is checked against its own."""
        self._files = files
        self._budgets = budgets or Budgets()
        self._archive = archive or NullArchive()
        self._directory = access.directory
        self._records = access.records
        self._agents = agents
        self._clock = access.clock

    async def begin(self, command: CallAgent) -> None:
        """Start the turn, unless it has started already. Its end is reported to the command's parent.

        Errors: LIMIT_EXCEEDED (call depth, call cycle), AGENT_NOT_FOUND, CONVERSATION_NOT_FOUND,
        INPUT_INVALID, PAYLOAD_TOO_LARGE. The conversation reports its own rejections to the parent. A read
        that the store refuses for a moment is repeated, so it does not fail the call.
        """
        for pause_s in _READ_PAUSES_S:
            try:
                return await self._begin(command)
            except WonderError as problem:
                if not (problem.fault.transient and problem.fault.reason is Reason.STORAGE_UNAVAILABLE):
                    raise
            await asyncio.sleep(pause_s)
        await self._begin(command)

    async def _begin(self, command: CallAgent) -> None:
        if command.dispatches == 1 and command.mode != "loop_in":
            await self._start(command)  # The conversation is new.
            return
        # Archiving would remove the rows between the reads and the message.
        async with self._on_disk(command.conversation_id):
            if command.dispatches == 1 or not await self._has_begun(command):
                await self._start(command)

    def _on_disk(self, conversation_id: str) -> AbstractAsyncContextManager[None]:
        """Keep a conversation's record on disk. That of another owner is read as it is."""
        if ids.is_id("conv", conversation_id) and not self._directory.owns(conversation_id):
            return nullcontext()
        return self._archive.on_disk(conversation_id)

    async def _start(self, command: CallAgent) -> None:
        """Send the message. Only the owner of the conversation's shard can: errors OWNER_MOVED."""
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
        agent = await self._agents.of(working_principal(scope.principal)).pin_agent(command.agent_id)
        await self._check_projects(scope, agent)
        if command.mode == "loop_in":
            await self._check_joinable(command.conversation_id, agent)
        else:
            # An existing conversation does not change. Both inputs take one commit.
            created = self._new_conversation(command, agent)
            self._directory.tell(command.conversation_id, created, fresh=command.dispatches == 1)
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
            principal=scope.principal,
            output_schema=command.output_schema,
            rules=TURN_RULES,
            parts=await self._parts(command.input, content, scope.project_id),
            root_id=root_of(command),
            levels=scope.levels,
        )
        self._directory.tell(command.conversation_id, await self._budgets.check_turn(send))

    async def _parts(self, given: JsonValue, content: str, project_id: str) -> Parts:
        """Return the message with the files that the input describes; nothing without any.

        A description of a file that the project lacks stays words: a model may have invented it.
        """
        found = list[ContentPart]()
        for item in files_in(given)[:MAX_MESSAGE_FILES]:
            file = await self._files.file(item["file_id"])
            if file is not None and file.project_id == project_id:
                found.append(part_of(file))
        return (ContentPart(type=TEXT, length=len(content)), *found) if found else ()

    async def cancel(self, conversation_id: str, operation_id: str) -> None:
        """Cancel the turn of an operation whose parent no longer waits, if it has started and not ended.

        An input for a shard of another owner is dropped. That owner finds the turn when it gains the shard
        (`cancel_orphans`).
        """
        if not self._directory.owns(conversation_id):
            return
        turn = await self._directory.query(conversation_id, ReadCalledTurn(operation_id=operation_id))
        if turn is None:
            turn = await self._stored_turn(conversation_id, operation_id)
        self._directory.tell(conversation_id, CancelCall(operation_id=operation_id, principal=SERVER.text))
        if isinstance(turn, Turn):
            self._charge_caller(turn)

    async def _stored_turn(self, conversation_id: str, operation_id: str) -> Turn | None:
        """Return the turn of an operation in a conversation that is on disk only."""
        query = Query(
            table="turns", actor=conversation_id, alias=operation_id, by_ordinal=True, limit=1, lenient=True
        )
        try:
            found: list[Turn] = await self._records.find(query)
        except WonderError as problem:
            # Its usage is not charged to the caller then.
            _log.error("called_turn_unreadable", conversation=conversation_id, problem=str(problem))
            return None
        return found[0] if found else None

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
            cached_input_tokens=turn.cached_input_tokens,
            cache_write_input_tokens=turn.cache_write_input_tokens,
            reasoning_tokens=turn.reasoning_tokens,
            cost_micros=turn.cost_micros,
            estimated=bool(turn.unpriced_calls),
        )
        usage_input = ModelUsageReported(
            turn_id=turn.caller.turn_id, run_id="", usage=usage, calls=turn.model_calls, metered=True
        )
        self._directory.tell(parent.actor_id, usage_input)

    async def cancel_orphans(self, conversation_ids: Sequence[str]) -> int:
        """Cancel the turns of these conversations whose parents no longer wait for them, after a start.
        Return their number.

        Damaged records are skipped.
        """
        query = Query(
            table="turns",
            actors=tuple(conversation_ids),
            statuses=(TurnStatus.ACTIVE.value,),
            limit=MAX_SCANNED_TURNS,
            lenient=True,
        )
        orphans = 0
        for turn in await self._records.find(query):
            parent = turn.parent
            if parent is not None and not await self._is_awaited(turn, parent):
                await self.cancel(turn.conversation_id, parent.operation_id)
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
        # Called by an agent, it sees documents and repositories of its own projects only. A run that no agent
        # has started chooses the project of the agents that it calls.
        belongs = not command.scope.agent_id or command.scope.project_id in agent.project_ids
        return delegate_conversation(
            command.conversation_id,
            agent,
            Delegation(
                # Archiving and deletion of the caller find the conversation by it.
                called_by=command.parent.actor_id,
                project_id=command.scope.project_id if belongs else "",
                branch=branch_of(command.scope) if belongs else "",
                principal=command.scope.principal,
            ),
            self._clock.now_ms(),
        )

    async def _check_projects(self, scope: Scope, agent: PinnedAgent) -> None:
        """Check that the calling agent sees the called one: they share a project. Work of no agent may call
        every agent. Errors: PERMISSION_DENIED.
        """
        if not scope.agent_id:
            return
        try:
            projects = (await self._agents.of(_server_for(scope)).pin_agent(scope.agent_id)).project_ids
        except WonderError:
            # The calling agent was deleted meanwhile; its work continues in the project where it began.
            projects = (scope.project_id,)
        check_shared_project(projects, agent)

    async def _check_joinable(self, conversation_id: str, agent: PinnedAgent) -> None:
        known = ids.is_id("conv", conversation_id) and await self._records.get(
            "conversations", conversation_id, conversation_id
        )
        if not known:
            raise not_found(Reason.CONVERSATION_NOT_FOUND, conversation_id)
        if not self._directory.owns(conversation_id):
            raise owner_moved(ids.shard_of(conversation_id))
        if known.project_id and known.project_id not in agent.project_ids:
            raise error(
                Reason.PERMISSION_DENIED,
                f"The agent `{agent.name}` does not belong to the project of this conversation, and cannot "
                "join it.",
                field="agent_id",
                agent_id=agent.agent_id,
                project_id=known.project_id,
            )

    async def _budget(self, scope: Scope) -> Budget | None:
        """Return the turn's budget: the remainder of its caller's turn, conversation and lifetime budgets."""
        if not scope.agent_id:
            return scope.budget
        try:
            caller = await self._agents.of(_server_for(scope)).pin_agent(scope.agent_id)
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
        turn, parent = found[0], command.parent
        if turn.status is TurnStatus.ACTIVE:
            return turn.parent == parent
        result = answer(progress_of(turn), turn.conversation_id, parent)
        if result.fault is not None:
            self._directory.report_failure(parent.actor_id, parent.operation_id, result.fault)
        else:
            self._directory.report_success(parent.actor_id, parent.operation_id, result.output)
        return True


def check_shared_project(project_ids: Collection[str], agent: PinnedAgent) -> None:
    """Raise PERMISSION_DENIED if an agent of these projects must not call ``agent``."""
    if not set(project_ids) & set(agent.project_ids):
        raise error(
            Reason.PERMISSION_DENIED,
            f"The agent `{agent.name}` belongs to no project of the calling agent. An agent calls only "
            "agents with which it shares a project.",
            field="agent_id",
            agent_id=agent.agent_id,
        )


def _server_for(scope: Scope) -> Principal:
    """Return the server for work in the tenant of a scope: the caller may see less than its agent."""
    return server_in(working_principal(scope.principal).tenant)


def _called_by_turn(command: CallAgent) -> bool:
    """Return True if a tool of a turn made the call, not a node of a run."""
    return command.parent.actor_id.startswith("conv_")


def _caller(command: CallAgent) -> Caller:
    if _called_by_turn(command):
        return Caller(type="agent", agent_id=command.scope.agent_id, turn_id=command.scope.turn_id)
    return Caller(type="workflow", run_id=command.parent.actor_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The work that delegates a turn: the id of its caller, its project, branch and principal.

    Without a project, the conversation belongs to the agent's first. Without a branch, the turn uses no
    repositories.
    """

    called_by: str
    project_id: str
    branch: str
    principal: str


def delegate_conversation(
    conversation_id: str, agent: PinnedAgent, delegation: Delegation, now: int
) -> Create:
    """Build the conversation of one delegated turn, with the agent as its only participant."""
    member = Participant(type="agent", id=agent.agent_id, name=agent.name, joined_ms=now)
    conversation = Conversation(
        id=conversation_id,
        project_id=delegation.project_id or agent.home(),
        participants=(member,),
        created_ms=now,
        updated_ms=now,
        called_by=delegation.called_by,
        branch=delegation.branch,
        created_by=delegation.principal,
        updated_by=delegation.principal,
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
