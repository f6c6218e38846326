"""Expressions: CEL over JSON values, for conditions and mappings.

The language is the Common Expression Language (github.com/google/cel-spec) with JSON's types only:
null, bool, int, double, string, list, map with text keys. No bytes, unsigned integers, timestamps or
optionals. Functions are listed in ``functions.py``. Two things are more generous than the
specification, because JSON knows only one kind of number: an int beside a double is calculated as a
double (``input.price * 2``), and a list may be indexed by a double that is whole.

Everything is bounded, since whoever saves a definition chooses the text, and whoever talks to an
agent chooses the data:

    when saved   4,096 characters; 24 levels of nesting; no loop inside a loop
    when run     10,000 items a loop; a budget of work and text for the whole evaluation, so that no
                 expression can hold the server for more than a fraction of a second

An evaluator of our own, rather than a binding, is what makes the second line possible: see
``docs/adr/0003-expressions.md``. Its meaning is checked against a binding in the tests.

Values are never changed: a result may share parts with the scope, so treat both as frozen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.cost import has_no_cost
from wonder_server.core.expressions.faults import ExpressionError, ExpressionFault, SyntaxFault
from wonder_server.core.expressions.functions import FUNCTIONS
from wonder_server.core.expressions.programs import Run, program
from wonder_server.core.expressions.syntax import TYPE_NAMES, Syntax
from wonder_server.core.expressions.values import Frame
from wonder_server.core.schema import patterns
from wonder_server.core.suggestions import did_you_mean

__all__ = [
    "ExpressionError",
    "ExpressionFault",
    "assign",
    "check",
    "evaluate",
    "evaluate_mapping",
]

_UNFIT = ExpressionFault(message="a value is nested too deeply or a number is out of range", line=1, column=1)


def check(source: str, roots: Collection[str]) -> ExpressionFault | None:
    """What is wrong with an expression that may use the variables ``roots``; None if nothing is."""
    try:
        compiled = _compiled(source)
        for name, at in compiled.syntax.roots.items():
            if name not in roots and name not in TYPE_NAMES:
                known = ", ".join(sorted(roots))
                raise SyntaxFault(f"unknown variable '{name}': here it may be {known or 'none'}", at)
    except SyntaxFault as mistake:
        return mistake.located(source)
    return None


def evaluate(source: str, scope: Mapping[str, Any]) -> Any:
    """The value of an expression, as plain JSON. Raises `ExpressionError`."""
    try:
        compiled = _compiled(source)
        if compiled.has_no_cost:
            value = compiled.run(scope)
            if value and compiled.builds and value is not True:  # Nothing is always within the budget.
                Frame().spend_on(value)
            return value
        frame = Frame(scope)
        value = compiled.run(frame)
        if compiled.builds and type(value) is not bool:
            frame.spend_on(value)
        return value
    except SyntaxFault as mistake:
        raise ExpressionError(mistake.located(source)) from None
    except (RecursionError, ArithmeticError):  # data that no payload check would have let in
        raise ExpressionError(_UNFIT) from None


def evaluate_mapping(mapping: Mapping[str, str], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Every target with its expression's value; a dotted target makes nested maps.

    Raises `ExpressionError` for the first that fails.
    """
    result: dict[str, Any] = {}
    for target, source in mapping.items():
        result = assign(result, target, evaluate(source, scope))
    return result


def assign(context: Mapping[str, Any], target: str, value: Any) -> dict[str, Any]:
    """A copy of ``context`` with ``value`` at a dotted path such as ``state.plan.steps``.

    Maps on the way are copied, made where they are missing, and take the place of what is no map.
    """
    head, _, rest = target.partition(".")
    if rest:
        inner = context.get(head)
        value = assign(inner if isinstance(inner, Mapping) else {}, rest, value)
    return {**context, head: value}


@dataclass(frozen=True, slots=True)
class _Compiled:
    """``free``: whether it needs no frame. ``builds``: whether the value may be larger than what the scope
    holds, so that it is measured."""

    syntax: Syntax
    run: Run
    has_no_cost: bool
    builds: bool


@lru_cache(maxsize=1024)
def _compiled(source: str) -> _Compiled:
    parsed = syntax.parse(source)
    for call in parsed.calls:
        _check_call(call)
    builds = not isinstance(parsed.tree, (syntax.Constant, syntax.Name, syntax.Path, syntax.Index))
    return _Compiled(parsed, program(parsed.tree), has_no_cost(parsed.tree), builds)


def _check_call(call: syntax.Call) -> None:
    function = FUNCTIONS.get(call.function)
    if function is None:
        raise SyntaxFault(
            f"unknown function '{call.function}'{did_you_mean(call.function, FUNCTIONS)}", call.at
        )
    count = len(call.arguments)
    if not function.least <= count <= function.most:
        wanted = (
            f"{function.least}" if function.least == function.most else f"{function.least} or {function.most}"
        )
        raise SyntaxFault(
            f"{call.function}() takes {wanted} arguments, counting x in x.f(y), not {count}", call.at
        )
    if call.function == "matches":
        expression = call.arguments[1]
        if isinstance(expression, syntax.Constant) and isinstance(expression.value, str):
            try:
                patterns.compiled(expression.value)
            except patterns.PatternError as fault:
                raise SyntaxFault(str(fault), expression.at) from None
