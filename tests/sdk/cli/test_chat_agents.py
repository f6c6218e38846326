"""`wonder chat` with several agents, and `wonder post`."""

from __future__ import annotations

import asyncio
import io
import sys

import pytest

from tests.sdk.fake_server import CONVERSATION, FakeConversation, completed, event, message_event, serving
from wonder.v1 import conversation_pb2 as conversation
from wonder_sdk import cli, v1
from wonder_sdk.cli.conversation import addressing


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.setattr(sys, "stdin", io.StringIO())


async def wonder(*argv: str) -> int:
    return await asyncio.to_thread(cli.main, argv)


async def test_the_agent_that_answers_is_a_note_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    turn = conversation.Turn(id="turn_1", ordinal=1, agent_id="agt_2")
    script = [
        event(2, "conversation_turn", conversation_turn=turn),
        message_event(3, "Friday."),
        completed(4),
    ]
    async with serving(FakeConversation(script=script, agents=("assistant", "critic"))) as address:
        at = ("--server", address)
        assert await wonder("chat", "-a", "assistant", "-a", "critic", "-m", "@critic When?", *at) == 0
    printed = capsys.readouterr()
    assert printed.out == "Friday.\n" and printed.err.startswith("  critic answers\n")


@pytest.mark.parametrize(
    "flags", [("-a", "a", "-a", "b"), ("--concurrent-turns", "steer"), ("--project", "x")]
)
async def test_a_conversation_that_exists_takes_no_flags_of_new_ones(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeConversation()
    async with serving(fake) as address:
        assert await wonder("chat", "-c", CONVERSATION, *flags, "--server", address) == 2
    assert f"{flags[0].replace('-a', '--agent')} appl" in capsys.readouterr().err and not fake.requests


async def test_a_message_is_posted_without_a_turn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeConversation()
    monkeypatch.setattr(sys, "stdin", io.StringIO("a diff"))
    async with serving(fake) as address:
        at = ("--server", address)
        assert (
            await wonder("post", CONVERSATION, "At nine.", "--user", "bob", "--reply-to", "msg_1", *at) == 0
        )
        assert await wonder("post", CONVERSATION, "-", *at) == 0
    assert capsys.readouterr().out == "msg_posted\nmsg_posted\n"
    first, second = (request.send for request in fake.requests)
    assert (first.content, first.user_id, first.reply_to_message_id) == ("At nine.", "bob", "msg_1")
    assert second.content == "a diff"
    assert all(each.HasField("start_turn") and not each.start_turn for each in (first, second))


@pytest.mark.parametrize(
    ("text", "agents", "expected"),
    [
        ("Which day?", ["a", "b"], ""),
        ("@b Which day?", ["a", "b"], ""),
        ("What do you think, @b.", ["a", "b"], ""),
        ("@mia said so", ["a", "b"], ""),
        ("@c or @b?", ["a", "b"], ""),
        ("mail me at x@c.de", ["a", "b"], ""),
        ("And @c?", ["a", "b"], "no agent here is called c; a answers. Agents: @a, @b"),
        ("And @c?", ["a"], ""),
        ("@c?", ["a"], "no agent here is called c; a answers. Agents: @a"),
        ("@c?", [], ""),
    ],
)
def test_an_unknown_name_gets_a_hint(text: str, agents: list[str], expected: str) -> None:
    people = [v1.Participant(agent=v1.AgentParticipant(agent_id=f"agt_{name}", name=name)) for name in agents]
    users = [v1.Participant(user=v1.UserParticipant(user_id="mia"))]
    assert addressing.hint(text, v1.Conversation(participants=[*users, *people])) == expected


def test_earlier_messages_name_their_speakers() -> None:
    agent = v1.Participant(agent=v1.AgentParticipant(agent_id="agt_1", name="critic"))
    users = [v1.Participant(user=v1.UserParticipant(user_id=name)) for name in ("mia", "bob")]
    of_mia = v1.Message(role=v1.MessageRole.USER, author="mia")
    both = v1.Conversation(participants=[agent, *users])
    assert addressing.speaker(v1.Message(role=v1.MessageRole.AGENT, author="agt_1"), both, "") == "critic"
    assert addressing.speaker(of_mia, both, "mia") == "you"
    assert addressing.speaker(of_mia, both, "bob") == "mia"
    assert addressing.speaker(of_mia, both, "") == "mia"
    assert addressing.speaker(of_mia, v1.Conversation(participants=[agent, users[0]]), "") == "you"


@pytest.mark.parametrize(
    ("users", "token", "expected"),
    [
        ([], "", ""),
        (["user"], "", ""),
        (["mia"], "", ""),
        (["user", "bob"], "", "user"),
        (["mia", "bob"], "", ""),
        (["user", "bob"], "token-of-ann-0123456789", ""),
    ],
)
def test_a_message_without_a_user_is_from_the_user_of_the_command(
    users: list[str], token: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WONDER_TOKEN", token)
    people = [v1.Participant(user=v1.UserParticipant(user_id=name)) for name in users]
    assert addressing.default_user(v1.Conversation(participants=people)) == expected
