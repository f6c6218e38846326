"""Movement of tokens: transitions, fan-out, fan-in and the end of branches.

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
token fails the run.
"""

from __future__ import annotations

from collections import Counter

from wonder_server.core.coordinator import evaluation
from wonder_server.core.coordinator.compiled_graph import CompiledNode
from wonder_server.core.coordinator.evaluation import Problem
from wonder_server.core.coordinator.plan_builder import PlanBuilder
from wonder_server.core.coordinator.values import (
    BranchStart,
    ExecutionStatus,
    Fork,
    GateStatus,
    OperationKind,
    RunStatus,
    Token,
    TokenStatus,
)
from wonder_server.core.definitions.specs import (
    MERGE_NODE,
    FanIn,
    FanInMode,
    FanInTimeout,
    MergeStrategy,
    Node,
    Transition,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema import schemas

MAX_LIVE_TOKENS = 10_000
"""Limit of live tokens in one run."""


# --- transitions ------------------------------------------------------------------------------------


def follow_transitions(builder: PlanBuilder, token: Token, compiled: CompiledNode) -> None:
    """Let the token of a completed node take the node's transitions, or end."""
    if compiled.single_successor:
        move_to(builder, token, compiled.single_successor)
        return
    try:
        token, taken = _transitions(builder, token, compiled)
        if not taken:
            end(builder, token)
        # A node that does not fan out takes one transition.
        elif compiled.node.fan_out or taken[0].for_each is not None:
            _fan_out(builder, token, compiled, taken)
        else:
            move_to(builder, token, taken[0].to_node_id)
    except Problem as problem:
        fail(builder, token, problem.fault)


def move_to(builder: PlanBuilder, token: Token, node_id: str) -> None:
    """Schedule the token's arrival at a node. A run's first token has no siblings, so its node begins."""
    builder.agenda.append(("arrive" if token.parent_id else "begin", token, node_id))


def arrive(builder: PlanBuilder, token: Token, node_id: str) -> None:
    """Let the branch wait at its fan-in, or begin the node."""
    parent = builder.tokens.live(token.parent_id)
    if parent is None or builder.tokens.live(token.id) is None:
        return  # The fan-out was joined or failed earlier in this step.
    fork = builder.forks.get(parent.id)
    if fork is not None and fork.join_node_id == node_id:
        arrived = builder.forks.arrive(token, node_id)
        _resolve_fan_in(builder, parent, fork, arrived)
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


# --- fan-out ----------------------------------------------------------------------------------------


def _fan_out(builder: PlanBuilder, token: Token, compiled: CompiledNode, taken: list[Transition]) -> None:
    node, starts = compiled.node, list[BranchStart]()
    for transition in taken:
        starts += _starts(builder, token, node, transition, len(starts))
    limits = [
        each.for_each.max_concurrency for each in taken if each.for_each and each.for_each.max_concurrency
    ]
    limit = min(limits, default=0)
    # The forked token no longer counts, nor do branches that wait for a free place under max_concurrency.
    if builder.tokens.live_count - 1 + min(limit or len(starts), len(starts)) > MAX_LIVE_TOKENS:
        message = f"At node `{node.id}` the run would be at more than {MAX_LIVE_TOKENS} places at once."
        raise Problem(Fault(reason=Reason.LIMIT_EXCEEDED, message=message, metadata={"node": node.id}))
    fork = Fork(
        token_id=token.id,
        run_id=builder.run.id,
        node_id=node.id,
        branches=_with_unique_names(starts),
        join_node_id=compiled.join_node_id,
        limit=limit,
    )
    builder.forks.open(fork)
    forked = replace(token, started=0, ended=0, failed=0, waits_for_id="")
    builder.tokens.move(forked, TokenStatus.FORKED)
    if starts:
        _begin_branches(builder, builder.tokens.get(token.id), fork, 0)
    else:
        builder.agenda.append(("resolve", token, ""))


def _with_unique_names(starts: list[BranchStart]) -> tuple[BranchStart, ...]:
    """Return the branches with a number appended to repeated names, since names are keys at the fan-in."""
    if len({start.name for start in starts}) == len(starts):
        return tuple(starts)
    seen: Counter[str] = Counter()
    renamed: list[BranchStart] = []
    for start in starts:
        seen[start.name] += 1
        number = seen[start.name]
        renamed.append(replace(start, name=f"{start.name}.{number}") if number > 1 else start)
    return tuple(renamed)


def _starts(
    builder: PlanBuilder, token: Token, node: Node, transition: Transition, before: int
) -> list[BranchStart]:
    each = transition.for_each
    if each is None:
        return [BranchStart(name=transition.to_node_id, node_id=transition.to_node_id, index=before)]
    field = f"for_each.items to `{transition.to_node_id}`"
    items = evaluation.value_of(builder, each.items, builder.context.scope(token), field, node.id)
    if not isinstance(items, list):
        message = f"{builder.workflow.pin}, node `{node.id}`, {field}: this is no list"
        raise Problem(
            Fault(reason=Reason.EXPRESSION_FAILED, message=message, field=field, metadata={"node": node.id})
        )
    if len(items) > each.max_items:
        message = f"Node `{node.id}`, {field}: {len(items)} items, and at most {each.max_items} are allowed."
        raise Problem(Fault(reason=Reason.LIMIT_EXCEEDED, message=message, metadata={"node": node.id}))
    evaluation.check(items, field, node.id)
    return [
        BranchStart(name=str(index), node_id=transition.to_node_id, item=item, index=index)
        for index, item in enumerate(items)
    ]


def _begin_branches(builder: PlanBuilder, parent: Token, fork: Fork, arrived: int) -> None:
    """Begin as many branches as the fan-out's limit allows while ``arrived`` branches wait at the fan-in."""
    first, count = parent.started, len(fork.branches)
    if first == count:
        return
    running = first - parent.ended - arrived
    capacity = fork.limit - running if fork.limit else count
    upto = min(first + max(capacity, 0), count)
    if upto == first:
        return
    builder.tokens.count_branches(replace(parent, started=upto))
    run_id, now, prefix = builder.run.id, builder.now, f"{parent.id}.{parent.hops}."
    for index in range(first, upto):
        start = fork.branches[index]
        child = Token(
            id=f"{prefix}{index}",
            run_id=run_id,
            node_id=start.node_id,
            parent_id=parent.id,
            fan_out_node_id=fork.node_id,
            branch=start.name,
            branch_index=index,
            branch_count=count,
            created_ms=now,
        )
        builder.tokens.create(child)
        move_to(builder, child, start.node_id)


# --- fan-in -----------------------------------------------------------------------------------------


def resolve_fan_in(builder: PlanBuilder, parent_id: str) -> None:
    """Resolve the fan-out of a token, if it is still open (see the module's table)."""
    parent, fork = builder.tokens.live(parent_id), builder.forks.get(parent_id)
    if parent is not None and fork is not None:
        _resolve_fan_in(builder, parent, fork, builder.forks.arrived_count(parent_id))


def _resolve_fan_in(builder: PlanBuilder, parent: Token, fork: Fork, arrived: int) -> None:
    coming = len(fork.branches) - arrived - parent.ended
    fan_in = _fan_in(builder, fork)
    if fan_in is None:
        if coming == 0:
            builder.forks.close(parent.id)
            end(builder, parent)
        else:
            _begin_branches(builder, parent, fork, arrived)
        return
    minimum = _min_arrivals(fan_in)
    if arrived >= minimum if minimum else coming == 0 and (arrived > 0 or not fork.branches):
        _join(builder, parent, fork, fan_in)
    elif arrived + coming < minimum:
        fail(builder, parent, _unmet(fork, fan_in, arrived, minimum))
    elif coming == 0:
        builder.forks.close(parent.id)
        end(builder, parent)
    else:
        if arrived and fan_in.timeout_ms and not builder.operations.timer(parent):
            builder.operations.set_timer(OperationKind.JOIN_TIMER, parent, builder.now + fan_in.timeout_ms)
        _begin_branches(builder, parent, fork, arrived)


def _fan_in(builder: PlanBuilder, fork: Fork | None) -> FanIn | None:
    """Return the fan-in where the branches of a fan-out meet, or None."""
    return builder.compiled[fork.join_node_id].node.fan_in if fork is not None and fork.join_node_id else None


def _min_arrivals(fan_in: FanIn) -> int:
    """Return the number of branches that must arrive; 0 for all that can."""
    return _MIN_ARRIVALS.get(fan_in.mode, fan_in.count)


_MIN_ARRIVALS = {FanInMode.ALL: 0, FanInMode.ANY: 1}


def _unmet(fork: Fork, fan_in: FanIn, arrived: int, minimum: int) -> Fault:
    message = (
        f"The fan-in at node `{fork.join_node_id}` needs {minimum} of {len(fork.branches)} branches, "
        f"and {arrived} arrived before the others ended or failed."
    )
    return Fault(reason=Reason.RUN_FAILED, message=message, metadata={"node": fork.join_node_id})


def fan_in_timeout(builder: PlanBuilder, parent_id: str) -> None:
    """Handle the timer of a fan-in: join the branches that arrived, or fail."""
    fork = builder.forks.get(parent_id)
    fan_in = _fan_in(builder, fork)
    if fork is None or fan_in is None:
        return
    parent = builder.tokens.get(parent_id)
    if fan_in.on_timeout is FanInTimeout.PROCEED:
        _join(builder, parent, fork, fan_in)
        return
    arrived = builder.forks.arrived_count(parent_id)
    message = (
        f"The fan-in at node `{fork.join_node_id}` waited {fan_in.timeout_ms / 1000:g} s; "
        f"{arrived} of {len(fork.branches)} branches had arrived."
    )
    fault = Fault(reason=Reason.TIMEOUT, message=message, metadata={"node": fork.join_node_id})
    fail(builder, parent, fault)


def _join(builder: PlanBuilder, parent: Token, fork: Fork, fan_in: FanIn) -> None:
    """Merge the values of the arrived branches, end all branches, and continue the forked token at the
    fan-in."""
    order = builder.forks.arrived(parent.id)
    arrived = sorted([builder.tokens.get(each) for each in order], key=lambda each: each.branch_index)
    try:
        merged = [
            (merge.target, _merged(builder, fork, arrived, index, fan_in))
            for index, merge in enumerate(fan_in.merges)
        ]
        if arrived:
            builder.tokens.join(arrived)
        for child in builder.tokens.children(parent.id):
            cancel(builder, child)
        builder.forks.close(parent.id)
        for target, value in merged:
            evaluation.store(builder, parent, target, value, "fan_in.merges", fork.join_node_id)
        evaluation.check_state(builder, fork.join_node_id)
    except Problem as problem:
        fail(builder, parent, problem.fault)
        return
    builder.agenda.append(("begin", builder.tokens.get(parent.id), fork.join_node_id))


def _merged(builder: PlanBuilder, fork: Fork, arrived: list[Token], index: int, fan_in: FanIn) -> JsonValue:
    merge, node_id = fan_in.merges[index], fork.join_node_id
    field = f"fan_in.merges[{index}].source"
    found = [
        (
            token,
            evaluation.value_of(builder, merge.source, builder.context.branch_scope(token), field, node_id),
        )
        for token in arrived
    ]
    match merge.strategy:
        case MergeStrategy.COLLECT:
            return [value for _, value in found]
        case MergeStrategy.KEYED_BY_BRANCH:
            return {token.branch: value for token, value in found}
        case MergeStrategy.LAST_WINS:
            return max(found, key=lambda each: each[0].arrival)[1] if found else None
        case MergeStrategy.APPEND:
            _check_types(found, list, "a list", field, node_id)
            return [item for _, value in found for item in value]
        case MergeStrategy.MERGE_OBJECT:
            _check_types(found, dict, "an object", field, node_id)
            return {key: item for _, value in found for key, item in value.items()}


def _check_types(
    found: list[tuple[Token, JsonValue]], kind: type, expected: str, field: str, node_id: str
) -> None:
    for token, value in found:
        if not isinstance(value, kind):
            message = f"Node `{node_id}`, {field}: in branch `{token.branch}` this is not {expected}."
            raise Problem(
                Fault(
                    reason=Reason.EXPRESSION_FAILED, message=message, field=field, metadata={"node": node_id}
                )
            )


# --- end of a branch --------------------------------------------------------------------------------


def end(builder: PlanBuilder, token: Token) -> None:
    """Complete a token without a transition to take.

    If the workflow merges its branch on completion, the first token goes to the merge node before.
    """
    if MERGE_NODE in builder.compiled.graph.nodes and not token.parent_id and token.node_id != MERGE_NODE:
        if not isinstance(_output(builder), Fault):  # A run that will fail does not merge.
            move_to(builder, token, MERGE_NODE)
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
    fork = builder.forks.get(parent.id)
    fan_in = _fan_in(builder, fork)
    if fan_in is None or fan_in.mode is FanInMode.ALL:
        fail(builder, parent, fault)
        return
    parent = builder.tokens.count_branches(replace(parent, ended=parent.ended + 1, failed=parent.failed + 1))
    arrived = builder.forks.arrived_count(parent.id)
    coming = len(fork.branches) - arrived - parent.ended if fork else 0
    if arrived + coming < _min_arrivals(fan_in):
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
    if builder.forks.get(token.id) is not None:
        for child in builder.tokens.children(token.id):
            cancel(builder, child)
        builder.forks.close(token.id)


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
