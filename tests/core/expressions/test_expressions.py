"""Values and limits of expressions. ``test_against_cel.py`` compares them with another implementation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wonder_server.core import expressions
from wonder_server.core.expressions import NOW, ExpressionError, check, evaluate
from wonder_server.core.json_types import JsonDict

SCOPE: JsonDict = {
    "input": {
        "name": "Ada",
        "count": 3,
        "price": 2.5,
        "none": None,
        "yes": True,
        "tags": ["b", "a", "b"],
        "people": [{"name": "Ada", "age": 36}, {"name": "Alan", "age": 41}],
        "nested": [[1, 2], 3, [4]],
        "json": '{"a": [1, 2.5, null]}',
    },
    "state": {"n": 1},
    "output": {},
}


def value(source: str) -> Any:
    assert expressions.check(source, SCOPE) is None
    return expressions.evaluate(source, SCOPE)


def refusal(source: str) -> expressions.ExpressionFault:
    fault = expressions.check(source, ("input", "state", "output"))
    assert fault is not None
    return fault


def failure(source: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        expressions.evaluate(source, SCOPE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.name", "Ada"),
        ("input.people[1].name", "Alan"),
        ('input["name"]', "Ada"),
        ("input.count * input.price", 7.5),
        ("has(input.missing) ? input.missing : 'none'", "none"),
        ("input.people.filter(p, p.age > 40).map(p, p.name)", ["Alan"]),
        ("input.people.map(p, p.age > 40, p.name)", ["Alan"]),
        ("input.none == null", True),
        ("input.yes && input.count in [1, 2, 3]", True),
        ('join(input.tags, ", ")', "b, a, b"),
        ("flatten(input.nested)", [1, 2, 3, 4]),
        ("to_json(input.people[0])", '{"name":"Ada","age":36}'),
        ("parse_json(input.json).a", [1, 2.5, None]),
        ("truncate('abcdef', 4)", "abc…"),
        ("truncate('abc', 4)", "abc"),
        (r"indent('a\r\nb\n\n\n c\n', '> ')", "a\n> b\n\n\n>  c\n> "),
        (r"indent('a\u2028b', ' ', '[x] ')", "[x] a\n b"),
        (r"indent('\n\n\n', ' ')", "\n\n\n "),
        ("indent('', ' ', '> ')", "> "),
        ("lower(input.name) + upper(input.name)", "adaADA"),
        ("trim('  a ')", "a"),
        ("distinct(input.tags)", ["b", "a"]),
        ("sort(input.tags)", ["a", "b", "b"]),
        ("merge(input.people[0], {'age': 37})", {"name": "Ada", "age": 37}),
        ("get(input, 'missing', 0)", 0),
        ("keys(input.people[0])", ["name", "age"]),
        ("max(input.people.map(p, p.age)) - min([36, 41])", 5),
        ("sum([1, 2.5])", 3.5),
        ("first([]) == null && last([1, 2]) == 2", True),
        ("'a,b'.split(',').reverse()", ["b", "a"]),
        ("size('é😀')", 2),
        ("type(input.price) == double && type(input.name) == string", True),
        (" // a comment\n 1 ", 1),
    ],
)
def test_an_expression_has_the_value_it_reads_like(source: str, expected: Any) -> None:
    result = value(source)
    assert result == expected
    assert type(result) is type(expected)


def test_maps_keep_the_order_in_which_they_are_written() -> None:
    assert json.dumps(value('{"z": 1, "a": input.people[0]}')) == '{"z": 1, "a": {"name": "Ada", "age": 36}}'


def test_numbers_come_out_as_they_went_in() -> None:
    assert [type(item) for item in value("[input.count, input.price, 2.0, 2]")] == [int, float, float, int]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("input.missing", "there is no 'missing' in 'input' (column 7)"),
        ("input.name.first", "there is no 'first' in string: only maps have members (column 12)"),
        ("input.tags[9]", "there is no item 9: the list has 3 (column 11)"),
        ("input.name + 1", "'+' is not defined for string and int (column 12)"),
        ("input.count / 0", "division by zero (column 13)"),
        ("input.name ? 1 : 2", "a condition is true or false, not string (column 12)"),
        ("9223372036854775807 + 1", "the result does not fit into a 64-bit integer (column 21)"),
        ("parse_json('{')", "parse_json(): the text is not valid JSON (column 1)"),
        ("parse_json('[NaN]')", "parse_json(): the text is not valid JSON (column 1)"),
        ("join([1], ',')", "join(): it takes a text, not int (column 1)"),
        ("{'a': 1, 'a': 2}", "the key 'a' is there twice (column 10)"),
        ("unknown", "unknown variable 'unknown' (column 1)"),
        ("1 +\n input.missing", "there is no 'missing' in 'input' (line 2, column 8)"),
    ],
)
def test_a_failing_evaluation_names_the_fault_and_its_place(source: str, message: str) -> None:
    assert failure(source) == message


@pytest.mark.parametrize(
    ("source", "message", "line", "column"),
    [
        ("", "expected a value, found the end", 1, 1),
        ("1 +", "expected a value, found the end", 1, 4),
        ("(1", "expected ')', found the end", 1, 3),
        ("1 1", "expected the end of the expression, found '1'", 1, 3),
        ("'abc", "this text has no closing quote", 1, 1),
        ("input.a == 1 &&\n  other", "unknown variable 'other': here it may be input, output, state", 2, 3),
        ("nofunc(1)", "unknown function 'nofunc'", 1, 1),
        ("size()", "size() takes 1 arguments, counting x in x.f(y), not 0", 1, 1),
        ("has(input)", "has() takes a member, as in has(input.name)", 1, 1),
        ("input.a.map(1, 2)", "map() takes a plain name first, as in items.map(item, …)", 1, 13),
        ("import", "'import' is a reserved word", 1, 1),
        ("1u", "unsigned integers are not supported: leave out the 'u'", 1, 1),
        ("b'a'", "bytes are not supported: expressions work on JSON", 1, 1),
        ("9223372036854775808", "this integer does not fit into 64 bits", 1, 1),
        ("1e999", "the number 1e999 is too large", 1, 1),
        ("'\\ud800'", "'\\ud800' is not a character", 1, 1),
        ("input.a # b", "the character '#' has no meaning here", 1, 9),
        ("input.a = 1", "the character '=' has no meaning here (did you mean '=='?)", 1, 9),
        ("input.a & true", "the character '&' has no meaning here (did you mean '&&'?)", 1, 9),
        ("input.a and true", "expected the end of the expression, found 'and' (did you mean '&&'?)", 1, 9),
        ("input.t.matches('(?=a)')", "'(?=a)' is not a valid regular expression", 1, 17),
        (
            "input.a.map(x, x.b.map(y, y))",
            "map() may not stand inside another all, exists, filter or map: flatten the lists first, or "
            "write the inner list to state in a step before this one",
            1,
            20,
        ),
    ],
)
def test_an_invalid_expression_is_refused_with_its_place(
    source: str, message: str, line: int, column: int
) -> None:
    fault = refusal(source)
    assert (fault.message, fault.line, fault.column) == (message, line, column)


def test_a_loop_variable_is_known_only_inside_its_loop() -> None:
    assert expressions.check("input.l.map(x, x.a)", ["input"]) is None
    assert refusal("input.l.map(x, x.a) + [x.b]").message.startswith("unknown variable 'x'")
    assert value("[1].map(input, input + 1) + [input.count]") == [2, 3]


DEEP = {
    "not": lambda n: "!" * n + "true",
    "minus": lambda n: "-" * n + "1",
    "minus in brackets": lambda n: "-(" * n + "1" + ")" * n,
    "brackets": lambda n: "(" * n + "1" + ")" * n,
    "lists": lambda n: "[" * n + "]" * n,
    "maps": lambda n: '{"a":' * n + "1" + "}" * n,
    "choices": lambda n: "true?1:" * n + "2",
    "calls": lambda n: "size(" * n + "1" + ")" * n,
    "methods": lambda n: "input" + ".size()" * n,
    "indexes": lambda n: "input" + "[0]" * n,
}
LONG = {
    "members": lambda n: "input" + ".a" * n,
    "sums": lambda n: "1" + "+1" * n,
    "ands": lambda n: "true" + "&&true" * n,
    "comparisons": lambda n: "1" + "==1" * n,
    "a list": lambda n: "[" + "1," * n + "1]",
}


@pytest.mark.parametrize("shape", DEEP)
def test_an_expression_nested_too_deeply_is_refused_whatever_its_length(shape: str) -> None:
    for depth in (30, 300):
        assert "nested more than 24" in refusal(DEEP[shape](depth)).message
    refusal(DEEP[shape](100_000))
    assert expressions.check(DEEP[shape](10), ["input"]) is None


@pytest.mark.parametrize("shape", LONG)
def test_a_long_chain_has_no_depth(shape: str) -> None:
    source = LONG[shape](600)
    assert expressions.check(source, ["input"]) is None
    if shape != "members":
        expressions.evaluate(source, SCOPE)


def test_an_expression_of_more_than_4096_characters_is_refused() -> None:
    assert expressions.check(f"'{'x' * 4094}'", []) is None
    assert "at most 4096 characters" in refusal(f"'{'x' * 4095}'").message


@pytest.mark.parametrize(
    "source",
    [
        '["aaaa"]' + ".map(y, y + y)" * 40,
        "[1]" + ".map(y, [y, y])" * 22,
        "[[1, 2]]" + ".map(y, y + y)" * 22,
        "input.big.map(x, input.big)",
        "input.big.filter(x, input.big == input.big)",
        "input.big.map(x, to_json(input.big))",
        "input.big.filter(x, x in [1] + input.big)",
        "input.big.map(x, 'aaaaaaaaaaaaaaaa' + input.text)",
        "input.big.filter(x, string(x).matches(string(x) + 'a{500}'))",
        "flatten(input.big.map(x, input.big))",
        "[" + ",".join(["input.big"] * 400) + "]",
        "input.text" + ".replace('a', 'aaaaaaaaaaaaaaaaaaaa')" * 8,
    ],
    ids=lambda source: source[:40],
)
def test_an_expression_that_does_too_much_work_is_stopped(source: str) -> None:
    scope = {"input": {"big": list(range(5_000)), "text": "a" * 5_000}}
    with pytest.raises(ExpressionError, match=r"too much work|nested more than"):
        expressions.evaluate(source, scope)


def test_running_out_of_budget_cannot_be_absorbed() -> None:
    scope = {"input": {"big": list(range(5_000))}}
    with pytest.raises(ExpressionError, match="too much work"):
        expressions.evaluate("input.big.exists(x, x in input.big && false) || true", scope)


def test_a_loop_goes_over_at_most_ten_thousand_items() -> None:
    assert len(expressions.evaluate("i.map(x, x)", {"i": list(range(10_000))})) == 10_000
    with pytest.raises(ExpressionError, match="at most 10000 items"):
        expressions.evaluate("i.map(x, x)", {"i": list(range(10_001))})


def test_data_beyond_the_payload_limits_is_a_fault() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    for source in ("i == j", "to_json(i)", "[i]"):
        with pytest.raises(ExpressionError):
            expressions.evaluate(source, {"i": deep, "j": [deep[0]]})
    with pytest.raises(ExpressionError):
        expressions.evaluate("i * 1.5", {"i": 10**400})


def test_evaluating_changes_nothing_in_the_scope() -> None:
    before = json.dumps(SCOPE)
    value("merge(input, {'a': 1})")
    value("input.tags + ['x']")
    value("reverse(input.tags)")
    assert json.dumps(SCOPE) == before


def test_a_mapping_makes_nested_maps_of_dotted_targets() -> None:
    mapping = {"a.b": "input.count", "a.c": "state.n", "d": "'x'"}
    assert expressions.evaluate_mapping(mapping, SCOPE) == {"a": {"b": 3, "c": 1}, "d": "x"}


def test_assigning_copies_only_the_way_to_the_target() -> None:
    context = {"state": {"a": {"b": 1}, "kept": {"x": 1}}, "output": {}}
    changed = expressions.assign(context, "state.a.c", 2)
    assert changed == {"state": {"a": {"b": 1, "c": 2}, "kept": {"x": 1}}, "output": {}}
    assert context == {"state": {"a": {"b": 1}, "kept": {"x": 1}}, "output": {}}
    assert changed["state"]["kept"] is context["state"]["kept"]
    assert expressions.assign({"state": {"a": 1}}, "state.a.b", 2) == {"state": {"a": {"b": 2}}}


def test_the_time_comes_from_the_scope() -> None:
    scope = {NOW: 1_700_000_000_007, "input": {"all": [1, 2]}}
    assert evaluate("now()", scope) == "2023-11-14T22:13:20.007Z"
    assert evaluate("input.all.map(x, now())", scope) == ["2023-11-14T22:13:20.007Z"] * 2
    assert evaluate("now() < '2024' && startsWith(now(), '2023')", scope) is True


def test_an_expression_outside_of_a_workflow_has_no_time() -> None:
    assert check("now()", ("input", NOW)) is None
    fault = check("input.a + now()", ("input",))
    assert fault is not None and "only in workflows" in fault.message
    with pytest.raises(ExpressionError, match="only in workflows"):
        evaluate("now()", {"input": {}})
    assert check("now(1)", ("input", NOW)) is not None
    assert check("now", ("input", NOW)) is not None
