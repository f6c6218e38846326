"""Signed parts of an answer with a tool call come back to the provider byte for byte after kill -9: Gemini's
thought signatures, Anthropic's signed and redacted thinking, reasoning items of OpenAI's responses.

The server is killed between the call and the second request, and again during the second request.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.models.subjects import KEY
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_approval import LIBRARY, inbox, opened, resolve
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIGNATURE = "EqQBCgIYAhIkM+/=Zm9v\u2028ŁódźQ==" + "Ab9/+" * 400
"""Longer than a line, with characters that an encoder may write in another way."""
REDACTED = "gAAAAABn+/==" * 50
THOUGHT = 'First:  weigh "tea"\n\n\tand coffee — ½ each.\\u00e9 \U0001f375 '
ARGUMENTS = '{"text": "Łódź \\u00e9 1.0"}'
POST = "post_quick"
TOOLS = """
name: post_quick
description: Posts a text at once.
tool:
  target_type: task
  target_id: e2e/approval/echo
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
"""


def streamed(*events: dict[str, Any]) -> Script:
    """Return a stream with these events. Each has the name of its type, if it has one."""
    frames = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    pairs = zip(frames, events, strict=True)
    return Script(body="".join([f"{name}data: {json.dumps(event)}\n\n" for name, event in pairs]))


def anthropic() -> tuple[Script, list[dict[str, Any]]]:
    """Return the stream of an answer, and what the next request must have of it."""
    thinking = {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE}
    redacted = {"type": "redacted_thinking", "data": REDACTED}
    texts = {"type": "text", "text": "One moment."}
    calls = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": json.loads(ARGUMENTS)}
        for n, name in enumerate((POST, "post"))
    ]
    deltas: list[list[dict[str, Any]]] = [
        [
            {"type": "thinking_delta", "thinking": THOUGHT[:9]},
            {"type": "thinking_delta", "thinking": THOUGHT[9:]},
            {"type": "signature_delta", "signature": SIGNATURE},
        ],
        [],
        [{"type": "text_delta", "text": "One moment."}],
        *[[{"type": "input_json_delta", "partial_json": ARGUMENTS}]] * 2,
    ]
    starts: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "", "signature": ""},
        redacted,
        {"type": "text", "text": ""},
        *[{**call, "input": {}} for call in calls],
    ]
    usage = {"input_tokens": 5, "output_tokens": 5}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "usage": usage}}
    ]
    for index, (start, pieces) in enumerate(zip(starts, deltas, strict=True)):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in pieces]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}
    return streamed(*events, stop, {"type": "message_stop"}), [thinking, redacted, texts, *calls]


def responses() -> tuple[Script, list[dict[str, Any]]]:
    items: list[dict[str, Any]] = [
        {
            "id": "rs_0c6a", "type": "reasoning", "encrypted_content": SIGNATURE,
            "summary": [{"type": "summary_text", "text": THOUGHT}],
        },
        {
            "id": "msg_0c6a", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "text": "One moment."}],
        },
        {"id": "rs_0c6b", "type": "reasoning", "encrypted_content": REDACTED, "summary": []},
        *[
            {
                "id": f"fc_{n}", "type": "function_call", "status": "completed", "arguments": ARGUMENTS,
                "call_id": f"call_{n}", "name": name,
            }
            for n, name in enumerate((POST, "post"))
        ],
    ]  # fmt: skip
    events: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        empty = {**item, "status": "in_progress"} if "status" in item else item
        empty = {**empty, **({"arguments": ""} if "arguments" in item else {})}
        empty = {**empty, **({"content": []} if "content" in item else {})}
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": empty},
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    whole = {"id": "resp_1", "status": "completed", "output": items}
    return streamed(*events, {"type": "response.completed", "response": whole}), items


def gemini() -> tuple[Script, list[dict[str, Any]]]:
    """Of parallel calls only the first is signed, and so may a text be, and a part without one."""
    arguments = json.loads(ARGUMENTS)
    parts: list[dict[str, Any]] = [
        {"text": THOUGHT, "thought": True},
        {"text": "One moment.", "thoughtSignature": REDACTED},
        {"functionCall": {"name": POST, "args": arguments}, "thoughtSignature": SIGNATURE},
        {"functionCall": {"name": "post", "args": arguments}},
        {"text": "", "thoughtSignature": REDACTED},
    ]
    last = len(parts) - 1
    events: list[dict[str, Any]] = [
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [part]},
                    **({"finishReason": "STOP"} if number == last else {}),
                }
            ]
        }
        for number, part in enumerate(parts)
    ]
    return streamed(*events), parts


ANSWERS = {"anthropic": anthropic, "responses": responses, "gemini": gemini}


def own(speaks: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the model itself wrote, as the request has it, without marks for the provider's cache."""
    match speaks:
        case "responses":
            return [each for each in body["input"] if "id" in each]
        case "gemini":
            (message,) = [each for each in body["contents"] if each["role"] == "model"]
            return list(message["parts"])
        case _:
            (message,) = [each for each in body["messages"] if each["role"] == "assistant"]
            return list(message["content"])


@pytest.mark.parametrize("speaks", ANSWERS)
async def test_signed_thoughts_come_back_byte_for_byte_after_a_kill(
    speaks: str, data: Path, provider: Provider
) -> None:
    environment = {
        "WONDER_DEFAULT_MODEL": "offline",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_ANTHROPIC_BASE_URL": provider.url,
        "WONDER_GEMINI_BASE_URL": provider.url,
    }
    script, expected = ANSWERS[speaks]()
    # One call ends at once, the other waits for a person, so the second request comes after the kill.
    async with serving(data, environment=environment) as server, server.client() as client:
        await client.apply("e2e/approval", LIBRARY)
        await client.apply("e2e/signed", TOOLS)
        scripted = Scripted(client, provider, speaks)
        agent = await scripted.agent(
            script,
            Script(stall="headers"),
            Script(text="Posted."),
            Script(text="You are welcome."),
            tools=("e2e/signed/post_quick", "e2e/approval/post"),
            show_reasoning=True,
        )
        conv = await client.open(agent)
        turn = (await client.say(conv, "Post it.")).turn.id
        async with client.listening(conv) as listener:
            await listener.until(lambda v: bool(opened(v)) and "tool.completed" in v.names)
        await server.kill()
    async with serving(data, environment=environment) as server, server.client() as client:
        (gate,) = await inbox(client, conv)
        await resolve(client, gate)
        await provider.wait_until(lambda: len(scripted.requests) == 2)
        await server.kill()
    async with serving(data, environment=environment) as server, server.client() as client:
        view = await client.settled(conv, turn)
        assert "turn.completed" in view.of_turn(turn)
        _, second, repeated = scripted.requests
        assert json.dumps(own(speaks, second)) == json.dumps(expected)
        assert json.dumps(repeated) == json.dumps(second)
        # Thoughts belong to the turn that had them: the next one has the words, the calls and the results.
        following, _ = await client.turn(conv, "Thanks.")
        assert following.status == conversation.TURN_STATUS_COMPLETED
        last = json.dumps(scripted.requests[-1])
        assert "One moment." in last and last.count("toolu_0" if speaks == "anthropic" else POST) >= 2
        assert REDACTED not in last and SIGNATURE[-100:] not in last
