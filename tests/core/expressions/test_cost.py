"""Programs without cost, and loops without a frame.

Both must have the same value, the same fault and the same remaining budget as metered evaluation.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core import expressions
from wonder_server.core.expressions import ExpressionError, programs
from wonder_server.core.expressions.cost import has_no_cost
from wonder_server.core.expressions.faults import SyntaxFault
from wonder_server.core.expressions.syntax import parse
from wonder_server.core.expressions.values import Frame
from wonder_server.core.json_types import JsonDict

SCOPE: JsonDict = {
    "a": {"t": "text", "n": 2, "f": 1.5, "z": None, "yes": True, "m": {"t": "x" * 100, "n": 7}},
    "l": [{"t": "text", "n": n, "yes": n > 1, "m": {"t": "é"}} for n in range(4)],
    "u": [1, "text", None, {"t": 1}, [2.5, {"t": "deep"}], True],
    "e": [],
}
ROOTS = ["a", "l", "u", "e", "i", "nothing"]


def _of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def _leaves(variable: str) -> dict[str, st.SearchStrategy[str]]:
    of = [variable, "a"] if variable else ["a"]
    return {
        "text": _of("'text'", "''", *(f"{name}.{path}" for name in of for path in ("t", "m.t"))),
        "number": _of(
            "0", "2", "2.5", "-1", *(f"{name}.{path}" for name in of for path in ("n", "m.n", "f"))
        ),
        "bool": _of(
            "true", "a.yes", *(f"has({name}.{path})" for name in of for path in ("t", "x", "m.n", "x.n"))
        ),
        "list": _of("l", "u", "e", "[]", "[1, 'text', null]"),
        "map": _of("a", "a.m", "{}", "l[1]", *of),
        "wrong": _of("null", "a.z", "a.x", "a.t.x", "u.t", "l[9]", "nothing", *of),
    }


def _made(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Generate texts of the form, filled with the parts."""
    return st.builds(form.format, *parts)


def _expressions(levels: int, variable: str) -> dict[str, st.SearchStrategy[str]]:
    """Generate texts of expressions by their most likely type, over the variables or a loop's
    ``variable``."""
    leaves = _leaves(variable)
    if not levels:
        return leaves
    inner = _expressions(levels - 1, variable)
    text, number, truth, items, maps = (inner[kind] for kind in ("text", "number", "bool", "list", "map"))
    anything = st.one_of(*inner.values())

    grown = {
        "text": [
            _made("({}) + ({})", text, text),
            _made("string({})", number),
            _made("{}({})", _of("lower", "upper", "trim"), text),
            _made("truncate({}, 3)", text),
            _made("indent({}, {})", text, text),
            _made("to_json({})", anything),
            _made("get({}, 't', {})", maps, text),
            _made("type({})", anything),
        ],
        "number": [
            _made("({}) {} ({})", number, _of("+", "-", "*", "/"), number),
            _made("-({})", number),
            _made("size({})", st.one_of(text, items, maps)),
            _made("({}) - ({}) * ({})", number, number, number),
        ],
        "bool": [
            _made("({}) {} ({})", anything, _of("==", "!="), anything),
            _made("({}) {} {}", anything, _of("==", "!="), _of("'text'", "2", "null", "true", "1.5")),
            _made("({}) {} ({})", number, _of("<", ">="), number),
            _made("({}) in ({})", anything, items),
            _made("({}) {} ({}) {} ({})", truth, op := _of("&&", "||"), truth, op, truth),
            _made("({}) {} ({})", truth, op, truth),
            _made("!({})", truth),
            _made("has(({}).{})", maps, _of("t", "m.t", "x.n")),
            _made("({}).startsWith({})", text, text),
        ],
        "list": [
            _made("[{}, {}]", anything, anything),
            _made("({}) + ({})", items, items),
            _made("flatten([{}, {}, {}])", items, items, anything),
        ],
        "map": [
            _made('{{"k": {}, "c": 1, "d": {}}}', anything, anything),
            _made("merge({}, {})", maps, maps),
        ],
        "wrong": [
            _made("({}).m", anything),
            _made("({})[{}]", st.one_of(items, maps), st.one_of(number, text)),
        ],
    }
    if not variable:
        _add_loops(grown, items, _expressions(levels - 1, "i"))
    return {
        kind: st.one_of(
            *grown[kind], _made("({}) ? ({}) : ({})", truth, inner[kind], inner[kind]), leaves[kind]
        )
        for kind in leaves
    }


def _add_loops(
    grown: dict[str, list[st.SearchStrategy[str]]],
    items: st.SearchStrategy[str],
    body: dict[str, st.SearchStrategy[str]],
) -> None:
    """Add macros over ``items`` whose body is one of ``body``."""
    loops, any_body = _of("all", "exists", "exists_one", "filter"), st.one_of(*body.values())
    grown["list"] += [
        _made("({}).map(i, {})", items, any_body),
        _made("({}).filter(i, {})", items, body["bool"]),
        _made("l.map(i, {}, {})", body["bool"], any_body),
        _made("l.filter(i, {}).map(i, {})", body["bool"], body["map"]),
    ]
    grown["bool"] += [_made("({}).{}(i, {})", items, loops, body["bool"])]


SOURCES = st.one_of(*_expressions(3, "").values())
BUDGETS = st.one_of(st.integers(1, 100), st.just(250_000))


def _outcome(source: str) -> tuple[Any, ...]:
    try:
        value = expressions.evaluate(source, SCOPE)
    except ExpressionError as error:
        return ("failed", str(error))
    return ("value", repr(value))


@given(SOURCES, BUDGETS)
def test_results_are_the_same_with_and_without_a_meter(source: str, budget: int) -> None:
    if expressions.check(source, ROOTS) is not None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Frame, "left", budget)
        swift = _outcome(source)
        expressions._compiled.cache_clear()
        for module in (expressions, programs):
            patch.setattr(module, "has_no_cost", lambda node: False)
        metered = _outcome(source)
    expressions._compiled.cache_clear()
    assert swift == metered


@given(SOURCES)
def test_an_expression_without_cost_uses_no_budget(source: str) -> None:
    if expressions.check(source, ROOTS) is not None:
        return
    tree = parse(source).tree
    if not has_no_cost(tree):
        return
    frame = Frame(SCOPE)
    try:
        programs.program(tree)(frame)
    except (SyntaxFault, ArithmeticError):
        pass
    assert frame.left == Frame.left


@pytest.mark.parametrize(
    ("source", "free"),
    [
        ("a.t", True),
        ('has(a.t) && size(a.t) == 2 ? {"t": [a.t, 1]} : null', True),
        ('a.t == "text"', True),
        ("a.t == a.m", False),
        ("1 == a.n == a.yes", False),
        ("a.t + 'x'", False),
        ("a.t in l", False),
        ("lower(a.t)", False),
        ("l.map(i, i)", False),
    ],
)
def test_expressions_without_cost(source: str, free: bool) -> None:
    assert has_no_cost(parse(source).tree) is free


def test_a_loop_variable_covers_a_name_only_inside_its_loop() -> None:
    source = "[e.map(a, a.t + '') == [], a.n == 2, u.filter(a, a in e) == [], a.n == 2]"
    assert expressions.evaluate(source, SCOPE) == [True, True, True, True]
    assert expressions.evaluate("u.exists(a, a + 1 == 'no') || a.n == 2", SCOPE) is True


def test_constant_parts_of_a_value_are_its_own() -> None:
    source = '[[1, 2], {"k": 1}]'
    first = expressions.evaluate(source, {})
    first[0].append(3)
    first[1]["k"] = 2
    assert expressions.evaluate(source, {}) == [[1, 2], {"k": 1}]
