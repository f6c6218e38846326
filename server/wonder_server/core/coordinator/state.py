"""The working set of one run: what its planner sees, and how decisions change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from wonder_server.core.coordinator.decisions import (
    AnswerAgain,
    Decision,
    DispatchNode,
    EndRun,
    MoveToken,
    RecordExecution,
    RedispatchNode,
    RefuseRun,
    SetContext,
    StartRun,
    StopNode,
)
from wonder_server.core.coordinator.values import (
    Execution,
    NodeOperation,
    Pinned,
    Run,
    Token,
    TokenStatus,
)

_ENDED = (TokenStatus.COMPLETED, TokenStatus.FAILED, TokenStatus.CANCELLED)


@dataclass(slots=True)
class RunState:
    """``run`` is None until it starts. Ended tokens and executions are in the store only."""

    run: Run | None = None
    pinned: Pinned | None = None
    state: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    executions: dict[str, Execution] = field(default_factory=dict)
    operations: dict[str, NodeOperation] = field(default_factory=dict)

    def context(self) -> dict[str, Any]:
        """What expressions see: ``input``, ``state`` and ``output``."""
        run_input = self.run.input if self.run is not None else {}
        return {"input": run_input, "state": self.state, "output": self.output}

    def apply(self, decision: Decision) -> None:
        """Change the working set as ``decision`` says."""
        match decision:
            case StartRun():
                self.run, self.pinned = decision.run, decision.pinned
            case MoveToken():
                if decision.token.status in _ENDED:
                    self.tokens.pop(decision.token.id, None)
                else:
                    self.tokens[decision.token.id] = decision.token
            case DispatchNode():
                self.executions[decision.execution.id] = decision.execution
                self.operations[decision.operation.id] = decision.operation
                if self.run is not None:
                    self.run = _counted(self.run, decision.execution)
            case RecordExecution():
                self.executions.pop(decision.execution.id, None)
                self.operations.pop(decision.operation_id, None)
            case SetContext():
                section = self.state if decision.value.section == "state" else self.output
                section[decision.value.key] = decision.value.value
            case RedispatchNode():
                self.operations[decision.operation.id] = decision.operation
            case StopNode():
                self.operations.pop(decision.operation.id, None)
            case EndRun():
                self.run, self.pinned = decision.run, None
            case AnswerAgain() | RefuseRun():
                pass
            case _:
                assert_never(decision)


def _counted(run: Run, execution: Execution) -> Run:
    return replace(run, executions=execution.ordinal)
