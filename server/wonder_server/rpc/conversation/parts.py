"""The entry points that the ConversationService calls, for the principal of the current call."""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.actors.conversation.call_agent import AgentCallService
from wonder_server.actors.conversation.context_preview import ContextPreviews
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.histories.forks import ConversationForks
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.runs.lookup import RunLookup
from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.scoped import ScopedRecords
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.principal import current_principal


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """Entry points of the actors that the ConversationService calls, and names, for one access scope."""

    conversations: Conversations
    lifecycle: ConversationLifecycle
    agent_calls: AgentCallService
    previews: ContextPreviews
    forks: ConversationForks
    runs: RunLookup
    names: NameResolver


class ConversationMethods:
    """Base of the methods of the ConversationServicer: the parts for the principal of the call."""

    def __init__(self, parts: ByPrincipal[ConversationParts]) -> None:
        self._parts = parts

    @property
    def _own(self) -> ConversationParts:
        return self._parts.of(current_principal.get())

    @property
    def _conversations(self) -> Conversations:
        return self._own.conversations

    @property
    def _lifecycle(self) -> ConversationLifecycle:
        return self._own.lifecycle

    @property
    def _records(self) -> ScopedRecords:
        return self._own.conversations.lookup.records
