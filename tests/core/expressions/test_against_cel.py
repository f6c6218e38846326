"""Expressions mean what CEL means: each is put to another implementation as well, and both must agree.

Where ours is more generous on purpose (int beside double) or the other deviates from the specification
(it counts a text's bytes), an expression is not listed.
"""

from __future__ import annotations

import cel  # type: ignore[import-untyped, unused-ignore]
import pytest

from wonder_server.core import expressions
from wonder_server.core.json_types import JsonDict

X: JsonDict = {
    "a": 1,
    "b": {"c": 2.5, "d": None, "e": True},
    "l": [1, 2.5, "x", None, True],
    "n": [3, 1, 2],
    "s": "Hello, World",
    "empty": "",
    "class": "reserved words are fine as members",
}
VALUES = """
x.a
x.b.c
x.b.d
x.class
x["a"]
x["b"]["c"]
x.l[0]
x . a
x.a + 1
x.a - 5 * 2
7 / 2
-7 / 2
7 % 3
-7 % 3
7 % -3
7.0 / 2.0
2 + 3 * 4 - 1
(2 + 3) * 4
- x.a
--1
-9223372036854775808
0x1F
1.5e3
.5
x.a == 1.0
1 == 1.0
1 == true
null == false
x.b == {"c": 2.5, "d": null, "e": true}
x.l == [1, 2.5, "x", null, true]
[1, [2]] == [1.0, [2.0]]
"a" != "b"
1 < 2
1 < 1.5
1.5 >= 1
"a" < "b"
"B" < "a"
false < true
1 in x.n
9 in x.n
1.0 in x.n
"a" in x
"zz" in x
!x.b.e
!!true
x.b.e && x.a == 1
x.zz || true
false && x.zz
x.zz == 1 && false
true || x.zz
x.b.e ? 1 : 2
false ? 1 : true ? 2 : 3
has(x.a)
has(x.zz)
has(x.b.d)
[1, 2] + [3]
"a" + "b"
[1, "a", null, {"k": [1]}]
{"a": {"b": [1]}}
{"a": 1}.a
[[1]][0][0]
size(x.l)
x.l.size()
x.s.size()
size({"a": 1})
x.s.contains("World")
x.s.startsWith("Hell")
x.s.endsWith("World")
x.s.matches("^Hel+o")
x.empty.matches("")
string(1)
string(2.5)
string(1.0)
string("a")
int("12")
int(2.9)
int(-2.9)
double(3)
double("2.5")
type(1) == int
type("a") == string
type([]) == list
type({}) == map
type(1.5) == double
type(true) == bool
x.n.map(i, i * 2)
x.n.map(i, i > 1, i * 2)
x.n.filter(i, i > 1)
x.n.all(i, i > 0)
x.n.all(i, i > 1)
x.n.exists(i, i > 2)
x.n.exists(i, i > 5)
x.n.exists_one(i, i > 2)
x.n.exists_one(i, i > 1)
[].all(i, false)
[].exists(i, true)
x.n.map(x, x)
x.l.exists(i, i == "x")
x.l.exists(i, i > 2)
x.n.map(i, {"v": i})
x.n.map(i, i).filter(j, j != 3).map(k, k + 1)
{"a": 1, "b": 2}.all(k, k in ["a", "b"])
"tab\\t \\"quote\\" \\u00e9 \\x41 \\101"
r"raw\\d"
'single'
"" + 'it is "so"'
[1, 2,]
1 // comment
"""

FAULTS = """
x.zz
x.a.b
x.b.zz.c
has(x.zz.a)
x.l[9]
x.l[-1]
x.l["a"]
x["zz"]
1 / 0
1 % 0
9223372036854775807 + 1
-9223372036854775808 - 1
9223372036854775807 * 2
"a" + 1
"a" - "b"
1 < "a"
null < 1
-"a"
!1
1 && true
x.a ? 1 : 2
x.zz && true
x.zz || false
1 in 2
size(1)
int("a")
int("1.5")
double("a")
x.a.map(i, i)
x.n.filter(i, i)
x.n.all(i, i)
x.l.map(i, i + 1)
y
"""

REFUSED = """
1 +
(1
1 1
x.
x.in
if
[1
{1
{"a"}
'abc
has(x)
has(x[0])
x.map(1, 2)
x ? 1
1 = 1
&& true
9223372036854775808
1e999
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("source", lines(VALUES))
def test_both_give_the_same_value(source: str) -> None:
    assert expressions.check(source, ["x"]) is None
    ours, theirs = expressions.evaluate(source, {"x": X}), cel.compile(source).execute({"x": X})
    assert (ours, type(ours)) == (theirs, type(theirs))


@pytest.mark.parametrize("source", lines(FAULTS))
def test_both_fail(source: str) -> None:
    with pytest.raises(expressions.ExpressionError):
        expressions.evaluate(source, {"x": X})
    with pytest.raises(Exception):  # noqa: B017 - it raises whatever it likes
        cel.compile(source).execute({"x": X})


@pytest.mark.parametrize("source", lines(REFUSED))
def test_both_refuse_the_text(source: str) -> None:
    assert expressions.check(source, ["x"]) is not None
    with pytest.raises(ValueError):
        cel.compile(source)
