"""Files in messages of the neutral form: their places in each format, and what takes the places."""

from __future__ import annotations

from typing import Any

import pytest

from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats import FORMATS
from wonder_server.core.request_formats.files import filled, places, takes_file_ids
from wonder_server.core.request_formats.format import FileContent, ShownFile

FILE: JsonDict = {"file_id": "file_1", "media_type": "image/png", "name": "cat.png", "size_bytes": 9}
PLACE: JsonDict = {"wonder_file": FILE}
IMAGE: JsonDict = {"type": "image", **FILE}
TEXT: JsonDict = {"type": "text", "text": "Look:"}
USER: JsonDict = {"role": "user", "content": [TEXT, IMAGE, {"type": "text", "text": " "}]}
OWN: JsonDict = {"role": "assistant", "content": [TEXT, IMAGE]}
WORDS = "Look:\n[image: cat.png, image/png, 9 bytes]"

WRITTEN: dict[str, list[JsonDict]] = {
    "openai_chat": [
        {"role": "user", "content": [TEXT, PLACE]},
        {"role": "assistant", "content": WORDS},
    ],
    "openai_responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, PLACE]},
        {"role": "assistant", "content": WORDS},
    ],
    "anthropic_messages": [
        {"role": "user", "content": [TEXT, PLACE]},
        {"role": "assistant", "content": WORDS},
    ],
    # Gemini's own images stay images: its models draw, and continue to.
    "gemini": [
        {"role": "user", "parts": [{"text": "Look:"}, PLACE]},
        {"role": "model", "parts": [{"text": "Look:"}, PLACE]},
    ],
}


@pytest.mark.parametrize("name", FORMATS)
def test_files_have_places_in_messages_of_users(name: str) -> None:
    assert FORMATS[name].write_messages([USER, OWN]) == WRITTEN[name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_label_precedes_each_text(name: str) -> None:
    labelled = {
        "role": "user",
        "speaker": {"label": "user Mia"},
        "content": [IMAGE, {"type": "text", "text": "a\nb"}],
    }
    format_ = FORMATS[name]
    [message] = format_.write_messages([labelled])
    parts: list[Any] = message["parts" if name == "gemini" else "content"]
    assert [part.get("text") for part in parts] == ["[user Mia] ", None, " a\n b"]
    assert parts[1] == {"wonder_file": {**FILE, "indented": True}}
    request = {format_.messages: [message]}
    text = ShownFile(words="[file: a.md]", text="[agent x] a\r\n[agent x] b\u2028[agent x] c")
    [message] = filled(format_, request, lambda file: text)[format_.messages]
    parts = message["parts" if name == "gemini" else "content"]
    assert parts[1]["text"] == "[file: a.md]\n [agent x] a\n [agent x] b\n [agent x] c"


@pytest.mark.parametrize("name", FORMATS)
def test_places_are_found_in_messages_and_in_results_and_filled(name: str) -> None:
    format_ = FORMATS[name]
    key = "parts" if name == "gemini" else "content"
    inner = {"type": "tool_result", "content": [PLACE]} if name == "anthropic_messages" else {"text": "x"}
    request = {
        "model": "m",
        format_.messages: [{"role": "user", key: [PLACE, inner, "odd"]}, {"role": "user"}],
    }
    expected = 2 if name == "anthropic_messages" else 1
    assert places(format_, request) == [FILE] * expected
    part = format_.write_text("a cat")
    full = filled(format_, request, lambda file: ShownFile(words="a cat"))
    assert places(format_, full) == [] and full[format_.messages][0][key][0] == part
    assert places(format_, request) == [FILE] * expected
    assert places(format_, {format_.messages: "one text"}) == [] and places(format_, {}) == []


PDF = FileContent(media_type="application/pdf", name="a.pdf", data="cGRm")
PNG = FileContent(media_type="image/png", name="cat.png", data="cG5n")
PARTS: dict[str, tuple[JsonDict, JsonDict]] = {
    "openai_chat": (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
    ),
    "openai_responses": (
        {"type": "input_image", "image_url": "data:image/png;base64,cG5n"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
    ),
    "anthropic_messages": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
            "title": "a.pdf",
        },
    ),
    "gemini": (
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}},
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_has_a_part_for_images_and_documents(name: str) -> None:
    format_ = FORMATS[name]
    assert (format_.write_file(PNG), format_.write_file(PDF)) == PARTS[name]
    assert "cG5n" not in repr(PNG)


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        ({"properties": {"file_id": {}}}, True),
        ({"properties": {"image_file_ids": {}}}, True),
        ({"properties": {"images": {"items": {"properties": {"file_id": {}}}}}}, True),
        ({"$defs": {"Picture": {"properties": {"file_id": {}}}}}, True),
        ({"properties": {"profile_id": {}, "file_identity": {}, "files": {"enum": ["file_id"]}}}, False),
        ({"properties": ["file_id"], "description": "file_id"}, False),
        ({}, False),
    ],
)
def test_a_tool_with_an_argument_for_a_file_takes_ids(schema: JsonDict, takes: bool) -> None:
    forms: list[JsonDict] = [
        {"function": {"name": "a", "parameters": schema}},
        {"name": "a", "input_schema": schema},
        {"functionDeclarations": [{"name": "a", "parametersJsonSchema": schema}]},
    ]
    for tool in forms:
        assert takes_file_ids({"tools": [{"name": "other"}, tool]}) is takes
    assert not takes_file_ids({"messages": [{"properties": {"file_id": {}}}]})


@pytest.mark.parametrize("name", FORMATS)
def test_labels_stand_only_in_messages_of_users(name: str) -> None:
    format_ = FORMATS[name]
    messages = format_.write_messages([USER, OWN])
    own = {"role": "assistant", "content": [PLACE]}
    part = format_.write_text("the part")
    shown = ShownFile(words="words", part=part, label="label")
    first, *_, last = filled(format_, {format_.messages: [*messages, own]}, lambda file: shown)[
        format_.messages
    ]
    parts: list[Any] = first["parts" if name == "gemini" else "content"]
    assert [each.get("text") for each in parts] == ["Look:", "label", "the part"]
    assert len(last["content"]) == 1
