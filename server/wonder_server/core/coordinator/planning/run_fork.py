"""Forks: a new run that starts from a point in another run's journal (feature G9).

The fork copies the other run's record up to that point. Node executions that had not ended there run again,
with the fork's own ids and keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wonder_server.core.coordinator.model.inputs import ForkSource
from wonder_server.core.coordinator.model.values import ENDED_TOKEN_STATUSES, FanOut, Token, TokenStatus
from wonder_server.core.coordinator.planning.plan_builder import ROOT, PlanBuilder
from wonder_server.core.definitions.graph import graph_of
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.schema import schemas


def refusal(source: ForkSource, workflow: PinnedWorkflow) -> Fault | None:
    """Return the fault if ``workflow`` cannot continue from the point, else None."""
    tokens, graph = _live(source), graph_of(workflow.spec)
    if not any(not execution.completed_ms for execution in source.executions):
        return _refused("The run had ended at this point. Choose an earlier point.", "point")
    if not _is_consistent(source, tokens):
        return _refused("The record of the run is incomplete at this point. Choose another point.", "point")
    for node_id in _needed(source, tokens):
        if node_id not in graph.nodes:
            message = f"The run is at node `{node_id}`, which {workflow.pin} does not have."
            return _refused(message, "workflow_revision")
    for fan_out in source.fan_outs:
        if graph.joins.get(fan_out.node_id, "") != fan_out.join_node_id:
            message = f"The open branches of `{fan_out.node_id}` meet at another node in {workflow.pin}."
            return _refused(message, "workflow_revision")
    schema = workflow.spec.state_schema
    state = {entry.key: entry.value for entry in source.context if entry.section == "state"}
    problems = schemas.validate(schema, state) if schema else []
    if problems:
        message = f"The state does not match the workflow's state_schema: {'; '.join(problems[:5])}"
        return _refused(message, "state")
    return None


def take_over(builder: PlanBuilder, source: ForkSource) -> None:
    """Copy the record into this run and begin its unfinished nodes again."""
    run_id = builder.run.id
    for execution in source.executions:
        if execution.completed_ms:
            builder.operations.keep_execution(replace(execution, run_id=run_id))
    for entry in source.context:
        builder.context.set(replace(entry, run_id=run_id))
    for signal in source.signals:
        builder.signals.receive(replace(signal, run_id=run_id))
    for fan_out in source.fan_outs:
        builder.fan_outs.open(replace(fan_out, run_id=run_id))
    again: list[Token] = []
    # Parents before their branches: the id of a parent is shorter.
    for token in sorted(_live(source).values(), key=lambda each: (len(each.id), each.id)):
        own = replace(token, run_id=run_id)
        if token.status is TokenStatus.FORKED:
            builder.tokens.create(own)
            builder.tokens.move(own, TokenStatus.FORKED)
        elif token.status is TokenStatus.WAITING_FOR_SIBLINGS:
            builder.tokens.create(own)
            builder.fan_outs.wait_at_node(own)
        else:
            again.append(replace(own, status=TokenStatus.PENDING, hops=own.hops - 1))
            builder.tokens.create(again[-1])
    builder.agenda.extend(("begin", token, token.node_id) for token in again)
    builder.agenda.extend(
        ("resolve", builder.tokens.get(fan_out.token_id), "") for fan_out in source.fan_outs
    )


def _live(source: ForkSource) -> dict[str, Token]:
    return {token.id: token for token in source.tokens if token.status not in ENDED_TOKEN_STATUSES}


def _is_consistent(source: ForkSource, tokens: Mapping[str, Token]) -> bool:
    """Return True if tokens, fan-outs and executions match each other, as they do between two inputs."""
    fan_outs: dict[str, FanOut] = {fan_out.token_id: fan_out for fan_out in source.fan_outs}
    began = {execution.token_id for execution in source.executions if not execution.completed_ms}
    forked = {token.id for token in tokens.values() if token.status is TokenStatus.FORKED}
    return (
        ROOT in tokens
        and forked == fan_outs.keys()
        and all(
            token.parent_id in fan_outs and token.branch_index < len(fan_outs[token.parent_id].branches)
            for token in tokens.values()
            if token.id != ROOT
        )
        and all(
            token.id in forked or (token.status is TokenStatus.WAITING_FOR_SIBLINGS) != (token.id in began)
            for token in tokens.values()
        )
        and all(not entry.token_id or entry.token_id in tokens for entry in source.context)
    )


def _needed(source: ForkSource, tokens: Mapping[str, Token]) -> Iterator[str]:
    """Yield the nodes of live tokens and of branches that have not started."""
    yield from (token.node_id for token in tokens.values())
    for fan_out in source.fan_outs:
        started = tokens[fan_out.token_id].started
        yield from (start.node_id for start in fan_out.branches[started:])


def _refused(message: str, field: str) -> Fault:
    return Fault(reason=Reason.INPUT_INVALID, message=message, field=field)
