"""Stories of runs: start one, answer its gates, signal, cancel and fork it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.actors.kit import origin
from tests.e2e.corpus import CORPUS, Case
from tests.simulation.clients import Client, Reader
from tests.simulation.node import Node
from tests.simulation.oracle import require
from tests.simulation.outcomes import Outcome, descendants, outcome
from tests.simulation.stories.story import Task
from wonder_server.actors.runs.forks import ForkRequest
from wonder_server.actors.runs.runs import StartRunRequest
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.gates import Gate, ResolveGate
from wonder_server.core.coordinator.model.inputs import ReceiveSignal
from wonder_server.core.coordinator.model.values import NodeExecution
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.core.errors import Reason
from wonder_server.ports.journal import Event


@dataclass
class Runner:
    """A client that starts one run of the corpus and does what its case says."""

    client: Client
    case: Case
    _readers: list[Reader] = field(default_factory=list)

    @property
    def needs_workers(self) -> bool:
        return self.case.workflow == "worked"

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield the outcomes of the run, of its fork, and of all runs below them."""
        yield Task("", (self.case.workflow,)), [*self._outcomes()]

    def _outcomes(self) -> Iterator[Outcome]:
        marker, disk = self.client.name, self.client.ledger.disk
        for reader in self._readers:
            yield outcome(reader.events, marker)
            below = [outcome(disk.events_of(run_id), marker) for run_id in descendants(disk, reader.actor_id)]
            if self.case.cancel:
                # A cancellation withdraws a child run that is not yet stored: there is one, or none.
                require(len(below) <= 1, f"a cancelled run has {len(below)} child runs")
                below = [each for each in below if each.status != "cancelled"]
            yield from sorted(below, key=str)

    async def start(self) -> Reader:
        """Start the run and follow it."""
        name = self.client.name
        start = StartRunRequest(
            workflow=self.case.workflow,
            input={"name": name, "url": "http://world"},
            scope=Scope(project_id="proj_1"),
            metadata={},
        )

        async def begin(node: Node) -> str:
            return (await node.runs.start(start, origin(name))).run.id

        run_id = await self.client.once(name, begin)
        self.client.ledger.runs[name] = run_id
        return self._read(run_id)

    async def __call__(self) -> None:
        reader = await self.start()
        run_id = reader.actor_id
        async with asyncio.TaskGroup() as group:
            for signal in self.case.signals:
                group.create_task(self._signal(run_id, signal))
            for node_id in self.case.gates:
                group.create_task(self._approve(reader, node_id))
            if self.case.cancel:
                group.create_task(self._cancel(reader, run_id))
        await reader.until(lambda: _run_end(reader))
        if self.case.fork:
            await self._fork(run_id)

    def _read(self, run_id: str) -> Reader:
        reader = self.client.read(run_id, lambda node, after: node.runs.attach(run_id, after))
        self._readers.append(reader)
        return reader

    async def _signal(self, run_id: str, name: str) -> None:
        request_id = f"{self.client.name}/{name}"
        signal = ReceiveSignal(name=name, payload=41, user_id="mia")

        async def send(node: Node) -> int:
            return await node.runs.signal(run_id, signal, origin(request_id))

        await self.client.pause()
        await self.client.once(request_id, send)

    async def _approve(self, reader: Reader, node_id: str) -> None:
        def opened() -> Gate | None:
            return next((gate for gate in reader.values("gate_opened") if gate.node_id == node_id), None)

        await self.resolve(await reader.until(opened))

    async def resolve(self, gate: Gate) -> object:
        """Approve a gate. Return the gate, or the reason of a refusal."""
        request_id = f"{self.client.name}/{gate.node_id}"
        decision = ResolveGate(
            gate_id=gate.id,
            approve=True,
            shown_hash=gate.shown_hash,
            answer={"text": "edited"},
            user_id="mia",
        )

        async def resolve(node: Node) -> Gate:
            return await node.runs.gates.resolve(decision, origin(request_id))

        return await self.client.once(request_id, resolve)

    async def _cancel(self, reader: Reader, run_id: str) -> None:
        """Cancel the run once it waits at all places."""
        places = {"gate", "signal", "child", "hang"}

        def waits() -> bool:
            started: list[NodeExecution] = reader.values("node_started")
            return {execution.node_id for execution in started} >= places

        await reader.until(waits)
        request_id = f"{self.client.name}/cancel"

        async def cancel(node: Node) -> str:
            return str((await node.runs.cancel(run_id, "Enough.", "", origin(request_id))).run.status)

        await self.client.once(request_id, cancel)

    async def _fork(self, run_id: str) -> None:
        request_id = f"{self.client.name}/fork"
        fork = ForkRequest(run_id=run_id, before_execution=self.case.fork)

        async def begin(node: Node) -> str:
            return (await node.runs.forks.fork(fork, origin(request_id))).run.id

        reader = self._read(await self.client.once(request_id, begin))
        await reader.until(lambda: _run_end(reader))


def _run_end(reader: Reader) -> Event | None:
    last = reader.events[-1] if reader.events else None
    return last if last is not None and last.emit.kind in RUN_ENDED else None


@dataclass
class Hurried:
    """A client that answers a gate at about the time of its expiry. Either comes first, and the run ends as
    the answer to the client said."""

    client: Client
    needs_workers = False

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield nothing: the result depends on the time."""
        yield from ()

    async def __call__(self) -> None:
        runner = Runner(self.client, Case("hurried"))
        reader = await runner.start()
        gate = await reader.until(lambda: next(iter(reader.values("gate_opened")), None))
        await asyncio.sleep(self.client.dice.random() * 0.4)
        answer = await runner.resolve(gate)
        ended = await reader.until(lambda: _run_end(reader))
        expected = {"decision": "rejected", "by": ""}
        if answer is not Reason.GATE_RESOLVED:
            expected = {"decision": "approved", "by": "mia"}
        found = ended.emit.value.output
        require(found == expected, f"{answer} was answered, and the run ended with {found}")


CASES: Final = (*CORPUS, Case("worked"), Case("far"))
"""The workflows of runs, with what their clients do."""
