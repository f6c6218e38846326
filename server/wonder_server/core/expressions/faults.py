"""What can be wrong with an expression: its text (found when saved), or its evaluation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionFault:
    """What is wrong with an expression's text, in a plain sentence, and where (both from 1)."""

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
    """Inside this package: a fault at an offset of the text (-1: the caller knows where)."""

    def __init__(self, message: str, at: int = -1) -> None:
        super().__init__(message)
        self.message = message
        self.at = at

    def located(self, source: str) -> ExpressionFault:
        """The same fault, with its offset turned into line and column."""
        before = source[: max(self.at, 0)]
        line = before.count("\n") + 1
        return ExpressionFault(message=self.message, line=line, column=len(before) - before.rfind("\n"))


class BudgetExceeded(SyntaxFault):
    """The evaluation used up its budget; nothing in an expression can recover from that."""
