"""Metrics: read from the counters and gauges of the whole server at each scrape, and served.

docs/telemetry.md lists the families. Nothing here runs between two scrapes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from wonder_server import __version__
from wonder_server.actors.usage.work_counters import WorkCounters
from wonder_server.adapters.metrics.exposition import Exposition
from wonder_server.adapters.metrics.listener import ListenerConfig, serve_metrics
from wonder_server.compose.runtime import Actors
from wonder_server.logs import logger
from wonder_server.ports.metrics import Family, Histogram
from wonder_server.ports.statistics import StoreNumbers, StoreStatistics
from wonder_server.rpc.server.server import CallNumbers
from wonder_server.services.workers import WorkerPools
from wonder_server.settings import Settings
from wonder_server.settings.kinds import is_loopback, split_address

_log = logger("metrics")


class Metrics:
    """All metrics of a server."""

    def __init__(
        self,
        actors: Actors,
        workers: WorkerPools,
        stores: StoreStatistics | None,
        calls: Callable[[], CallNumbers],
    ) -> None:
        self._actors = actors
        self._workers = workers
        self._stores = stores
        self._calls = calls
        self._exposition = Exposition()

    async def render(self) -> bytes:
        """Return the metrics of this moment in the format of Prometheus. Errors: STORAGE_UNAVAILABLE."""
        stores = await self._stores.read() if self._stores is not None else None
        return self._exposition.render(self._families(stores))

    def _families(self, stores: StoreNumbers | None) -> Iterator[Family]:
        yield Family(
            "wonder_info", "gauge", "1, with the version.", ("version",), {(__version__,): 1}.items()
        )
        if self._actors.counters is not None:
            yield from _work(self._actors.counters)
        yield from self._runtime()
        yield from _calls(self._calls())
        yield from self._worker_families()
        if stores is not None:
            yield from _stores(stores)
        exporter = self._actors.exporter
        spans = {(): exporter.exported if exporter else 0}, {(): exporter.dropped if exporter else 0}
        yield Family("wonder_spans_exported", "counter", "Spans sent to the collector.", (), spans[0].items())
        yield Family("wonder_spans_dropped", "counter", "Spans dropped.", (), spans[1].items())

    def _runtime(self) -> Iterator[Family]:
        numbers = self._actors.loops.numbers()
        loaded = {("conversation",): numbers.conversations, ("run",): numbers.runs}
        yield Family("wonder_actors_loaded", "gauge", "Actors in memory.", ("kind",), loaded.items())
        yield _gauge("wonder_actors_busy", "Actors that are scheduled, in a commit or loading.", numbers.busy)
        yield _gauge(
            "wonder_operations_running",
            "Model calls, tasks and other operations in progress.",
            self._actors.handlers.running,
        )
        yield _gauge(
            "wonder_commits_in_flight",
            "Commits that the stores have not finished.",
            numbers.commits_in_flight,
        )
        yield _gauge(
            "wonder_subscriptions_open",
            "Readers of live events, of clients and of the server itself.",
            self._actors.streams.count,
        )
        failing = {(hook.value,): count for hook, count in self._actors.failed_hooks.failing().items()}
        yield Family(
            "wonder_hooks_failing",
            "gauge",
            "Agents whose hook failed the last time.",
            ("hook",),
            failing.items(),
        )

    def _worker_families(self) -> Iterator[Family]:
        numbers = self._workers.numbers()
        yield _gauge("wonder_workers_connected", "Connected workers.", numbers.connected)
        yield _gauge("wonder_workers_capacity", "Jobs that all workers accept at once.", numbers.capacity)
        yield _gauge("wonder_worker_assignments", "Jobs that workers have now.", numbers.assignments)
        yield _gauge("wonder_worker_jobs_waiting", "Jobs that wait for a worker.", numbers.waiting)


def _work(counters: WorkCounters) -> Iterator[Family]:
    turns, runs = ({(each,): table[each] for each in _OUTCOMES} for table in (counters.turns, counters.runs))
    yield Family("wonder_turns", "counter", "Ended turns.", ("outcome",), turns.items())
    yield Family(
        "wonder_turn_seconds",
        "histogram",
        "Durations of ended turns, without the time in a queue.",
        (),
        {(): counters.turn_seconds}.items(),
    )
    yield Family(
        "wonder_runs",
        "counter",
        "Ended workflow runs with a record of their own.",
        ("outcome",),
        runs.items(),
    )
    tokens = {(kind,): float(count) for kind, count in counters.tokens.items()}
    yield Family("wonder_tokens", "counter", "Tokens of ended turns.", ("kind",), tokens.items())
    cost = {(): counters.cost_micros / 1_000_000}
    yield Family(
        "wonder_cost_dollars", "counter", "Known cost of ended turns in US dollars.", (), cost.items()
    )
    yield Family(
        "wonder_unpriced_calls",
        "counter",
        "Model calls of ended turns whose price is unknown.",
        (),
        {(): counters.unpriced_calls}.items(),
    )
    calls = {labels: float(count) for labels, count in counters.model_calls.items()}
    yield Family(
        "wonder_model_calls", "counter", "Model calls of turns.", ("provider", "outcome"), calls.items()
    )
    yield Family(
        "wonder_model_first_chunk_seconds",
        "histogram",
        "Time from a model call of a turn to the first chunk of its answer.",
        ("provider",),
        {(provider,): each for provider, each in counters.first_chunk_seconds.items()}.items(),
    )


def _calls(numbers: CallNumbers) -> Iterator[Family]:
    kinds = {("unary",): numbers.active - numbers.streams, ("stream",): numbers.streams}
    yield Family("wonder_calls_active", "gauge", "Calls that are served now.", ("kind",), kinds.items())
    rejected = {(reason.value,): float(count) for reason, count in numbers.rejected.items()}
    yield Family(
        "wonder_calls_rejected", "counter", "Calls that ended with an error.", ("reason",), rejected.items()
    )


def _stores(numbers: StoreNumbers) -> Iterator[Family]:
    databases = numbers.databases
    yield Family(
        "wonder_commit_seconds",
        "histogram",
        "Durations of commits.",
        ("database",),
        {(name,): Histogram.sum(each.commits) for name, each in databases.items()}.items(),
    )
    log_bytes = {(name,): float(each.log_bytes) for name, each in databases.items()}
    yield Family(
        "wonder_wal_bytes", "gauge", "Size of the write-ahead logs.", ("database",), log_bytes.items()
    )
    yield _gauge("wonder_gates_pending", "Gates that wait for a person.", numbers.pending_gates)


_OUTCOMES = ("completed", "failed", "cancelled")


def _gauge(name: str, help: str, value: float) -> Family:
    return Family(name, "gauge", help, (), {(): value}.items())


@asynccontextmanager
async def open_metrics(settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    """Serve the metrics until exit. Raises OSError if the address or a file cannot be used."""
    host, port = split_address(settings.metrics_address)
    is_local = is_loopback(settings.metrics_address)
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None and not is_local:
        tls = (settings.tls_cert, settings.tls_key)
    config = ListenerConfig(host=host, port=port, tls=tls, token_file=settings.metrics_token_file)
    async with serve_metrics(config, metrics.render) as actual:
        shown = f"[{host}]" if ":" in host else host
        _log.info("metrics_served", url=f"{'https' if tls else 'http'}://{shown}:{actual}/metrics")
        yield
