"""Stories of the recorded runs: a short one for each feature of workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.e2e.client import Client, struct
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import run_pb2

LIBRARY = """
name: echo
task:
  steps: [{id: echo, action: {kind: context}, output_mapping: {output.n: input.n}}]
---
name: nap
task:
  steps: [{id: nap, action: {kind: sleep}, input_mapping: {duration_ms: input.ms}}]
---
name: sequence
workflow:
  nodes:
    - {id: a, task_id: echo, input_mapping: {n: input.n}}
    - {id: b, task_id: echo, input_mapping: {n: state.a.n + 1}, output_mapping: {output.n: result.n}}
  transitions: [{from_node_id: a, to_node_id: b}]
---
name: timed
workflow:
  nodes:
    - {id: a, task_id: echo, input_mapping: {n: now()}}
    - {id: b, task_id: echo, input_mapping: {n: "[state.a.n, now()]"}, output_mapping: {output.n: result.n}}
  transitions: [{from_node_id: a, to_node_id: b, condition: now() > "2020"}]
---
name: diamond
workflow:
  nodes:
    - {id: a, task_id: echo, input_mapping: {n: "1"}, fan_out: true}
    - {id: b, task_id: echo, input_mapping: {n: "2"}}
    - {id: c, task_id: echo, input_mapping: {n: "3"}}
    - id: d
      task_id: echo
      input_mapping: {n: state.all}
      output_mapping: {output.all: result.n}
      fan_in: {merges: [{source: branch, target: state.all, strategy: keyed_by_branch}]}
  transitions:
    - {from_node_id: a, to_node_id: b}
    - {from_node_id: a, to_node_id: c}
    - {from_node_id: b, to_node_id: d}
    - {from_node_id: c, to_node_id: d}
---
name: two_of_three
workflow:
  nodes:
    - {id: a, task_id: echo, input_mapping: {n: "1"}}
    - {id: b, task_id: nap, input_mapping: {ms: item}}
    - id: c
      task_id: echo
      input_mapping: {n: state.came}
      fan_in:
        mode: m_of_n
        count: 2
        timeout_ms: 60000
        on_timeout: proceed
        merges: [{source: index, target: state.came}]
  transitions:
    - {from_node_id: a, to_node_id: b, for_each: {items: "[20000, 1, 1]"}}
    - {from_node_id: b, to_node_id: c}
---
name: list
workflow:
  nodes:
    - {id: a, task_id: echo, input_mapping: {n: "[[1, 2], [], [3]]"}}
    - {id: b, task_id: echo, input_mapping: {n: size(item)}, output_mapping: {branch.size: result.n}}
    - {id: c, task_id: echo, input_mapping: {n: item * 10}, output_mapping: {branch.ten: result.n}}
    - id: d
      task_id: echo
      input_mapping: {n: branch}
      fan_in: {merges: [{source: branch.ten, target: branch.tens}]}
    - id: e
      task_id: echo
      input_mapping: {n: state.all}
      output_mapping: {output.all: result.n}
      fan_in: {merges: [{source: branch.tens, target: state.all, strategy: append}]}
  transitions:
    - {from_node_id: a, to_node_id: b, for_each: {items: state.a.n, max_concurrency: 2}}
    - {from_node_id: b, to_node_id: c, for_each: {items: item}}
    - {from_node_id: c, to_node_id: d}
    - {from_node_id: d, to_node_id: e}
---
name: loop
workflow:
  nodes:
    - id: a
      task_id: echo
      input_mapping: {n: "has(state.n) ? state.n + 1 : 1"}
      output_mapping: {state.n: result.n, output.n: result.n}
  transitions: [{from_node_id: a, to_node_id: a, condition: state.n < 3, loop_limit: 5}]
---
name: parent
workflow:
  nodes:
    - id: a
      workflow_id: sequence
      input_mapping: {n: input.n}
      output_mapping: {output.n: result.n}
---
name: gate
workflow:
  nodes:
    - id: a
      human_gate:
        prompt: Go on?
        answer_schema: {type: object, properties: {n: {type: number}}}
        user_ids: [ann]
      input_mapping: {n: input.n}
    - {id: b, task_id: echo, input_mapping: {n: state.a.input.n}, output_mapping: {output.n: result.n}}
  transitions: [{from_node_id: a, to_node_id: b, condition: state.a.decision == "approved"}]
---
name: signal
workflow:
  nodes:
    - {id: a, wait: {signal: go, duration_ms: 60000}}
    - {id: b, wait: {duration_ms: 5}}
  transitions: [{from_node_id: a, to_node_id: b, condition: state.a.payload.n == 1.0}]
---
name: agent
workflow:
  nodes:
    - id: a
      agent_id: small
      input_mapping: {question: '"say 2 words"'}
      output_mapping: {output.text: result.text}
---
name: retry
workflow:
  nodes:
    - id: a
      task_id: nap
      input_mapping: {ms: "20000"}
      retry: {max_attempts: 2, backoff_ms: 10, timeout_ms: 50}
---
name: everything
workflow:
  timeout_ms: 60000
  nodes:
    - {id: a, task_id: echo, input_mapping: {n: input.n}, fan_out: true}
    - {id: b, task_id: nap, input_mapping: {ms: "20000"}}
    - {id: c, human_gate: {prompt: "Sure?"}, input_mapping: {n: input.n}}
    - {id: d, wait: {signal: go}}
    - {id: e, task_id: echo, input_mapping: {n: input.n}, fan_in: {timeout_ms: 50000}}
  transitions:
    - {from_node_id: a, to_node_id: b}
    - {from_node_id: a, to_node_id: c}
    - {from_node_id: a, to_node_id: d}
    - {from_node_id: b, to_node_id: e}
    - {from_node_id: c, to_node_id: e}
    - {from_node_id: d, to_node_id: e}
"""

Story = Callable[[Client], Awaitable[str]]
"""A story, which returns the id of its run."""


async def _started(client: Client, workflow: str) -> str:
    start = pb.StartRunRequest(workflow_id=f"golden/runs/{workflow}", input=struct(n=1))
    return str((await client.coordinator.StartRun(start)).run.id)


async def _ended(client: Client, run_id: str) -> str:
    async for _ in client.coordinator.WatchRun(pb.WatchRunRequest(run_id=run_id)):
        pass
    return run_id


async def _waiting(client: Client, run_id: str, node_id: str) -> None:
    """Until the node has begun."""
    async for word in client.coordinator.WatchRun(pb.WatchRunRequest(run_id=run_id)):
        if word.event.node_started.node_id == node_id:
            return


def _plain(workflow: str) -> Story:
    async def story(client: Client) -> str:
        return await _ended(client, await _started(client, workflow))

    return story


async def _gate(client: Client) -> str:
    """Answered with something else than was shown."""
    run_id = await _started(client, "gate")
    (gate,) = (await client.coordinator.ListGates(pb.ListGatesRequest(run_id=run_id))).gates
    resolve = pb.ResolveGateRequest(
        gate_id=gate.id,
        decision=pb.GATE_DECISION_APPROVE,
        shown_hash=gate.shown_hash,
        answer=struct(n=2),
        comment="Two are enough.",
        user_id="ann",
    )
    await client.coordinator.ResolveGate(resolve)
    return await _ended(client, run_id)


async def _signal(client: Client) -> str:
    run_id = await _started(client, "signal")
    await _waiting(client, run_id, "a")
    signal = run_pb2.Signal(name="go", user_id="ann")
    signal.payload.struct_value.update({"n": 1})
    await client.coordinator.SignalRun(pb.SignalRunRequest(run_id=run_id, signal=signal))
    return await _ended(client, run_id)


async def _cancelled(client: Client) -> str:
    run_id = await _started(client, "everything")
    await _waiting(client, run_id, "d")
    await client.coordinator.CancelRun(pb.CancelRunRequest(run_id=run_id, reason="Enough."))
    return run_id


async def _forked(client: Client) -> str:
    """From inside a fan-out, with another input."""
    first = await _started(client, "everything")
    await _waiting(client, first, "d")
    await client.coordinator.SignalRun(
        pb.SignalRunRequest(run_id=first, signal=run_pb2.Signal(name="go", user_id="ann"))
    )
    head = (await client.coordinator.GetRun(pb.GetRunRequest(run_id=first))).run.last_sequence
    fork = pb.ForkRunRequest(run_id=first, after_sequence=head, input=struct(n=2))
    run_id = str((await client.coordinator.ForkRun(fork)).run.id)
    for each in (first, run_id):
        await client.coordinator.CancelRun(pb.CancelRunRequest(run_id=each))
    return run_id


STORIES: dict[str, Story] = {
    "run-sequence": _plain("sequence"),
    "run-timed": _plain("timed"),
    "run-diamond": _plain("diamond"),
    "run-two-of-three": _plain("two_of_three"),
    "run-list": _plain("list"),
    "run-loop": _plain("loop"),
    "run-subworkflow": _plain("parent"),
    "run-gate": _gate,
    "run-signal": _signal,
    "run-agent": _plain("agent"),
    "run-retry": _plain("retry"),
    "run-cancelled": _cancelled,
    "run-forked": _forked,
}
"""By the name of the file."""
