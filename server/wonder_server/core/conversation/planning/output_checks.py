"""Checks of final answers against the output schema of their turn, and the decision about a repair.

The schema binds the final answer only: the answer without tool calls after which nothing is pending. An
invalid answer is repaired once, by one more model call without tools. A turn whose second answer is invalid
too, or whose limits allow no second call, fails with OUTPUT_INVALID.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, NoReturn

from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.conversation.planning import limits
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult
from wonder_server.core.schema import payloads
from wonder_server.core.schema.json_nesting import check_nesting
from wonder_server.core.schema.schemas import validate
from wonder_server.core.schema.truncation import utf8_prefix, utf8_size

MAX_OUTPUT_BYTES: Final = 256 * 1024
"""An output is stored with the turn, in its end event and in the answer to its caller."""

_MAX_SHOWN_CHARACTERS: Final = 60
_MAX_PROBLEM_BYTES: Final = 2_000
_FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class Output:
    """A checked answer: ``value`` if it is valid, else its ``problems``, one sentence each."""

    value: JsonDict | None = None
    problems: tuple[str, ...] = ()


def read_output(schema: JsonDict, event: ModelAnswered) -> Output:
    """Return the value in a final answer of a turn, or its problems."""
    return read_answer(schema, event.result, event.full_result)


def read_answer(schema: JsonDict, result: ModelResult, full_result: ModelResult | None = None) -> Output:
    """Return the value in a model's answer, or its problems. ``full_result`` is the uncut answer, if it was
    cut.
    """
    uncut = full_result or result
    size = utf8_size(uncut.text)
    if result.tool_calls:
        return _invalid("The answer calls a tool instead of giving the JSON object.")
    if result.stop_reason == "length":
        return _invalid("The answer was cut off, since it is too long. Give a shorter one.")
    if size > MAX_OUTPUT_BYTES:
        return _invalid(
            f"The answer has {size} bytes; the maximum is {MAX_OUTPUT_BYTES}. Give a shorter one."
        )
    text = _unfenced(uncut.text)
    if not text:
        return _invalid("The answer is empty.")
    try:
        check_nesting(text)
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        # The decoder's own message differs between versions of Python, and decisions must not.
        shown = text[:_MAX_SHOWN_CHARACTERS]
        return _invalid(f"The answer is not one valid JSON object. It begins with {json.dumps(shown)}.")
    fault = payloads.check(value, field="output", max_bytes=MAX_OUTPUT_BYTES)
    if fault is not None:
        return _invalid(f"{fault.field}: {fault.message}")
    problems = validate(schema, value, name="output")
    return Output(value) if not problems else Output(problems=tuple(problems))


def may_repair(state: ConversationState, turn: Turn, agent: PinnedAgent, body: JsonDict, now: int) -> bool:
    """Return True if the invalid answer is the turn's first and its limits allow the call with ``body``.

    ``turn`` counts the invalid answer.
    """
    request, most = state.requests[turn.id], agent.persona.constraints.max_moves_per_turn
    if request.repair or request.wrap_up is not None or (most and turn.moves >= most):
        return False
    return limits.allows_call(state, turn, agent, body, now)


def output_fault(problems: tuple[str, ...], *, repaired: bool) -> Fault:
    """Return the fault of a turn without a valid answer."""
    again = "after one repair" if repaired else "and the limits of the turn allow no repair"
    shown = utf8_prefix(" ".join(problems), _MAX_PROBLEM_BYTES)
    return Fault(
        reason=Reason.OUTPUT_INVALID,
        message=f"The model's answer does not satisfy the output schema, {again}. {problems[0]}",
        metadata={"problems": shown, "attempts": "2" if repaired else "1"},
    )


def _invalid(problem: str) -> Output:
    return Output(problems=(problem,))


def _unfenced(text: str) -> str:
    """Return the text without white space around it, and without a code fence around all of it."""
    text = text.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)) or "\n" not in text:
        return text
    return text.partition("\n")[2].removesuffix(_FENCE).strip()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def output_text(output: JsonValue) -> str:
    """Return the output of a turn as text."""
    if output is None or isinstance(output, str):
        return output or ""
    return json.dumps(output, ensure_ascii=False)
