"""Expressions: CEL over JSON values, for conditions and mappings.

The language is the Common Expression Language (github.com/google/cel-spec) with JSON's types only: null,
bool, int, double, string, list, map with text keys. Bytes, unsigned integers, timestamps and optionals are
not supported. ``functions.py`` lists the functions. Two rules are more permissive than CEL,
because JSON has only one kind of number: an operation on an int and a double is calculated in doubles
(``input.price * 2``), and a list accepts a whole double as an index.

Every expression is bounded. The author of a definition chooses the text, and the users of an agent choose the
data:

    when saved   4,096 characters; 24 levels of nesting; no loop inside a loop
    when run     10,000 items a loop; a budget of work and text for the whole evaluation, so that no
                 expression blocks the server for more than a fraction of a second

An evaluator of the project, and not a binding, makes the second line possible: see
``docs/adr/0003-expressions.md``. The tests compare its results with a binding.

Values are never changed. A result may share parts with the scope, so treat both as frozen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from wonder_server.core.expressions import syntax
from wonder_server.core.expressions.cost import has_no_cost
from wonder_server.core.expressions.faults import ExpressionError, ExpressionFault, SyntaxFault
from wonder_server.core.expressions.functions import FUNCTIONS, NOW, ONLY_IN_WORKFLOWS
from wonder_server.core.expressions.programs import Run, program
from wonder_server.core.expressions.syntax import TYPE_NAMES, Syntax
from wonder_server.core.expressions.values import Frame
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.schema import patterns
from wonder_server.core.suggestions import did_you_mean

__all__ = [
    "NOW",
    "ExpressionError",
    "ExpressionFault",
    "assign",
    "check",
    "evaluate",
    "evaluate_mapping",
]

_OUT_OF_RANGE = ExpressionFault(
    message="a value is nested too deeply or a number is out of range", line=1, column=1
)


def check(source: str, roots: Collection[str]) -> ExpressionFault | None:
    """Return the fault of an expression that may use the variables ``roots``; None if it is valid.

    With `NOW` among them it may use ``now()``, whose scope has the time in milliseconds under that key.
    """
    try:
        compiled = _compiled(source)
        for name, at in compiled.syntax.roots.items():
            if name not in roots and name not in TYPE_NAMES:
                known = ", ".join(sorted(root for root in roots if root != NOW))
                raise SyntaxFault(f"unknown variable '{name}': here it may be {known or 'none'}", at)
        for call in compiled.syntax.calls:
            if call.function == "now" and NOW not in roots:
                raise SyntaxFault(ONLY_IN_WORKFLOWS, call.at)
    except SyntaxFault as fault:
        return fault.located(source)
    return None


def evaluate(source: str, scope: JsonObject) -> JsonValue:
    """Return the value of an expression as plain JSON. Raises `ExpressionError`."""
    try:
        compiled = _compiled(source)
        if compiled.has_no_cost:
            value = compiled.run(scope)
            if value and compiled.builds and value is not True:  # An empty value is always within the budget.
                Frame().spend_on(value)
            return value
        frame = Frame(scope)
        value = compiled.run(frame)
        if compiled.builds and type(value) is not bool:
            frame.spend_on(value)
        return value
    except SyntaxFault as fault:
        raise ExpressionError(fault.located(source)) from None
    except (RecursionError, ArithmeticError):  # Only data that no payload check would accept.
        raise ExpressionError(_OUT_OF_RANGE) from None


def evaluate_mapping(mapping: Mapping[str, str], scope: JsonObject) -> JsonDict:
    """Return every target with the value of its expression. A dotted target creates nested maps.

    Raises `ExpressionError` for the first expression that fails.
    """
    result: JsonDict = {}
    for target, source in mapping.items():
        result = assign(result, target, evaluate(source, scope))
    return result


def assign(context: JsonObject, target: str, value: JsonValue) -> JsonDict:
    """Return a copy of ``context`` with ``value`` at a dotted path such as ``state.plan.steps``.

    Maps along the path are copied, or created if missing. A map replaces any other value along the path.
    """
    head, _, rest = target.partition(".")
    if rest:
        inner = context.get(head)
        value = assign(inner if isinstance(inner, Mapping) else {}, rest, value)
    return {**context, head: value}


@dataclass(frozen=True, slots=True)
class _Compiled:
    """``has_no_cost``: the program needs no frame. ``builds``: the value may be larger than those of the
    scope, so its size is measured."""

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
