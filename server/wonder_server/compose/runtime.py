"""The actor runtime: the loop with its handlers, and every entry point that needs an actor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import Archiver
from wonder_server.actors.conversation.call_agent import AgentCallService
from wonder_server.actors.conversation.context_preview import ContextPreviews
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.expiry_sweeper import ExpirySweeper
from wonder_server.actors.conversation.hook_failures import log_failed_hooks
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.directory import Directory
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota
from wonder_server.actors.dispatch.dry_run import DryRuns
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.dispatch.model_calls import ModelCalls
from wonder_server.actors.runs.consolidation import ConsolidationRuns
from wonder_server.actors.runs.runs import Runs
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import Loop, LoopPorts
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.usage.budget_enforcement import AgentBudgets
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.compose.clients import Clients
from wonder_server.compose.platform import Platform
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.failpoints import Failpoints
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
    settings: Settings,
    platform: Platform,
    stores: Stores,
    clients: Clients,
    services: ApplicationServices,
    directory: Directory,
) -> AsyncIterator[Runtime]:
    """Build the loop and the entry points, and resume the actors with pending operations.

    The loop becomes that of ``directory``, which services may hold already.
    """
    access = ActorAccess(
        directory=directory,
        journals=stores.journals,
        records=stores.records,
        streams=StreamHub(settings.max_stream_backlog_events, settings.max_stream_backlog_bytes),
        clock=platform.clock,
    )
    async with AsyncExitStack() as stack:
        actors = _build_actors(settings, access, stores, clients, services, platform.failpoints)
        stack.push_async_callback(actors.loop.stop)
        stack.push_async_callback(actors.handlers.stop)
        runtime = _build_entry_points(settings, access, services, actors)
        stack.push_async_callback(runtime.lifecycle.close)
        await _resume(actors, stores)
        yield runtime


def _build_actors(
    settings: Settings,
    access: ActorAccess,
    stores: Stores,
    clients: Clients,
    services: ApplicationServices,
    failpoints: Failpoints,
) -> Actors:
    budgets = AgentBudgets(stores.accounts)
    archiver = Archiver(
        directory=access.directory, records=stores.records, archives=stores.archives, blobs=stores.blobs
    )
    model_calls = ModelCalls(
        directory=access.directory,
        model=clients.bounded_model,
        prices=clients.prices,
        streams=access.streams,
        budgets=budgets,
    )
    quota = DescendantQuota()
    handlers = Handlers(
        access=access,
        tasks=services.executor,
        memory=services.memory_operations,
        model_calls=model_calls,
        agent_calls=AgentCalls(access=access, agents=services.library, archive=archiver, budgets=budgets),
        quota=quota,
    )
    loop = access.directory.start_loop(
        (CONVERSATION, RUN),
        LoopPorts(
            journal_of=stores.journals.of,
            clock=access.clock,
            dispatch=handlers.dispatch,
            publish=access.streams.publish,
            on_result=quota.release,
            timer_input=model_calls.timer_input,
            on_planned=log_failed_hooks,
            failpoints=failpoints,
        ),
        LoopLimits(idle_actors=settings.max_idle_actors, idle_bytes=settings.max_idle_actor_bytes),
    )
    return Actors(loop=loop, handlers=handlers, streams=access.streams, budgets=budgets, archiver=archiver)


def _build_entry_points(
    settings: Settings, access: ActorAccess, services: ApplicationServices, actors: Actors
) -> Runtime:
    library = services.library
    conversations = Conversations(
        access=access,
        agents=library,
        archive=actors.archiver,
        expire_after_ms=settings.conversation_ttl_seconds * 1_000,
        budgets=actors.budgets,
    )
    return Runtime(
        actors=actors,
        conversations=conversations,
        lifecycle=ConversationLifecycle(access=access, agents=library, conversations=conversations),
        agent_calls=AgentCallService(
            access=access, conversations=conversations, agents=library, budgets=actors.budgets
        ),
        previews=ContextPreviews(
            conversations, DryRuns(services.executor, access.clock, MemoryJournal), access.clock
        ),
        runs=Runs(access=access, workflows=library, branches=services.repositories.worktrees),
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
