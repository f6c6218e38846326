"""The ways into workflow runs: what rpc asks of them, in core's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from wonder_server.actors.attachment import Attachment, attach
from wonder_server.actors.conversations import Shards
from wonder_server.actors.loop import Loop
from wonder_server.actors.requests import Creations, first_answer, request
from wonder_server.actors.streams import Streams
from wonder_server.core import ids
from wonder_server.core.commands import Scope
from wonder_server.core.coordinator.inputs import CancelRun, Start
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.coordinator.values import ContextValue, Execution, Run, Token
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.clock import Clock
from wonder_server.ports.journal import Entry
from wonder_server.ports.records import Query, Records


class Workflows(Protocol):
    """What is needed of the library: workflows with everything their nodes refer to."""

    async def pin_workflow(self, reference: str) -> PinnedWorkflow:
        """Errors: DEFINITION_NOT_FOUND."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with where it stands."""

    run: Run
    state: dict[str, Any]
    output: dict[str, Any]
    tokens: tuple[Token, ...]
    executions: tuple[Execution, ...]
    head: int


class Runs:
    """Start, look up, watch, cancel."""

    planner = RUN

    def __init__(
        self,
        *,
        loop: Loop,
        shards: Shards,
        records: Records,
        streams: Streams,
        workflows: Workflows,
        clock: Clock,
    ) -> None:
        self._loop = loop
        self._shards = shards
        self._records = records
        self._streams = streams
        self._workflows = workflows
        self._clock = clock
        self._creations = Creations()

    async def start(self, reference: str, run_input: dict[str, Any], scope: Scope, request_id: str) -> Run:
        """Start a run; on disk when this returns.

        Errors: DEFINITION_NOT_FOUND, INPUT_INVALID, REQUEST_ID_REUSED.
        """
        workflow = await self._workflows.pin_workflow(reference)
        asked = request("runs", request_id, workflow=reference, input=run_input, context=repr(scope))
        now = self._clock.now_ms()
        if asked is None:
            shard = ids.spread(str(now) + reference, self._shards.count)
            return await self._start(ids.actor_id("run", now, shard), workflow, run_input, scope)
        async with self._creations.one("runs", request_id):
            shard = ids.spread(request_id, self._shards.count)
            run_id = ids.actor_id("run", now, shard)
            before = await self._shards.of(run_id).answered(asked.scope, asked.id)
            told = first_answer(before, asked)
            if told is not None:
                return await self.get(told["run_id"])
            start = Start(run_id=run_id, workflow=workflow, input=run_input, scope=scope)
            self._loop.new(run_id)
            await self._loop.ask(run_id, start, asked)
            return await self.get(run_id)

    async def _start(
        self, run_id: str, workflow: PinnedWorkflow, run_input: dict[str, Any], scope: Scope
    ) -> Run:
        start = Start(run_id=run_id, workflow=workflow, input=run_input, scope=scope)
        self._loop.new(run_id)
        outcome = await self._loop.ask(run_id, start)
        run: Run = outcome.decisions[0].run
        return run

    async def get(self, run_id: str) -> Run:
        """Errors: RUN_NOT_FOUND."""
        found = None
        if ids.is_id("run", run_id):
            found = await self._records.get("runs", run_id, run_id)
        if found is None:
            raise not_found(run_id)
        run: Run = found
        return run

    async def check(self, reference: str, run_input: dict[str, Any]) -> None:
        """What `start` would refuse, refused; nothing is started."""
        workflow = await self._workflows.pin_workflow(reference)
        start = Start(run_id="run_0", workflow=workflow, input=run_input, scope=Scope())
        fault = RUN.refusal(RUN.plan(RUN.new_state(), start, self._clock.now_ms()))
        if fault is not None:
            raise WonderError(fault)

    async def cancel(self, run_id: str, reason: str, etag: str, request_id: str) -> Run:
        """Stop a run. Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE, ETAG_MISMATCH."""
        run = await self.get(run_id)
        if etag and etag != str(run.version):
            raise error(Reason.ETAG_MISMATCH, "The run has changed; read it again.", field="etag")
        asked = request(run_id, request_id, cancel=reason)
        await self._loop.ask(run_id, CancelRun(reason=reason), asked)
        return await self.get(run_id)

    async def entries(self, run_id: str) -> list[Entry]:
        """The run's whole journal. Errors: RUN_NOT_FOUND."""
        await self.get(run_id)
        found: list[Entry] = []
        while True:
            after = found[-1].sequence if found else 0
            page = await self._shards.of(run_id).entries(run_id, RUN, after, 500)
            found += page
            if len(page) < 500:
                return found

    async def view(self, run_id: str) -> RunView:
        """The run with its tokens, node executions and context. Errors: RUN_NOT_FOUND."""
        run = await self.get(run_id)
        entries: list[ContextValue] = await self._all("context", run_id)
        return RunView(
            run=run,
            state={entry.key: entry.value for entry in entries if entry.section == "state"},
            output={entry.key: entry.value for entry in entries if entry.section == "output"},
            tokens=tuple(await self._all("tokens", run_id)),
            executions=tuple(await self._all("executions", run_id)),
            head=await self._records.head(run_id) or 0,
        )

    async def attach(self, run_id: str, after: int) -> Attachment:
        """Watch a run. Errors: RUN_NOT_FOUND, CURSOR_OUT_OF_RANGE."""
        if not ids.is_id("run", run_id) or not self._shards.holds(run_id):
            raise not_found(run_id)
        attachment = await attach(
            run_id, RUN, self._shards.of(run_id), self._records, self._streams, after=after
        )
        if attachment is None:
            raise not_found(run_id)
        return attachment

    async def _all(self, table: str, run_id: str) -> list[Any]:
        query = Query(table=table, actor=run_id, by_ordinal=True, newest_first=False, limit=1000)
        return await self._records.find(query)


def not_found(run_id: str) -> WonderError:
    return error(Reason.RUN_NOT_FOUND, "No run has this id.", field="run_id", id=run_id[:64])
