"""The actor runtime: the loop with its handlers, and every entry point that needs an actor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from wonder_server.actors.archive.archiver import Archiver
from wonder_server.actors.conversation.call_agent import AgentCallService
from wonder_server.actors.conversation.context_preview import ContextPreviews
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.expiry_sweeper import ExpirySweeper
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.dispatch.dry_run import DryRuns
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.runs.consolidation import ConsolidationRuns
from wonder_server.actors.runs.runs import Runs
from wonder_server.actors.runtime.loop import Loop
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.usage.agent_budgets import AgentBudgets
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.compose.clients import Clients
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.memory.retention import Retention
from wonder_server.settings import Settings

_log = logger("server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actors:
    """The loop and its parts."""

    loop: Loop
    handlers: Handlers
    streams: StreamHub
    budgets: AgentBudgets
    archiver: Archiver


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The running actors and their entry points."""

    actors: Actors
    conversations: Conversations
    lifecycle: ConversationLifecycle
    agent_calls: AgentCallService
    previews: ContextPreviews
    runs: Runs


@asynccontextmanager
async def open_runtime(
    settings: Settings, clock: Clock, stores: Stores, clients: Clients, services: ApplicationServices
) -> AsyncIterator[Runtime]:
    """Build the loop and the entry points, and resume the actors with pending operations."""
    async with AsyncExitStack() as stack:
        actors = _build_actors(settings, clock, stores, clients, services)
        stack.push_async_callback(actors.loop.stop)
        stack.push_async_callback(actors.handlers.stop)
        runtime = _build_entry_points(settings, clock, stores, services, actors)
        stack.push_async_callback(runtime.lifecycle.close)
        await _resume(actors, stores)
        yield runtime


def _build_actors(
    settings: Settings, clock: Clock, stores: Stores, clients: Clients, services: ApplicationServices
) -> Actors:
    streams = StreamHub(settings.max_stream_backlog_events, settings.max_stream_backlog_bytes)
    budgets = AgentBudgets(stores.accounts)
    handlers = Handlers(
        tasks=services.executor,
        model=clients.bounded_model,
        prices=clients.prices,
        memory=services.memory_operations,
        streams=streams,
        agents=services.library,
        records=stores.records,
        clock=clock,
        budgets=budgets,
    )
    loop = Loop(
        (CONVERSATION, RUN),
        stores.journals.of,
        clock,
        dispatch=handlers.dispatch,
        publish=streams.publish,
        idle_limit=settings.max_idle_actors,
        idle_bytes=settings.max_idle_actor_bytes,
    )
    archiver = Archiver(loop=loop, records=stores.records, archives=stores.archives, blobs=stores.blobs)
    handlers.attach(loop, archiver)
    services.usage_reporter.attach(loop)
    return Actors(loop=loop, handlers=handlers, streams=streams, budgets=budgets, archiver=archiver)


def _build_entry_points(
    settings: Settings, clock: Clock, stores: Stores, services: ApplicationServices, actors: Actors
) -> Runtime:
    loop, streams, library = actors.loop, actors.streams, services.library
    conversations = Conversations(
        loop=loop,
        journals=stores.journals,
        records=stores.records,
        streams=streams,
        agents=library,
        clock=clock,
        archive=actors.archiver,
        expire_after_ms=settings.conversation_ttl_seconds * 1_000,
        budgets=actors.budgets,
    )
    return Runtime(
        actors=actors,
        conversations=conversations,
        lifecycle=ConversationLifecycle(
            loop=loop,
            journals=stores.journals,
            records=stores.records,
            streams=streams,
            agents=library,
            conversations=conversations,
        ),
        agent_calls=AgentCallService(
            loop=loop,
            journals=stores.journals,
            conversations=conversations,
            streams=streams,
            agents=library,
            clock=clock,
            budgets=actors.budgets,
        ),
        previews=ContextPreviews(conversations, DryRuns(services.executor, clock, MemoryJournal), clock),
        runs=Runs(
            loop=loop,
            journals=stores.journals,
            records=stores.records,
            streams=streams,
            workflows=library,
            clock=clock,
            branches=services.repositories.worktrees,
        ),
    )


async def _resume(actors: Actors, stores: Stores) -> None:
    """Load the actors with pending operations and cancel orphaned operations."""
    unfinished = await stores.unfinished()
    actors.loop.resume(unfinished)
    orphans = await actors.handlers.cancel_orphans()
    if unfinished:
        _log.info("actors_resumed", actors=len(unfinished), orphans=orphans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweepers:
    """The periodic sweeps: expiry of conversations, and retention of memories."""

    expiry: ExpirySweeper
    retention: Retention
    lifecycle: ConversationLifecycle

    async def stop(self) -> None:
        """Stop the sweeps and the deletions in progress. The next start resumes them."""
        await self.expiry.stop()
        await self.retention.stop()
        await self.lifecycle.close()


@asynccontextmanager
async def open_sweepers(
    settings: Settings, clock: Clock, stores: Stores, services: ApplicationServices, runtime: Runtime
) -> AsyncIterator[Sweepers]:
    """Recover interrupted archiving, then sweep periodically until exit."""
    interval_s = settings.sweep_interval_seconds
    sweepers = Sweepers(
        expiry=ExpirySweeper(
            archiver=runtime.actors.archiver,
            lifecycle=runtime.lifecycle,
            records=stores.records,
            clock=clock,
            interval_s=interval_s,
        ),
        retention=Retention(
            memories=services.memory,
            agents=services.library,
            consolidation_runner=ConsolidationRuns(runtime.runs),
            clock=clock,
            interval_s=interval_s,
        ),
        lifecycle=runtime.lifecycle,
    )
    try:
        await sweepers.expiry.recover()
        sweepers.expiry.start()
        sweepers.retention.start()
        yield sweepers
    finally:
        await sweepers.stop()
