"""Client methods for workflow runs and gates."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.subscriptions import RunItem, watch_run
from wonder_sdk.errors import NotFoundError, UnavailableError, WonderError
from wonder_sdk.json_types import JsonDict, JsonObject, JsonValue
from wonder_sdk.methods.options import check_options, to_milliseconds
from wonder_sdk.methods.paging import pages
from wonder_sdk.methods.runs import Run
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy
from wonder_sdk.values import to_struct, to_value

# Maximum wait of one StartRun, below the usual timeout of proxies. A longer wait continues with WatchRun.
_WAIT_MS = 30_000
_PAGE = 200


class StartOptions(TypedDict, total=False):
    """Options of a run to start."""

    project: str
    """Name or id of the project; default ``default``."""
    agent: str
    """Name or id of the agent whose memories the run reads and writes."""
    conversation: str
    """Id of the conversation that the run belongs to."""
    branch: str
    """Branch of the project's repositories; default the conversation's or the run's own branch."""
    metadata: JsonObject
    """JSON to store with the run."""
    timeout: float
    """Timeout of the run in seconds, at most the workflow's own timeout; 0 leaves the workflow's."""
    request_id: str
    """Idempotency key: two starts with the same key create one run. Default: a random key."""


class WorkflowMethods:
    """Methods of `Client` for workflows, runs and gates."""

    coordinator: stubs.CoordinatorServiceStub
    _reconnect: ReconnectPolicy

    async def run(
        self,
        workflow: str,
        input: JsonObject | None = None,
        *,
        wait: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JsonDict:
        """Run a workflow to its end and return its output.

        ``workflow`` is ``library/name``, ``library/name@revision`` or an id. ``wait`` is the maximum wait in
        seconds; None waits without limit. After ``wait``, raises DeadlineExceededError with the run's id in
        ``metadata["run_id"]``; the run continues. Raises the run's error as a `WonderError` if it fails.
        The client restores a lost connection and starts the run only once.
        """
        check_options(options, StartOptions, self.run)
        wait_ms = _WAIT_MS if wait is None else min(_WAIT_MS, max(1, to_milliseconds(wait, "wait")))
        run = await self._start(workflow, input, wait_ms, options)
        return await run.result(None if wait is None else max(0.0, wait - wait_ms / 1000))

    async def start_run(
        self, workflow: str, input: JsonObject | None = None, **options: Unpack[StartOptions]
    ) -> Run:
        """Start a run and return its handle as soon as the server has committed the start.

        Raises NotFoundError for an unknown workflow, project or agent, and InvalidArgumentError for an input
        that does not match the workflow's schema.
        """
        check_options(options, StartOptions, self.start_run)
        return await self._start(workflow, input, 0, options)

    def attach_run(self, run_id: str) -> Run:
        """Return a handle of an existing run, without a request to the server."""
        return Run(self, run_id)

    async def get_run(self, run_id: str) -> v1.Run:
        """Return a run with its tokens and node executions. Raises NotFoundError."""
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
        """Yield runs, newest first, page by page.

        ``since`` and ``until`` limit the time of the start. The list omits child runs unless
        ``include_children`` is set or their ``parent`` or ``conversation`` is named.
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
        async for page in pages(self.coordinator.list_runs, request):
            for run in page.runs:
                yield run

    async def cancel_run(self, run_id: str, reason: str = "", *, request_id: str = "") -> v1.Run:
        """Cancel a run with its child runs and operations. Return the cancelled run.

        Raises NotFoundError, and FailedPreconditionError for a run that has ended.
        """
        request = v1.CancelRunRequest(run_id=run_id, reason=reason, request_id=request_id)
        return _require_run((await self.coordinator.cancel_run(request)).run)

    async def signal_run(
        self, run_id: str, name: str, payload: JsonValue = None, *, user: str = "", request_id: str = ""
    ) -> int:
        """Send a run a signal with any JSON as its payload. Return the sequence of the signal's event.

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
        """Yield each event of a run after the cursor once, until the run has ended.

        The iterator reconnects after a lost connection. With ``include_progress`` it also yields the progress
        of node executions. It calls ``on_connection`` with the error after each lost connection, and with
        None after the reconnect.

        Raises NotFoundError, and OutOfRangeError for a cursor after the last event.
        """
        request = v1.WatchRunRequest(
            run_id=run_id, after_sequence=after_sequence, include_progress=include_progress
        )
        return watch_run(self.coordinator, request, self._reconnect, on_connection)

    async def list_gates(
        self,
        *,
        run: str = "",
        conversation: str = "",
        project: str = "",
        user: str = "",
        statuses: Iterable[v1.GateStatus] = (),
    ) -> AsyncIterator[v1.Gate]:
        """Yield gates, oldest first: open ones, or those with one of ``statuses``.

        ``run`` and ``conversation`` are ids; a conversation has the gates of its tool calls.

        ``user`` keeps only the gates that this user may resolve.
        """
        request = v1.ListGatesRequest(
            run_id=run,
            conversation_id=conversation,
            project_id=project,
            user_id=user,
            statuses=list(statuses),
            page_size=_PAGE,
        )
        async for page in pages(self.coordinator.list_gates, request):
            for gate in page.gates:
                yield gate

    async def find_gate(self, gate_id: str) -> v1.Gate:
        """Return a gate of any status by its id. Raises NotFoundError."""
        if gate_id:
            request = v1.ListGatesRequest(gate_id=gate_id, statuses=[each for each in v1.GateStatus if each])
            page = await self.coordinator.list_gates(request)
            for gate in page.gates:
                if gate.id == gate_id:  # A server of an earlier version does not know the filter.
                    return gate
            if page.next_page_token:
                async for gate in self.list_gates(statuses=request.statuses):
                    if gate.id == gate_id:
                        return gate
        message = f"There is no gate '{gate_id}'. List the gates with `wonder gates` or ListGates."
        raise NotFoundError(message, reason=v1.ErrorReason.GATE_NOT_FOUND)

    async def approve(
        self,
        gate: v1.Gate | str,
        answer: JsonObject | None = None,
        *,
        comment: str = "",
        user: str = "",
        request_id: str = "",
    ) -> v1.Gate:
        """Approve at a gate. ``answer`` must match the gate's ``answer_schema``. For a tool call it replaces
        the arguments.

        The approval applies only to the content that the user has seen: pass the displayed `v1.Gate`. An id
        stands for the gate's current content. Raises NotFoundError, FailedPreconditionError (GATE_RESOLVED)
        for a resolved gate, InvalidArgumentError for an invalid answer, and PermissionDeniedError.
        """
        return await self._resolve(gate, v1.GateDecision.APPROVE, answer, comment, user, request_id)

    async def reject(
        self,
        gate: v1.Gate | str,
        answer: JsonObject | None = None,
        *,
        comment: str = "",
        user: str = "",
        request_id: str = "",
    ) -> v1.Gate:
        """Reject at a gate. The conditions of the workflow select the next node; of a tool call, the model
        gets ``comment`` as the result. See `approve`.
        """
        return await self._resolve(gate, v1.GateDecision.REJECT, answer, comment, user, request_id)

    async def replay_run(self, run_id: str) -> v1.ReplayRunResponse:
        """Replay a run's journal on the server and compare the decisions. Raises NotFoundError."""
        return await self.coordinator.replay_run(v1.ReplayRunRequest(run_id=run_id))

    async def fork_run(
        self,
        run_id: str,
        *,
        before: int | None = None,
        after_sequence: int | None = None,
        input: JsonObject | None = None,
        state: JsonObject | None = None,
        revision: int = 0,
        request_id: str = "",
    ) -> Run:
        """Start a new run from a point of another run. Exactly one of the two points must be given.

        ``before`` is the ordinal of a node execution, which the fork executes again. ``after_sequence`` is
        the sequence of an event. ``input`` and ``state`` replace those of the run. ``revision`` selects the
        workflow's revision; 0 keeps the run's revision. Raises NotFoundError, and OutOfRangeError for a point
        that the run does not have.
        """
        if (before is None) == (after_sequence is None):
            raise ValueError(f"Pass exactly one of before ({before}) and after_sequence ({after_sequence}).")
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
        self, workflow: str, input: JsonObject | None, wait_ms: int, options: StartOptions
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
            timeout_ms=to_milliseconds(options.get("timeout", 0), "timeout"),
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
                # The server may have started the run. The same request_id then returns that run.
                await backoff.wait_after(problem)
                was_cut = True

    async def _resolve(
        self,
        gate: v1.Gate | str,
        decision: v1.GateDecision,
        answer: JsonObject | None,
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
            raise ValueError("The server's response has no gate. Check the versions of SDK and server.")
        return response.gate


def _require_run(run: v1.Run | None) -> v1.Run:
    if run is None:
        raise ValueError("The server's response has no run. Check the versions of SDK and server.")
    return run
