"""Entry points for workflow runs.

::

    Runs(…)
      .lookup     read runs                 actors/runs/lookup.py
      .gates      resolve gates             actors/runs/gates.py
      .forks      fork runs                 actors/runs/forks.py
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wonder_server.actors.access import EntryAccess
from wonder_server.actors.archive.archiver import Archive, NullArchive
from wonder_server.actors.runs.forks import Branches, Forks
from wonder_server.actors.runs.gates import Gates
from wonder_server.actors.runs.lookup import RunLookup, RunView, run_not_found
from wonder_server.actors.runs.replay import Replay, ReplayResult
from wonder_server.actors.runs.starts import RunStarter, StartedBy
from wonder_server.actors.streaming.attachment import Attachment
from wonder_server.core import ids
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model.inputs import CancelRun, ReceiveSignal, Start
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace as changed
from wonder_server.core.frozen import stored_text
from wonder_server.core.idempotency import IdempotencyKey, Origin, check_replay, content_key
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
        access: EntryAccess,
        workflows: WorkflowPinning,
        branches: Branches | None = None,
        archive: Archive | None = None,
    ) -> None:
        self._directory = access.directory
        self._journals = access.journals
        self._workflows = workflows
        self._clock = access.clock
        self.records = access.records
        self.lookup = RunLookup(access.records, access.journals, access.directory.flush)
        self._starter = RunStarter(access, self.lookup, archive or NullArchive())
        self.gates = Gates(access)
        self.forks = Forks(lookup=self.lookup, workflows=workflows, starter=self._starter, branches=branches)

    # --- starting -------------------------------------------------------------------------------

    async def start(self, start_request: StartRunRequest, origin: Origin, *, wait_ms: int = 0) -> RunView:
        """Start a run. It is on disk when this returns, and continues if the caller disconnects.

        With ``wait_ms``, return when the run has ended or the time has passed. Errors:
        DEFINITION_NOT_FOUND, INPUT_INVALID, REQUEST_ID_REUSED.
        """
        identity = _key(start_request, origin) if origin.request_id else None

        async def build(run_id: str) -> Start:
            return await self._input(run_id, start_request, origin)

        # A run of a conversation shares its shard, so that deleting the conversation is one commit.
        conversation_id = start_request.scope.conversation_id
        beside = conversation_id if ids.is_id("conv", conversation_id) else ""
        started = StartedBy(identity, origin.principal.caller, beside)
        return await self._starter.start(started, build, wait_ms=wait_ms)

    async def started_before(self, origin: Origin, *, wait_ms: int = 0) -> RunView | None:
        """Return the run that the same message started before, also if what it names was deleted since; None
        for another message."""
        return await self._starter.repeated("runs", origin, wait_ms=wait_ms)

    async def check_start(self, start_request: StartRunRequest, origin: Origin) -> None:
        """Raise the error that `start` would raise, without starting a run."""
        start = await self._input("run_0", start_request, origin)
        fault = RUN.rejection(RUN.plan(RUN.new_state(), start, self._clock.now_ms()))
        if fault is not None:
            raise WonderError(fault)

    async def resolve_workflow(self, reference: str) -> tuple[str, str]:
        """Return the workflow's id, and its pinned reference if ``reference`` names a revision, else "".

        Errors: DEFINITION_NOT_FOUND.
        """
        pin = (await self._workflows.pin_workflow(reference)).pin
        return pin.definition_id, str(pin) if "@" in reference else ""

    async def _input(self, run_id: str, start_request: StartRunRequest, origin: Origin) -> Start:
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
                start_request.scope,
                trace_id=start_request.trace_id or start_request.scope.trace_id,
                principal=origin.principal.text,
            ),
            metadata=start_request.metadata,
            timeout_ms=start_request.timeout_ms,
        )

    # --- one run --------------------------------------------------------------------------------

    async def cancel(self, run_id: str, reason: str, etag: str, origin: Origin) -> RunView:
        """Cancel a run and return it. Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE, ETAG_MISMATCH."""
        view = await self.lookup.snapshot(run_id)
        identity = content_key(run_id, origin, cancel=reason)
        if etag and etag != str(view.head.sequence):
            # A repeated request finds the run changed by its own first call.
            if identity is None or not await self._is_completed(run_id, identity):
                raise error(
                    Reason.ETAG_MISMATCH, "The run has changed since this etag. Read it again.", field="etag"
                )
        caller = origin.principal.caller
        cancel = CancelRun(reason=reason, principal=origin.principal.text)
        await self._directory.ask(run_id, cancel, identity, caller=caller)
        return await self.lookup.snapshot(run_id)

    async def _is_completed(self, run_id: str, identity: IdempotencyKey) -> bool:
        earlier = await self._journals.of(run_id).completed_request(identity.scope, identity.id)
        return check_replay(earlier, identity) is not None

    async def signal(self, run_id: str, signal: ReceiveSignal, origin: Origin) -> int:
        """Send a signal to a run. Return the sequence of its event.

        Errors: RUN_NOT_FOUND, RUN_NOT_ACTIVE.
        """
        await self.lookup.run(run_id)
        identity = content_key(
            run_id, origin, signal=signal.name, payload=signal.payload, user=signal.user_id
        )
        signal = changed(signal, principal=origin.principal.text)
        outcome = await self._directory.ask(run_id, signal, identity, caller=origin.principal.caller)
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
        attachment = await self._directory.attach(run_id, after=after, wants_progress=wants_progress)
        if attachment is None:
            raise run_not_found(run_id)
        return attachment


_LATER_FIELDS = ("principal", "user_id", "cost_limited", "levels")
"""Fields of a scope that earlier versions lack: a fingerprint of theirs stays valid without them."""


def _key(start_request: StartRunRequest, origin: Origin) -> IdempotencyKey | None:
    more = {"metadata": start_request.metadata, "timeout": start_request.timeout_ms}
    return content_key(
        "runs",
        origin,
        workflow=start_request.workflow,
        input=start_request.input,
        context=stored_text("Scope", start_request.scope, without=_LATER_FIELDS),
        **{name: value for name, value in more.items() if value},
    )
