"""Entry points for workflow runs.

::

    Runs(…)
      .lookup     read runs                 actors/runs/lookup.py
      .gates      resolve gates             actors/runs/gates.py
      .forks      fork runs                 actors/runs/forks.py
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wonder_server.actors.access import ActorAccess
from wonder_server.actors.runs.forks import Branches, Forks
from wonder_server.actors.runs.gates import Gates
from wonder_server.actors.runs.lookup import RunLookup, RunView, run_not_found
from wonder_server.actors.runs.replay import Replay, ReplayResult
from wonder_server.actors.runs.starts import RunStarter
from wonder_server.actors.streaming.attachment import Attachment, StreamSource, attach
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.inputs import CancelRun, ReceiveSignal, Start
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace as changed
from wonder_server.core.frozen import stored_text
from wonder_server.core.idempotency import Request, check_replay, request_identity
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.library import WorkflowPinning


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRunRequest:
    """A run to start: the contract's ``StartRunRequest``.

    ``timeout_ms`` 0 means the workflow's own timeout. ``trace_id`` is the client's trace; it may differ
    between repeated requests.
    """

    workflow: str
    input: JsonDict
    scope: Scope
    metadata: JsonDict
    timeout_ms: int = 0
    trace_id: str = ""


class Runs:
    """Starts, cancels, signals, streams and replays runs."""

    planner = RUN

    def __init__(
        self,
        *,
        access: ActorAccess,
        workflows: WorkflowPinning,
        branches: Branches | None = None,
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._streams = access.streams
        self._workflows = workflows
        self._clock = access.clock
        self.records = access.records
        self.lookup = RunLookup(access.records, access.journals, access.directory.flush)
        self._starter = RunStarter(access, self.lookup)
        self.gates = Gates(access)
        self.forks = Forks(lookup=self.lookup, workflows=workflows, starter=self._starter, branches=branches)

    # --- starting -------------------------------------------------------------------------------

    async def start(
        self, start_request: StartRunRequest, request_id: str = "", *, wait_ms: int = 0
    ) -> RunView:
        """Start a run. It is on disk when this returns, and continues if the caller disconnects.

        With ``wait_ms``, return when the run has ended or the time has passed. Errors:
        DEFINITION_NOT_FOUND, INPUT_INVALID, REQUEST_ID_REUSED.
        """
        asked = _request_identity(start_request, request_id) if request_id else None

        async def build(run_id: str) -> Start:
            return await self._input(run_id, start_request)

        return await self._starter.start(start_request.workflow, build, asked, wait_ms=wait_ms)

    async def check_start(self, start_request: StartRunRequest) -> None:
        """Raise the error that `start` would raise, without starting a run."""
        start = await self._input("run_0", start_request)
        fault = RUN.rejection(RUN.plan(RUN.new_state(), start, self._clock.now_ms()))
        if fault is not None:
            raise WonderError(fault)

    async def resolve_workflow(self, reference: str) -> tuple[str, str]:
        """Return the workflow's id, and its pinned reference if ``reference`` names a revision, else "".

        Errors: DEFINITION_NOT_FOUND.
        """
        pin = (await self._workflows.pin_workflow(reference)).pin
        return pin.definition_id, str(pin) if "@" in reference else ""

    async def _input(self, run_id: str, start_request: StartRunRequest) -> Start:
        try:
            workflow = await self._workflows.pin_workflow(start_request.workflow)
        except WonderError as problem:
            # Name the field of the request.
            raise WonderError(replace(problem.fault, field=problem.fault.field or "workflow_id")) from None
        return Start(
            run_id=run_id,
            workflow=workflow,
            input=start_request.input,
            scope=changed(
                start_request.scope, trace_id=start_request.trace_id or start_request.scope.trace_id
            ),
            metadata=start_request.metadata,
            timeout_ms=start_request.timeout_ms,
        )

    # --- one run --------------------------------------------------------------------------------

    async def cancel(self, run_id: str, reason: str, etag: str, request_id: str) -> RunView:
        """Cancel a run and return it. Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE, ETAG_MISMATCH."""
        view = await self.lookup.snapshot(run_id)
        asked = request_identity(run_id, request_id, cancel=reason)
        if etag and etag != str(view.head.sequence):
            # A repeated request finds the run changed by its own first call.
            if asked is None or not await self._is_completed(run_id, asked):
                raise error(
                    Reason.ETAG_MISMATCH, "The run has changed since this etag. Read it again.", field="etag"
                )
        await self._directory.ask(run_id, CancelRun(reason=reason), asked)
        return await self.lookup.snapshot(run_id)

    async def _is_completed(self, run_id: str, asked: Request) -> bool:
        earlier = await self._journals.of(run_id).completed_request(asked.scope, asked.id)
        return check_replay(earlier, asked) is not None

    async def signal(self, run_id: str, signal: ReceiveSignal, request_id: str) -> int:
        """Send a signal to a run. Return the sequence of its event.

        Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE.
        """
        await self.lookup.run(run_id)
        asked = request_identity(
            run_id, request_id, signal=signal.name, payload=signal.payload, user=signal.user_id
        )
        outcome = await self._directory.ask(run_id, signal, asked)
        return int(outcome.answer["first_sequence"])

    async def replay(self, run_id: str) -> ReplayResult:
        """Replay the run's journal against today's planner. Errors: RUN_NOT_FOUND."""
        replay = Replay(RUN)
        async for page in self.lookup.journal(run_id):
            if not replay.feed(page):
                break
        return replay.result

    async def attach(self, run_id: str, after: int, *, wants_progress: bool = False) -> Attachment:
        """Attach a reader to a run. Errors: RUN_NOT_FOUND, CURSOR_OUT_OF_RANGE."""
        await self.lookup.ensure_written(run_id)
        attachment = await attach(
            StreamSource(run_id, RUN, self._journals.of(run_id), self.records, self._streams),
            after=after,
            wants_progress=wants_progress,
        )
        if attachment is None:
            raise run_not_found(run_id)
        return attachment


def _request_identity(start_request: StartRunRequest, request_id: str) -> Request | None:
    more = {"metadata": start_request.metadata, "timeout": start_request.timeout_ms}
    return request_identity(
        "runs",
        request_id,
        workflow=start_request.workflow,
        input=start_request.input,
        context=stored_text("Scope", start_request.scope),
        **{name: value for name, value in more.items() if value},
    )
