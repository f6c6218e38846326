"""Tests of large tool results: the part that the model gets, and what is recorded."""

from __future__ import annotations

import json

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    TOOLS,
    Driven,
    agent,
    call,
    text_answer,
    tool,
)
from tests.replacing import replace
from wonder_server.core.conversation.context.dialects import (
    DIALECTS,
    dialect_of,
    result_text,
    whole_result_text,
)
from wonder_server.core.conversation.context.hook_inputs import extraction_input
from wonder_server.core.conversation.context.result_excerpts import excerpt_text, piece_of
from wonder_server.core.conversation.model.event_payloads import ResultExcerpt
from wonder_server.core.conversation.model.values import OperationKind, ToolResult
from wonder_server.core.conversation.planning.large_results import parse_result_id, result_id
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTool
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonValue

BOUND = 4096
READER = tool("read_on", action="history.read_result")


def bounded_agent(*tools: PinnedTool, **fields: object) -> PinnedAgent:
    return replace(agent(tools=(*TOOLS, *tools)), max_result_bytes=BOUND, **fields)


def after_call(
    pinned: PinnedAgent, output: JsonValue = None, *, name: str = "find", fault: Fault | None = None
) -> Driven:
    """Return a conversation whose only tool call has ended."""
    driven = Driven(agent=pinned)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("", call(name)))
    driven.complete(name, output, fault)
    return driven


def recorded(driven: Driven) -> ToolResult:
    result = driven.state.moves[driven.turn.id][0].invocations[0].result
    assert result is not None
    return result


def shown(driven: Driven) -> str:
    """Return the result in the newest request."""
    return str(driven.request()["messages"][-1]["content"])


def test_a_large_result_is_cut_for_the_model_and_recorded_whole() -> None:
    output = {"text": "\n".join(f"line {number}" for number in range(5_000))}
    driven = after_call(bounded_agent(READER), output)
    text, result = shown(driven), recorded(driven)
    assert len(text.encode()) <= BOUND
    assert text.startswith('{"text":"line 0\\n') and text.endswith('line 4999"}')
    whole = whole_result_text(result)
    assert result.result == output and json.loads(whole) == output
    assert f"of {len(whole)} are left out here" in text
    excerpt = result.excerpt
    assert excerpt is not None and excerpt.reader == "read_on"
    assert f"with the tool read_on: result_id {excerpt.result_id}, offset " in text
    move = driven.state.moves[driven.turn.id][0]
    assert parse_result_id(excerpt.result_id) == (move.id, 0)


def test_the_model_reads_the_rest_without_a_gap_from_the_offset_of_the_notice() -> None:
    driven = after_call(bounded_agent(READER), {"text": "äöü " * 4_000})
    whole, text = whole_result_text(recorded(driven)), shown(driven)
    head, rest = text.split("\n\n[Cut by the platform: bytes ")
    start = int(rest.split(" ")[0])
    assert piece_of(whole, 0, start).text == head
    read, position = head, start
    while position < len(whole.encode()):
        piece = piece_of(whole, position, 1000)
        read, position = read + piece.text, piece.end
    assert read == whole


def test_the_notice_names_no_tool_that_the_agent_lacks() -> None:
    driven = after_call(bounded_agent(), {"text": "x" * 10_000})
    excerpt = recorded(driven).excerpt
    assert excerpt is not None and excerpt.reader == ""
    assert "read_on" not in shown(driven) and "call the tool for a smaller part" in shown(driven)


def test_a_reader_whose_action_is_not_allowed_is_not_named() -> None:
    pinned = bounded_agent(READER)
    limits = replace(pinned.persona.constraints, allowed_actions=("context",))
    pinned = replace(pinned, persona=replace(pinned.persona, constraints=limits))
    excerpt = recorded(after_call(pinned, {"text": "x" * 10_000})).excerpt
    assert excerpt is not None and excerpt.reader == ""


@pytest.mark.parametrize("size", [0, 100, 600, 700, 4_000, BOUND - len('{"text":""}')])
def test_a_result_up_to_the_bound_stays_whole(size: int) -> None:
    driven = after_call(bounded_agent(READER), {"text": "x" * size})
    assert recorded(driven).excerpt is None
    assert json.loads(shown(driven)) == {"text": "x" * size}


def test_escapes_of_json_count() -> None:
    driven = after_call(bounded_agent(READER), {"text": "\x00" * 700})
    assert recorded(driven).excerpt is not None
    assert len(shown(driven).encode()) <= BOUND


def test_a_tool_sets_its_own_bound() -> None:
    generous = tool("generous", max_result_bytes=100_000)
    driven = after_call(bounded_agent(generous), {"text": "x" * 50_000}, name="generous")
    assert recorded(driven).excerpt is None
    strict = tool("strict", max_result_bytes=1_024)
    driven = after_call(bounded_agent(strict), {"text": "x" * 2_000}, name="strict")
    assert len(shown(driven)) <= 1_024


def test_a_turn_of_an_earlier_version_gets_every_result_whole() -> None:
    driven = after_call(agent(tools=(*TOOLS, READER)), {"text": "x" * 100_000})
    assert recorded(driven).excerpt is None
    assert json.loads(shown(driven)) == {"text": "x" * 100_000}


def test_a_long_error_is_cut_too() -> None:
    driven = after_call(bounded_agent(READER), fault=replace(BUSINESS, message="no " * 5_000))
    assert recorded(driven).excerpt is not None
    assert len(shown(driven).encode()) <= BOUND and '"code":"EXECUTION_FAILED"' in shown(driven)


def test_the_model_learns_that_a_result_above_the_limit_of_payloads_was_not_kept() -> None:
    fault = Fault(reason=Reason.PAYLOAD_TOO_LARGE, message="a payload may have at most 4194304 bytes")
    driven = after_call(bounded_agent(READER), fault=fault)
    message = json.loads(shown(driven))["error"]["message"]
    assert message == (
        "a payload may have at most 4194304 bytes. Its result is larger than this server takes, so nothing "
        "of it was kept. Ask for less at once."
    )
    driven = after_call(agent(), fault=fault)
    assert json.loads(shown(driven))["error"]["message"] == fault.message


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("success", [True, False])
def test_each_format_sends_the_excerpt(name: str, success: bool) -> None:
    excerpt = ResultExcerpt(max_bytes=2_000, result_id="move_1.0", reader="read_on")
    result = ToolResult(
        tool_call_id="c1", success=success, result="y" * 9_000, message="y" * 9_000, excerpt=excerpt
    )
    resumed = dialect_of(name).resume(
        {}, {"role": "assistant", "content": "", "parts": [], "output": []}, [result]
    )
    sent = json.dumps(resumed)
    assert sent.count("result_id move_1.0") == 1 and len(sent) < 2_400


def test_memory_extraction_gets_what_the_model_got() -> None:
    driven = after_call(bounded_agent(READER), {"text": "x" * 50_000})
    transcript = extraction_input(driven.state, driven.turn, bounded_agent(READER))["transcript"]
    assert transcript[0]["tool_results"][0]["result"] == result_text(recorded(driven))


def test_a_background_tool_reports_the_excerpt() -> None:
    driven = Driven(agent=bounded_agent(READER))
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("", call("slow")))
    driven.complete("slow", {"text": "x" * 50_000})
    driven.answer(text_answer("Wait."))
    notice = str(driven.request()["messages"][-1]["content"])
    assert "with the tool read_on" in notice and len(notice) < BOUND + 500


# --- texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["ä" * 5_000, "😀" * 3_000, "a😀b" * 2_000, "x" * 9_999])
@pytest.mark.parametrize("max_bytes", [1_024, 1_025, 1_026, 1_027, 2_048])
def test_an_excerpt_is_cut_between_characters(text: str, max_bytes: int) -> None:
    shortened = excerpt_text(text, ResultExcerpt(max_bytes=max_bytes, result_id="m.0", reader="r" * 64))
    assert len(shortened.encode()) <= max_bytes
    assert "\ufffd" not in shortened


@pytest.mark.parametrize("text", ["", "abc", "ä😀" * 10])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 1_000])
def test_pieces_of_any_length_join_to_the_text(text: str, length: int) -> None:
    read, position, size = "", 0, len(text.encode())
    while position < size:
        piece = piece_of(text, position, length)
        assert piece.start == position < piece.end and piece.size == size
        read, position = read + piece.text, piece.end
    assert read == text
    assert piece_of(text, size + 5, length).text == ""


def test_an_offset_inside_of_a_character_begins_with_it() -> None:
    assert piece_of("aä", 2, 5) == ("ä", 1, 3, 3)


@pytest.mark.parametrize(
    "text", ["", "move_1", "move_1.", ".0", "move_1.x", "move_1.²", "move_1.00001", "a.-1"]
)
def test_other_texts_are_no_result_ids(text: str) -> None:
    assert parse_result_id(text) is None
    assert parse_result_id(result_id("move_1", 12)) == ("move_1", 12)
