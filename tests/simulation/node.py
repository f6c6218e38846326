"""One life of a server: the real actors, handlers, streams, workers and entry points on simulated stores.

A `Node` is built of the server's own parts, as `wonder_server.compose` does it, without the rpc layer. Its
adapters are simulated: the stores (`tests.simulation.disk`) and the world outside
(`tests.simulation.outside`). A test may exchange the adapters in `NodeParts` to plant a fault.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.core.conversation.conversation_kit import NOW
from tests.simulation.archives import NodeArchives, NodeBlobs
from tests.simulation.definitions import definitions
from tests.simulation.disk import Disk, DiskFaults, NodeRecords, NodeStores, Trace
from tests.simulation.event_loop import Process, SeededLoop, current_process
from tests.simulation.memories import Memories, open_memories, open_memory_service
from tests.simulation.outside import Outside, OutsideClient, OutsideFaults
from tests.views import ForAll
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import Archiver
from wonder_server.actors.conversation.call_agent import AgentCallService
from wonder_server.actors.conversation.conversations import ConversationLimits, Conversations
from wonder_server.actors.conversation.deletions import Deletions
from wonder_server.actors.conversation.expiry_sweeper import ExpirySweeper
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.directory import Directory
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.dispatch.model_calls import ModelCalls
from wonder_server.actors.dispatch.partial_texts import PartialTexts
from wonder_server.actors.runs.runs import Runs
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.runtime.loops import Loops
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.usage.budget_enforcement import Budgets
from wonder_server.actors.usage.usage_reporter import UsageReporter
from wonder_server.adapters.in_memory.prices import MemoryPrices
from wonder_server.adapters.placement.local import LocalPlacement
from wonder_server.core.actor.commands import Command
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import Event
from wonder_server.ports.placement import Placement
from wonder_server.services.actions import ExecutionAccess, ModelAccess, NetworkAccess, Services
from wonder_server.services.history.agent_history import AgentHistory
from wonder_server.services.memory.operations import MemoryOperations
from wonder_server.services.tasks.executor import Executor
from wonder_server.services.workers import WorkerPool

T = TypeVar("T")

LEASE_MS = 1_000
"""Lease of the workers' assignments."""

SWEEP_S = 0.1
"""Seconds between two sweeps of a node with faults."""

CALM_SWEEP_S = 600
"""Seconds between two sweeps of a node without faults, in which runs wait for days."""

KEEP_ALIVE_S = 21_600
"""Seconds without items after which a reader gets a sign of life. Runs wait for days: every 15 s, as in the
server, it was a third of the CPU of the histories."""

Dispatch = Callable[[str, Command], None]
Publish = Callable[[str, list[Event]], None]
CompleteInput = Callable[[str, object, object], object]


@dataclass(frozen=True, kw_only=True)
class NodeParts:
    """Adapters that a test may exchange. The defaults are correct."""

    disk: Callable[[Trace], Disk] = Disk
    records: type[NodeRecords] = NodeRecords
    archives: Callable[[NodeStores], NodeArchives] = NodeArchives
    memories: Memories = open_memories
    workers: type[WorkerPool] = WorkerPool
    stores: Callable[[Disk, DiskFaults, random.Random, Process], NodeStores] = NodeStores
    wrap_dispatch: Callable[[Dispatch, random.Random], Dispatch] = lambda dispatch, _: dispatch
    wrap_publish: Callable[[Publish, random.Random], Publish] = lambda publish, _: publish
    wrap_complete_input: Callable[[CompleteInput, random.Random], CompleteInput] = lambda complete, _: (
        complete
    )


@dataclass(frozen=True, kw_only=True)
class NodeFaults:
    """Faults of one life. ``dies_at_point`` is the probability at each failpoint, dispatch and publication;
    ``clock_ahead_ms`` is the error of its clock."""

    disk: DiskFaults
    outside: OutsideFaults
    dies_after_callbacks: int | None = None
    dies_at_point: float = 0.0
    clock_ahead_ms: int = 0
    sweep_interval_s: float = SWEEP_S
    expire_after_ms: int = 0
    """Time after which a new conversation expires; 0 is never."""


class NodeClock:
    """The clock of one node; implements the port ``Clock``."""

    def __init__(self, loop: SeededLoop, ahead_ms: int) -> None:
        self._loop = loop
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return NOW + int(self._loop.time() * 1000) + self._ahead_ms


class Node:
    """A running server. `start` resumes unfinished actors; `spawn` runs the work of a request in its
    process."""

    def __init__(
        self,
        name: str,
        loop: SeededLoop,
        dice: random.Random,
        *,
        disk: Disk,
        outside: Outside,
        faults: NodeFaults,
        parts: NodeParts,
        limits: LoopLimits,
        on_death: Callable[[Node], None],
        placement: Placement | None = None,
    ) -> None:
        """Build a node. Without a ``placement``, it owns every shard once it has started."""
        self.name = name
        self.is_ready = False
        """True once the node accepts requests."""
        self.process = Process(name, lambda: on_death(self), faults.dies_after_callbacks)
        self._loop = loop
        self._dice = dice
        self._faults = faults
        self._parts = parts
        self._context = copy_context()
        self._context.run(current_process.set, self.process)
        self._disk = disk
        self._outside = outside
        self._limits = limits
        self._placement = placement
        self._build_stores()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` in the node's process."""
        return self._loop.create_task(work, context=self._context.copy())

    async def start(self) -> None:
        """Own the shards, and resume unfinished work beside the first requests. The process ends if a store
        fails at once."""
        try:
            self._build(self._placement or await LocalPlacement.open(self.stores))
            await self.sweeper.recover()
        except WonderError:
            self.process.die()
            return
        self.sweeper.start()
        self.is_ready = True
        await self._directory.resume(self.handlers)

    async def stop(self) -> None:
        """Stop in order, as a server does on SIGTERM. Run it in the process, once it is ready."""
        self.streams.drain()
        await self.sweeper.stop()
        await self.deletions.close()
        await self.handlers.stop()
        await self.actors.stop()
        self.workers.close()

    # --- parts ----------------------------------------------------------------------------------

    def _build_archiver(self, access: ActorAccess) -> Archiver:
        return Archiver(
            directory=access.directory,
            records=access.records,
            archives=self._parts.archives(self.stores),
            blobs=NodeBlobs(self.stores),
            clock=access.clock,
        )

    def _build_sweeper(self, access: ActorAccess) -> ExpirySweeper:
        return ExpirySweeper(
            archiver=self.archiver,
            deletions=self.deletions,
            directory=access.directory,
            records=access.records,
            clock=access.clock,
            interval_s=self._faults.sweep_interval_s,
        )

    def _build_stores(self) -> None:
        self.stores = self._parts.stores(self._disk, self._faults.disk, self._dice, self.process)

    def _build(self, placement: Placement) -> None:
        records = self._parts.records(self.stores)
        client = OutsideClient(self._outside, self._faults.outside, self._dice, self.process)
        self.streams = StreamHub(limit_items=200, limit_bytes=1 << 20, keep_alive_after_s=KEEP_ALIVE_S)
        directory = self._directory = Directory(self.streams, records)
        access = ActorAccess(
            directory=directory,
            journals=self.stores,
            records=records,
            clock=NodeClock(self._loop, self._faults.clock_ahead_ms),
        )
        library, budgets, quota = definitions(), Budgets(records, directory), DescendantQuota()
        self.archiver = self._build_archiver(access)
        self.memory = open_memory_service(self.stores, access.clock, self._parts.memories)
        model_calls = ModelCalls(
            directory=directory, model=client, prices=MemoryPrices(), streams=self.streams, budgets=budgets
        )
        partial_texts = PartialTexts(self.streams)
        self.workers = self._parts.workers(access.clock, lease_ms=LEASE_MS)
        self.handlers = Handlers(
            access=access,
            tasks=self._executor(access, client),
            memory=MemoryOperations(ForAll(self.memory), access.clock),
            model_calls=model_calls,
            agent_calls=AgentCalls(
                access=access, agents=ForAll(library), archive=self.archiver, budgets=budgets
            ),
            quota=quota,
        )
        self.actors: Loops = directory.start_loops(
            (CONVERSATION, RUN),
            LoopPorts(
                journal_of=self.stores.of,
                clock=access.clock,
                dispatch=self._parts.wrap_dispatch(self._dispatch, self._dice),
                publish=self._parts.wrap_publish(self._publish, self._dice),
                on_result=quota.release,
                complete_input=self._parts.wrap_complete_input(partial_texts.complete_input, self._dice),
                failpoints=self,
                on_planned=lambda actor_id, _, __, decisions: partial_texts.hold_ended(actor_id, decisions),
                on_discarded=self.streams.release_text,
                on_stale=placement.surrender,
                on_left=self.streams.leave,
            ),
            self._limits,
            placement,
        )
        self.conversations = Conversations(
            access=access,
            agents=library,
            archive=self.archiver,
            limits=ConversationLimits(expire_after_ms=self._faults.expire_after_ms),
            budgets=budgets,
        )
        self.calls = AgentCallService(
            access=access, conversations=self.conversations, agents=library, budgets=budgets
        )
        self.deletions = Deletions(access, self.archiver)
        self.lifecycle = ConversationLifecycle(
            access=access, agents=library, conversations=self.conversations, deletions=self.deletions
        )
        self.runs = Runs(access=access, workflows=library, archive=self.archiver)
        self.sweeper = self._build_sweeper(access)

    def _executor(self, access: ActorAccess, client: OutsideClient) -> Executor:
        profile = ModelProfile(provider="offline", model="offline", format="openai_chat")
        services = Services(
            models=ModelAccess(
                model=client, default_profile=profile, usage_reporter=UsageReporter(access.directory)
            ),
            memory=self.memory,
            history=AgentHistory(access.records),
            network=NetworkAccess(web=client, mcp=None, policies=client),  # type: ignore[arg-type]
            clock=access.clock,
            execution=ExecutionAccess(workers=self.workers),
        )
        return Executor(ForAll(services), access.clock, monotonic_s=self._loop.time)

    def _dispatch(self, actor_id: str, command: Command) -> None:
        self.reach("before-dispatch")
        self.handlers.dispatch(actor_id, command)

    def _publish(self, actor_id: str, events: list[Event]) -> None:
        self.reach("before-publish")
        self.streams.publish(actor_id, events)

    def reach(self, point: str, subject: str = "") -> None:
        """Die at this point, at times. Implements the port ``Failpoints``."""
        if self._faults.dies_at_point and self._dice.random() < self._faults.dies_at_point:
            self.process.kill_here()
