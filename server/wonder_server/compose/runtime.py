"""The actor runtime: the loops with their handlers, and every entry point that needs an actor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wonder_server.actors.access import ActorAccess, ActorDirectory, EntryAccess, InternalAccess
from wonder_server.actors.archive.archiver import Archive, Archiver, ScopedArchive
from wonder_server.actors.conversation.approval_log import log_failed_approvals
from wonder_server.actors.conversation.call_agent import AgentCallService
from wonder_server.actors.conversation.context_preview import ContextPreviews
from wonder_server.actors.conversation.conversations import ConversationLimits, Conversations
from wonder_server.actors.conversation.deletions import Deletions
from wonder_server.actors.conversation.expiry_sweeper import ExpirySweeper
from wonder_server.actors.conversation.histories.forks import ConversationForks
from wonder_server.actors.conversation.hook_failures import HookFailures
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.conversation.message_parts import MessageFiles
from wonder_server.actors.directory import Directory
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota
from wonder_server.actors.dispatch.dry_run import DryRuns
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.dispatch.model_calls import ModelCalls
from wonder_server.actors.dispatch.partial_texts import PartialTexts
from wonder_server.actors.runs.consolidation import ConsolidationRuns
from wonder_server.actors.runs.runs import Runs
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.runtime.loops import Loops
from wonder_server.actors.scoped_directory import ScopedDirectory
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.usage.budget_enforcement import Budgets
from wonder_server.actors.usage.spans import SpanRecorder
from wonder_server.actors.usage.work_counters import WorkCounters
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.adapters.otlp.exporter import OtlpExporter
from wonder_server.compose.clients import Clients
from wonder_server.compose.platform import Platform
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores, StoreViews
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.identity import SERVER, Principal
from wonder_server.logs import logger
from wonder_server.ports.access import ALL_RECORDS, PerScope
from wonder_server.ports.clock import Clock
from wonder_server.ports.failpoints import Failpoints
from wonder_server.ports.placement import owns_key
from wonder_server.services.catalog.library import Library
from wonder_server.services.memory.retention import Retention
from wonder_server.settings import Settings

_log = logger("server")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoints:
    """The entry points of the actors for one access scope."""

    conversations: Conversations
    lifecycle: ConversationLifecycle
    agent_calls: AgentCallService
    previews: ContextPreviews
    forks: ConversationForks
    runs: Runs
    archive: Archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Actors:
    """The loops and their parts."""

    directory: Directory
    loops: Loops
    handlers: Handlers
    streams: StreamHub
    budgets: Budgets
    archiver: Archiver
    failed_hooks: HookFailures
    counters: WorkCounters | None
    """Counts for metrics; None without metrics."""
    exporter: OtlpExporter | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The running actors and their entry points."""

    actors: Actors
    deletions: Deletions
    entry_points: PerScope[EntryPoints]


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    platform: Platform,
    stores: Stores,
    clients: Clients,
    services: ApplicationServices,
    directory: Directory,
) -> AsyncIterator[Runtime]:
    """Build the loops and the entry points. `Directory.resume` then resumes actors with pending operations.

    The loops become those of ``directory``, which services may hold already.
    """
    whole = stores.of(SERVER)
    access = ActorAccess(
        directory=directory, journals=whole.journals, records=whole.records, clock=platform.clock
    )
    async with AsyncExitStack() as stack:
        actors = _build_actors(settings, access, stores, clients, services, platform.failpoints)
        stack.push_async_callback(actors.loops.stop)
        stack.push_async_callback(actors.handlers.stop)
        deletions = Deletions(access, actors.archiver)
        stack.push_async_callback(deletions.close)
        entry_points = _build_entry_points(settings, access, stores, services, actors, deletions)
        yield Runtime(actors=actors, deletions=deletions, entry_points=entry_points)


def _build_actors(
    settings: Settings,
    access: InternalAccess,
    stores: Stores,
    clients: Clients,
    services: ApplicationServices,
    failpoints: Failpoints,
) -> Actors:
    budgets, streams = services.budgets, access.directory.streams
    archiver = Archiver(
        directory=access.directory,
        records=access.records,
        archives=stores.internal.archives,
        blobs=stores.internal.blobs,
        clock=access.clock,
    )
    counters = None
    if settings.metrics_address:
        counters = WorkCounters((*settings.provider_names, "auto", "offline"))
    model_calls = ModelCalls(
        directory=access.directory,
        model=clients.bounded_model,
        prices=clients.prices,
        streams=streams,
        budgets=budgets,
        files=services.request_files,
    )
    quota = DescendantQuota()
    handlers = Handlers(
        access=access,
        tasks=services.executor,
        memory=services.memory_operations,
        model_calls=model_calls,
        agent_calls=AgentCalls(
            access=access,
            agents=services.library,
            archive=archiver,
            budgets=budgets,
            files=stores.of(SERVER).catalog,
        ),
        quota=quota,
    )
    failed_hooks = HookFailures(access.clock)
    ports = _loop_ports(access, stores, handlers, quota, failpoints, failed_hooks)
    ports = _watched(ports, access, model_calls, counters, clients.exporter)
    limits = LoopLimits(idle_actors=settings.max_idle_actors, idle_bytes=settings.max_idle_actor_bytes)
    loops = access.directory.start_loops((CONVERSATION, RUN), ports, limits, stores.internal.placement)
    return Actors(
        directory=access.directory,
        loops=loops,
        handlers=handlers,
        streams=streams,
        budgets=budgets,
        archiver=archiver,
        failed_hooks=failed_hooks,
        counters=counters,
        exporter=clients.exporter,
    )


def _watched(
    ports: LoopPorts,
    access: InternalAccess,
    model_calls: ModelCalls,
    counters: WorkCounters | None,
    exporter: OtlpExporter | None,
) -> LoopPorts:
    """Let the telemetry that is on see model calls and committed events."""
    model_calls.counters = counters
    if counters is not None:
        ports = replace(ports, publish=counters.before(ports.publish))
    if exporter is not None:
        model_calls.spans = SpanRecorder(exporter, access.directory.peek, access.clock)
        ports = replace(ports, publish=model_calls.spans.before(ports.publish))
    return ports


def _loop_ports(
    access: InternalAccess,
    stores: Stores,
    handlers: Handlers,
    quota: DescendantQuota,
    failpoints: Failpoints,
    failed_hooks: HookFailures,
) -> LoopPorts:
    streams = access.directory.streams
    partial_texts = PartialTexts(streams)

    def on_planned(actor_id: str, state: Any, event: object, decisions: Sequence[object]) -> None:
        if not actor_id.startswith("run_"):  # Runs make a thousand decisions for one of a conversation.
            partial_texts.hold_ended(actor_id, decisions)
            failed_hooks.on_planned(actor_id, state, event, decisions)
            log_failed_approvals(actor_id, decisions)

    return LoopPorts(
        journal_of=stores.internal.journals.of,
        clock=access.clock,
        dispatch=handlers.dispatch,
        publish=streams.publish,
        on_result=quota.release,
        complete_input=partial_texts.complete_input,
        on_planned=on_planned,
        on_discarded=streams.release_text,
        on_stale=stores.internal.placement.surrender,
        on_left=streams.leave,
        failpoints=failpoints,
    )


def _build_entry_points(
    settings: Settings,
    internal: InternalAccess,
    stores: Stores,
    services: ApplicationServices,
    actors: Actors,
    deletions: Deletions,
) -> PerScope[EntryPoints]:
    dry_runs = DryRuns(services.executor, internal.clock, MemoryJournal)

    def build(views: StoreViews) -> EntryPoints:
        library, access = services.library.within(views.scope), _entry_access(internal, views)
        archive: Archive = actors.archiver
        if views.scope != ALL_RECORDS:
            archive = ScopedArchive(archive, views.records)
        conversations = Conversations(
            access=access,
            agents=library,
            archive=archive,
            budgets=actors.budgets,
            files=MessageFiles(views.catalog, settings.max_message_files),
            limits=ConversationLimits(
                expire_after_ms=settings.conversation_ttl_seconds * 1_000,
                max_waiting=settings.max_waiting_messages,
            ),
        )
        return EntryPoints(
            conversations=conversations,
            lifecycle=ConversationLifecycle(
                access=access, agents=library, conversations=conversations, deletions=deletions
            ),
            agent_calls=AgentCallService(
                access=access, conversations=conversations, agents=library, budgets=actors.budgets
            ),
            previews=ContextPreviews(conversations, dry_runs, access.clock, services.request_files),
            forks=ConversationForks(access, conversations),
            runs=Runs(
                access=access,
                workflows=library,
                branches=services.repositories.worktrees,
                archive=archive,
            ),
            archive=archive,
        )

    return stores.per_scope(build)


def _entry_access(internal: InternalAccess, views: StoreViews) -> EntryAccess:
    directory: ActorDirectory = internal.directory
    if views.scope != ALL_RECORDS:
        directory = ScopedDirectory(internal.directory, views.records)
    return ActorAccess(
        directory=directory,
        journals=views.journals,
        records=views.records,
        clock=internal.clock,
        locks=internal.locks,
    )


@dataclass(frozen=True, slots=True)
class _AgentsOfTenants:
    """The agents of each tenant, for retention."""

    library: PerScope[Library]
    tenants: Collection[str]

    def of(self, principal: Principal) -> Library:
        return self.library.of(principal)

    def tenant_ids(self) -> Collection[str]:
        return tuple(self.tenants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweepers:
    """The periodic sweeps: expiry of conversations, and retention of memories."""

    expiry: ExpirySweeper
    retention: Retention
    deletions: Deletions

    async def stop(self) -> None:
        """Stop the sweeps and the deletions in progress. The next start resumes them."""
        await self.expiry.stop()
        await self.retention.stop()
        await self.deletions.close()


@asynccontextmanager
async def open_sweepers(
    settings: Settings, clock: Clock, stores: Stores, services: ApplicationServices, runtime: Runtime
) -> AsyncIterator[Sweepers]:
    """Recover interrupted archiving, then sweep periodically until exit."""
    interval_s = settings.sweep_interval_seconds
    sweepers = Sweepers(
        expiry=ExpirySweeper(
            archiver=runtime.actors.archiver,
            deletions=runtime.deletions,
            directory=runtime.actors.directory,
            records=stores.of(SERVER).records,
            clock=clock,
            interval_s=interval_s,
        ),
        retention=Retention(
            memories=services.memory.of(SERVER),
            agents=_AgentsOfTenants(services.library, stores.principals.tenants),
            consolidation_runner=ConsolidationRuns(lambda principal: runtime.entry_points.of(principal).runs),
            clock=clock,
            interval_s=interval_s,
            owns=partial(owns_key, stores.internal.placement),
        ),
        deletions=runtime.deletions,
    )
    try:
        await sweepers.expiry.recover()
        sweepers.expiry.start()
        sweepers.retention.start()
        yield sweepers
    finally:
        await sweepers.stop()
