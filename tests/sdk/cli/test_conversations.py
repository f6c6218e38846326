"""`wonder conversations show` and the flags of `fork`."""

from __future__ import annotations

import json

import pytest

from tests.sdk.cli.test_cli import wonder
from tests.sdk.fake_server import CONVERSATION, FakeConversation, serving
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as conversations


async def test_a_conversation_is_shown_with_ids_speakers_and_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Two(FakeConversation):
        async def ListMessages(
            self, request: conversations.ListMessagesRequest, context: object
        ) -> conversations.ListMessagesResponse:
            known = [
                conversation.Message(
                    id="msg_b", role=conversation.MESSAGE_ROLE_AGENT, author="agt_1", content="One.\nTwo."
                ),
                conversation.Message(
                    id="msg_a", role=conversation.MESSAGE_ROLE_USER, author="mia", content="Hi\x1b[2J"
                ),
            ]
            start = int(request.page_token or 0)
            more = "1" if start == 0 else ""
            return conversations.ListMessagesResponse(messages=known[start:][:1], next_page_token=more)

    async with serving(Two()) as address:
        assert await wonder("conversations", "show", CONVERSATION, "--server", address) == 0
        assert await wonder("conversations", "show", CONVERSATION, "-n", "1", "--server", address) == 0
        assert await wonder("conversations", "show", CONVERSATION, "--json", "--server", address) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:5:2]] == [["msg_a", "mia"], ["msg_b", "agt_1"], ["Two."]]
    assert lines[1].startswith("  Hi") and "\x1b" not in lines[1]
    assert lines[5].split()[0] == "msg_b"
    assert [json.loads(line)["id"] for line in lines[-2:]] == ["msg_a", "msg_b"]


@pytest.mark.parametrize("flags", [("--before",), ("msg_a", "--before", "--regenerate")])
async def test_a_fork_before_nothing_is_refused_in_words_of_the_command(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving() as address:
        assert await wonder("conversations", "fork", CONVERSATION, *flags, "--server", address) == 2
    assert capsys.readouterr().err.startswith("wonder: --before ends the fork before MESSAGE")
