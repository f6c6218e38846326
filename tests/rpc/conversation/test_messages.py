"""Messages as clients receive them."""

from __future__ import annotations

import pytest

from wonder_server.core.conversation.model.values import Message, Role
from wonder_server.core.token_estimates import text_tokens
from wonder_server.rpc.conversation.codec import message_to_proto


@pytest.mark.parametrize(("content", "tokens"), [("", 0), ("Hi", 1), ("twelve bytes", 3), ("日本", 2)])
def test_a_message_says_how_many_tokens_its_text_is_estimated_to_have(content: str, tokens: int) -> None:
    message = Message(
        id="msg_1",
        conversation_id="conv_1",
        turn_id="turn_1",
        ordinal=1,
        role=Role.USER,
        author="mia",
        content=content,
    )
    assert message_to_proto(message).token_count == tokens == text_tokens(content)
