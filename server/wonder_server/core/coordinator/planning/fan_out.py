"""Fan-out: division of a token into branches, one per transition or per item of a list.

The branches are stored as a `FanOut`. ``max_concurrency`` limits how many of them run at once; the others
begin as running ones arrive at the fan-in or end. ``token_flow.py`` describes how a fan-out ends.
"""

from __future__ import annotations

import json
from collections import Counter

from wonder_server.core.coordinator.model.compiled_graph import CompiledNode
from wonder_server.core.coordinator.model.values import BranchStart, FanOut, Token, TokenStatus
from wonder_server.core.coordinator.planning import evaluation
from wonder_server.core.coordinator.planning.evaluation import Problem
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.definitions.specs import Node, Transition
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonValue
from wonder_server.core.printable import printable

MAX_LIVE_TOKENS = 10_000
"""Limit of live tokens in one run."""
_MAX_SHOWN_CHARACTERS = 100


def begin_fan_out(
    builder: PlanBuilder, token: Token, compiled: CompiledNode, taken: list[Transition]
) -> None:
    """Divide the token into a branch per transition, and per item of a transition for each item."""
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
    fan_out = FanOut(
        token_id=token.id,
        run_id=builder.run.id,
        node_id=node.id,
        branches=_with_unique_names(starts),
        join_node_id=compiled.join_node_id,
        limit=limit,
    )
    builder.fan_outs.open(fan_out)
    forked = replace(token, started=0, ended=0, failed=0, waits_for_id="")
    builder.tokens.move(forked, TokenStatus.FORKED)
    if starts:
        begin_branches(builder, builder.tokens.get(token.id), fan_out, 0)
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
        message = f"{builder.workflow.pin}, node `{node.id}`, {field}: must be a list, not {_shown(items)}"
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


def _shown(value: JsonValue) -> str:
    """Return a value as JSON on one line, cut to 100 characters."""
    return printable(json.dumps(value, ensure_ascii=False), _MAX_SHOWN_CHARACTERS)


def begin_branches(builder: PlanBuilder, parent: Token, fan_out: FanOut, arrived: int) -> None:
    """Begin as many branches as the fan-out's limit allows while ``arrived`` branches wait at the fan-in."""
    first, count = parent.started, len(fan_out.branches)
    if first == count:
        return
    running = first - parent.ended - arrived
    capacity = fan_out.limit - running if fan_out.limit else count
    upto = min(first + max(capacity, 0), count)
    if upto == first:
        return
    builder.tokens.count_branches(replace(parent, started=upto))
    run_id, now, prefix = builder.run.id, builder.now, f"{parent.id}.{parent.hops}."
    for index in range(first, upto):
        start = fan_out.branches[index]
        child = Token(
            id=f"{prefix}{index}",
            run_id=run_id,
            node_id=start.node_id,
            parent_id=parent.id,
            fan_out_node_id=fan_out.node_id,
            branch=start.name,
            branch_index=index,
            branch_count=count,
            created_ms=now,
        )
        builder.tokens.create(child)
        builder.move_to(child, start.node_id)
