"""A platform for a whole server in one test: time that the test moves, no threads, and stores in memory."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from tests.fakes.repositories import NoRepositories
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.in_memory.memory_blocks import InMemoryBlocks
from wonder_server.adapters.in_memory.prices import MemoryPrices
from wonder_server.adapters.in_memory.sandbox import MemorySandbox
from wonder_server.adapters.in_memory.tenancy import MemoryTenancy
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.adapters.placement.local import LocalPlacement
from wonder_server.compose import Platform
from wonder_server.compose.clients import Clients
from wonder_server.compose.git import ExecutorFactory, GitStores
from wonder_server.compose.models import bounded, model_providers
from wonder_server.compose.stores import InternalStores, MemoryUpkeep, StoreAdapters, Stores
from wonder_server.core.memory.records import Filter, Memory
from wonder_server.ports.access import ScopeOf, all_records
from wonder_server.ports.blobs import UnreferencedObject
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.failpoints import Failpoints
from wonder_server.ports.memories import TombstoneStatus
from wonder_server.ports.placement import Placement
from wonder_server.ports.vectors import Vectors, VectorSource
from wonder_server.settings import Settings

T = TypeVar("T")

START_MS = 1_800_000_000_000
"""Server time at the start of virtual time."""


class VirtualTime(selectors.DefaultSelector):
    """The time of one event loop. It moves only in `advance`, and then from timer to timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._target_s = 0.0

    def now_ms(self) -> int:
        """Return the server time; implements the port ``Clock``."""
        return START_MS + int(self.now_s * 1000)

    async def advance(self, seconds: float) -> None:
        """Move time forward and run every timer on the way."""
        self._target_s = self.now_s + seconds
        reached = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_at(self._target_s, reached.set_result, None)
        await reached

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready events. An idle loop moves time to its next timer, if `advance` allows that."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None and self.now_s + timeout <= self._target_s + 1e-9:
            self.now_s += timeout
            return []
        raise AssertionError("The server waits for time to move. Call `advance`.")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. Work for threads runs at once, in the loop's own thread."""

    def __init__(self, time: VirtualTime) -> None:
        self._virtual_time = time
        super().__init__(time)
        self.set_default_executor(InlineExecutor())

    def time(self) -> float:
        return self._virtual_time.now_s


class InlineExecutor(ThreadPoolExecutor):
    """An executor without threads: `submit` runs the call before it returns."""

    def __init__(self, _threads: int = 1, _name: str = "") -> None:
        super().__init__(1)

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as problem:
            future.set_exception(problem)
        return future


def run_virtual(work: Callable[[VirtualTime], Coroutine[object, object, T]]) -> T:
    """Run ``work`` on an event loop of virtual time."""
    time = VirtualTime()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(time)) as runner:
        return runner.run(work(time))


def virtual_platform(
    time: VirtualTime,
    shards: MemoryShards | None = None,
    seed: int = 0,
    scope_of: ScopeOf = all_records,
) -> Platform:
    """Return a platform on virtual time, seeded randomness and stores in memory.

    ``shards`` holds the journals of an earlier application, for a restart. ``scope_of`` returns the access
    scope of a caller.
    """
    shards = shards or MemoryShards()

    @asynccontextmanager
    async def open_stores(
        _settings: Settings, _egress: Egress, _failpoints: Failpoints
    ) -> AsyncIterator[Stores]:
        yield _stores(shards, await LocalPlacement.open(shards), scope_of)

    return Platform(
        clock=time,
        entropy=random.Random(seed).randbytes,
        new_executor=InlineExecutor,
        open_stores=open_stores,
        open_vectors=_open_vectors,
        open_clients=_open_clients,
        tune_interpreter=lambda: None,
    )


def _stores(shards: MemoryShards, placement: Placement, scope_of: ScopeOf) -> Stores:
    memories, catalog = NoMemories(), MemoryCatalog()
    return Stores(
        StoreAdapters(
            records=shards,
            accounts=shards,
            catalog=catalog,
            memories=memories,
            memory_blocks=InMemoryBlocks(),
            internal=InternalStores(
                journals=shards,
                archives=NoArchives(),
                placement=placement,
                memory=MemoryUpkeep(
                    vectors=memories,
                    maintenance=memories,
                    residue=memories,
                    reembedding=memories,
                    watch_lost_vectors=lambda _: None,
                ),
                blobs=MemoryBlobs(),
                file_objects=catalog,
                removed_projects=catalog.removed_projects(),
                tenancy=MemoryTenancy(),
                disk_full_error=lambda: None,
            ),
        ),
        scope_of,
    )


@asynccontextmanager
async def _open_vectors(
    _settings: Settings, source: VectorSource, embedder: Embedder
) -> AsyncIterator[Vectors]:
    yield PlainVectors(source, embedder.name)


@asynccontextmanager
async def _open_clients(
    settings: Settings, _egress: Egress, _new_executor: ExecutorFactory
) -> AsyncIterator[Clients]:
    model = OfflineModel()

    async def unavailable_actions() -> dict[str, str]:
        return {}

    yield Clients(
        providers=model_providers(settings),
        model=model,
        bounded_model=bounded(model, settings),
        prices=MemoryPrices(),
        embedder=HashingEmbedder(),
        web=Unreachable(),
        mcp=Unreachable(),
        sandbox=MemorySandbox(),
        git=GitStores(
            artifacts=NoRepositories(),
            repositories=NoRepositories(),
            origins=Unreachable(),
            workspaces=NoWorkspaces(),
        ),
        unavailable_actions=unavailable_actions,
        preload=lambda: None,
    )


class Unreachable:
    """A client that no test calls."""


class NoMemories:
    """A store of memories that stays empty, for agents that remember nothing."""

    def is_empty(self, agent_id: str) -> bool:
        return True

    async def get(self, agent_id: str, ids: Sequence[str]) -> list[Memory]:
        return []

    async def page(self, agent_id: str, wanted: Filter, before_id: str, limit: int) -> list[Memory]:
        return []

    async def unreferenced(self, after: str = "") -> list[UnreferencedObject]:
        return []

    async def tombstones(self) -> dict[str, TombstoneStatus]:
        return {}

    async def purge(self) -> bool:
        return False

    async def pending(self, embedder: str, after: int) -> tuple[list[Memory], int | None]:
        return [], None


class NoArchives:
    """Archives of a server whose conversations never expire."""

    version = 1

    async def registered(self) -> list[object]:
        return []


class NoWorkspaces:
    """Worktrees of a server without repositories."""

    async def keys(self) -> list[str]:
        return []
