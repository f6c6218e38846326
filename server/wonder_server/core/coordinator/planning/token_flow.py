"""Movement of tokens: transitions, arrival at a fan-in, and the end of branches.

A token that fans out waits in status ``forked`` while its children, the branches, are running. The planner
*resolves* the fan-out each time a branch arrives at the fan-in, ends or fails:

=====================================  =============================================================
branches                               effect on the fan-out
=====================================  =============================================================
enough have arrived                    join: values are merged, late branches are cancelled, and the
                                       forked token continues at the fan-in's node
none arrived and none can arrive       end without a join; in mode ``any`` or ``m_of_n``: fail
too few can still arrive               fail
some can still arrive                  wait; the first arrival starts the fan-in's timer
=====================================  =============================================================

A failing branch fails its fan-out. In mode ``any`` or ``m_of_n`` it only counts as a branch that does not
arrive. A failing fan-out fails the branch that contains it, and so on outward. A fault that reaches the first
token fails the run. ``fan_out.py`` divides a token into branches; ``fan_in.py`` merges their values.
"""

from __future__ import annotations

from wonder_server.core.actor.gates import GateStatus
from wonder_server.core.coordinator.model.compiled_graph import CompiledNode
from wonder_server.core.coordinator.model.values import (
    ExecutionStatus,
    FanOut,
    OperationKind,
    RunStatus,
    Token,
    TokenStatus,
)
from wonder_server.core.coordinator.planning import evaluation
from wonder_server.core.coordinator.planning.evaluation import Problem
from wonder_server.core.coordinator.planning.fan_in import fan_in_of, merged_value, min_arrivals, unmet_fault
from wonder_server.core.coordinator.planning.fan_out import begin_branches, begin_fan_out
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.definitions.specs import MERGE_NODE, FanIn, FanInMode, FanInTimeout, Transition
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema import schemas

# --- transitions ------------------------------------------------------------------------------------


def follow_transitions(builder: PlanBuilder, token: Token, compiled: CompiledNode) -> None:
    """Let the token of a completed node take the node's transitions, or end."""
    if compiled.single_successor:
        builder.move_to(token, compiled.single_successor)
        return
    try:
        token, taken = _transitions(builder, token, compiled)
        if not taken:
            end(builder, token)
        # A node that does not fan out takes one transition.
        elif compiled.node.fan_out or taken[0].for_each is not None:
            begin_fan_out(builder, token, compiled, taken)
        else:
            builder.move_to(token, taken[0].to_node_id)
    except Problem as problem:
        fail(builder, token, problem.fault)


def arrive(builder: PlanBuilder, token: Token, node_id: str) -> None:
    """Let the branch wait at its fan-in, or begin the node."""
    parent = builder.tokens.live(token.parent_id)
    if parent is None or builder.tokens.live(token.id) is None:
        return  # The fan-out was joined or failed earlier in this step.
    fan_out = builder.fan_outs.get(parent.id)
    if fan_out is not None and fan_out.join_node_id == node_id:
        arrived = builder.fan_outs.arrive(token, node_id)
        _resolve_fan_in(builder, parent, fan_out, arrived)
    else:
        builder.agenda.append(("begin", token, node_id))


def _transitions(
    builder: PlanBuilder, token: Token, compiled: CompiledNode
) -> tuple[Token, list[Transition]]:
    """Return the transitions to take, and the token with its updated loop counters."""
    scope: JsonDict | None = None
    node, taken = compiled.node, list[Transition]()
    for index, transition in compiled.transitions:
        times = token.transition_counts.get(str(index), 0) if transition.loop_limit else 0
        if transition.loop_limit and times >= transition.loop_limit:
            continue
        if transition.condition:
            scope = builder.context.scope(token) if scope is None else scope
            field = f"transitions[{index}].condition"
            if not evaluation.truth(builder, transition.condition, scope, field, node.id):
                continue
        if transition.loop_limit:
            token = replace(token, transition_counts={**token.transition_counts, str(index): times + 1})
        taken.append(transition)
        if not node.fan_out:
            break
    return token, taken


# --- fan-in -----------------------------------------------------------------------------------------


def resolve_fan_in(builder: PlanBuilder, parent_id: str) -> None:
    """Resolve the fan-out of a token, if it is still open (see the module's table)."""
    parent, fan_out = builder.tokens.live(parent_id), builder.fan_outs.get(parent_id)
    if parent is not None and fan_out is not None:
        _resolve_fan_in(builder, parent, fan_out, builder.fan_outs.arrived_count(parent_id))


def _resolve_fan_in(builder: PlanBuilder, parent: Token, fan_out: FanOut, arrived: int) -> None:
    coming = len(fan_out.branches) - arrived - parent.ended
    fan_in = fan_in_of(builder, fan_out)
    if fan_in is None:
        if coming == 0:
            builder.fan_outs.close(parent.id)
            end(builder, parent)
        else:
            begin_branches(builder, parent, fan_out, arrived)
        return
    minimum = min_arrivals(fan_in)
    if arrived >= minimum if minimum else coming == 0 and (arrived > 0 or not fan_out.branches):
        _join(builder, parent, fan_out, fan_in)
    elif arrived + coming < minimum:
        fail(builder, parent, unmet_fault(fan_out, arrived, minimum))
    elif coming == 0:
        builder.fan_outs.close(parent.id)
        end(builder, parent)
    else:
        if arrived and fan_in.timeout_ms and not builder.operations.timer(parent):
            builder.operations.set_timer(OperationKind.JOIN_TIMER, parent, builder.now + fan_in.timeout_ms)
        begin_branches(builder, parent, fan_out, arrived)


def fan_in_timeout(builder: PlanBuilder, parent_id: str) -> None:
    """Handle the timer of a fan-in: join the branches that arrived, or fail."""
    fan_out = builder.fan_outs.get(parent_id)
    fan_in = fan_in_of(builder, fan_out)
    if fan_out is None or fan_in is None:
        return
    parent = builder.tokens.get(parent_id)
    if fan_in.on_timeout is FanInTimeout.PROCEED:
        _join(builder, parent, fan_out, fan_in)
        return
    arrived = builder.fan_outs.arrived_count(parent_id)
    message = (
        f"The fan-in at node `{fan_out.join_node_id}` waited {fan_in.timeout_ms / 1000:g} s; "
        f"{arrived} of {len(fan_out.branches)} branches had arrived."
    )
    fault = Fault(reason=Reason.TIMEOUT, message=message, metadata={"node": fan_out.join_node_id})
    fail(builder, parent, fault)


def _join(builder: PlanBuilder, parent: Token, fan_out: FanOut, fan_in: FanIn) -> None:
    """Merge the values of the arrived branches, end all branches, and continue the forked token at the
    fan-in."""
    order = builder.fan_outs.arrived(parent.id)
    arrived = sorted([builder.tokens.get(each) for each in order], key=lambda each: each.branch_index)
    try:
        merged = [
            (merge.target, merged_value(builder, fan_out, arrived, index, fan_in))
            for index, merge in enumerate(fan_in.merges)
        ]
        if arrived:
            builder.tokens.join(arrived)
        for child in builder.tokens.children(parent.id):
            cancel(builder, child)
        builder.fan_outs.close(parent.id)
        for target, value in merged:
            evaluation.store(builder, parent, target, value, "fan_in.merges", fan_out.join_node_id)
        evaluation.check_state(builder, fan_out.join_node_id)
    except Problem as problem:
        fail(builder, parent, problem.fault)
        return
    builder.agenda.append(("begin", builder.tokens.get(parent.id), fan_out.join_node_id))


# --- end of a branch --------------------------------------------------------------------------------


def end(builder: PlanBuilder, token: Token) -> None:
    """Complete a token without a transition to take.

    If the workflow merges its branch on completion, the first token goes to the merge node before.
    """
    if MERGE_NODE in builder.compiled.graph.nodes and not token.parent_id and token.node_id != MERGE_NODE:
        if not isinstance(_output(builder), Fault):  # A run that will fail does not merge.
            builder.move_to(token, MERGE_NODE)
            return
    builder.tokens.move(token, TokenStatus.COMPLETED)
    if token.parent_id:
        parent = builder.tokens.get(token.parent_id)
        builder.tokens.count_branches(replace(parent, ended=parent.ended + 1))
        builder.agenda.append(("resolve", parent, ""))
    else:
        _complete(builder)


def fail(builder: PlanBuilder, token: Token, fault: Fault) -> None:
    """Fail the token. This fails its fan-out, unless the fan-in can do without this branch."""
    _close_inside(builder, token)
    builder.tokens.move(token, TokenStatus.FAILED)
    if not token.parent_id:
        builder.end(RunStatus.FAILED, fault=fault)
        return
    parent = builder.tokens.get(token.parent_id)
    fan_out = builder.fan_outs.get(parent.id)
    fan_in = fan_in_of(builder, fan_out)
    if fan_in is None or fan_in.mode is FanInMode.ALL:
        fail(builder, parent, fault)
        return
    parent = builder.tokens.count_branches(replace(parent, ended=parent.ended + 1, failed=parent.failed + 1))
    arrived = builder.fan_outs.arrived_count(parent.id)
    coming = len(fan_out.branches) - arrived - parent.ended if fan_out else 0
    if arrived + coming < min_arrivals(fan_in):
        fail(builder, parent, fault)  # The branch's fault says more than a missing arrival.
    else:
        builder.agenda.append(("resolve", parent, ""))


def cancel(builder: PlanBuilder, token: Token) -> None:
    """Cancel the token and its branches."""
    _close_inside(builder, token)
    builder.tokens.move(token, TokenStatus.CANCELLED)


def _close_inside(builder: PlanBuilder, token: Token) -> None:
    """Cancel the operation that a token waits for, and its branches."""
    operation = builder.operations.of_token(token)
    if operation is not None:
        builder.operations.stop(operation)
        gate = builder.gates.of_operation(operation)
        if gate is not None:
            builder.gates.close(gate, GateStatus.CANCELLED)
        builder.operations.record(operation, ExecutionStatus.CANCELLED)
    if builder.fan_outs.get(token.id) is not None:
        for child in builder.tokens.children(token.id):
            cancel(builder, child)
        builder.fan_outs.close(token.id)


def _complete(builder: PlanBuilder) -> None:
    """Complete the run after its last token has ended."""
    output = _output(builder)
    if isinstance(output, Fault):
        builder.end(RunStatus.FAILED, fault=output)
    else:
        builder.end(RunStatus.COMPLETED, output)


def _output(builder: PlanBuilder) -> JsonDict | Fault:
    """Return the run's output, or the fault if it is not valid."""
    spec = builder.workflow.spec
    try:
        output = builder.context.output
        if spec.output_mapping:
            output = evaluation.mapped(
                builder, spec.output_mapping, builder.context.scope(None), "output_mapping"
            )
        else:
            # Together the values may exceed a limit that each of them meets.
            evaluation.check(output, "output", "")
        problems = schemas.validate(spec.output_schema, output) if spec.output_schema else []
        if problems:
            message = f"The run's output does not match its schema: {'; '.join(problems[:5])}"
            raise Problem(Fault(reason=Reason.RUN_FAILED, message=message, field="output"))
    except Problem as problem:
        return problem.fault
    return output
