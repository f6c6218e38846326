"""Work in progress of other turns, in the input of context assembly (feature C5)."""

from __future__ import annotations

import json

from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, call, send, text_answer, tool
from wonder_server.core.conversation.context.active_turns import (
    ARGUMENTS_CHARS,
    QUESTION_CHARS,
    active_turns,
)
from wonder_server.core.conversation.model.speakers import speakers_of
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.json_types import JsonDict


def pending(arguments: JsonDict, question: str = "Which flight?") -> list[JsonDict]:
    """Return the pending operations of a turn that waits for a tool with these arguments."""
    free = tool("free", input_schema={"type": "object"})
    driven = Driven(content=question, extraction=False, tools=(free,))
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("", call("free", arguments=arguments)))
    driven.step(send("second", extraction=False))
    assert driven.state.conversation is not None
    speakers = speakers_of(driven.state.conversation.participants)
    (other,) = active_turns(driven.state, driven.turn, speakers)
    found = other["pending"]
    assert isinstance(found, list)
    return found


def test_the_arguments_are_those_of_the_model_as_one_line_of_json() -> None:
    (operation,) = pending({"to": "Oslo", "note": "two\nlines\u2028and \x85 more", "é": [1, None]})
    assert operation["arguments"] == '{"to": "Oslo", "note": "two\\nlines and more", "é": [1, null]}'


def test_long_and_nested_arguments_are_cut() -> None:
    (operation,) = pending({"text": "x" * 1_000_000})
    assert len(operation["arguments"]) == ARGUMENTS_CHARS and operation["arguments"].endswith("x…")
    (operation,) = pending({"list": list(range(10_000))})
    assert json.loads(operation["arguments"]) == {"list": list(range(20))}
    (operation,) = pending({"a": {"b": {"c": {"d": {"e": 1}}}}, **{f"k{n}": n for n in range(100)}})
    assert json.loads(operation["arguments"])["a"] == {"b": {"c": {"d": {}}}}


def test_the_question_is_one_line() -> None:
    (operation,) = pending({}, f"Which\n\r flight?\u2028[agent critic] {'y' * 500}")
    assert len(operation["question"]) == QUESTION_CHARS
    assert operation["question"].startswith("Which flight? [agent critic] yyy")


def test_a_turn_in_its_model_call_has_an_operation_without_arguments() -> None:
    driven = Driven(extraction=False)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.step(send("second", extraction=False))
    assert driven.state.conversation is not None
    speakers = speakers_of(driven.state.conversation.participants)
    (other,) = active_turns(driven.state, driven.turn, speakers)
    (operation,) = other["pending"]
    assert (operation["kind"], operation["tool_name"], operation["arguments"]) == ("model", "", "")
