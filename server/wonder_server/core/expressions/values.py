"""The operators of CEL over JSON values, metered.

`Frame` contains the variables of an evaluation and the rest of its budget. One unit is about one evaluation
of one node, one list element, or 32 copied characters.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from wonder_server.core.expressions.faults import BudgetExceeded, SyntaxFault
from wonder_server.core.json_types import JsonDict, JsonValue

BUDGET = 250_000
MAX_ITEMS = 10_000
MAX_RESULT_DEPTH = 32

_INT_LIMIT = 2**63
_NUMBERS = (int, float)
_ORDERED: dict[str, Callable[[JsonValue, JsonValue], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATED: dict[str, Callable[[JsonValue, JsonValue], JsonValue]] = {"-": operator.sub, "*": operator.mul}
_SCALARS = frozenset({bool, int, float, type(None)})
_TYPES = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    list: "list",
    tuple: "list",
    dict: "map",
    type(None): "null_type",
}


class Frame(JsonDict):
    """One evaluation: its variables, and the rest of its budget."""

    left = BUDGET
    patterns: frozenset[str] = frozenset()
    """Regular expressions whose compilation was paid for."""

    def spend(self, units: int) -> None:
        """Pay for work before it is done. Raises `BudgetExceeded`."""
        self.left -= units
        if self.left < 0:
            raise BudgetExceeded(
                "the expression does too much work: it handles too many items or too much text"
            )

    def spend_on(self, value: JsonValue) -> None:
        """Pay for a whole value as for a copy. A part that is shared in memory counts each time, as it would
        in JSON."""
        left = _left_after(value, self.left)
        if left < 0:
            self._spend_on(value, 0)  # Raises the fault.
        else:
            self.left = left

    def _spend_on(self, value: JsonValue, depth: int) -> None:
        kind = type(value)
        if kind is str:
            self.spend(1 + (len(value) >> 5))
            return
        if kind is list or kind is tuple:
            items = value
        elif kind is dict or isinstance(value, Mapping):
            items = value.values()
        else:
            return
        if depth >= MAX_RESULT_DEPTH:
            raise SyntaxFault(f"the value is nested more than {MAX_RESULT_DEPTH} levels deep")
        self.spend(1 + len(value))
        units = 0
        for item in items:
            if type(item) is str:
                units += 1 + (len(item) >> 5)
            else:
                self._spend_on(item, depth + 1)
        self.spend(units)


def _left_after(value: JsonValue, left: int) -> int:
    """Return the rest of the budget after paying for a value.

    The result is negative if the budget is too small, or if the value is nested too deeply or has unusual
    types; `Frame._spend_on` then finds the fault. The walk goes level by level, which counts the depth
    without recursion.
    """
    kind = type(value)
    if kind is str:
        return left - 1 - (len(value) >> 5)
    if kind is not dict and kind is not list:
        return left if kind in _SCALARS else -1
    level = [value]
    for _ in range(MAX_RESULT_DEPTH):
        inner: list[JsonValue] = []
        for container in level:
            left = _left_after_members(container, left, inner)
            if left < 0:
                return left
        if not inner:
            return left
        level = inner
    return -1


def _left_after_members(container: JsonValue, left: int, inner: list[JsonValue]) -> int:
    """Return the rest of the budget after paying for a container, and append its containers to ``inner``."""
    left -= 1 + len(container)
    if left < 0:
        return left
    for item in container.values() if type(container) is dict else container:
        kind = type(item)
        if kind is str:
            left -= 1 + (len(item) >> 5)
        elif kind is dict or kind is list:
            inner.append(item)
        elif kind not in _SCALARS:
            return -1
    return left


def type_name(value: JsonValue) -> str:
    """Return CEL's name of the type of a value."""
    return _TYPES.get(type(value), "map" if isinstance(value, Mapping) else "value")


def truth(value: JsonValue, at: int) -> bool:
    """Return the value of a condition. Raises `SyntaxFault`."""
    if value is True or value is False:
        return bool(value)
    raise SyntaxFault(f"a condition is true or false, not {type_name(value)}", at)


def is_number(value: JsonValue) -> bool:
    """Return True for an int or a double. Booleans are not numbers."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def whole(value: JsonValue) -> int:
    """Return a number without a fraction as an int, for positions and counts. Raises `SyntaxFault`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise SyntaxFault(f"a position is a whole number, not {type_name(value)}")


def equals(frame: Frame, left: JsonValue, right: JsonValue) -> bool:
    """Evaluate CEL's ``==``. Numbers compare by value, other types only with values of the same type."""
    if type(left) is str and type(right) is str:
        return bool(left == right)
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(left) != len(right):
            return False
        frame.spend(len(left))
        return all(equals(frame, a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() != right.keys():
            return False
        frame.spend(len(left))
        return all(equals(frame, value, right[key]) for key, value in left.items())
    return type(left) is type(right) and bool(left == right)


def contains(frame: Frame, item: JsonValue, collection: JsonValue) -> bool:
    """Evaluate CEL's ``in`` for an element of a list or a key of a map."""
    if isinstance(collection, Mapping):
        return isinstance(item, str) and item in collection
    if isinstance(collection, (list, tuple)):
        frame.spend(len(collection))
        return any(equals(frame, item, element) for element in collection)
    raise SyntaxFault(f"'in' looks into a list or a map, not into {type_name(collection)}")


def compare(symbol: str, left: JsonValue, right: JsonValue) -> bool:
    """Evaluate CEL's ``<  <=  >  >=`` for numbers, texts and booleans."""
    comparable = (is_number(left) and is_number(right)) or (
        type(left) is type(right) and isinstance(left, (str, bool))
    )
    if not comparable:
        raise SyntaxFault(f"'{symbol}' cannot compare {type_name(left)} with {type_name(right)}")
    return _ORDERED[symbol](left, right)


def add(frame: Frame, left: JsonValue, right: JsonValue) -> JsonValue:
    """Evaluate CEL's ``+``: add numbers, join texts, join lists."""
    if isinstance(left, str) and isinstance(right, str):
        frame.spend((len(left) + len(right)) >> 5)
        return left + right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        frame.spend(len(left) + len(right))
        return [*left, *right]
    _need_numbers("+", left, right)
    return fitting(left + right)


def calculate(symbol: str, left: JsonValue, right: JsonValue) -> JsonValue:
    """Evaluate CEL's ``-  *  /  %``. Integers divide towards zero; an int and a double are calculated as
    doubles."""
    _need_numbers(symbol, left, right)
    if symbol in _CALCULATED:
        return fitting(_CALCULATED[symbol](left, right))
    whole = isinstance(left, int) and isinstance(right, int)
    if symbol == "%" and not whole:
        raise SyntaxFault("'%' works on integers only")
    if right == 0:
        raise SyntaxFault("division by zero")
    if symbol == "%":
        return int(math.copysign(1, left)) * (abs(left) % abs(right))
    if whole:
        quotient = abs(left) // abs(right)
        return fitting(quotient if (left < 0) == (right < 0) else -quotient)
    return fitting(left / right)


def fitting(number: int | float) -> int | float:
    """Return the number if an expression may hold it: an integer of 64 bits, or a finite double. Raises
    `SyntaxFault`."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise SyntaxFault("the result is not a finite number")
    elif not -_INT_LIMIT <= number < _INT_LIMIT:
        raise SyntaxFault("the result does not fit into a 64-bit integer")
    return number


def _need_numbers(symbol: str, left: JsonValue, right: JsonValue) -> None:
    if not (is_number(left) and is_number(right)):
        raise SyntaxFault(f"'{symbol}' is not defined for {type_name(left)} and {type_name(right)}")
