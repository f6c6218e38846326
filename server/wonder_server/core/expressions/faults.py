"""Faults of expressions: of the text, found when it is saved, and of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionFault:
    """A fault as a plain sentence, with its line and column (both from 1)."""

    message: str
    line: int
    column: int

    def __str__(self) -> str:
        where = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        return f"{self.message} ({where})"


class ExpressionError(Exception):
    """An expression could not be evaluated. ``str()`` is a plain sentence with the place."""

    def __init__(self, fault: ExpressionFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class SyntaxFault(Exception):
    """Inside this package: a fault at an offset of the text (-1 if the caller knows the offset)."""

    def __init__(self, message: str, at: int = -1) -> None:
        super().__init__(message)
        self.message = message
        self.at = at

    def located(self, source: str) -> ExpressionFault:
        """Return the fault with its line and column."""
        before = source[: max(self.at, 0)]
        line = before.count("\n") + 1
        return ExpressionFault(message=self.message, line=line, column=len(before) - before.rfind("\n"))


class BudgetExceeded(SyntaxFault):
    """The evaluation has used its budget. No operator can recover from this fault."""
