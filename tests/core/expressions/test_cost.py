"""What is free is evaluated without a meter, and some loops at once: it must make no difference to the value,
the error, or what is left of the budget."""

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

SCOPE: dict[str, Any] = {
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


def _expressions(levels: int, variable: str) -> dict[str, st.SearchStrategy[str]]:
    """Texts of expressions by the type that they most likely have, of things or of a loop's ``variable``."""
    leaves = _leaves(variable)
    if not levels:
        return leaves
    inner = _expressions(levels - 1, variable)
    text, number, truth, items, maps = (inner[kind] for kind in ("text", "number", "bool", "list", "map"))
    anything = st.one_of(*inner.values())

    def made(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.builds(form.format, *parts)

    grown = {
        "text": [
            made("({}) + ({})", text, text),
            made("string({})", number),
            made("{}({})", _of("lower", "upper", "trim"), text),
            made("truncate({}, 3)", text),
            made("to_json({})", anything),
            made("get({}, 't', {})", maps, text),
            made("type({})", anything),
        ],
        "number": [
            made("({}) {} ({})", number, _of("+", "-", "*", "/"), number),
            made("-({})", number),
            made("size({})", st.one_of(text, items, maps)),
            made("({}) - ({}) * ({})", number, number, number),
        ],
        "bool": [
            made("({}) {} ({})", anything, _of("==", "!="), anything),
            made("({}) {} {}", anything, _of("==", "!="), _of("'text'", "2", "null", "true", "1.5")),
            made("({}) {} ({})", number, _of("<", ">="), number),
            made("({}) in ({})", anything, items),
            made("({}) {} ({}) {} ({})", truth, op := _of("&&", "||"), truth, op, truth),
            made("({}) {} ({})", truth, op, truth),
            made("!({})", truth),
            made("has(({}).{})", maps, _of("t", "m.t", "x.n")),
            made("({}).startsWith({})", text, text),
        ],
        "list": [
            made("[{}, {}]", anything, anything),
            made("({}) + ({})", items, items),
            made("flatten([{}, {}, {}])", items, items, anything),
        ],
        "map": [
            made('{{"k": {}, "c": 1, "d": {}}}', anything, anything),
            made("merge({}, {})", maps, maps),
        ],
        "wrong": [
            made("({}).m", anything),
            made("({})[{}]", st.one_of(items, maps), st.one_of(number, text)),
        ],
    }
    if not variable:
        body = _expressions(levels - 1, "i")
        loops, any_body = _of("all", "exists", "exists_one", "filter"), st.one_of(*body.values())
        grown["list"] += [
            made("({}).map(i, {})", items, any_body),
            made("({}).filter(i, {})", items, body["bool"]),
            made("l.map(i, {}, {})", body["bool"], any_body),
            made("l.filter(i, {}).map(i, {})", body["bool"], body["map"]),
        ]
        grown["bool"] += [made("({}).{}(i, {})", items, loops, body["bool"])]
    return {
        kind: st.one_of(
            *grown[kind], made("({}) ? ({}) : ({})", truth, inner[kind], inner[kind]), leaves[kind]
        )
        for kind in leaves
    }


SOURCES = st.one_of(*_expressions(3, "").values())
BUDGETS = st.one_of(st.integers(1, 100), st.just(250_000))


def _outcome(source: str) -> tuple[Any, ...]:
    try:
        value = expressions.evaluate(source, SCOPE)
    except ExpressionError as error:
        return ("failed", str(error))
    return ("value", repr(value))


@given(SOURCES, BUDGETS)
def test_it_makes_no_difference_what_is_known_to_be_free(source: str, budget: int) -> None:
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
def test_what_is_free_spends_nothing(source: str) -> None:
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
def test_what_is_free(source: str, free: bool) -> None:
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
