"""The asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from wonder_sdk import environment
from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.chat import Chat
from wonder_sdk.conversation.event_cursor import DeltaKind, EventCursor, Item
from wonder_sdk.conversation.subscriptions import subscribe
from wonder_sdk.errors import RequestError
from wonder_sdk.json_types import JsonDict
from wonder_sdk.methods.artifacts import ArtifactMethods
from wonder_sdk.methods.files import FileMethods
from wonder_sdk.methods.histories import HistoryMethods
from wonder_sdk.methods.memories import MemoryMethods
from wonder_sdk.methods.messages import MessageMethods
from wonder_sdk.methods.turns import TurnMethods
from wonder_sdk.methods.workflows import WorkflowMethods
from wonder_sdk.transport.channel import Credentials, TypedChannel
from wonder_sdk.transport.reconnect import ReconnectPolicy
from wonder_sdk.values import to_struct


class Client(
    WorkflowMethods,
    MemoryMethods,
    MessageMethods,
    HistoryMethods,
    TurnMethods,
    ArtifactMethods,
    FileMethods,
):
    """A connection to a Wonder server, for asyncio; `wonder_sdk.sync.Client` is the same without.

    ::

        async with Client() as client:
            conversation_id = await client.create_conversation(agent="assistant")
            async with client.converse(conversation_id) as chat:
                async for event in chat.send("Hello!"):
                    if isinstance(event, TextDelta):
                        print(event.text, end="")

    ``await client.run("acme/flows/release", {"version": "1.2"})`` runs a workflow. `WorkflowMethods` has the
    other methods for runs and gates, `MemoryMethods` those for memories, `MessageMethods` the search in
    messages, `HistoryMethods` forks and transcripts, `TurnMethods` one call for a message and its answer,
    `ArtifactMethods` those for artifacts and branches, and `FileMethods` those for files.

    ``target`` is ``host:port``. Each call sends the ``token``. ``tls_root`` (a PEM file or its bytes) or
    ``tls=True`` (the system's roots) turns on TLS; use a connection without TLS on one machine only. The
    defaults come from ``WONDER_SERVER``, ``WONDER_TOKEN`` and ``WONDER_CA``. ``reconnect`` sets the delays
    and the timeout of reconnects.

    The services (``conversations``, ``library``, ``coordinator``, ``executor``, ``memory``, ``files``,
    ``backups``, ``identity``) have every RPC as a typed method,
    ``await client.library.get_agent(v1.GetAgentRequest(agent_id="…"))``.
    All raise `WonderError`. A new client connects at its first call.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        token: str | None = None,
        tls_root: Path | str | bytes | None = None,
        tls: bool = False,
        reconnect: ReconnectPolicy | None = None,
    ) -> None:
        credentials = Credentials(token=token, tls_root=tls_root, tls=tls)
        self.target = target = target or environment.target()
        self._reconnect = reconnect or ReconnectPolicy()
        # With a token the user is the token's name, which only the server knows.
        self._user = "" if credentials.metadata else "user"
        typed = TypedChannel(credentials.open_channel(target), credentials, target, self._reconnect.silent_ms)
        self._typed = typed
        self.conversations = stubs.ConversationServiceStub(typed)
        self.library = stubs.LibraryServiceStub(typed)
        self.coordinator = stubs.CoordinatorServiceStub(typed)
        self.executor = stubs.ExecutorServiceStub(typed)
        self.memory = stubs.MemoryServiceStub(typed)
        self.files = stubs.FileServiceStub(typed)
        self.backups = stubs.BackupServiceStub(typed)
        self.identity = stubs.IdentityServiceStub(typed)
        self._check_health = typed.unary_unary("/grpc.health.v1.Health/Check", str.encode, bytes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Turns and runs continue."""
        await self._typed.close()

    async def create_conversation(
        self,
        *,
        agent: str | Sequence[str] = "assistant",
        user: str | None = None,
        title: str = "",
        project: str = "",
        external_ref: str = "",
        metadata: JsonDict | None = None,
        concurrent_turns: str = "",
        messages: Sequence[v1.HistoryMessage] = (),
        request_id: str = "",
    ) -> str:
        """Create a conversation of one user and one agent (by id or name), or several, and return its id.

        With several agents, a message addresses one by ``@name`` or by ``agent``; else the first answers.

        ``concurrent_turns`` is the policy for messages while the agent works: ``parallel``, ``queue``,
        ``interrupt`` or ``steer``; "" for that of the agent's persona.

        ``messages`` is a history to start with, oldest first; `wonder_sdk.read_transcripts` reads one. It is
        not added to a conversation that has the ``external_ref`` already.

        The default ``user`` is ``user``. With a token there is none by default: the token's name takes part
        from its first message. "" means no user.

        If a conversation has the ``external_ref``, the caller's own name for it, its id is returned. Raises
        NotFoundError for an agent or project that does not exist.
        """
        agents = [agent] if isinstance(agent, str) else agent
        participants = [v1.Participant(agent=v1.AgentParticipant(agent_id=each)) for each in agents]
        if user := self._user if user is None else user:
            participants.insert(0, v1.Participant(user=v1.UserParticipant(user_id=user)))
        response = await self.conversations.create_conversation(
            v1.CreateConversationRequest(
                conversation=v1.Conversation(
                    title=title,
                    project_id=project,
                    participants=participants,
                    external_ref=external_ref,
                    metadata=to_struct(metadata or None, "metadata"),
                    concurrent_turns=_policy(concurrent_turns),
                ),
                request_id=request_id,
                return_existing=bool(external_ref),
                messages=list(messages),
            )
        )
        if response.conversation is None:
            raise ValueError("the server answered without a conversation")
        return response.conversation.id

    async def preview_context(
        self,
        conversation_id: str,
        content: str,
        *,
        agent: str = "",
        user: str = "",
        overrides: v1.TurnOverrides | None = None,
    ) -> v1.PreviewContextResponse:
        """Return the model request for a message ``content``, with the source of each part. ``overrides`` are
        settings of the message's turn; see `Chat.send`.

        Nothing is sent to the model or stored. Raises NotFoundError, and FailedPreconditionError if context
        assembly fails or cannot be previewed.
        """
        send = v1.ConverseSend(content=content, agent_id=agent, user_id=user, overrides=overrides)
        return await self.conversations.preview_context(
            v1.PreviewContextRequest(conversation_id=conversation_id, send=send)
        )

    def converse(
        self,
        conversation_id: str,
        *,
        after_sequence: int = 0,
        tail_only: bool = False,
        delta_kinds: Collection[DeltaKind] = (),
    ) -> Chat:
        """Attach to a conversation, for ``async with``; see `Chat`.

        ``after_sequence`` is the sequence of the last event that was seen, 0 for none. ``tail_only`` begins
        with new events. ``delta_kinds`` adds deltas of these kinds to those of text: ``reasoning`` and
        ``tool_arguments``. Entering raises NotFoundError, OutOfRangeError for a cursor beyond the last event,
        and UnavailableError without a server. Later the chat reconnects after a lost connection.
        """
        return Chat(
            conversation_id,
            self.conversations.converse,
            lambda after: subscribe(self.conversations, conversation_id, EventCursor(after), self._reconnect),
            EventCursor(after_sequence, tail_only=tail_only, delta_kinds=delta_kinds),
            self._reconnect,
        )

    def subscribe(
        self,
        conversation_id: str,
        *,
        after_sequence: int = 0,
        tail_only: bool = False,
        delta_kinds: Collection[DeltaKind] = (),
    ) -> AsyncIterator[Item | v1.CaughtUp]:
        """Watch a conversation: yield each item after the cursor once, across reconnects.

        The iterator ends when the caller leaves the loop. A `v1.CaughtUp` marks the end of the earlier
        events. ``delta_kinds`` is as in `converse`.
        """
        seen = EventCursor(after_sequence, tail_only=tail_only, delta_kinds=delta_kinds)
        return subscribe(self.conversations, conversation_id, seen, self._reconnect)

    async def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """Return ``SERVING`` or ``NOT_SERVING``, of the server or of one service
        (``wonder.v1.MemoryService``).

        ``timeout`` is in seconds. Raises UnavailableError without a server, and NotFoundError for an unknown
        service.
        """
        # grpc.health.v1 has one field each way; see grpc/health/v1/health.proto.
        asked = service.encode()
        request = (b"\n" + bytes([len(asked)]) + asked).decode() if asked else ""
        answer: bytes = await self._check_health(request, timeout=timeout)
        return {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}.get(answer, "UNKNOWN")


def _policy(name: str) -> v1.ConcurrentTurns:
    try:
        return v1.ConcurrentTurns[name.upper() or "UNSPECIFIED"]
    except KeyError:
        problem = f"concurrent_turns is {name!r}. Use parallel, queue, interrupt or steer."
        raise RequestError(problem, "conversation.concurrent_turns") from None
