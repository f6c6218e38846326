"""Images and files in messages: the requests in each provider's format, in words, and bad input."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Call, Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMATS = ["openai", "responses", "anthropic", "gemini"]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 1200
PDF = b"%PDF-1.7\n" + bytes(range(128, 256))
CAT, PAPER = base64.b64encode(PNG).decode(), base64.b64encode(PDF).decode()
NOTES = "[file: notes.md, text/markdown, 17 bytes; its content follows]\nLine one.\nLine é"
EXPECTED: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{CAT}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAPER}"}},
        {"type": "text", "text": NOTES},
        {"type": "text", "text": "Answer briefly."},
    ],
    "responses": [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{CAT}"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAPER}"},
        {"type": "input_text", "text": NOTES},
        {"type": "input_text", "text": "Answer briefly."},
    ],
    "anthropic": [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CAT}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PAPER},
            "title": "a.pdf",
        },
        {"type": "text", "text": NOTES},
        {"type": "text", "text": "Answer briefly."},
    ],
    "gemini": [
        {"text": "What is this?"},
        {"inlineData": {"mimeType": "image/png", "data": CAT}},
        {"inlineData": {"mimeType": "application/pdf", "data": PAPER}},
        {"text": NOTES},
        {"text": "Answer briefly."},
    ],
}


async def upload(client: Client, name: str, content: bytes, media_type: str = "", project: str = "") -> str:
    async def messages() -> AsyncIterator[files.UploadFileRequest]:
        start = files.UploadFileStart(name=name, media_type=media_type, project_id=project)
        yield files.UploadFileRequest(start=start)
        yield files.UploadFileRequest(content=content)

    return str((await client.files.UploadFile(messages())).file.id)


def text(content: str) -> conversation.ContentPart:
    return conversation.ContentPart(text=content)


def image(file_id: str) -> conversation.ContentPart:
    return conversation.ContentPart(image=conversation.FilePart(file_id=file_id))


def file(file_id: str) -> conversation.ContentPart:
    return conversation.ContentPart(file=conversation.FilePart(file_id=file_id))


async def everything(client: Client) -> list[conversation.ContentPart]:
    """Return parts with a text, an image, a PDF, a text file, and another text."""
    return [
        text("What is this?"),
        image(await upload(client, "cat.png", PNG)),
        file(await upload(client, "a.pdf", PDF)),
        file(await upload(client, "notes.md", "Line one.\nLine é".encode(), "text/markdown")),
        text("Answer briefly."),
    ]


async def settle(client: Client, conv: str, send: pb.ConverseSend) -> pb.SendMessageResponse:
    said: pb.SendMessageResponse = await client.conversations.SendMessage(
        pb.SendMessageRequest(conversation_id=conv, send=send)
    )
    await client.settled(conv, said.turn.id)
    return said


def user_contents(speaks: str, body: dict[str, Any]) -> list[Any]:
    """Return the contents of the user's messages of a request."""
    name, key = {"gemini": ("contents", "parts"), "responses": ("input", "content")}.get(
        speaks, ("messages", "content")
    )
    return [each[key] for each in json.loads(json.dumps(body))[name] if each["role"] == "user"]


@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_model_gets_images_and_files_in_its_format(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="A cat."), Script(text="Black."), tools=(), accepts=["text", "image", "file"]
    )
    conv, parts = await client.open(agent), await everything(client)
    said = await settle(client, conv, pb.ConverseSend(parts=parts))
    assert user_contents(speaks, scripted.requests[0]) == [EXPECTED[speaks]]
    # The history has them too.
    await settle(client, conv, pb.ConverseSend(content="Which colour?"))
    later = [{"text": "Which colour?"}] if speaks == "gemini" else "Which colour?"
    assert user_contents(speaks, scripted.requests[1]) == [EXPECTED[speaks], later]

    listed = await client.conversations.ListMessages(pb.ListMessagesRequest(conversation_id=conv))
    message = next(each for each in listed.messages if each.id == said.message.id)
    assert message.content == "What is this?\nAnswer briefly."
    assert [each.WhichOneof("part") for each in message.parts] == ["text", "image", "file", "file", "text"]
    described = message.parts[1].image
    assert (described.name, described.media_type, described.size_bytes) == ("cat.png", "image/png", len(PNG))
    assert message.parts[0].text == "What is this?" and message.parts[4].text == "Answer briefly."
    assert message.token_count > 1600
    assert not any(each.parts for each in listed.messages if each.id != said.message.id)


@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_model_that_takes_only_text_gets_words(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text="I see nothing."), tools=())
    conv = await client.open(agent)
    await settle(client, conv, pb.ConverseSend(parts=await everything(client)))
    [content] = user_contents(speaks, scripted.requests[0])
    assert [part["text"] for part in content] == [
        "What is this?",
        "[image: cat.png, image/png, 307 KB; this model cannot see images]",
        "[file: a.pdf, application/pdf, 137 bytes; this model cannot read such files]",
        NOTES,
        "Answer briefly.",
    ]


async def test_an_image_alone_is_a_message_and_a_deleted_one_is_described(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text="A cat."), tools=(), accepts=["image"])
    conv, cat = await client.open(agent), await upload(client, "cat.png", PNG)
    await settle(client, conv, pb.ConverseSend(parts=[file(cat)]))
    assert user_contents("anthropic", scripted.requests[0]) == [[EXPECTED["anthropic"][1]]]
    await client.files.DeleteFile(files.DeleteFileRequest(file_id=cat))
    await settle(client, conv, pb.ConverseSend(content="And now?"))
    words = {"type": "text", "text": "[image: cat.png; this project has no such file]"}
    assert user_contents("anthropic", scripted.requests[1]) == [[words], "And now?"]


async def test_a_label_precedes_the_parts_of_one_of_several_speakers(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="Yes."), tools=(), accepts=["image"])
    conv, cat = await client.open(agent), await upload(client, "cat.png", PNG)
    await settle(client, conv, pb.ConverseSend(content="Hello.", user_id="mia"))
    await settle(
        client, conv, pb.ConverseSend(parts=[image(cat), text("Is it\n[user mia] yours?")], user_id="bob")
    )
    context, *parts = user_contents("openai", scripted.requests[1])[-1]
    assert context["text"].startswith("[Context, added by the platform]\nIt is ")
    assert context["text"].endswith("\n\n[Message]\n[user bob]")
    assert parts == [
        EXPECTED["openai"][1],
        {"type": "text", "text": " Is it\n [user mia] yours?"},
    ]


async def test_a_preview_names_the_file_and_holds_none_of_it(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text="Yes."), tools=(), accepts=["image"])
    conv, cat = await client.open(agent), await upload(client, "cat.png", PNG)
    send = pb.ConverseSend(parts=[text("What is this?"), image(cat)])
    shown = await client.conversations.PreviewContext(
        pb.PreviewContextRequest(conversation_id=conv, send=send)
    )
    content = MessageToDict(shown.request)["messages"][0]["content"]
    assert content == [
        {"type": "text", "text": "What is this?"},
        {
            "wonder_file": {
                "file_id": cat, "media_type": "image/png", "name": "cat.png", "size_bytes": len(PNG),
            }
        },
    ]  # fmt: skip
    blocks = {block.path: block for block in shown.blocks}
    assert blocks["/messages/0/content/0/text"].source == pb.CONTEXT_SOURCE_MESSAGE
    place = blocks["/messages/0/content/1/wonder_file"]
    assert (place.excerpt, place.tokens) == ("[image: cat.png, image/png, 307 KB]", 1600)
    assert scripted.requests == []


async def test_parts_that_are_no_message_have_their_reason(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(Script(text="Yes."), tools=()))
    await client.library.CreateProject(
        library.CreateProjectRequest(project=library_pb2.Project(name="elsewhere"), request_id="elsewhere")
    )
    cat, paper = await upload(client, "cat.png", PNG), await upload(client, "a.pdf", PDF)
    foreign = await upload(client, "cat.png", PNG, project="elsewhere")
    bad: list[tuple[dict[str, Any], str, str]] = [
        ({"parts": [image("file_01ARZ3NDEKTSV4RRFFQ69G5FAV")]}, "FILE_NOT_FOUND", "parts[0].image.file_id"),
        ({"parts": [text("a"), file(foreign)]}, "FILE_NOT_FOUND", "parts[1].file.file_id"),
        ({"parts": [file("../../etc/passwd")]}, "FILE_NOT_FOUND", "parts[0].file.file_id"),
        ({"parts": [image(paper)]}, "FIELD_INVALID", "parts[0].image.file_id"),
        ({"parts": [image("")]}, "FIELD_INVALID", "parts[0].image.file_id"),
        ({"parts": [conversation.ContentPart()]}, "FIELD_INVALID", "parts[0]"),
        ({"parts": [text("a"), image(cat)], "content": "b"}, "FIELD_INVALID", "content"),
        ({"parts": [text(" ")]}, "FIELD_INVALID", "content"),
        ({"parts": [image(cat)] * 21}, "LIMIT_EXCEEDED", "parts"),
        ({"parts": [text("a")] * 101}, "LIMIT_EXCEEDED", "parts"),
        ({"parts": [text("a" * (1 << 20)), text("b"), image(cat)]}, "PAYLOAD_TOO_LARGE", "content"),
    ]
    for send, reason, field in bad:
        call = client.conversations.SendMessage(
            pb.SendMessageRequest(conversation_id=conv, send=pb.ConverseSend(**send))
        )
        assert await rejected(call) == (reason, [field]), send
    found = await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))
    assert not found.turns


async def test_text_parts_alone_are_a_text_and_a_repeated_message_is_recognized(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(Script(text="Yes."), tools=(), accepts=["image"]))
    send = pb.ConverseSend(parts=[text("one"), text("two")], content="one\ntwo", request_id="r1")
    said = await settle(client, conv, send)
    assert (await settle(client, conv, send)).turn.id == said.turn.id
    assert user_contents("openai", scripted.requests[0]) == ["one\ntwo"] and len(scripted.requests) == 1
    other = pb.ConverseSend(parts=[text("one"), text("three")], content="one\nthree", request_id="r1")
    call = client.conversations.SendMessage(pb.SendMessageRequest(conversation_id=conv, send=other))
    assert await rejected(call) == ("REQUEST_ID_REUSED", ["request_id"])


DRAWING = """
name: draw
description: Draws a cat.
tool:
  target_type: task
  target_id: draw_task
  input_schema: {type: object, properties: {}}
---
name: draw_task
task:
  steps:
    - id: store
      action:
        kind: file.write
        config: {name: drawing.png, content_base64: "%s"}
      output_mapping:
        output.drawing: result
        output.says: '"done"'
"""


@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_model_sees_the_image_of_a_tool(client: Client, provider: Provider, speaks: str) -> None:
    small = PNG[:30]
    await client.apply("e2e/drawing", DRAWING % base64.b64encode(small).decode())
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(calls=(Call(name="draw"),)),
        Script(text="A cat."),
        Script(text="Black."),
        tools=("e2e/drawing/draw",),
        accepts=["image"],
    )
    conv = await client.open(agent)
    await settle(client, conv, pb.ConverseSend(content="Draw."))
    data = base64.b64encode(small).decode()
    image_part = {
        "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        "gemini": {"inlineData": {"mimeType": "image/png", "data": data}},
    }[speaks]
    found = shown_after_call(speaks, json.loads(json.dumps(scripted.requests[1])))
    assert found[-1] == image_part and "drawing.png" in json.dumps(found[:-1])
    # So does the request of a later turn.
    await settle(client, conv, pb.ConverseSend(content="Which colour?"))
    later = shown_after_call(speaks, json.loads(json.dumps(scripted.requests[2])))
    assert later[-1] == image_part and "drawing.png" in json.dumps(later[:-1])


def shown_after_call(speaks: str, body: dict[str, Any]) -> list[Any]:
    """Return the parts of the first tool result, or those of the result and of the message after it."""
    if speaks == "responses":
        outputs = [each["output"] for each in body["input"] if each.get("type") == "function_call_output"]
        return list(outputs[0])
    if speaks == "anthropic":
        blocks = [
            block
            for each in body["messages"]
            if isinstance(each["content"], list)
            for block in each["content"]
        ]
        return list(next(block["content"] for block in blocks if block["type"] == "tool_result"))
    if speaks == "gemini":
        at = next(i for i, each in enumerate(body["contents"]) if "functionResponse" in each["parts"][0])
        return [*body["contents"][at]["parts"], *body["contents"][at + 1]["parts"]]
    at = next(i for i, each in enumerate(body["messages"]) if each["role"] == "tool")
    return [body["messages"][at]["content"], *body["messages"][at + 1]["content"]]


ASKING = """
name: ask_seer
description: Shows an image to another agent.
tool:
  target_type: agent
  target_id: %s
  input_schema:
    type: object
    properties: {message: {type: string}, images: {type: array, items: {type: object}}}
"""


async def test_a_delegate_sees_the_files_that_its_input_describes(client: Client, provider: Provider) -> None:
    seer = Scripted(client, provider, "anthropic")
    seeing = await seer.agent(Script(text="A cat."), tools=(), accepts=["image"])
    await client.apply("e2e/asking", ASKING % seeing)
    cat = await upload(client, "cat.png", PNG)
    shown = {"type": "image", "file_id": cat, "media_type": "image/png"}
    invented = {"type": "image", "file_id": "file_01ARZ3NDEKTSV4RRFFQ69G5FAV", "media_type": "image/png"}
    given = json.dumps({"message": "What is this?", "images": [shown, invented]})
    caller = Scripted(client, provider, "openai")
    calling = await caller.agent(
        Script(calls=(Call(name="ask_seer", arguments=given),)),
        Script(text="It says: a cat."),
        tools=("e2e/asking/ask_seer",),
    )
    await settle(client, await client.open(calling), pb.ConverseSend(content="Ask what this is."))
    [[words, *images]] = user_contents("anthropic", seer.requests[0])
    assert "What is this?" in words["text"] and images == [EXPECTED["anthropic"][1]]
