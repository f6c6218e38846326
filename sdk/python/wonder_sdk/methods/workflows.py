"""The calls of a client that are about workflows: runs and gates."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.subscriptions import RunItem, watch_run
from wonder_sdk.errors import NotFoundError, UnavailableError, WonderError
from wonder_sdk.methods.runs import Run
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy
from wonder_sdk.values import to_struct, to_value

# What one StartRun may wait, less than proxies usually do; whoever waits longer watches from then on.
_WAIT_MS = 30_000
_PAGE = 200


class StartOptions(TypedDict, total=False):
    """Options of a run to start."""

    project: str
    """Project, by name or id; left out, ``default``."""
    agent: str
    """Agent, by name or id, whose memories the run reads and writes."""
    conversation: str
    """Id of the conversation that the run is for."""
    branch: str
    """Branch of the project's repositories to work on; left out, the conversation's or the run's own."""
    metadata: Mapping[str, Any]
    """Anything to be kept with the run."""
    timeout: float
    """Seconds that the run may take; at most what the workflow says."""
    request_id: str
    """Started twice with the same one, it is one run. Left out, the call gets one of its own."""


class WorkflowMethods:
    """Methods of `Client` for workflows, runs and gates."""

    coordinator: stubs.CoordinatorServiceStub
    _reconnect: ReconnectPolicy

    async def run(
        self,
        workflow: str,
        input: Mapping[str, Any] | None = None,
        *,
        wait: float | None = None,
        **options: Unpack[StartOptions],
    ) -> dict[str, Any]:
        """Run a workflow (by ``library/name``, maybe ``@revision``, or id) to its end; its output.

        ``wait`` is in seconds, None for as long as it takes; after that DeadlineExceededError is raised,
        whose ``metadata["run_id"]`` says which run goes on. Raises the run's error as a `WonderError` if it
        fails. A connection that is lost on the way is sought again, and starts nothing twice.
        """
        wait_ms = _WAIT_MS if wait is None else min(_WAIT_MS, max(1, round(wait * 1000)))
        run = await self._start(workflow, input, wait_ms, options)
        return await run.result(None if wait is None else max(0.0, wait - wait_ms / 1000))

    async def start_run(
        self, workflow: str, input: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> Run:
        """Start a run. It is on the server's disk when this returns, and goes on by itself.

        Raises NotFoundError for a workflow, project or agent that is not there, InvalidArgumentError for an
        input that does not fit the workflow's schema.
        """
        return await self._start(workflow, input, 0, options)

    def attach_run(self, run_id: str) -> Run:
        """A run that is there already, to wait for or to talk to. Asks the server nothing."""
        return Run(self, run_id)

    async def get_run(self, run_id: str) -> v1.Run:
        """A run as it stands, with its tokens and node executions. Raises NotFoundError."""
        return _require_run((await self.coordinator.get_run(v1.GetRunRequest(run_id=run_id))).run)

    async def list_runs(
        self,
        *,
        workflow: str = "",
        project: str = "",
        conversation: str = "",
        statuses: Iterable[v1.RunStatus] = (),
        parent: str = "",
        include_children: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[v1.Run]:
        """Runs, newest first, over as many pages as it takes.

        ``since`` and ``until`` are about when they were started. Runs that others wait for are listed with
        ``include_children``, or when their ``parent`` or ``conversation`` is named.
        """
        request = v1.ListRunsRequest(
            workflow_id=workflow,
            project_id=project,
            conversation_id=conversation,
            statuses=list(statuses),
            parent_run_id=parent,
            include_children=include_children,
            start_time=since,
            end_time=until,
            page_size=_PAGE,
        )
        while True:
            page = await self.coordinator.list_runs(request)
            for run in page.runs:
                yield run
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def cancel_run(self, run_id: str, reason: str = "", *, request_id: str = "") -> v1.Run:
        """Cancel a run with everything that works for it; the run, cancelled.

        Raises NotFoundError, and FailedPreconditionError for a run that has ended.
        """
        request = v1.CancelRunRequest(run_id=run_id, reason=reason, request_id=request_id)
        return _require_run((await self.coordinator.cancel_run(request)).run)

    async def signal_run(
        self, run_id: str, name: str, payload: Any = None, *, user: str = "", request_id: str = ""
    ) -> int:
        """Send a run a signal with any JSON as its payload; the sequence of the event that says so.

        Raises NotFoundError, and FailedPreconditionError for a run that has ended.
        """
        signal = v1.Signal(
            name=name, payload=None if payload is None else to_value(payload, "payload"), user_id=user
        )
        request = v1.SignalRunRequest(run_id=run_id, signal=signal, request_id=request_id)
        return (await self.coordinator.signal_run(request)).sequence

    def watch_run(
        self,
        run_id: str,
        *,
        after_sequence: int = 0,
        include_progress: bool = False,
        on_connection: Callable[[WonderError | None], object] = lambda problem: None,
    ) -> AsyncGenerator[RunItem, None]:
        """Watch a run until it has ended: each event after the cursor once, over as many connections as it
        takes.

        With ``include_progress`` also what nodes do inside their tasks, as it happens. ``on_connection`` is
        called with what broke a connection, before it is sought again, and with None once there is one.

        Raises NotFoundError, and OutOfRangeError for a cursor beyond the record.
        """
        request = v1.WatchRunRequest(
            run_id=run_id, after_sequence=after_sequence, include_progress=include_progress
        )
        return watch_run(self.coordinator, request, self._reconnect, on_connection)

    async def list_gates(
        self,
        *,
        run: str = "",
        project: str = "",
        user: str = "",
        statuses: Iterable[v1.GateStatus] = (),
    ) -> AsyncIterator[v1.Gate]:
        """Gates, oldest first: those that wait for an answer, or that stand as ``statuses`` say.

        ``user`` leaves those that this user may resolve.
        """
        request = v1.ListGatesRequest(
            run_id=run, project_id=project, user_id=user, statuses=list(statuses), page_size=_PAGE
        )
        while True:
            page = await self.coordinator.list_gates(request)
            for gate in page.gates:
                yield gate
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def find_gate(self, gate_id: str) -> v1.Gate:
        """A gate by its id, whether it waits or not. Raises NotFoundError.

        The contract lists gates and does not read one, so this may turn many pages on a busy server.
        """
        everything = [status for status in v1.GateStatus if status]
        for statuses in ((), everything):
            async for gate in self.list_gates(statuses=statuses):
                if gate.id == gate_id:
                    return gate
        raise NotFoundError(f"There is no gate {gate_id}.", reason=v1.ErrorReason.GATE_NOT_FOUND)

    async def approve(
        self,
        gate: v1.Gate | str,
        answer: Mapping[str, Any] | None = None,
        *,
        comment: str = "",
        user: str = "",
        request_id: str = "",
    ) -> v1.Gate:
        """Approve at a gate, with ``answer`` where it takes one (by its ``answer_schema``).

        An approval is bound to what was shown: give the `v1.Gate` that was looked at. An id stands for
        the gate as it is now. Raises NotFoundError, FailedPreconditionError if it was resolved before
        (GATE_RESOLVED), InvalidArgumentError for an answer that does not fit, PermissionDeniedError.
        """
        return await self._resolve(gate, v1.GateDecision.APPROVE, answer, comment, user, request_id)

    async def reject(
        self,
        gate: v1.Gate | str,
        answer: Mapping[str, Any] | None = None,
        *,
        comment: str = "",
        user: str = "",
        request_id: str = "",
    ) -> v1.Gate:
        """Reject at a gate; the run's conditions decide what comes of it. Otherwise like `approve`."""
        return await self._resolve(gate, v1.GateDecision.REJECT, answer, comment, user, request_id)

    async def replay_run(self, run_id: str) -> v1.ReplayRunResponse:
        """Have the server decide a run's record anew, and compare. Changes nothing. Raises NotFoundError."""
        return await self.coordinator.replay_run(v1.ReplayRunRequest(run_id=run_id))

    async def fork_run(
        self,
        run_id: str,
        *,
        before: int | None = None,
        after_sequence: int | None = None,
        input: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        revision: int = 0,
        request_id: str = "",
    ) -> Run:
        """Start a new run from a point of another: right ``before`` its node execution of this ordinal, which
        runs again, or right ``after_sequence``; exactly one is given.

        ``input`` and ``state`` take the place of what the run had; ``revision`` is that of the workflow to
        go on with, 0 for the same. Raises NotFoundError, OutOfRangeError for a point that it does not have.
        """
        if (before is None) == (after_sequence is None):
            raise ValueError("say where to fork: either before or after_sequence")
        request = v1.ForkRunRequest(
            run_id=run_id,
            before_node_execution=before,
            after_sequence=after_sequence,
            input=to_struct(input, "input"),
            state=to_struct(state, "state"),
            workflow_revision=revision,
            request_id=request_id,
        )
        run = _require_run((await self.coordinator.fork_run(request)).run)
        return Run(self, run.id, run)

    async def _start(
        self, workflow: str, input: Mapping[str, Any] | None, wait_ms: int, options: StartOptions
    ) -> Run:
        request = v1.StartRunRequest(
            workflow_id=workflow,
            input=to_struct(input, "input"),
            context=v1.ExecutionContext(
                project_id=options.get("project", ""),
                agent_id=options.get("agent", ""),
                conversation_id=options.get("conversation", ""),
                branch=options.get("branch", ""),
            ),
            metadata=to_struct(options.get("metadata"), "metadata"),
            timeout_ms=round(options.get("timeout", 0) * 1000),
            request_id=options.get("request_id") or f"req-{uuid.uuid4().hex}",
            wait_ms=wait_ms,
        )
        backoff, was_cut = Backoff(self._reconnect), False
        while True:
            try:
                run = _require_run((await self.coordinator.start_run(request)).run)
                return Run(self, run.id, run)
            except WonderError as problem:
                if isinstance(problem, UnavailableError) and problem.not_connected and not was_cut:
                    raise
                # Nobody knows whether it was started; its request_id makes it the same run if it was.
                await backoff.wait_after(problem)
                was_cut = True

    async def _resolve(
        self,
        gate: v1.Gate | str,
        decision: v1.GateDecision,
        answer: Mapping[str, Any] | None,
        comment: str,
        user: str,
        request_id: str,
    ) -> v1.Gate:
        seen = await self.find_gate(gate) if isinstance(gate, str) else gate
        response = await self.coordinator.resolve_gate(
            v1.ResolveGateRequest(
                gate_id=seen.id,
                decision=decision,
                shown_hash=seen.shown_hash,
                answer=to_struct(answer, "answer"),
                comment=comment,
                user_id=user,
                request_id=request_id,
            )
        )
        if response.gate is None:
            raise ValueError("the server answered without a gate")
        return response.gate


def _require_run(run: v1.Run | None) -> v1.Run:
    if run is None:
        raise ValueError("the server answered without a run")
    return run
