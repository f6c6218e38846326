"""Client view of runs: a reader that checks the guarantees of WatchRun, and the most frequent requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, struct
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import errors_pb2, run_pb2

ENDS = ("workflow_completed", "workflow_failed", "workflow.cancelled")
NODE_ENDS = ("node_completed", "node_failed", "node_cancelled")
RUNNING = run_pb2.NODE_EXECUTION_STATUS_RUNNING


@dataclass
class RunView:
    """A client's picture of a run over all its streams: events in sequence, each once, the end last."""

    run_id: str = ""
    cursor: int = 0
    events: list[run_pb2.RunEvent] = field(default_factory=list)
    progress: list[pb.NodeProgress] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.events[-1].name in ENDS

    def take(self, word: pb.WatchRunResponse) -> None:
        kind = word.WhichOneof("item")
        if kind == "event":
            event = word.event
            assert event.sequence == self.cursor + 1, f"{event.sequence} after {self.cursor}"
            assert not self.has_ended, f"{event.name} after the end"
            assert event.run_id == self.run_id
            self.cursor = event.sequence
            self.events.append(event)
        elif kind == "progress":
            self.progress.append(word.progress)
        elif kind == "end":
            assert word.end.resume_after_sequence == self.cursor

    async def watch(self, client: Client, *, include_progress: bool = False) -> None:
        """Read from the cursor to the end of the stream, which is the end of the run."""
        request = pb.WatchRunRequest(
            run_id=self.run_id, after_sequence=self.cursor, include_progress=include_progress
        )
        async for word in client.coordinator.WatchRun(request):
            self.take(word)
            async with self._changed:
                self._changed.notify_all()
        assert self.has_ended, self.names

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` holds for the view that a client watches here."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(condition)

    def gate(self, node_id: str) -> run_pb2.Gate | None:
        """Return the gate that opened at this node."""
        opened = [event.gate_opened for event in self.events if event.HasField("gate_opened")]
        return next((gate for gate in opened if gate.node_id == node_id), None)

    def executions(self, kind: str) -> list[run_pb2.NodeExecution]:
        """Of the events of this payload (``node_completed`` …) what they carry."""
        return [getattr(event, kind) for event in self.events if event.HasField(kind)]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run, without values that differ between executions."""

    status: str
    reason: str
    output: dict[str, Any]
    executed: Counter[tuple[str, str, str]]
    """Ended node executions: node, branch path, how."""
    said: Counter[str]


def outcome(view: RunView) -> Outcome:
    """Return the outcome of the run, and check that each node execution begins and ends once."""
    assert [event.sequence for event in view.events] == list(range(1, len(view.events) + 1))
    end = getattr(view.events[-1], view.events[-1].WhichOneof("payload"))
    assert isinstance(end, run_pb2.Run)
    branches = {each.token_id: each.branch for each in view.executions("node_started")}

    def path(token_id: str) -> str:
        branch = branches[token_id]
        return f"{path(branch.parent_token_id)}/{branch.name}" if branch.parent_token_id else ""

    begun = [execution.id for execution in view.executions("node_started")]
    assert len(begun) == len(set(begun)), "a node execution that begins twice"
    ended: dict[str, tuple[str, str, str]] = {}
    for kind in NODE_ENDS:
        for execution in view.executions(kind):
            if execution.status == RUNNING:
                continue  # It is tried again.
            assert execution.id not in ended, f"{execution.node_id} ended twice"
            ended[execution.id] = (execution.node_id, path(execution.token_id), kind)
    assert set(begun) == set(ended), "each execution that began has ended, and no other"
    said = Counter(str(e.event_emitted.payload) for e in view.events if e.HasField("event_emitted"))
    return Outcome(
        status=run_pb2.RunStatus.Name(end.status),
        reason=errors_pb2.ErrorReason.Name(end.error.reason) if end.HasField("error") else "",
        output=MessageToDict(end.output),
        executed=Counter(ended.values()),
        said=said,
    )


# --- what is said most --------------------------------------------------------------------------------


async def start(client: Client, workflow: str, request_id: str = "", **input: Any) -> str:
    """Start a run; return its id."""
    request = pb.StartRunRequest(workflow_id=workflow, input=struct(**input), request_id=request_id)
    return str((await client.coordinator.StartRun(request)).run.id)


async def get(client: Client, run_id: str) -> run_pb2.Run:
    return (await client.coordinator.GetRun(pb.GetRunRequest(run_id=run_id))).run


async def runs(client: Client, **asked: Any) -> list[run_pb2.Run]:
    """Return all listed runs, page by page."""
    found: list[run_pb2.Run] = []
    token = ""
    while True:
        request = pb.ListRunsRequest(page_size=50, page_token=token, **asked)
        page = await client.coordinator.ListRuns(request)
        found += page.runs
        token = page.next_page_token
        if not token:
            return found
