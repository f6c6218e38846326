"""What would be sent to the model if a message were sent now (feature D6). Nothing of it stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wonder_server.actors.conversations import Conversations, Saying
from wonder_server.actors.rehearsal import Rehearsals
from wonder_server.core.commands import Scope
from wonder_server.core.conversation.answering import first_request
from wonder_server.core.conversation.decisions import Refuse, StartTurn
from wonder_server.core.conversation.dispatch import place_of
from wonder_server.core.conversation.hooks import assembly_input
from wonder_server.core.conversation.pieces import HOOK_TIMEOUT_MS
from wonder_server.core.conversation.provenance import Block, blocks
from wonder_server.core.conversation.sending import send
from wonder_server.core.conversation.window import cut
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.tokens import json_tokens
from wonder_server.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A request that would be sent, and what it is made of; tokens are estimates."""

    request: dict[str, Any]
    provider: str
    model: str
    format: str
    blocks: list[Block]
    input_tokens: int
    context_window_tokens: int
    workflow: str


class Previews:
    """Shows requests without sending them."""

    def __init__(self, conversations: Conversations, rehearsals: Rehearsals, clock: Clock) -> None:
        self._conversations = conversations
        self._rehearsals = rehearsals
        self._clock = clock

    async def preview(self, conversation_id: str, saying: Saying) -> Preview:
        """The request of the turn that ``saying`` would start. An agent that sums up is shown the newest
        messages that fit, for a summary would have to be paid for.

        Errors: as `Conversations.send`, and CONTEXT_ASSEMBLY_FAILED.
        """
        event = await self._conversations.intended(conversation_id, saying)
        state = await self._conversations.state(conversation_id)
        now = self._clock.now_ms()
        decided = send(state, event, now)
        refused = next((each.fault for each in decided if isinstance(each, Refuse)), None)
        if refused is not None:
            raise WonderError(refused)
        turn = next(each.turn for each in decided if isinstance(each, StartTurn))
        agent = event.agent
        reduced = cut(state, turn, agent)
        given = {**assembly_input(state, turn, agent, reduced), "explain": True}
        project_id, branch = place_of(state, agent)
        scope = Scope(
            project_id=project_id,
            agent_id=agent.agent_id,
            conversation_id=conversation_id,
            branch=branch,
        )
        try:
            output = await self._rehearsals.run(agent.assembly, given, scope, HOOK_TIMEOUT_MS)
        except WonderError as problem:
            message = f"The context could not be assembled: {problem.fault.message}"
            raise WonderError(
                replace(problem.fault, reason=Reason.CONTEXT_ASSEMBLY_FAILED, message=message, field="")
            ) from None
        request = first_request(state, turn, agent, output, now)
        if isinstance(request, Fault):
            raise WonderError(request)
        profile = agent.profile.spec
        return Preview(
            request=request,
            provider=profile.provider,
            model=profile.model,
            format=profile.format,
            blocks=blocks(request, output.get("sources")),
            input_tokens=json_tokens(request),
            context_window_tokens=profile.context_window_tokens,
            workflow=str(agent.assembly.pin),
        )
