"""Transcripts of other programs, and ours."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from wonder_sdk import read_transcripts, v1
from wonder_sdk.conversation.transcripts import write_transcript

CALL = {"id": "c1", "type": "function", "function": {"name": "times", "arguments": '{"a":6}'}}


def only(value: Any, *agents: str) -> list[v1.HistoryMessage]:
    [transcript] = read_transcripts(value, agents)
    return transcript.messages


def test_openai_messages_with_names_times_and_tools_are_read() -> None:
    messages = only(
        [
            {"role": "system", "content": "Be nice."},
            {"role": "user", "name": "mia", "content": "Hi", "create_time": 1_700_000_000},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "timestamp": 1_700_000_001_000},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "assistant", "name": "ada", "content": [{"type": "text", "text": "It is 42."}]},
            {"role": "assistant", "name": "gpt", "content": "No.", "created_at": "2023-11-14T22:13:22"},
        ],
        "ada",
    )
    assert [(m.user_id, m.agent_id, m.other_agent, m.content) for m in messages] == [
        ("mia", None, None, "Hi"),
        (None, "", None, ""),
        (None, "ada", None, "It is 42."),
        (None, None, "gpt", "No."),
    ]
    start = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    seconds = [m.create_time and (m.create_time - start).total_seconds() for m in messages]
    assert seconds == [0, 1, None, 2]
    [call] = messages[1].tool_calls
    assert (call.id, call.tool_name, call.result and call.result.string_value) == ("c1", "times", "42")


def test_what_is_left_out_is_counted() -> None:
    [transcript] = read_transcripts(
        {
            "title": "T",
            "messages": [
                {"role": "developer", "content": "x"},
                {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url"}]},
                {"role": "assistant", "content": " "},
            ],
        }
    )
    assert transcript.title == "T"
    assert [m.content for m in transcript.messages] == ["see\n[image_url left out]"]
    assert transcript.skipped == {"developer message": 1, "image_url": 1, "empty message": 1}


BAD: list[tuple[Any, str]] = [
    ("text", "a transcript is a JSON list"),
    ({"mapping": 3}, "a transcript is a JSON list"),
    ([3], r"messages\[0\]: a message is an object"),
    ([{"content": "x"}], "the role null is unknown"),
    ([{"role": "judge", "content": "x"}], 'the role "judge" is unknown'),
    ([{"role": "tool", "tool_call_id": "c1", "content": "x"}], "names no earlier call"),
    ([{"role": "user", "content": "x", "name": 3}], "`name` is no text"),
    ([{"role": "user", "content": "x", "create_time": "noon"}], "the time is neither"),
    ([{"role": "user", "content": "x", "create_time": 1e300}], "the time is neither"),
    ([{"role": "assistant", "tool_calls": {}}, {"role": "assistant", "tool_calls": 3}], "is no list"),
    ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "a tool call is an object"),
    (
        [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}],
        "no JSON object",
    ),
]


@pytest.mark.parametrize(("value", "problem"), BAD)
def test_another_form_is_refused_with_its_place(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_transcripts(value)


def node(parent: str | None, role: str, text: str, at: float | None = None, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {
        "parent": parent,
        "message": {"author": {"role": role}, "content": content, "create_time": at, **more},
    }


def test_the_shown_branch_of_an_export_of_chatgpt_is_read() -> None:
    tree = {
        "title": "Numbers",
        "current_node": "e",
        "mapping": {
            "root": {"parent": None, "message": None},
            "a": node("root", "system", ""),
            "b": node("a", "user", "Six times seven?", 1_700_000_000.5),
            "old": node("b", "assistant", "41", 1_700_000_001),
            "c": node("b", "assistant", "search(x)", 1_700_000_005, recipient="browser"),
            "d": node("c", "assistant", "42", 1_700_000_009),
            "e": node("d", "user", "Thanks", 1_700_000_007),
        },
    }
    first, second = read_transcripts([tree, {**tree, "current_node": "old"}])
    assert first.title == "Numbers"
    assert [(m.user_id, m.content) for m in first.messages] == [
        ("", "Six times seven?"),
        (None, "42"),
        ("", "Thanks"),
    ]
    times = [m.create_time for m in first.messages if m.create_time is not None]
    assert len(times) == 3 and times == sorted(times)
    assert sum(first.skipped.values()) == 2
    assert [m.content for m in second.messages] == ["Six times seven?", "41"]


def test_a_tree_that_bites_its_tail_ends() -> None:
    tree = {"current_node": "a", "mapping": {"a": node("b", "user", "x"), "b": node("a", "user", "y")}}
    [transcript] = read_transcripts(tree)
    assert [message.content for message in transcript.messages] == ["y", "x"]
    silent = {"current_node": "a", "mapping": {"a": {"parent": "b"}, "b": {"parent": "a"}}}
    assert not read_transcripts(silent)[0].messages


def test_calls_without_a_text_keep_their_place() -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)

    agent = v1.MessageRole.AGENT
    messages = [
        v1.Message(id="m1", turn_id="t", role=v1.MessageRole.USER, author="mia", content="?"),
        v1.Message(id="m3", turn_id="t", role=agent, author="agt_1", content="!", create_time=at(3)),
    ]
    call = v1.ToolCall(id="c", tool_name="look")
    moves = [v1.Move(turn_id="t", sequence=1, create_time=at(2), tool_calls=[call])]
    written = write_transcript(messages, moves, {"agt_1": "ada"})
    assert [(each["role"], each["content"]) for each in written] == [
        ("user", "?"),
        ("assistant", None),
        ("assistant", "!"),
    ]
    assert written[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert written[1]["name"] == "ada"
