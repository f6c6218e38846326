"""Validation of workflows: nodes, transitions and schemas (feature A6)."""

from __future__ import annotations

import re

from wonder_server.core.definitions.branches import Exploration, while_running
from wonder_server.core.definitions.check_gates import MAX_WAIT_MS, check_answering
from wonder_server.core.definitions.check_graph import check_graph
from wonder_server.core.definitions.check_rules import BRANCH, MAX_TIMEOUT_MS, ExpressionScope, Rules
from wonder_server.core.definitions.references import NAME_RULE, is_definition_name
from wonder_server.core.definitions.specs import (
    FanIn,
    FanInMode,
    FanInTimeout,
    ForEach,
    GateExpiry,
    HumanGate,
    Node,
    Transition,
    Wait,
    Workflow,
)
from wonder_server.core.expressions import NOW
from wonder_server.core.ids import is_id

MAX_NODES = 500
MAX_TRANSITIONS = 2_000
MAX_LOOPS = 1_000_000
MAX_ITEMS = 10_000
MAX_MERGES = 100

INVOCATION_MODES = ("delegate", "loop_in")
CONTEXT = ("input", "state", "output")
RUN_CONTEXT = (*CONTEXT, "signals", NOW)

_TARGETS = ("task_id", "workflow_id", "agent_id", "human_gate", "wait")
_SIGNAL = re.compile(r"[a-zA-Z0-9_]{1,64}\Z")
_INT32 = 2**31 - 1


def check_workflow(workflow: Workflow, rules: Rules) -> None:
    """Refuse faults of the workflow itself. `check_references` checks the definitions that it names."""
    for name in ("input_schema", "output_schema", "state_schema"):
        rules.schema(name, getattr(workflow, name))
    rules.number("timeout_ms", workflow.timeout_ms, 0, MAX_WAIT_MS)
    rules.inputs("output_mapping", workflow.output_mapping, ExpressionScope((*CONTEXT, NOW)))
    rules.count("nodes", workflow.nodes, MAX_NODES, least=1)
    rules.count("transitions", workflow.transitions, MAX_TRANSITIONS)
    if not workflow.nodes or len(workflow.nodes) > MAX_NODES or len(workflow.transitions) > MAX_TRANSITIONS:
        return  # A workflow above the limits is not checked further.
    rules.unique("nodes", [node.id for node in workflow.nodes])
    check = _Check(workflow, rules, check_graph(workflow, rules))
    for index, node in enumerate(workflow.nodes):
        check.node(node, f"nodes[{index}]")
    for index, transition in enumerate(workflow.transitions):
        check.transition(transition, f"transitions[{index}]")


class _Check:
    """Checks of the parts of a workflow after its graph was explored."""

    def __init__(self, workflow: Workflow, rules: Rules, found: Exploration | None) -> None:
        self._rules = rules
        self._inside: set[str] | None = None
        if found is not None:
            nodes = {node.id: node for node in workflow.nodes}
            self._inside = {at for at, stack in found.moves if while_running(nodes[at], stack)}

    def node(self, node: Node, path: str) -> None:
        rules, scope = self._rules, self._scope(node.id, f"node '{node.id}'")
        given = [name for name in _TARGETS if getattr(node, name) not in ("", None)]
        if len(given) != 1:
            rules.refuse(path, f"A node runs one thing: set one of {', '.join(_TARGETS)}.")
        rules.length(f"{path}.description", node.description)
        rules.inputs(f"{path}.input_mapping", node.input_mapping, scope)
        rules.outputs(f"{path}.output_mapping", node.output_mapping, scope.after())
        rules.number(
            f"{path}.timeout_ms", node.timeout_ms, 0, MAX_TIMEOUT_MS if node.task_id else MAX_WAIT_MS
        )
        self.agent(node, path)
        if node.retry is not None:
            if given in (["human_gate"], ["wait"]):
                rules.refuse(f"{path}.retry", f"A {given[0]} cannot be retried.")
            rules.retry(f"{path}.retry", node.retry)
        if node.human_gate is not None:
            self.gate(node.human_gate, f"{path}.human_gate")
        if node.wait is not None:
            self.wait(node.wait, f"{path}.wait")
        if node.fan_in is not None:
            self.fan_in(node.fan_in, f"{path}.fan_in", scope)

    def agent(self, node: Node, path: str) -> None:
        agent = node.agent_id
        if agent and not (is_id("agt", agent) or is_definition_name(agent)):
            self._rules.refuse(
                f"{path}.agent_id", f"Name an agent by its id, agt_…, or its name: {NAME_RULE}."
            )
        self._rules.choice(f"{path}.invocation_mode", node.invocation_mode, INVOCATION_MODES)
        if not agent and node.invocation_mode == "loop_in":
            self._rules.refuse(f"{path}.invocation_mode", "Only an agent can be looped in.")
        if not agent and node.output_schema:
            self._rules.refuse(
                f"{path}.output_schema",
                "Only a node with an agent has an output_schema. Set that of the task or workflow instead.",
            )
        self._rules.output_schema(f"{path}.output_schema", node.output_schema)

    def gate(self, gate: HumanGate, path: str) -> None:
        rules = self._rules
        if not gate.prompt.strip():
            rules.refuse(f"{path}.prompt", "prompt is empty. Write the question to the person.")
        rules.length(f"{path}.prompt", gate.prompt)
        rules.schema(f"{path}.answer_schema", gate.answer_schema)
        check_answering(gate.user_ids, gate.expire_after_ms, path, rules)
        if gate.on_expire is not GateExpiry.FAIL and not gate.expire_after_ms:
            rules.refuse(f"{path}.on_expire", "This gate never expires: set expire_after_ms.")

    def wait(self, wait: Wait, path: str) -> None:
        self._rules.number(f"{path}.duration_ms", wait.duration_ms, 0, MAX_WAIT_MS)
        if wait.signal and not _SIGNAL.match(wait.signal):
            self._rules.refuse(f"{path}.signal", "A signal's name is 1 to 64 letters, digits or '_'.")
        if not wait.signal and not wait.duration_ms:
            self._rules.refuse(path, "The wait has no end. Set signal, duration_ms, or both.")

    def fan_in(self, fan_in: FanIn, path: str, scope: ExpressionScope) -> None:
        rules = self._rules
        if fan_in.mode is FanInMode.M_OF_N:
            if fan_in.count < 1:
                rules.refuse(f"{path}.count", f"count must be at least 1, not {fan_in.count}.")
        elif fan_in.count:
            rules.refuse(f"{path}.count", "Only the mode m_of_n counts branches.")
        rules.number(f"{path}.timeout_ms", fan_in.timeout_ms, 0, MAX_WAIT_MS)
        if fan_in.on_timeout is not FanInTimeout.FAIL and not fan_in.timeout_ms:
            rules.refuse(f"{path}.on_timeout", "This fan-in has no timeout: set timeout_ms.")
        rules.count(f"{path}.merges", fan_in.merges, MAX_MERGES)
        seen: set[str] = set()
        for index, merge in enumerate(fan_in.merges):
            rules.expression(
                f"{path}.merges[{index}].source", merge.source, ExpressionScope(BRANCH, scope.owner)
            )
            rules.target(f"{path}.merges[{index}].target", merge.target, scope)
            if merge.target in seen:
                rules.refuse(
                    f"{path}.merges[{index}].target", f"'{merge.target}' is written by an earlier merge."
                )
            seen.add(merge.target)

    def transition(self, transition: Transition, path: str) -> None:
        ends = f"the transition from '{transition.from_node_id}' to '{transition.to_node_id}'"
        scope = self._scope(transition.from_node_id, ends)
        self._rules.condition(f"{path}.condition", transition.condition, scope)
        self._rules.number(f"{path}.priority", transition.priority, -_INT32, _INT32)
        self._rules.number(f"{path}.loop_limit", transition.loop_limit, 0, MAX_LOOPS)
        if transition.for_each is not None:
            self.for_each(transition.for_each, f"{path}.for_each", scope)

    def for_each(self, each: ForEach, path: str, scope: ExpressionScope) -> None:
        self._rules.expression(f"{path}.items", each.items, scope)
        self._rules.number(f"{path}.max_items", each.max_items, 1, MAX_ITEMS)
        self._rules.number(f"{path}.max_concurrency", each.max_concurrency, 0, MAX_ITEMS)

    def _scope(self, node_id: str, owner: str) -> ExpressionScope:
        """Return the scope of a node's expressions. If the graph has faults, every node counts as inside a
        branch, so that the use of branch variables adds no further fault."""
        return ExpressionScope(RUN_CONTEXT, owner, self._inside is None or node_id in self._inside)
