"""Parts of messages: the text of a content, descriptions in words, and estimates."""

from __future__ import annotations

import pytest

from wonder_server.core.content.parts import (
    ContentPart,
    content_tokens,
    neutral_content,
    readable,
    reference_of,
    size_text,
    stand_in,
    with_texts,
)
from wonder_server.core.conversation.model.values import Message, Role
from wonder_server.core.frozen import Value
from wonder_server.core.token_estimates import file_tokens, json_tokens

CAT = ContentPart(type="image", file_id="file_1", media_type="image/png", name="cat.png", size_bytes=120_400)


def text(length: int) -> ContentPart:
    return ContentPart(type="text", length=length)


def encoded(value: Value) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def test_texts_are_cut_from_the_content_and_the_last_has_the_rest() -> None:
    parts = (text(3), CAT, text(0), text(2))
    assert [each for _, each in with_texts("one\n\nab", parts)] == ["one", "", "", "ab"]
    # A content that was cut or extended later stays whole.
    assert [each for _, each in with_texts("one\n\nabcd", parts)] == ["one", "", "", "abcd"]


def test_a_text_alone_stays_a_text() -> None:
    assert neutral_content("Hi", ()) == "Hi" and readable("Hi", ()) == "Hi"


def test_parts_are_described_in_words() -> None:
    parts = (text(2), CAT)
    assert readable("Hi", parts) == "Hi\n[image: cat.png, image/png, 120 KB]"
    assert neutral_content("Hi", parts) == [
        {"type": "text", "text": "Hi"},
        {
            "type": "image",
            "file_id": "file_1",
            "media_type": "image/png",
            "name": "cat.png",
            "size_bytes": 120_400,
        },
    ]
    assert stand_in({}, "gone") == "[file: unnamed; gone]"


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 KB"), (999_999, "1000 KB"), (20 << 20, "21 MB"),
     (1_500_000, "1.5 MB"), (-1, ""), (None, "")],
)  # fmt: skip
def test_a_size_is_short(size: int | None, words: str) -> None:
    assert size_text(size) == words


def test_only_a_neutral_file_is_a_place() -> None:
    assert reference_of({"type": "image", "file_id": "f"}) == {"wonder_file": {"file_id": "f"}}
    for other in ({"type": "image", "source": {}}, {"type": "text", "file_id": "f"}, "image", None):
        assert reference_of(other) is None


def test_estimates_count_an_image_by_a_figure_and_a_file_by_its_size() -> None:
    assert content_tokens("12345678", ()) == 2
    assert content_tokens("12345678", (text(8), CAT)) == 2 + 1_600
    assert file_tokens({"media_type": "application/pdf", "size_bytes": 1_000_000}) == 40_000
    assert file_tokens({"media_type": "text/csv", "size_bytes": 4_000}) == 1_000
    assert file_tokens({"media_type": "text/csv", "size_bytes": 1 << 30}) == (64 << 10) // 4
    request = {"messages": [{"content": [{"wonder_file": {"media_type": "image/png", "size_bytes": 9**9}}]}]}
    assert 1_600 <= json_tokens(request) <= 1_620


def test_a_message_of_text_is_stored_as_before() -> None:
    message = Message(
        id="msg_1", conversation_id="c", turn_id="t", ordinal=1, role=Role.USER, author="a", content="x"
    )
    assert b"parts" not in encoded(message)
    assert len(encoded(message)) == 103
