"""Stories that span turns, with each request compared in each provider's format: a file that was read two
turns ago, a late result, a delegate with a schema, 300 turns with a reply to the first.

Conversations of several people are in `test_multi_party` and `test_memory_of_users`, images in `test_parts`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.background import asking, call, dispatched, found, prepared, using
from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_artifacts import write
from tests.e2e.test_conversations import say_to
from tests.e2e.test_histories import imported
from tests.e2e.test_structured_output import ASKED, OUTPUT, SCHEMA, VALID, numbers
from tests.fakes.provider import Provider, Script

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMATS = ("openai", "responses", "anthropic", "gemini")
PROMPT = "You are played by a script."
Message = dict[str, Any]
PLAN = "# Plan\nWe meet on Tuesday.\n"
RUNNING = (
    "This runs in the background. A notice reports its end, success or failure; until then answer without "
    "it, and do not call the tool again for the same."
)
HEAD = "(A notice of the platform, not the user's words."


class Wire:
    """The messages of a request as the documentation of a provider has them."""

    def __init__(self, speaks: str) -> None:
        self.speaks = speaks

    def user(self, text: str) -> list[Message]:
        return [{"role": "user", **self._content(text)}]

    def answer(self, text: str) -> list[Message]:
        return [{"role": "model" if self.speaks == "gemini" else "assistant", **self._content(text)}]

    def _content(self, text: str) -> Message:
        return {"parts": [{"text": text}]} if self.speaks == "gemini" else {"content": text}

    def call(self, name: str, arguments: Message, result: Any) -> list[Message]:
        """Return a call of an earlier turn without a text, and its result, which the model gets as JSON."""
        call_id = "toolu_0" if self.speaks == "anthropic" else "call_0"
        given, text = json.dumps(arguments, separators=(",", ":")), json.dumps(result, separators=(",", ":"))
        match self.speaks:
            case "openai":
                called = {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}
                return [
                    {"role": "assistant", "content": None, "tool_calls": [called]},
                    {"role": "tool", "tool_call_id": call_id, "content": text},
                ]
            case "responses":
                return [
                    {"type": "function_call", "call_id": call_id, "name": name, "arguments": given},
                    {"type": "function_call_output", "call_id": call_id, "output": text},
                ]
            case "anthropic":
                used = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
                answered = {"type": "tool_result", "tool_use_id": call_id, "content": text}
                return [{"role": "assistant", "content": [used]}, {"role": "user", "content": [answered]}]
            case _:
                response = {"name": name, "response": {"output": text}}
                return [
                    {"role": "model", "parts": [{"functionCall": {"name": name, "args": arguments}}]},
                    {"role": "user", "parts": [{"functionResponse": response}]},
                ]

    def result(self, message: Message) -> Any:
        """Return the result of a tool that a message shows."""
        match self.speaks:
            case "gemini":
                return message["parts"][0]["functionResponse"]["response"]["output"]
            case "responses":
                return json.loads(message["output"])
            case "anthropic":
                return json.loads(message["content"][0]["content"])
            case _:
                return json.loads(message["content"])

    def messages(self, body: Message) -> list[Message]:
        """Return the messages of a request, without the system prompt."""
        field = {"gemini": "contents", "responses": "input"}.get(self.speaks, "messages")
        messages = [each for each in body[field] if each.get("role") != "system"]
        # A mark for the provider's cache makes a block of a text.
        mark = r'\[\{"type": "text", "text": ("[^"]*"), "cache_control": \{"type": "ephemeral"\}\}\]'
        unmarked: list[Message] = json.loads(re.sub(mark, r"\1", json.dumps(messages)))
        return unmarked

    def system(self, body: Message) -> str:
        match self.speaks:
            case "gemini":
                return str(body["systemInstruction"]["parts"][0]["text"])
            case "responses":
                return str(body["instructions"])
            case "anthropic":
                return str(body["system"])
            case _:
                return str(body["messages"][0]["content"])


def texts_of(message: Message) -> list[str]:
    """Return the texts of a message in any format."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        return [content]
    assert isinstance(content, list)
    return [each["text"] for each in content]


@pytest.fixture(params=FORMATS)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


async def test_a_file_that_was_read_in_the_first_turn_is_known_in_the_third(scripted: Scripted) -> None:
    client, wire = scripted.client, Wire(scripted.speaks)
    await write(client, "stories/plan.md", PLAN)
    reads = call("read_document", path="stories/plan.md")
    agent = await scripted.agent(
        Script(calls=(reads,)),
        Script(text="It is read."),
        Script(text="You are welcome."),
        Script(text="On Tuesday."),
        tools=("wonder/std/read_document",),
    )
    conv = await client.open(agent)
    for text in ("Read the plan.", "Thanks.", "Which day?"):
        await client.turn(conv, text)
    *_, last = scripted.requests
    messages = wire.messages(last)
    result = wire.result(messages[2])
    result = json.loads(result) if isinstance(result, str) else result
    assert result["content"] == PLAN
    assert messages[:-1] == [
        *wire.user("Read the plan."),
        *wire.call("read_document", {"path": "stories/plan.md"}, result),
        *wire.answer("It is read."),
        *wire.user("Thanks."),
        *wire.answer("You are welcome."),
    ]
    assert texts_of(messages[-1])[0].endswith("\n[Message]\nWhich day?")


async def test_a_late_result_follows_all_that_was_said_before_it(scripted: Scripted) -> None:
    client, wire = scripted.client, Wire(scripted.speaks)
    await prepared(client)
    agent = await scripted.agent(
        Script(calls=(call("research", topic="flights"),)),
        Script(text="I search."),
        Script(text="Four."),
        Script(text="At ten."),
        tools=using("research"),
    )
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        asked = (await client.say(conv, "Which flight?")).turn.id
        view = await listener.until(lambda v: "I search." in [m.content for m in v.messages.values()])
        other = (await client.say(conv, "Two and two?")).turn.id
        await listener.until(lambda v: v.settled(other))
        operation = dispatched(view, "research").operation
        await found(client, operation.run_id, "one at ten")
        await listener.until(lambda v: v.settled(asked))
    first, second, others, last = map(wire.messages, scripted.requests)
    running = {"status": "running", "operation_id": operation.id, "note": RUNNING}
    assert first == wire.user("Which flight?") == second[:1]
    assert re.sub(r"\d\d:\d\d UTC", "TIME", json.dumps(others)) == json.dumps(
        [
            *wire.user("Which flight?"),
            *wire.call("research", {"topic": "flights"}, running),
            *wire.answer("I search."),
            *wire.user(
                "[Context, added by the platform]\nWork in progress for other messages:\n"
                '- research({"topic": "flights"}) for [user] "Which flight?", since TIME\n\n'
                "[Message]\nTwo and two?"
            ),
        ]
    )
    # The turn's own requests grow at their end.
    assert last[: len(second)] == second and texts_of(last[len(second)]) == ["I search."]
    assert [text for message in last[len(second) + 1 :] for text in texts_of(message)] == [
        f"{HEAD} It needs no answer of its own.)\n\nSaid in this conversation while you worked on your task. "
        "These messages are not for you to answer now: other turns answer those that ask for an answer. "
        "Take from them what concerns your task, and go on with it.\n\n"
        f"[user] Two and two?\n[agent {agent}] (you, in another turn) Four.",
        f"{HEAD})\n\nThe tool `research` that ran in the background ({operation.id}) has ended. Its result:\n"
        '{"found":"one at ten"}\n\n'
        "Go on with the task, and tell the user what matters of this, failures too.",
    ]


async def test_a_delegate_gets_its_schema_and_the_caller_its_output(
    client: Client, provider: Provider, scripted: Scripted
) -> None:
    guest, wire = Scripted(client, provider, scripted.speaks), Wire(scripted.speaks)
    tool, name = await asking(client, await guest.agent(Script(text=VALID), tools=()), output_schema=SCHEMA)
    agent = await scripted.agent(
        Script(calls=(call(name, message="What did tea cost?"),)), Script(text="It cost 5.5."), tools=(tool,)
    )
    await client.turn(await client.open(agent), "Ask the expert.")
    [asked] = guest.requests
    assert wire.system(asked) == PROMPT and wire.messages(asked) == wire.user("What did tea cost?")
    # Gemini takes no schema beside tools, so a delegate, which can decline, is asked in words.
    if scripted.speaks == "gemini":
        _, asking_for = asked["systemInstruction"]["parts"]  # type: ignore[index]
        assert asking_for["text"].startswith("When you give your final answer, answer with one JSON object")
        assert numbers(json.loads(asking_for["text"].splitlines()[1])) == SCHEMA
    else:
        assert {name: numbers(asked[name]) for name in ASKED[scripted.speaks]} == ASKED[scripted.speaks]
    before, after = map(wire.messages, scripted.requests)
    assert before == wire.user("Ask the expert.") == after[:1]
    result = wire.result(after[-1])
    assert result == {"output": OUTPUT}
    assert len(after) == 3


async def test_a_reply_to_the_beginning_of_300_turns(scripted: Scripted) -> None:
    client, wire = scripted.client, Wire(scripted.speaks)
    said: list[Message] = []
    for number in range(1, 299):
        said += [{"user_id": "mia", "content": f"q{number}"}, {"agent_id": "", "content": f"a{number}"}]
    agent = await scripted.agent(
        Script(text="a299"), Script(text="a300"), tools=(), persona={"recent_turns_limit": 200}
    )
    conv = await imported(client, agent, said)
    first = (await client.messages(conv))[1]
    for text, reply in (("q299", ""), ("q300", first.id)):
        async with client.listening(conv) as listener:
            turn = (await say_to(client, conv, text, user_id="mia", reply_to_message_id=reply)).turn.id
            await listener.until(lambda v, turn=turn: v.settled(turn))
    kept = [message for number in range(149, 299) for message in _pair(wire, number)]
    first_request, second_request = scripted.requests
    for request in scripted.requests:
        assert wire.system(request) == f"{PROMPT}\n\n[Note: 296 older messages are left out.]"
    assert wire.messages(first_request) == [*kept, *wire.user("q299")]
    reply = "[Context, added by the platform]\nThe user replies to your message:\n> a1\n\n[Message]\nq300"
    assert wire.messages(second_request) == [*kept, *_pair(wire, 299), *wire.user(reply)]


def _pair(wire: Wire, number: int) -> list[Message]:
    return [*wire.user(f"q{number}"), *wire.answer(f"a{number}")]
