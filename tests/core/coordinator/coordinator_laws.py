"""Laws of a run's state between any two inputs (see ``plan.py`` and ``state.py``)."""

from __future__ import annotations

from wonder_server.core.coordinator.model.state import BUSY, RunState
from wonder_server.core.coordinator.model.values import (
    ENDED_TOKEN_STATUSES,
    OperationKind,
    RunStatus,
    Token,
    TokenStatus,
)

WAITING_STATUSES = {
    OperationKind.TASK: TokenStatus.WAITING_FOR_TASK,
    OperationKind.SUBWORKFLOW: TokenStatus.WAITING_FOR_SUBWORKFLOW,
    OperationKind.AGENT: TokenStatus.WAITING_FOR_AGENT,
    OperationKind.GATE: TokenStatus.WAITING_FOR_HUMAN,
    OperationKind.WAIT: TokenStatus.WAITING_FOR_SIGNAL,
}


def check_run(state: RunState) -> None:
    assert state.run is not None
    if state.run.completed_ms:
        _nothing_is_left(state)
        return
    assert state.pinned is not None
    assert "t" in state.tokens, "an unfinished run has its first token"
    for token in state.tokens.values():
        assert token.status not in ENDED_TOKEN_STATUSES
        if token.parent_id:
            assert state.tokens[token.parent_id].status is TokenStatus.FORKED, token
        if token.status is TokenStatus.FORKED:
            _fork(state, token)
        elif token.status is TokenStatus.WAITING_FOR_SIBLINGS:
            _waiting_at_fan_in(state, token)
        else:
            _working(state, token)
    assert state.fan_outs.keys() == {
        each.id for each in state.tokens.values() if each.status is TokenStatus.FORKED
    }
    _operations(state)
    busy = any(token.status in BUSY for token in state.tokens.values())
    assert state.run.status is (RunStatus.RUNNING if busy else RunStatus.WAITING)


def _nothing_is_left(state: RunState) -> None:
    assert state.run is not None
    assert state.run.status not in (RunStatus.RUNNING, RunStatus.WAITING)
    assert state.pinned is None
    left = (state.tokens, state.children, state.arrived, state.fan_outs, state.branches)
    assert not any((*left, state.executions, state.operations, state.operation_of, state.gates))
    assert state.busy_tokens == 0


def _fork(state: RunState, token: Token) -> None:
    """Check that a fan-out has branches to come, and that its counters match its branches."""
    fan_out = state.fan_outs[token.id]
    children = [each for each in state.tokens.values() if each.parent_id == token.id]
    assert {each.id for each in children} == set(state.children[token.id])
    assert len(children) == token.started - token.ended
    working = [each for each in children if each.status is not TokenStatus.WAITING_FOR_SIBLINGS]
    assert working, "a fan-out waits for a branch that is under way"
    assert 0 < token.started <= len(fan_out.branches)
    if fan_out.limit:
        assert len(working) <= fan_out.limit
    if not fan_out.limit or len(working) < fan_out.limit:
        assert token.started == len(fan_out.branches), "nothing waits that could begin"
    assert len({each.branch_index for each in children}) == len(children)


def _waiting_at_fan_in(state: RunState, token: Token) -> None:
    """Check that a token at a fan-in waits for its siblings and nothing else."""
    assert state.fan_outs[token.parent_id].join_node_id == token.node_id
    assert state.arrived[token.parent_id][token.arrival - 1] == token.id
    assert token.id not in state.operation_of


def _working(state: RunState, token: Token) -> None:
    """Check that any other leaf waits for exactly one operation."""
    mine = [each for each in state.operations.values() if each.token_id == token.id and each.node_id]
    assert len(mine) == 1, token
    (operation,) = mine
    assert state.operation_of[token.id] == operation.id
    assert operation.node_id == token.node_id
    expected = TokenStatus.PENDING if operation.backing_off else WAITING_STATUSES[operation.kind]
    assert token.status is expected


def _operations(state: RunState) -> None:
    """Check that each operation belongs to a live token, each node's to its execution, each gate's to its
    operation."""
    of_nodes = {each.id for each in state.operations.values() if each.node_id}
    assert of_nodes == state.executions.keys()
    for operation in state.operations.values():
        match operation.kind:
            case OperationKind.RUN_TIMER:
                assert operation.token_id == ""
            case OperationKind.JOIN_TIMER:
                assert state.arrived[operation.token_id], "its time counts from the first arrival"
            case _:
                assert operation.token_id in state.tokens
    gates = {each.id for each in state.operations.values() if each.kind is OperationKind.GATE}
    assert {gate.operation_id for gate in state.gates.values()} == gates
