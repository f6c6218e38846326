"""Parser from tokens to a syntax tree. It enforces the limits of the tree.

The tree is limited in depth and not only in size, since everything that walks it recurses. Chains that read
as one operation (``a.b.c``, ``1 + 2 + 3``, ``p && q && r``) are one node with many parts. Only brackets,
calls, signs and ``?:`` add depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from wonder_server.core.expressions.faults import SyntaxFault
from wonder_server.core.expressions.tokens import MAX_INT, Token, scan

MAX_LENGTH = 4096
MAX_DEPTH = 24
MAX_MACRO_NESTING = 1

MACROS = {"all": (2,), "exists": (2,), "exists_one": (2,), "filter": (2,), "map": (2, 3)}
TYPE_NAMES = frozenset({"int", "double", "string", "bool", "list", "map", "null_type"})
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"}
    | {"package", "namespace", "return", "var", "void", "while"}
)
_OTHERWISE = {"and": "&&", "or": "||", "is": "==", "mod": "%"}
"""Operators of other languages, with those of CEL."""

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of an expression. ``at`` is its offset, ``depth`` and ``weight`` are those of its subtree."""

    at: int
    depth: int = 1
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Node):
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Path(Node):
    """``target.a.b``; with ``probe`` it is ``has(target.a.b)``."""

    target: Node
    fields: tuple[str, ...]
    probe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Node):
    target: Node
    key: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """``f(x, y)``, or ``x.f(y)``, which is the same call."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro(Node):
    """``target.map(variable, body)`` and similar; ``condition`` only in the long form of ``map``."""

    macro: str
    target: Node
    variable: str
    body: Node
    condition: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf(Node):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf(Node):
    entries: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign(Node):
    """``!operand`` or ``-operand``."""

    sign: str
    operand: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic(Node):
    """``p && q && …`` or ``p || q || …``."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Node):
    """``first + a - b …``: operators of one level, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Node):
    """``condition ? then : otherwise``."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Syntax:
    """A parsed expression: its tree, the offset of each free variable's first use, and its calls."""

    tree: Node
    roots: dict[str, int]
    calls: tuple[Call, ...]


def parse(source: str) -> Syntax:
    """Return the syntax of an expression. Raises `SyntaxFault`."""
    if len(source) > MAX_LENGTH:
        raise SyntaxFault(
            f"an expression may have at most {MAX_LENGTH} characters, this has {len(source)}", 0
        )
    parser = _Parser(tuple(scan(source)))
    tree = parser.expression()
    parser.expect_end()
    return Syntax(tree, parser.roots, tuple(parser.calls))


class _Parser:
    """Recursive descent; one method per level of the grammar."""

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self._tokens = tokens
        self._next = 0
        self._nesting = 0
        self._bound: list[str] = []
        self.roots: dict[str, int] = {}
        self.calls: list[Call] = []

    # --- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _sees(self, *operators: str) -> bool:
        token = self._token
        return token.kind == "op" and token.text in operators

    def _take(self) -> Token:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _accept(self, operator: str) -> bool:
        found = self._sees(operator)
        self._next += found
        return found

    def _expect(self, operator: str) -> Token:
        if not self._sees(operator):
            self._unexpected(f"'{operator}'")
        return self._take()

    def _unexpected(self, wanted: str) -> NoReturn:
        found = self._token.text if self._token.kind == "end" else f"'{self._token.text}'"
        meant = _OTHERWISE.get(self._token.text.lower(), "") if self._token.kind == "name" else ""
        hint = f" (did you mean '{meant}'?)" if meant else ""
        raise SyntaxFault(f"expected {wanted}, found {found}{hint}", self._token.at)

    def expect_end(self) -> None:
        """Raise `SyntaxFault` if anything follows the expression."""
        if self._token.kind != "end":
            self._unexpected("the end of the expression")

    # --- the bounds

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            self._too_deep(self._token.at)

    def _too_deep(self, at: int) -> NoReturn:
        raise SyntaxFault(f"the expression is nested more than {MAX_DEPTH} levels deep", at)

    def _size(self, at: int, *children: Node) -> tuple[int, int]:
        depth = 1 + max((child.depth for child in children), default=0)
        if depth > MAX_DEPTH:
            self._too_deep(at)
        return depth, 1 + sum(child.weight for child in children)

    # --- the grammar

    def expression(self) -> Node:
        """Parse ``condition ? then : otherwise``, or only the condition."""
        self._enter()
        condition = self._operators(0)
        if self._sees("?"):
            at = self._take().at
            then = self._operators(0)
            self._expect(":")
            otherwise = self.expression()
            depth, weight = self._size(at, condition, then, otherwise)
            condition = Choice(
                at=at, depth=depth, weight=weight, condition=condition, then=then, otherwise=otherwise
            )
        self._nesting -= 1
        return condition

    def _operators(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._signed()
        first = self._operators(level + 1)
        if not self._sees(*_LEVELS[level]):
            return first
        rest: list[tuple[str, Node, int]] = []
        while self._sees(*_LEVELS[level]):
            operator = self._take()
            rest.append((operator.text, self._operators(level + 1), operator.at))
        operands = (first, *(operand for _, operand, _ in rest))
        at = rest[0][2]
        depth, weight = self._size(at, *operands)
        if level < 2:
            return Logic(at=at, depth=depth, weight=weight, operator=rest[0][0], operands=operands)
        return Chain(at=at, depth=depth, weight=weight, first=first, rest=tuple(rest))

    def _signed(self) -> Node:
        signs: list[Token] = []
        while self._sees("!", "-"):
            signs.append(self._take())
            if len(signs) > MAX_DEPTH:
                self._too_deep(signs[-1].at)
        token = self._token
        if type(token.value) in (int, float) and signs and signs[-1].text == "-":
            assert isinstance(token.value, (int, float))
            operand = self._selections(Constant(at=signs.pop().at, value=-token.value), skip=1)
        else:
            if type(token.value) is int and token.value > MAX_INT:
                raise SyntaxFault("this integer does not fit into 64 bits", token.at)
            operand = self._selections(None)
        for sign in reversed(signs):
            depth, weight = self._size(sign.at, operand)
            operand = Sign(at=sign.at, depth=depth, weight=weight, sign=sign.text, operand=operand)
        return operand

    def _selections(self, primary: Node | None, skip: int = 0) -> Node:
        """Parse a primary and its selections: ``.field``, ``.method(…)``, ``[index]``."""
        self._next += skip
        node = primary if primary is not None else self._primary()
        while True:
            if self._sees("["):
                at = self._take().at
                key = self.expression()
                self._expect("]")
                depth, weight = self._size(at, node, key)
                node = Index(at=at, depth=depth, weight=weight, target=node, key=key)
            elif self._accept("."):
                node = self._member(node)
            else:
                return node

    def _member(self, target: Node) -> Node:
        if self._token.kind != "name":
            self._unexpected("a name after the dot")
        name = self._take()
        if self._sees("("):
            return self._macro(target, name) if name.text in MACROS else self._call(name, target)
        if isinstance(target, Path) and not target.probe:
            fields = (*target.fields, name.text)
            target = target.target
        else:
            fields = (name.text,)
        depth, weight = self._size(name.at, target)
        return Path(at=name.at, depth=depth, weight=weight + len(fields), target=target, fields=fields)

    def _primary(self) -> Node:
        if not (self._token.kind in ("literal", "name") or self._sees("(", "[", "{")):
            self._unexpected("a value")
        token = self._take()
        if token.kind == "literal":
            return Constant(at=token.at, value=token.value)
        if token.kind == "name":
            return self._named(token)
        if token.text == "(":
            inner = self.expression()
            self._expect(")")
            return inner
        if token.text == "[":
            items = self._list("]")
            depth, weight = self._size(token.at, *items)
            return ListOf(at=token.at, depth=depth, weight=weight, items=tuple(items))
        return self._map(token)

    def _named(self, token: Token) -> Node:
        if token.text in _RESERVED:
            raise SyntaxFault(f"'{token.text}' is a reserved word", token.at)
        if self._sees("("):
            return self._has(token) if token.text == "has" else self._call(token, None)
        if token.text not in self._bound:
            self.roots.setdefault(token.text, token.at)
        return Name(at=token.at, name=token.text)

    def _list(self, closing: str) -> list[Node]:
        items: list[Node] = []
        while not self._sees(closing):
            items.append(self.expression())
            if not self._accept(","):
                break
        self._expect(closing)
        return items

    def _map(self, opening: Token) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._sees("}"):
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
            if not self._accept(","):
                break
        self._expect("}")
        depth, weight = self._size(opening.at, *(part for entry in entries for part in entry))
        return MapOf(at=opening.at, depth=depth, weight=weight, entries=tuple(entries))

    def _call(self, name: Token, receiver: Node | None) -> Node:
        self._expect("(")
        arguments: Sequence[Node] = self._list(")")
        if receiver is not None:
            arguments = (receiver, *arguments)
        depth, weight = self._size(name.at, *arguments)
        call = Call(at=name.at, depth=depth, weight=weight, function=name.text, arguments=tuple(arguments))
        self.calls.append(call)
        return call

    def _has(self, name: Token) -> Node:
        self._expect("(")
        path = self.expression()
        self._expect(")")
        if not isinstance(path, Path) or path.probe:
            raise SyntaxFault("has() takes a member, as in has(input.name)", name.at)
        return Path(
            at=path.at, depth=path.depth, weight=path.weight,
            target=path.target, fields=path.fields, probe=True,
        )  # fmt: skip

    def _macro(self, target: Node, name: Token) -> Node:
        if len(self._bound) >= MAX_MACRO_NESTING:
            raise SyntaxFault(
                f"{name.text}() may not stand inside another all, exists, filter or map: flatten the lists "
                "first, or write the inner list to state in a step before this one",
                name.at,
            )
        self._expect("(")
        variable = self._take()
        if variable.kind != "name" or not self._sees(","):
            raise SyntaxFault(
                f"{name.text}() takes a plain name first, as in items.{name.text}(item, …)", variable.at
            )
        self._take()
        self._bound.append(variable.text)
        bodies = self._list(")")
        self._bound.pop()
        if len(bodies) + 1 not in MACROS[name.text]:
            raise SyntaxFault(f"{name.text}() takes a name and one expression", name.at)
        depth, weight = self._size(name.at, target, *bodies)
        return Macro(
            at=name.at, depth=depth, weight=weight, macro=name.text, target=target,
            variable=variable.text, body=bodies[-1], condition=bodies[0] if len(bodies) == 2 else None,
        )  # fmt: skip
