"""One history: clients, faults and checks, all chosen by a seed.

`simulate(seed)` runs a history and raises `HistoryError` if it contradicts a guarantee. The error names the
seed and the command that replays it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from structlog.testing import capture_logs

from tests.simulation.clients import Client, Reader
from tests.simulation.definitions import definitions
from tests.simulation.disk import Disk
from tests.simulation.event_loop import SeededLoop
from tests.simulation.node import NodeParts
from tests.simulation.oracle import Ledger, ViolationError, require, until_quiet
from tests.simulation.outcomes import differs
from tests.simulation.outside import Outside
from tests.simulation.scenes import KINDS, RANDOM, SHARED, Scene, calm_scene
from tests.simulation.stories.story import Story, Task
from tests.simulation.workers import Worker
from wonder_server.core import ids

LIMIT_S = 4 * 86_400
"""Virtual time within which a history must end. The longest wait of the library is two days."""

QUIET_WITHIN_S = 2 * 86_400
"""Virtual time within which all work must end once the clients have."""

_UNEXPECTED = frozenset({"actor_failed", "commit_failed", "handler_failed", "scheduler_failed"})
"""Log events of errors that no simulated fault causes."""


class HistoryError(AssertionError):
    """A history that contradicts a guarantee, or whose work never ends."""


@dataclass(frozen=True)
class History:
    """A history that ended well."""

    seed: int
    digest: str
    """Hash over all its steps."""
    steps: int
    callbacks: int
    lives: int
    late_assemblies: int
    """Number of times that context was assembled again for a late result."""


Dice = Mapping[str, random.Random]
_DICE: Final = ("loop", "weather", "cluster", "clients", "ids")
"""Each part of a history has its own randomness, so that a change of one does not change the others."""


@dataclass(frozen=True)
class _Played:
    """A history that was played: its results are comparable unless models failed."""

    lives: int
    late_assemblies: int
    results: list[tuple[Task, object]]
    is_comparable: bool


class _Trace:
    """The steps of a history, with their times."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []

    def __call__(self, *step: object) -> None:
        self.lines.append(f"{self._loop.time():.6f} {' '.join(map(str, step))}")

    def digest(self) -> str:
        text = "\n".join([*self.lines, str(self._loop.callbacks)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def simulate(seed: int, parts: NodeParts | None = None, scene: Scene = RANDOM) -> History:
    """Run the history of a seed. Raises `HistoryError`."""
    history, played = _run(seed, parts or NodeParts(), scene)
    for task, found in played.results if played.is_comparable else ():
        expected = undisturbed(task)
        if differs(found, expected):
            message = f"seed {seed}: {task} ended with {found}; without faults it ends with {expected}"
            raise HistoryError(f"{message}\n{how_to_replay(seed, scene)}")
    return history


@cache
def undisturbed(task: Task) -> object:
    """Return the result of a piece of work in a history without faults."""

    _, played = _run(0, NodeParts(), calm_scene(task))
    return played.results[-1][1]


def _run(seed: int, parts: NodeParts, scene: Scene) -> tuple[History, _Played]:
    definitions()
    dice = {name: random.Random(f"{seed}/{name}") for name in _DICE}
    loop = SeededLoop(dice["loop"], callback_s=dice["weather"].choice((0.0, 0.0, 0.0001, 0.002)))
    trace = _Trace(loop)
    with ids.entropy_from(dice["ids"].randbytes), capture_logs(processors=[_add_traceback]) as logs:
        try:
            played = loop.run(_play(loop, dice, trace, parts, scene))
            require(not loop.failures, f"unhandled: {loop.failures}")
            unexpected = [entry for entry in logs if entry["event"] in _UNEXPECTED]
            require(not unexpected, f"logged: {unexpected}")
        except Exception as problem:
            raise HistoryError(_report(seed, scene, problem, trace, logs)) from problem
        finally:
            loop.close()
    return History(
        seed, trace.digest(), len(trace.lines), loop.callbacks, played.lives, played.late_assemblies
    ), played


def _add_traceback(
    _logger: object, _method: str, entry: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if entry.get("exc_info"):
        entry["traceback"] = traceback.format_exc(limit=-4)
    return entry


def how_to_replay(seed: int, scene: Scene) -> str:
    """Return the line of a failure that says how to repeat its history."""
    tests = "tests/simulation/test_histories.py -k " + ("shards" if scene is SHARED else "guarantee")
    if scene.kinds.keys() < KINDS.keys():
        name = "SHARED" if scene.cluster is SHARED.cluster else "RANDOM"
        call = f"simulate({seed}, scene={name}.only({[*scene.kinds]}))"
        return f"  Replay: {call}; SIMULATION_SEED={seed} plays stories of all kinds"
    return f"  Replay: SIMULATION_SEED={seed} make test ARGS='{tests}'"


def _report(seed: int, scene: Scene, problem: Exception, trace: _Trace, logs: Sequence[object]) -> str:
    last = "\n    ".join(trace.lines[-25:])
    return (
        f"seed {seed}: {type(problem).__name__}: {problem}\n"
        f"{how_to_replay(seed, scene)}\n"
        f"  The last steps:\n    {last}\n  The last log events:\n    {logs[-5:]}"
    )


async def _play(loop: SeededLoop, dice: Dice, trace: _Trace, parts: NodeParts, scene: Scene) -> _Played:
    disk, weather = parts.disk(trace), scene.weather(dice["weather"])
    ledger = Ledger(disk, Outside(trace))
    cluster = scene.cluster(loop, dice["cluster"], disk, ledger.outside, weather, parts)
    cluster.start()
    clients: list[Client] = []

    def new_client(name: str) -> Client:
        clients.append(Client(name, cluster, ledger, dice["clients"]))
        return clients[-1]

    stories = scene.stories(dice["clients"], new_client)
    workers = [Worker(f"worker {number}", cluster, dice["cluster"]) for number in range(2)]
    await _play_to_end(stories, workers, ledger)
    await cluster.wait_until_calm()
    await until_quiet(ledger, QUIET_WITHIN_S)
    await asyncio.gather(*(client.repeat_requests() for client in clients))
    reviser = new_client("reviser")
    await reviser.restore_all()
    if cluster.is_lone:
        await reviser.search_memories()
    await until_quiet(ledger, QUIET_WITHIN_S)
    await _until_caught_up([reader for client in clients for reader in client.readers], disk)
    if ledger.violation.done():
        raise ledger.violation.result()
    ledger.check_record(nodes=1 if cluster.is_lone else 2)
    ledger.check_objects()
    if cluster.is_lone:
        ledger.check_memory_objects()
    disk.memories.close()
    results = [result for story in stories for result in story.results()]
    late = sum(each.late_assemblies for each in ledger.requests)
    return _Played(cluster.lives, late, results, is_comparable=not weather.outside.model_fails)


async def _play_to_end(stories: Sequence[Story], workers: Sequence[Worker], ledger: Ledger) -> None:
    others = [story() for story in stories if not story.needs_workers]
    needing = [story for story in stories if story.needs_workers]
    playing = asyncio.gather(*others, _play_with_workers(needing, workers))
    try:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait({playing, ledger.violation}, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        waiting = ledger.disk.unfinished()
        raise ViolationError(f"clients still wait after {LIMIT_S} s; unfinished: {waiting}") from None
    if ledger.violation.done():
        raise ledger.violation.result()
    playing.result()


async def _play_with_workers(stories: Sequence[Story], workers: Sequence[Worker]) -> None:
    """Play the stories that need workers. The workers leave at their end: others may wait for days."""
    if stories:
        working = [asyncio.get_running_loop().create_task(worker.run()) for worker in workers]
        await asyncio.gather(*(story() for story in stories))
        for work in working:
            work.cancel()


async def _until_caught_up(readers: list[Reader], disk: Disk) -> None:
    """Wait until each reader has every event of its actor."""
    for _ in range(100):
        # The events of an archived conversation are those of its archiving.
        late = [
            reader
            for reader in readers
            if reader.actor_id in disk.journal.memory.actors
            and reader.cursor < len(disk.events_of(reader.actor_id))
        ]
        if not late:
            return
        await asyncio.sleep(1)
    raise ViolationError(f"streams that end early: {[(reader.actor_id, reader.cursor) for reader in late]}")
