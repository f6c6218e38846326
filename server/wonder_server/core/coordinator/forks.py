"""Beginning where another run stood (feature G9): its record up to a point is taken over, and what had not
ended there runs again, under this run's own ids and keys."""

from __future__ import annotations

from wonder_server.core.coordinator.decisions import KeepExecution
from wonder_server.core.coordinator.draft import Draft, Step
from wonder_server.core.coordinator.inputs import Past
from wonder_server.core.coordinator.values import Token, TokenStatus
from wonder_server.core.frozen import replace


def take_over(draft: Draft, past: Past) -> None:
    """Make the past this run's own, and let its nodes begin again."""
    run_id = draft.run.id
    for execution in past.executions:
        if execution.completed_ms:
            draft.keep(KeepExecution(execution=replace(execution, run_id=run_id)))
    for entry in past.context:
        target = f"{entry.section}.{entry.key}"
        token = Token(id=entry.token_id, run_id=run_id, node_id="") if entry.token_id else None
        draft.write(token, target, entry.value)
    for signal in past.signals:
        draft.hear(replace(signal, run_id=run_id))
        if signal.taken:
            draft.take(signal)
    for fork in past.forks:
        join = draft.graph.joins.get(fork.node_id, "")
        draft.open(replace(fork, run_id=run_id, join_node_id=join))
    began = {execution.token_id for execution in past.executions if not execution.completed_ms}
    again: list[Token] = []
    # Parents come before their branches: their ids are the shorter ones.
    for token in sorted(past.tokens, key=lambda each: (len(each.id), each.id)):
        own = replace(token, run_id=run_id)
        draft.born(own)
        if token.status is TokenStatus.FORKED:
            draft.move(own, TokenStatus.FORKED)
        elif token.status is TokenStatus.WAITING_FOR_SIBLINGS:
            draft.stand(own)
        elif token.id in began:
            again.append(replace(own, hops=own.hops - 1))
    draft.agenda.extend(Step("begin", token, token.node_id) for token in again)
    draft.agenda.extend(Step("settle", draft.token(fork.token_id)) for fork in past.forks)
