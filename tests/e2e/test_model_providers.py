"""Turns with the scripted provider in each provider's format, natively and through LiteLLM."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client
from tests.e2e.process import Server
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEA = Call(name="remember", arguments=json.dumps({"fact": "The user likes tea, not coffee ☕."}))
RECALL = Call(name="recall", arguments='{"query": "tea"}')
COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED


@pytest.fixture(params=PROVIDERS)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


async def test_text(scripted: Scripted) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(Script(text="Grüße from a script.")))
    turn, view = await client.turn(conv, "Hello?")
    assert turn.status == COMPLETED and view.text() == "Grüße from a script.", turn.error
    assert "".join(w.delta.text for w in view.words if w.HasField("delta")) == "Grüße from a script."
    assert turn.usage.input_tokens > 0 and turn.usage.output_tokens > 0
    (move,) = await client.moves(turn.id, conv)
    assert move.model == scripted.model and move.stop_reason == conversation.STOP_REASON_END
    (request,) = scripted.requests
    assert "You are played by a script." in json.dumps(request)
    assert request.get("stream", False) is (scripted.speaks != "gemini")  # Whose address says so.


async def test_a_tool_call_and_then_the_next_turn_remembers_it(scripted: Scripted) -> None:
    client = scripted.client
    scripts = Script(text="Let me keep that.", calls=(TEA,)), Script(text="Kept."), Script(text="Tea.")
    agent = await scripted.agent(*scripts)
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "I like tea, not coffee.")
    assert turn.status == COMPLETED and turn.move_count == 2
    assert view.of_turn(turn.id) == [
        "conversation_turn", "message.appended", "context_assembly.completed",
        "move.recorded", "message.appended", "tool.dispatched", "tool.completed", "move.recorded",
        "move.recorded", "message.appended", "turn.completed",
    ]  # fmt: skip
    assert await client.memories(agent) == ["The user likes tea, not coffee ☕."]
    first, second = await client.moves(turn.id, conv)
    assert first.reasoning == "Let me keep that." and first.tool_results[0].success
    assert second.reasoning == "Kept."
    assert "The user likes tea" in json.dumps(scripted.requests[1], ensure_ascii=False)
    # Another conversation: the memory is in the request.
    other = await client.open(agent)
    _, view = await client.turn(other, "Tea or coffee?")
    assert view.text() == "Tea."
    assert "Memories:" in json.dumps(scripted.requests[2])


async def test_what_is_said_before_a_tool_call_stands_as_a_message(scripted: Scripted) -> None:
    client = scripted.client
    scripts = Script(text="One moment.", calls=(RECALL,)), Script(text="No.")
    conv = await client.open(await scripted.agent(*scripts))
    turn, _ = await client.turn(conv, "Tea?")
    first, _ = await client.moves(turn.id, conv)
    messages = {m.id: m.content for m in await client.messages(conv)}
    assert messages.get(first.message_id) == "One moment."
    assert list(messages.values()) == ["Tea?", "One moment.", "No."]


async def test_calls_in_parallel_come_back_each_to_its_own(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(Script(calls=(TEA, RECALL, RECALL)), Script(text="Done."))
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "All at once.")
    assert turn.status == COMPLETED and view.text() == "Done."
    assert view.names.count("tool.dispatched") == view.names.count("tool.completed") == 3
    (first, _) = await client.moves(turn.id, conv)
    assert {r.tool_call_id for r in first.tool_results} == {c.id for c in first.tool_calls}
    assert len({c.id for c in first.tool_calls}) == 3
    assert results(scripted) == 3


def results(scripted: Scripted) -> int:
    """Return the number of tool results in the newest request."""
    word = {"openai": '"role": "tool"', "responses": '"function_call_output"', "gemini": '"functionResponse"'}
    return json.dumps(scripted.requests[-1]).count(word.get(scripted.speaks, '"tool_result"'))


async def test_bad_arguments_go_back_to_the_model_and_never_to_the_tool(scripted: Scripted) -> None:
    client = scripted.client
    wrong = Call(name="remember", arguments='{"wrong": 1}')
    malformed = Call(name="remember", arguments='{"fact": "Par')
    unknown = Call(name="launch_rockets", arguments="{}")
    agent = await scripted.agent(
        Script(calls=(wrong,)), Script(calls=(malformed,)), Script(calls=(unknown,)), Script(calls=(TEA,)),
        Script(text="At last."),
    )  # fmt: skip
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Try.")
    assert turn.status == COMPLETED and turn.issues.tool_failures == 3 and view.text() == "At last."
    assert view.names.count("tool.failed") == 3 and view.names.count("tool.dispatched") == 1
    moves = await client.moves(turn.id, conv)
    codes = [move.tool_results[0].error.code for move in moves[:3]]
    assert codes == [
        conversation.TOOL_ERROR_CODE_INVALID_INPUT,
        conversation.TOOL_ERROR_CODE_INVALID_INPUT,
        conversation.TOOL_ERROR_CODE_NOT_FOUND,
    ]
    # Gemini's arguments are objects: what is not whole never arrives as text.
    malformed_input = "{" if scripted.speaks == "gemini" else '{"fact": "Par'
    assert moves[1].tool_calls[0].malformed_input == malformed_input
    for number, code in ((1, "INVALID_INPUT"), (2, "INVALID_INPUT"), (3, "NOT_FOUND")):
        assert code in json.dumps(scripted.requests[number])
    assert await client.memories(agent) == ["The user likes tea, not coffee ☕."]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_provider_that_is_busy_once_is_asked_again_unseen(scripted: Scripted, status: int) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(Script(status=status), Script(text="Now.")))
    turn, view = await client.turn(conv, "Please.")
    assert turn.status == COMPLETED and view.text() == "Now." and len(scripted.requests) == 2
    assert "turn.failed" not in view.names and not turn.HasField("error")


async def test_three_failures_fail_the_turn(scripted: Scripted) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(Script(status=500)))
    turn, view = await client.turn(conv, "Please.")
    assert turn.status == FAILED and turn.error.reason == errors_pb2.ERROR_REASON_MODEL_UNAVAILABLE
    assert len(scripted.requests) == 3
    assert view.names[-1] == "turn.failed" and view.events[-1].turn_failed.error == turn.error
    # The conversation lives on.
    scripted.provider.script(scripted.model, Script(text="Back."))
    turn, view = await client.turn(conv, "And now?")
    assert turn.status == COMPLETED


async def test_a_refused_key_fails_at_once_and_is_shown_nowhere(scripted: Scripted, server: Server) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(Script(status=401, error=f"Incorrect API key: {KEY}")))
    turn, view = await client.turn(conv, "Please.")
    assert turn.status == FAILED and turn.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED
    assert len(scripted.requests) == 1
    seen = "".join(str(word) for word in view.words)
    assert KEY not in seen + str(turn) + str(await client.moves(turn.id, conv)) + str(server.log)
    assert "Error" not in turn.error.message.replace("Incorrect", "") or "litellm" not in seen


@pytest.mark.parametrize(
    ("stall", "times"),
    [("first_token", {"first_token_timeout_ms": 150}), ("chunks", {"chunk_timeout_ms": 150})],
)
async def test_a_stall_is_noticed_closed_and_tried_again(
    scripted: Scripted, stall: str, times: dict[str, int]
) -> None:
    client = scripted.client
    stalling = Script(text="one two three four", stall=stall)
    # The first call also starts the helper, whose import takes seconds; those are not the model's.
    conv = await client.open(await scripted.agent(stalling, Script(text="whole"), **times))
    turn, view = await client.turn(conv, "Please.")
    assert turn.status == COMPLETED and view.text() == "whole"
    async with asyncio.timeout(60):
        await scripted.until_closed_early()
    if stall == "chunks":
        assert list(view.restarts.values()) == [[2]]
        message_id = next(iter(view.restarts))
        assert view.messages[message_id].content == "whole"


async def test_a_stall_to_the_end_fails_the_turn_with_timeout(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(Script(stall="headers"), first_token_timeout_ms=100, max_attempts=1)
    turn, _ = await client.turn(await client.open(agent), "Please.")
    assert turn.status == FAILED and turn.error.reason == errors_pb2.ERROR_REASON_TIMEOUT


@pytest.mark.parametrize("how", ["abort", "eof"])
async def test_an_answer_that_breaks_off_begins_again_and_says_so(scripted: Scripted, how: str) -> None:
    client = scripted.client
    broken = Script(text="one two three four", break_off=how)
    conv = await client.open(await scripted.agent(broken, Script(text="five six seven")))
    turn, view = await client.turn(conv, "Please.")
    assert turn.status == COMPLETED and view.text() == "five six seven"
    assert list(view.restarts.values()) == [[2]]
    kinds = [w.WhichOneof("item") for w in view.words]
    assert kinds.index("message_restarted") > kinds.index("delta")


async def test_the_model_learns_the_move_limit_before_it_is_enforced(scripted: Scripted) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(Script(calls=(RECALL,)), moves=3))
    turn, view = await client.turn(conv, "Search for ever.")
    assert turn.status == FAILED and turn.error.reason == errors_pb2.ERROR_REASON_MAX_MOVES_REACHED
    limits = [e.limit_reached for e in view.events if e.name == "limit.reached"]
    assert [limit.enforced for limit in limits] == [False, True]
    assert len(scripted.requests) == 3 and turn.move_count == 3
    assert "limit of moves" in json.dumps(scripted.requests[2])


OWN = """
name: plain
description: An assembly of one's own that leaves the provider's format to the platform.
workflow:
  nodes:
    - id: write
      workflow_id: wonder/std/to_provider_format
      input_mapping:
        system: '"You are brief."'
        messages: '[{"role": "user", "content": input.user_message}]'
        tools: '[]'
        model_profile: input.model_profile
      output_mapping: {output.request: result.request}
"""


async def test_an_assembly_of_ones_own_takes_the_format_from_the_standard_library(scripted: Scripted) -> None:
    client = scripted.client
    await client.apply("e2e/own_assembly", OWN)
    agent = await scripted.agent(Script(echo=True), assembly="e2e/own_assembly/plain")
    turn, view = await client.turn(await client.open(agent), "Grüße!")
    assert turn.status == COMPLETED and view.text() == "You said: Grüße!"
    assert "You are brief." in json.dumps(scripted.requests[0])


async def test_the_offline_model_wraps_up_at_the_limit(client: Client) -> None:
    conv = await client.open()
    turn, view = await client.turn(conv, "keep using the tool recall with tea")
    assert turn.status == COMPLETED and turn.move_count == 20
    assert [e.limit_reached.enforced for e in view.events if e.name == "limit.reached"] == [False]
    for conversation_id in (conv, ""):
        moves = await client.moves(turn.id, conversation_id)
        assert [move.sequence for move in moves] == list(range(1, 21))
