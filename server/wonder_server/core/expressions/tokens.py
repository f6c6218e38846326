"""Scanner of expressions (the lexis of the CEL specification, JSON's types only)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wonder_server.core.expressions.faults import SyntaxFault

Kind = Literal["name", "literal", "op", "end"]

_TOKEN = re.compile(
    r"""
    (?P<space>   (?: \s | //[^\n]* )+ )
  | (?P<number>  0[xX][0-9a-fA-F]+ | (?: \d+\.\d+ | \.\d+ | \d+ ) (?: [eE][+-]?\d+ )? )
  | (?P<raw>     [rR] (?: \"{3} (?s:.*?) \"{3} | '{3} (?s:.*?) '{3} | "[^"\n]*" | '[^'\n]*' ) )
  | (?P<string>  \"{3} (?s: [^\\] | \\. )*? \"{3} | '{3} (?s: [^\\] | \\. )*? '{3}
               | " (?: [^"\\\n] | \\. )* " | ' (?: [^'\\\n] | \\. )* ' )
  | (?P<name>    [A-Za-z_][A-Za-z0-9_]* )
  | (?P<op>      && | \|\| | [=!<>]= | [-+*/%<>!?:.,()\[\]{}] )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"} | {
    mark: mark for mark in "\\\"'`?"
}
_DOUBLED = {"=": "==", "&": "&&", "|": "||"}
_CONSTANTS = {"true": True, "false": False, "null": None}
MAX_INT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Token:
    """A token at an offset of the text. ``value`` is the value of a literal."""

    kind: Kind
    text: str
    at: int
    value: bool | int | float | str | None = None


def scan(source: str) -> Iterator[Token]:
    """Yield the tokens of an expression, then one of kind ``end``. Raises `SyntaxFault`."""
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            if source[at] in "\"'":
                raise SyntaxFault("this text has no closing quote", at)
            meant = f" (did you mean '{_DOUBLED[source[at]]}'?)" if source[at] in _DOUBLED else ""
            raise SyntaxFault(f"the character {source[at]!r} has no meaning here{meant}", at)
        if match.lastgroup != "space":
            yield _token(match, at)
        at = match.end()
    yield Token("end", "the end", at)


def _token(match: re.Match[str], at: int) -> Token:
    text = match[0]
    match match.lastgroup:
        case "number":
            return Token("literal", text, at, _number(match, at))
        case "raw":
            return Token("literal", text, at, _unquoted(text[1:]))
        case "string":
            return Token("literal", text, at, _unescaped(_unquoted(text), at))
        case "name" if text in _CONSTANTS:
            return Token("literal", text, at, _CONSTANTS[text])
        case "name" if text == "in":
            return Token("op", text, at)
        case "name":
            if text in ("b", "B", "br", "rb") and match.string[match.end() : match.end() + 1] in ('"', "'"):
                raise SyntaxFault("bytes are not supported: expressions work on JSON", at)
            return Token("name", text, at)
        case _:
            return Token("op", text, at)


def _number(match: re.Match[str], at: int) -> int | float:
    text = match[0]
    if match.string[match.end() : match.end() + 1] in ("u", "U"):
        raise SyntaxFault("unsigned integers are not supported: leave out the 'u'", at)
    if text[:2] in ("0x", "0X"):
        whole = int(text, 16)
    elif text.isdigit():
        # The length is checked first: converting thousands of digits to an int takes quadratic time.
        whole = int(text) if len(text) <= 30 else MAX_INT + 2
    else:
        real = float(text)
        if real in (float("inf"), float("-inf")):
            raise SyntaxFault(f"the number {text} is too large", at)
        return real
    # One more than the maximum is allowed, since `-9223372036854775808` is a minus and a number.
    if whole > MAX_INT + 1:
        raise SyntaxFault("this integer does not fit into 64 bits", at)
    return whole


def _unquoted(text: str) -> str:
    return text[3:-3] if len(text) >= 6 and text[:3] in ('"""', "'''") else text[1:-1]


def _unescaped(text: str, at: int) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if code in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[code]
        if len(code) == 1:
            raise SyntaxFault(f"unknown escape '\\{code}' in this text", at)
        point = int(code, 8) if code[0] in "0123" else int(code[1:], 16)
        if 0xD800 <= point <= 0xDFFF or point > 0x10FFFF:
            raise SyntaxFault(f"'\\{code}' is not a character", at)
        return chr(point)

    return _ESCAPE.sub(character, text) if "\\" in text else text
