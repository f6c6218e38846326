"""Images and files in tool results: their places beside the text, and what takes the places."""

from __future__ import annotations

import pytest

from wonder_server.core.content.parts import files_in
from wonder_server.core.conversation.context.dialects import DIALECTS
from wonder_server.core.conversation.model.values import ToolResult
from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import FORMATS
from wonder_server.core.request_formats.files import filled, places
from wonder_server.core.request_formats.format import ShownFile
from wonder_server.core.request_formats.neutral import ASIDE, FILES_NOTE

FILE: JsonDict = {"file_id": "file_1", "media_type": "image/png", "name": "cat.png", "size_bytes": 9}
PLACE: JsonDict = {"wonder_file": FILE}
IMAGE: JsonDict = {"type": "image", **FILE}
TEXT = (
    '{"chart":{"type":"image","file_id":"file_1","media_type":"image/png","name":"cat.png","size_bytes":9},'
    '"sum":3}'
)
NOTE: JsonDict = {"type": "text", "text": FILES_NOTE}
CALL: JsonDict = {"id": "c1", "name": "draw", "arguments": {}}
RAW: dict[str, JsonDict] = {
    "openai_chat": {"role": "assistant", "content": None},
    "openai_responses": {"output": []},
    "anthropic_messages": {"role": "assistant", "content": "I draw."},
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "draw"}}]},
}
RESULT = {"chart": IMAGE, "sum": 3}
SHOWN: dict[str, list[JsonDict]] = {
    "openai_chat": [
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": TEXT}, PLACE]},
    ],
    "openai_responses": [
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": TEXT}, PLACE],
        }
    ],
    "anthropic_messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": TEXT}, PLACE],
                }
            ],
        }
    ],
    "gemini": [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "draw",
                        "response": {"output": RESULT},
                        "parts": [PLACE],
                    }
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_turn_goes_on_with_the_images_of_its_tools(name: str) -> None:
    dialect = DIALECTS[name]
    result = ToolResult(tool_call_id="c1", success=True, result=RESULT)
    resumed = dialect.resume({dialect.messages: []}, RAW[name], [result])
    assert resumed[dialect.messages][-len(SHOWN[name]) :] == SHOWN[name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_later_turn_has_them_too(name: str) -> None:
    messages = [
        {"role": "user", "content": "Draw."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "name": "draw", "content": TEXT, "files": [IMAGE]},
        {"role": "assistant", "content": "Done."},
    ]
    expected = SHOWN[name]
    if name == "gemini":  # A result of an earlier turn is a text.
        response = {"name": "draw", "response": {"output": TEXT}, "parts": [PLACE]}
        expected = [{"role": "user", "parts": [{"functionResponse": response}]}]
    assert FORMATS[name].write_messages(messages)[-len(expected) - 1 : -1] == expected
    assert FORMATS[name].write_messages(messages[:-1])[-len(expected) :] == expected


SHOW = {
    "file_1": ShownFile(words="[image: cat.png]", part={"a": "cat"}),
    "file_2": ShownFile(words="[file: a.md]", text="# A\n[user Mia] B"),
    "file_3": ShownFile(words="[file: unnamed; this project has no such file]"),
}
FILLED_CHAT = f"""{TEXT}
[image: cat.png]
[file: a.md]
# A
[user Mia] B
[file: unnamed; this project has no such file]"""
WORDS = ["[image: cat.png]", "[file: a.md]\n# A\n[user Mia] B", SHOW["file_3"].words]


@pytest.mark.parametrize("name", FORMATS)
def test_words_and_texts_stay_in_the_result_and_images_follow_it(name: str) -> None:
    format_ = FORMATS[name]
    others = [{**IMAGE, "file_id": each, "type": "file"} for each in ("file_2", "file_3")]
    result = {"role": "tool", "tool_call_id": "c1", "name": "draw", "content": TEXT}
    result["files"] = [IMAGE, *others]
    call = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    messages = [call, result, {"role": "user", "content": "And?"}, call, result]
    request = {format_.messages: format_.write_messages(messages)}
    assert len(places(format_, request)) == 6
    sent = filled(format_, request, lambda file: SHOW[file["file_id"]])[format_.messages]
    assert places(format_, {format_.messages: sent}) == []
    match name:
        case "openai_chat":
            shown = {"role": "user", "content": [NOTE, {"a": "cat"}]}
            tool = {"role": "tool", "tool_call_id": "c1", "content": FILLED_CHAT}
            assert sent[1:4] == [tool, shown, {"role": "user", "content": "And?"}]
            assert sent[-2:] == [tool, shown] and len(sent) == 7
        case "gemini":
            shown = {"role": "user", "parts": [{"text": FILES_NOTE}, {"a": "cat"}]}
            response = {"name": "draw", "response": {"output": TEXT, "files": WORDS}}
            tool = {"role": "user", "parts": [{"functionResponse": response}]}
            assert sent[-2:] == [tool, shown] and sent.count(tool) == 2 and sent.count(shown) == 2
        case "anthropic_messages":
            [block] = sent[-1]["content"]
            texts = [{"type": "text", "text": each} for each in (TEXT, *WORDS[1:])]
            assert block["content"] == [texts[0], {"a": "cat"}, *texts[1:]]
        case _:
            texts = [{"type": "input_text", "text": each} for each in (TEXT, *WORDS[1:])]
            assert sent[-1]["output"] == [texts[0], {"a": "cat"}, *texts[1:]]
    valid = format_.make_valid({"model": "m", format_.messages: sent}, format_.provider, [])
    assert len(valid[format_.messages]) == len(sent) and places(format_, valid) == []


def test_the_message_of_images_says_whose_they_are() -> None:
    assert FILES_NOTE.startswith(f"{ASIDE}\n\nImages and documents of the tool results")


def test_a_result_of_an_author_s_own_form_stays() -> None:
    odd = [{"role": "tool", "tool_call_id": "c1", "content": [{"type": "x"}]}, {"role": "tool", "content": 5}]
    request: JsonDict = {"messages": odd}
    assert filled(FORMATS["openai_chat"], request, lambda file: SHOW["file_1"]) == request
    part = {"functionResponse": {"name": "a", "response": "odd", "parts": [PLACE, {"inlineData": {}}]}}
    [content, shown] = filled(
        FORMATS["gemini"], {"contents": [{"role": "user", "parts": [part]}]}, lambda file: SHOW["file_1"]
    )["contents"]
    assert content["parts"] == [
        {
            "functionResponse": {
                "name": "a",
                "response": {"output": "odd", "files": ["[image: cat.png]"]},
                "parts": [{"inlineData": {}}],
            }
        }
    ]
    assert shown["parts"][1:] == [{"a": "cat"}]


def test_files_are_found_anywhere_in_a_result_once_and_in_order() -> None:
    other = {**IMAGE, "file_id": "file_2", "extra": "left out"}
    found = files_in({"a": [{"deep": IMAGE}, other], "again": IMAGE})
    assert [each["file_id"] for each in found] == ["file_1", "file_2"] and "extra" not in found[1]


@pytest.mark.parametrize(
    "value",
    [None, "file_1", {"file_id": "file_1"}, {**IMAGE, "file_id": 1}, {**IMAGE, "file_id": "/etc/passwd"},
     {**IMAGE, "type": "text"}, {**IMAGE, "media_type": None}, [[]] * 5_000 + [IMAGE]],
)  # fmt: skip
def test_anything_else_is_no_file(value: object) -> None:
    assert files_in(value) == []  # type: ignore[arg-type]
