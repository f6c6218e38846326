"""Where tokens go: transitions, fan-out, fan-in, and what the end of a branch means for those around it.

A token that fans out waits as ``forked`` while its children, the branches, are under way. Its fan-out is
*settled* anew whenever one of them arrives at the fan-in, ends or fails:

=====================================  =============================================================
the branches                           the fan-out
=====================================  =============================================================
enough have arrived                    joins: values are merged, who is late is cancelled, and the
                                       forked token itself stands at the fan-in's node
nobody can come any more, none came    ends quietly, as its branches did; in mode ``any`` or
                                       ``m_of_n`` it fails
too few can still come                 fails
some can still come                    waits; the first arrival starts the fan-in's timer
=====================================  =============================================================

A branch that fails fails its fan-out, unless that is joined by ``any`` or ``m_of_n``, where it only counts
as one that does not come. A fan-out that fails fails the branch that it stands in, and so on outward; what
reaches the first token fails the run.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from wonder_server.core import schemas
from wonder_server.core.coordinator import evaluation
from wonder_server.core.coordinator.course import Station
from wonder_server.core.coordinator.draft import Draft
from wonder_server.core.coordinator.evaluation import Problem
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

MAX_LIVE_TOKENS = 10_000
"""Places at which one run may be at once."""


# --- moving on --------------------------------------------------------------------------------------


def leave(draft: Draft, token: Token, station: Station) -> None:
    """The node is done: the token takes its transitions, or ends here."""
    if station.onward:
        go(draft, token, station.onward)
        return
    try:
        token, taken = _transitions(draft, token, station)
        if not taken:
            end(draft, token)
        elif station.node.fan_out or taken[0].for_each is not None:  # Who does not fan out takes one.
            _fan_out(draft, token, station, taken)
        else:
            go(draft, token, taken[0].to_node_id)
    except Problem as problem:
        fail(draft, token, problem.fault)


def go(draft: Draft, token: Token, node_id: str) -> None:
    """Let the token come to a node. The first one of a run has no siblings that it could wait for there."""
    draft.agenda.append(("come" if token.parent_id else "begin", token, node_id))


def come(draft: Draft, token: Token, node_id: str) -> None:
    """The branch is at a node: it waits for its siblings there, or the node begins."""
    parent = draft.live(token.parent_id)
    if parent is None or draft.live(token.id) is None:
        return  # Its fan-out was joined or failed meanwhile.
    fork = draft.fork(parent.id)
    if fork is not None and fork.join_node_id == node_id:
        here = draft.arrive(token, node_id)
        _settle(draft, parent, fork, here)
    else:
        draft.agenda.append(("begin", token, node_id))


def _transitions(draft: Draft, token: Token, station: Station) -> tuple[Token, list[Transition]]:
    """The transitions that are taken; the token has counted those that are limited."""
    scope: dict[str, Any] | None = None
    node, taken = station.node, list[Transition]()
    for index, way in station.ways:
        times = token.taken.get(str(index), 0) if way.loop_limit else 0
        if way.loop_limit and times >= way.loop_limit:
            continue
        if way.condition:
            scope = draft.scope(token) if scope is None else scope
            field = f"transitions[{index}].condition"
            if not evaluation.truth(draft, way.condition, scope, field, node.id):
                continue
        if way.loop_limit:
            token = replace(token, taken={**token.taken, str(index): times + 1})
        taken.append(way)
        if not node.fan_out:
            break
    return token, taken


# --- fan-out ----------------------------------------------------------------------------------------


def _fan_out(draft: Draft, token: Token, station: Station, taken: list[Transition]) -> None:
    node, starts = station.node, list[BranchStart]()
    for way in taken:
        starts += _starts(draft, token, node, way, len(starts))
    limits = [way.for_each.max_concurrency for way in taken if way.for_each and way.for_each.max_concurrency]
    limit = min(limits, default=0)
    # The token itself no longer counts, and neither do branches that have to wait for others.
    if draft.live_tokens - 1 + min(limit or len(starts), len(starts)) > MAX_LIVE_TOKENS:
        message = f"At node `{node.id}` the run would be at more than {MAX_LIVE_TOKENS} places at once."
        raise Problem(Fault(reason=Reason.LIMIT_EXCEEDED, message=message, metadata={"node": node.id}))
    fork = Fork(
        token_id=token.id,
        run_id=draft.run.id,
        node_id=node.id,
        branches=_told_apart(starts),
        join_node_id=station.join_node_id,
        limit=limit,
    )
    draft.open(fork)
    draft.move(token, TokenStatus.FORKED, begun=0, ended=0, failed=0, waits_for_id="")
    if starts:
        _begin_branches(draft, draft.token(token.id), fork, 0)
    else:
        draft.agenda.append(("settle", token, ""))


def _told_apart(starts: list[BranchStart]) -> tuple[BranchStart, ...]:
    """The branches, those that would have a name twice with a number: names are keys where branches meet."""
    if len({start.name for start in starts}) == len(starts):
        return tuple(starts)
    seen: Counter[str] = Counter()
    apart: list[BranchStart] = []
    for start in starts:
        seen[start.name] += 1
        number = seen[start.name]
        apart.append(replace(start, name=f"{start.name}.{number}") if number > 1 else start)
    return tuple(apart)


def _starts(draft: Draft, token: Token, node: Node, way: Transition, before: int) -> list[BranchStart]:
    each = way.for_each
    if each is None:
        return [BranchStart(name=way.to_node_id, node_id=way.to_node_id, index=before)]
    field = f"for_each.items to `{way.to_node_id}`"
    items = evaluation.value_of(draft, each.items, draft.scope(token), field, node.id)
    if not isinstance(items, list):
        message = f"{draft.workflow.pin}, node `{node.id}`, {field}: this is no list"
        raise Problem(
            Fault(reason=Reason.EXPRESSION_FAILED, message=message, field=field, metadata={"node": node.id})
        )
    if len(items) > each.max_items:
        message = f"Node `{node.id}`, {field}: {len(items)} items, and at most {each.max_items} are allowed."
        raise Problem(Fault(reason=Reason.LIMIT_EXCEEDED, message=message, metadata={"node": node.id}))
    evaluation.check(items, field, node.id)
    return [
        BranchStart(name=str(index), node_id=way.to_node_id, item=item, index=index)
        for index, item in enumerate(items)
    ]


def _begin_branches(draft: Draft, parent: Token, fork: Fork, here: int) -> None:
    """Begin as many branches as may run now that ``here`` of them stand at the fan-in."""
    first, count = parent.begun, len(fork.branches)
    if first == count:
        return
    running = first - parent.ended - here
    room = fork.limit - running if fork.limit else count
    upto = min(first + max(room, 0), count)
    if upto == first:
        return
    draft.count(replace(parent, begun=upto))
    run_id, now, prefix = draft.run.id, draft.now, f"{parent.id}.{parent.hops}."
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
        draft.born(child)
        go(draft, child, start.node_id)


# --- fan-in -----------------------------------------------------------------------------------------


def settle(draft: Draft, parent_id: str) -> None:
    """See the table above."""
    parent, fork = draft.live(parent_id), draft.fork(parent_id)
    if parent is not None and fork is not None:
        _settle(draft, parent, fork, draft.here(parent_id))


def _settle(draft: Draft, parent: Token, fork: Fork, here: int) -> None:
    coming = len(fork.branches) - here - parent.ended
    fan_in = _fan_in(draft, fork)
    if fan_in is None:
        if coming == 0:
            draft.close(parent.id)
            end(draft, parent)
        else:
            _begin_branches(draft, parent, fork, here)
        return
    least = _least(fan_in)
    if here >= least if least else coming == 0 and (here > 0 or not fork.branches):
        _join(draft, parent, fork, fan_in)
    elif here + coming < least:
        fail(draft, parent, _unmet(fork, fan_in, here, least))
    elif coming == 0:
        draft.close(parent.id)
        end(draft, parent)
    else:
        if here and fan_in.timeout_ms and not draft.timers(parent.id):
            draft.set_timer(OperationKind.JOIN_TIMER, parent, draft.now + fan_in.timeout_ms)
        _begin_branches(draft, parent, fork, here)


def _fan_in(draft: Draft, fork: Fork | None) -> FanIn | None:
    """How the branches of a fan-out meet, None if they do not."""
    return draft.course[fork.join_node_id].node.fan_in if fork is not None and fork.join_node_id else None


def _least(fan_in: FanIn) -> int:
    """How many branches must have arrived; 0: all that come."""
    return _LEAST.get(fan_in.mode, fan_in.count)


_LEAST = {FanInMode.ALL: 0, FanInMode.ANY: 1}


def _unmet(fork: Fork, fan_in: FanIn, here: int, least: int) -> Fault:
    message = (
        f"The fan-in at node `{fork.join_node_id}` needs {least} of {len(fork.branches)} branches, "
        f"and {here} arrived before the others ended or failed."
    )
    return Fault(reason=Reason.RUN_FAILED, message=message, metadata={"node": fork.join_node_id})


def late(draft: Draft, parent_id: str) -> None:
    """The fan-in's time is over."""
    fork = draft.fork(parent_id)
    fan_in = _fan_in(draft, fork)
    if fork is None or fan_in is None:
        return
    parent = draft.token(parent_id)
    if fan_in.on_timeout is FanInTimeout.PROCEED:
        _join(draft, parent, fork, fan_in)
        return
    here = draft.here(parent_id)
    message = (
        f"The fan-in at node `{fork.join_node_id}` waited {fan_in.timeout_ms / 1000:g} s; "
        f"{here} of {len(fork.branches)} branches had arrived."
    )
    fault = Fault(reason=Reason.TIMEOUT, message=message, metadata={"node": fork.join_node_id})
    fail(draft, parent, fault)


def _join(draft: Draft, parent: Token, fork: Fork, fan_in: FanIn) -> None:
    """The branches have met: merge, end them, and let the forked token stand at the fan-in's node."""
    order = draft.arrived(parent.id)
    here = sorted([draft.token(each) for each in order], key=lambda each: each.branch_index)
    try:
        merged = [
            (merge.target, _merged(draft, fork, here, index, fan_in))
            for index, merge in enumerate(fan_in.merges)
        ]
        if here:
            draft.join(here)
        for child in draft.children(parent.id):
            cancel(draft, child)
        draft.close(parent.id)
        for target, value in merged:
            evaluation.store(draft, parent, target, value, "fan_in.merges", fork.join_node_id)
        evaluation.check_state(draft, fork.join_node_id)
    except Problem as problem:
        fail(draft, parent, problem.fault)
        return
    draft.agenda.append(("begin", draft.token(parent.id), fork.join_node_id))


def _merged(draft: Draft, fork: Fork, here: list[Token], index: int, fan_in: FanIn) -> Any:
    merge, node_id = fan_in.merges[index], fork.join_node_id
    field = f"fan_in.merges[{index}].source"
    found = [
        (token, evaluation.value_of(draft, merge.source, draft.branch_scope(token), field, node_id))
        for token in here
    ]
    match merge.strategy:
        case MergeStrategy.COLLECT:
            return [value for _, value in found]
        case MergeStrategy.KEYED_BY_BRANCH:
            return {token.branch: value for token, value in found}
        case MergeStrategy.LAST_WINS:
            return max(found, key=lambda each: each[0].arrival)[1] if found else None
        case MergeStrategy.APPEND:
            _all_of(found, list, "a list", field, node_id)
            return [item for _, value in found for item in value]
        case MergeStrategy.MERGE_OBJECT:
            _all_of(found, dict, "an object", field, node_id)
            return {key: item for _, value in found for key, item in value.items()}


def _all_of(found: list[tuple[Token, Any]], kind: type, word: str, field: str, node_id: str) -> None:
    for token, value in found:
        if not isinstance(value, kind):
            message = f"Node `{node_id}`, {field}: in branch `{token.branch}` this is not {word}."
            raise Problem(
                Fault(
                    reason=Reason.EXPRESSION_FAILED, message=message, field=field, metadata={"node": node_id}
                )
            )


# --- the end of a branch ----------------------------------------------------------------------------


def end(draft: Draft, token: Token) -> None:
    """The token has nowhere to go: it ends well. The first one of a run that merges does that before."""
    if MERGE_NODE in draft.course.graph.nodes and not token.parent_id and token.node_id != MERGE_NODE:
        if not isinstance(_output(draft), Fault):  # Else it is not going to complete.
            go(draft, token, MERGE_NODE)
            return
    draft.move(token, TokenStatus.COMPLETED)
    if token.parent_id:
        parent = draft.token(token.parent_id)
        draft.count(replace(parent, ended=parent.ended + 1))
        draft.agenda.append(("settle", parent, ""))
    else:
        _complete(draft)


def fail(draft: Draft, token: Token, fault: Fault) -> None:
    """The token cannot go on: that fails what is around it, or the branch does not come."""
    _close_inside(draft, token)
    draft.move(token, TokenStatus.FAILED)
    if not token.parent_id:
        draft.end(RunStatus.FAILED, fault=fault)
        return
    parent = draft.token(token.parent_id)
    fork = draft.fork(parent.id)
    fan_in = _fan_in(draft, fork)
    if fan_in is None or fan_in.mode is FanInMode.ALL:
        fail(draft, parent, fault)
        return
    parent = draft.count(replace(parent, ended=parent.ended + 1, failed=parent.failed + 1))
    here = draft.here(parent.id)
    coming = len(fork.branches) - here - parent.ended if fork else 0
    if here + coming < _least(fan_in):
        fail(draft, parent, fault)  # What made it impossible is the better word.
    else:
        draft.agenda.append(("settle", parent, ""))


def cancel(draft: Draft, token: Token) -> None:
    """Nobody needs the token any more, nor what is inside it."""
    _close_inside(draft, token)
    draft.move(token, TokenStatus.CANCELLED)


def _close_inside(draft: Draft, token: Token) -> None:
    """Stop what a token waits for, and end its branches."""
    operation = draft.operation_of(token)
    if operation is not None:
        draft.stop(operation)
        gate = draft.gate_of(operation)
        if gate is not None:
            draft.close_gate(gate, GateStatus.CANCELLED)
        draft.record(operation, ExecutionStatus.CANCELLED)
    if draft.fork(token.id) is not None:
        for child in draft.children(token.id):
            cancel(draft, child)
        draft.close(token.id)


def _complete(draft: Draft) -> None:
    """The last token has ended: the run's output."""
    output = _output(draft)
    if isinstance(output, Fault):
        draft.end(RunStatus.FAILED, fault=output)
    else:
        draft.end(RunStatus.COMPLETED, output)


def _output(draft: Draft) -> dict[str, Any] | Fault:
    """What the run gives, or why it gives nothing."""
    spec = draft.workflow.spec
    try:
        output = draft.output_values
        if spec.output_mapping:
            output = evaluation.mapped(draft, spec.output_mapping, draft.scope(None), "output_mapping")
        else:
            evaluation.check(output, "output", "")  # Together its values may be more than each is.
        problems = schemas.validate(spec.output_schema, output) if spec.output_schema else []
        if problems:
            message = f"The run's output does not match its schema: {'; '.join(problems[:5])}"
            raise Problem(Fault(reason=Reason.RUN_FAILED, message=message, field="output"))
    except Problem as problem:
        return problem.fault
    return output
