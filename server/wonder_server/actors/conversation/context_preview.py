"""Previews of the request that a message would send to the model (feature D6). Nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wonder_server.actors.conversation.conversations import Conversations, SendRequest
from wonder_server.actors.dispatch.dry_run import DryRuns
from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.context.history import select_history
from wonder_server.core.conversation.context.hook_inputs import assembly_input, message_input
from wonder_server.core.conversation.context.provenance import Block, blocks, with_turn_ids
from wonder_server.core.conversation.model.decisions import Refuse, StartTurn
from wonder_server.core.conversation.model.operations import HOOK_TIMEOUT_MS
from wonder_server.core.conversation.model.speakers import user_of
from wonder_server.core.conversation.output.dispatch import work_place
from wonder_server.core.conversation.output.sent_tools import with_sent_tools
from wonder_server.core.conversation.planning.model_requests import first_request
from wonder_server.core.conversation.planning.start_turn import start_turn
from wonder_server.core.definitions.specs import PinnedProfile, PinnedSource
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.token_estimates import json_tokens
from wonder_server.ports.clock import Clock
from wonder_server.ports.files import RequestFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A request with its parts. Token counts are estimates.

    ``extraction`` and ``summary`` are the models of these hooks; None for that of the turn.
    """

    request: JsonDict
    provider: str
    model: str
    format: str
    blocks: list[Block]
    input_tokens: int
    context_window_tokens: int
    workflow: str
    sources: tuple[PinnedSource, ...] = ()
    extraction: PinnedProfile | None = None
    summary: PinnedProfile | None = None


class ContextPreviews:
    """Builds requests without sending them."""

    def __init__(
        self, conversations: Conversations, dry_runs: DryRuns, clock: Clock, files: RequestFiles
    ) -> None:
        self._conversations = conversations
        self._dry_runs = dry_runs
        self._clock = clock
        self._files = files

    async def preview(self, conversation_id: str, send_request: SendRequest) -> Preview:
        """Return the request of the turn that ``send_request`` would start.

        A preview never summarizes, since a summary costs model usage. An agent with summarization previews
        the newest messages that fit. Errors: those of `Conversations.send`, and CONTEXT_ASSEMBLY_FAILED.
        """
        event = await self._conversations.prepare_send(conversation_id, send_request)
        state = await self._conversations.state(conversation_id)
        now = self._clock.now_ms()
        decisions = start_turn(state, event, now)
        rejection = next((each.fault for each in decisions if isinstance(each, Refuse)), None)
        if rejection is not None:
            raise WonderError(rejection)
        turn = next(each.turn for each in decisions if isinstance(each, StartTurn))
        agent = event.agent
        reduced = select_history(state, turn, agent)
        hook_input = {
            **with_turn_ids(assembly_input(state, turn, agent, now, reduced)),
            **message_input(turn.input, event.parts),
            "explain": True,
        }
        project_id, branch = work_place(state, agent)
        scope = Scope(
            project_id=project_id,
            agent_id=agent.agent_id,
            conversation_id=conversation_id,
            branch=branch,
            principal=turn.principal,
            user_id=user_of(turn.caller),
        )
        try:
            output = await self._dry_runs.run(agent.assembly, hook_input, scope, HOOK_TIMEOUT_MS)
        except WonderError as problem:
            message = f"The context could not be assembled: {problem.fault.message}"
            raise WonderError(
                replace(problem.fault, reason=Reason.CONTEXT_ASSEMBLY_FAILED, message=message, field="")
            ) from None
        request = first_request(state, turn, agent, output, now)
        if isinstance(request, Fault):
            raise WonderError(request)
        request, sources = with_sent_tools(agent, request)
        profile = agent.profile.spec
        request = await self._files.labelled(project_id, profile, request)
        return Preview(
            request=request,
            provider=profile.provider,
            model=profile.model,
            format=profile.format,
            blocks=blocks(request, output.get("sources")),
            input_tokens=json_tokens(request),
            context_window_tokens=profile.context_window_tokens,
            workflow=str(agent.assembly.pin),
            sources=sources,
            extraction=next(iter(agent.extraction_profiles if agent.extraction else ()), None),
            summary=next(iter(agent.summary_profiles if agent.summary else ()), None),
        )
