"""The operators of CEL over JSON values, metered.

`Frame` holds what an evaluation sees and what it may still spend. One unit is about one node of the
tree evaluated once, one list element looked at, or 32 characters copied.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from wonder_server.core.expressions.faults import BudgetExceeded, SyntaxFault

BUDGET = 250_000
MAX_ITEMS = 10_000
MAX_RESULT_DEPTH = 32

_INT_LIMIT = 2**63
_NUMBERS = (int, float)
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATED: dict[str, Callable[[Any, Any], Any]] = {"-": operator.sub, "*": operator.mul}
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


class Frame(dict[str, Any]):
    """One evaluation: the variables in sight, and the budget that is left."""

    left = BUDGET
    patterns: frozenset[str] = frozenset()
    """Regular expressions that were paid for."""

    def spend(self, units: int) -> None:
        """Pay for work before it is done. Raises `Exhausted`."""
        self.left -= units
        if self.left < 0:
            raise BudgetExceeded(
                "the expression does too much work: it handles too many items or too much text"
            )

    def spend_on(self, value: Any) -> None:
        """Pay for a whole value, as if it were copied. What is shared in memory counts each time:
        written as JSON it would be there each time."""
        left = _left_after(value, self.left)
        if left < 0:
            self._spend_on(value, 0)  # Which finds out why.
        else:
            self.left = left

    def _spend_on(self, value: Any, depth: int) -> None:
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


def _left_after(value: Any, left: int) -> int:
    """What is left after paying for a value; less than nothing if that is too little, or if the value is
    nested too deeply or made of other things than most: `Frame._spend_on` says what holds then.

    Goes down level by level, which counts the depth and needs no recursion."""
    kind = type(value)
    if kind is str:
        return left - 1 - (len(value) >> 5)
    if kind is not dict and kind is not list:
        return left if kind in _SCALARS else -1
    level = [value]
    for _ in range(MAX_RESULT_DEPTH):
        inner: list[Any] = []
        for container in level:
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
        if not inner:
            return left
        level = inner
    return -1


def type_name(value: Any) -> str:
    """What CEL calls the type of a value."""
    return _TYPES.get(type(value), "map" if isinstance(value, Mapping) else "value")


def truth(value: Any, at: int) -> bool:
    """A condition's value. Raises `Mistake`."""
    if value is True or value is False:
        return bool(value)
    raise SyntaxFault(f"a condition is true or false, not {type_name(value)}", at)


def is_number(value: Any) -> bool:
    """Whether it is an int or a double; booleans are not numbers."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def whole(value: Any) -> int:
    """A number without a fraction, as an int: what a position or a count must be. Raises `Mistake`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise SyntaxFault(f"a position is a whole number, not {type_name(value)}")


def equals(frame: Frame, left: Any, right: Any) -> bool:
    """CEL's ``==``: numbers compare by value, other types only with their own kind."""
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


def contains(frame: Frame, item: Any, collection: Any) -> bool:
    """CEL's ``in``: an element of a list, or a key of a map."""
    if isinstance(collection, Mapping):
        return isinstance(item, str) and item in collection
    if isinstance(collection, (list, tuple)):
        frame.spend(len(collection))
        return any(equals(frame, item, element) for element in collection)
    raise SyntaxFault(f"'in' looks into a list or a map, not into {type_name(collection)}")


def compare(symbol: str, left: Any, right: Any) -> bool:
    """CEL's ``<  <=  >  >=`` over numbers, texts and booleans."""
    comparable = (is_number(left) and is_number(right)) or (
        type(left) is type(right) and isinstance(left, (str, bool))
    )
    if not comparable:
        raise SyntaxFault(f"'{symbol}' cannot compare {type_name(left)} with {type_name(right)}")
    return _ORDERED[symbol](left, right)


def add(frame: Frame, left: Any, right: Any) -> Any:
    """CEL's ``+``: sums numbers, joins texts, joins lists."""
    if isinstance(left, str) and isinstance(right, str):
        frame.spend((len(left) + len(right)) >> 5)
        return left + right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        frame.spend(len(left) + len(right))
        return [*left, *right]
    _need_numbers("+", left, right)
    return fitting(left + right)


def calculate(symbol: str, left: Any, right: Any) -> Any:
    """CEL's ``-  *  /  %``. Integers divide towards zero; an int beside a double becomes a double."""
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
    """A number that an expression may hold: 64 bits of integer, or a finite double."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise SyntaxFault("the result is not a finite number")
    elif not -_INT_LIMIT <= number < _INT_LIMIT:
        raise SyntaxFault("the result does not fit into a 64-bit integer")
    return number


def _need_numbers(symbol: str, left: Any, right: Any) -> None:
    if not (is_number(left) and is_number(right)):
        raise SyntaxFault(f"'{symbol}' is not defined for {type_name(left)} and {type_name(right)}")
