"""A minimal runner of pinned workflows for tests of definitions: one node after another, without actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wonder_server.core import expressions
from wonder_server.core.definitions.specs import PinnedTask, PinnedWorkflow
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.task.plan import (
    Done,
    Failed,
    Proceed,
    RetryTask,
    Run,
    Skip,
    Succeeded,
    begin,
    decide,
    record,
)

Act = Callable[[JsonDict], JsonValue]


def run_workflow(workflow: PinnedWorkflow, given: JsonObject, actions: Mapping[str, Act]) -> JsonDict:
    """Return the output of a run. Raises the fault of a failed task as `WonderError`."""
    context: JsonDict = {"input": given, "state": {}, "output": {}}
    node_id: str | None = workflow.spec.initial_node_id
    while node_id is not None:
        node = next(node for node in workflow.spec.nodes if node.id == node_id)
        task_input = expressions.evaluate_mapping(node.input_mapping, context)
        result = run_task(workflow.tasks[node.task_id], task_input, actions)
        seen = {**context, "result": result}
        for target, source in node.output_mapping.items():
            context = expressions.assign(context, target, expressions.evaluate(source, seen))
        ways = sorted(workflow.spec.transitions, key=lambda way: way.priority)
        node_id = next(
            (
                way.to_node_id
                for way in ways
                if way.from_node_id == node_id
                and (not way.condition or expressions.evaluate(way.condition, context))
            ),
            None,
        )
    output: JsonDict = context["output"]
    return output


def run_task(task: PinnedTask, given: JsonObject, actions: Mapping[str, Act]) -> JsonDict:
    state = begin(task, given)
    assert not isinstance(state, Failed), state
    while True:
        decision = decide(task, state)
        if isinstance(decision, Run):
            outcome: Succeeded | Fault
            try:
                outcome = Succeeded(result=actions[decision.action.kind](decision.input))
            except WonderError as refusal:
                outcome = refusal.fault
            decision = record(task, state, outcome)
        match decision:
            case Skip(state=state) | Proceed(state=state) | RetryTask(state=state):
                pass
            case Done(output=output):
                return output
            case Failed(fault=fault):
                raise WonderError(fault)
