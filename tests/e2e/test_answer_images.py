"""Images that models make: files of the project, parts of the agent's message, and later requests."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from tests.conformance.models.subjects import KEY
from tests.e2e.archived import AHEAD, is_away
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_archive import until
from tests.e2e.test_parts import PNG, image, settle, text, upload
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import file_service_pb2 as files

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAKERS = ["openai", "responses", "gemini"]
DATA = base64.b64encode(PNG).decode()


async def answers(client: Client, conv: str) -> list[conversation.Message]:
    """Return the messages of the agent, oldest first."""
    listed = await client.conversations.ListMessages(pb.ListMessagesRequest(conversation_id=conv))
    found = [each for each in listed.messages if each.role == conversation.MESSAGE_ROLE_AGENT]
    return sorted(found, key=lambda each: each.ordinal)


async def content_of(client: Client, file_id: str) -> bytes:
    pieces = [piece async for piece in client.files.GetFile(files.GetFileRequest(file_id=file_id))]
    return b"".join(piece.content for piece in pieces)


@pytest.mark.parametrize("speaks", MAKERS)
async def test_an_image_of_a_model_is_a_file_and_a_part_of_its_message(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="A cat:", images=(DATA,), caption="Do you like it?"),
        Script(text="Yes."),
        tools=(),
        accepts=["image"],
    )
    conv = await client.open(agent)
    said = await settle(client, conv, pb.ConverseSend(content="Draw a cat."))
    [message] = await answers(client, conv)
    assert message.content == "A cat:\nDo you like it?"
    assert [each.WhichOneof("part") for each in message.parts] == ["text", "image", "text"]
    assert [message.parts[0].text, message.parts[2].text] == ["A cat:", "Do you like it?"]
    image = message.parts[1].image
    assert (image.name, image.media_type, image.size_bytes) == ("image-1.png", "image/png", len(PNG))
    assert await content_of(client, image.file_id) == PNG

    moves = await client.conversations.ListMoves(
        pb.ListMovesRequest(conversation_id=conv, turn_id=said.turn.id)
    )
    recorded = json.dumps(MessageToDict(moves.moves[0].raw))
    assert DATA[:1000] not in recorded and "image-1.png" in recorded
    await settle(client, conv, pb.ConverseSend(content="Which colour?"))
    later = json.dumps(scripted.requests[1])
    assert (DATA in later) == (speaks == "gemini")
    assert "[image: image-1.png, image/png, 307 KB]" in later or speaks == "gemini"


@pytest.mark.parametrize("speaks", MAKERS)
async def test_the_next_move_sends_the_image_with_the_models_own_message(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    script = Script(text="A cat:", images=(DATA,), calls=(Call(name="recall", arguments='{"query": "x"}'),))
    agent = await scripted.agent(script, Script(text="Done."), accepts=["image"])
    conv = await client.open(agent)
    await settle(client, conv, pb.ConverseSend(content="Draw a cat."))
    body: dict[str, Any] = json.loads(json.dumps(scripted.requests[1]))
    if speaks == "gemini":
        [own] = [each for each in body["contents"] if each["role"] == "model"]
        image = {"inlineData": {"mimeType": "image/png", "data": DATA}, "thoughtSignature": "s0"}
        assert own["parts"][:2] == [{"text": "A cat:"}, image]
    elif speaks == "responses":
        [own] = [each for each in body["input"] if each.get("type") == "image_generation_call"]
        assert (own["id"], own["result"]) == ("ig_0", DATA) and "wonder_file" not in own
    else:
        [own] = [each for each in body["messages"] if each["role"] == "assistant"]
        assert own["content"] == "A cat:\n[image: image-1.png, image/png, 307 KB]"


@pytest.mark.parametrize("speaks", MAKERS)
async def test_an_answer_of_an_image_alone_is_a_message(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(images=(DATA,)), Script(text="Yes."), tools=(), accepts=["image"])
    conv = await client.open(agent)
    await settle(client, conv, pb.ConverseSend(content="Draw a cat."))
    [message] = await answers(client, conv)
    assert message.content == "" and [each.WhichOneof("part") for each in message.parts] == ["image"]
    await settle(client, conv, pb.ConverseSend(content="Is it black?"))
    later = json.dumps(scripted.requests[1])
    assert "image-1.png" in later or DATA in later


async def test_an_image_that_is_none_is_described_and_the_turn_goes_on(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "gemini")
    bad = base64.b64encode(b"<svg onload=alert(1)>").decode()
    script = Script(text="Two:", images=(bad, "%%%", DATA), calls=(Call(name="recall"),))
    agent = await scripted.agent(script, Script(text="Done."), accepts=["image"])
    conv = await client.open(agent)
    said = await settle(client, conv, pb.ConverseSend(content="Draw."))
    message, done = await answers(client, conv)
    assert done.content == "Done."
    first, second = message.content.splitlines()[1:]
    assert first.startswith("[image: image-1.png, image/png, 21 bytes; not stored: the content is none of ")
    assert second.endswith("not stored: the content is not base64]")
    assert [each.WhichOneof("part") for each in message.parts] == ["text", "image", "text"]
    own = next(each for each in scripted.requests[1]["contents"] if each["role"] == "model")  # type: ignore[attr-defined]
    assert own["parts"][1]["text"].startswith("[image: image-1.png") and own["parts"][1]["thoughtSignature"]
    turn = await client.conversations.GetTurn(pb.GetTurnRequest(conversation_id=conv, turn_id=said.turn.id))
    assert turn.turn.status == conversation.TURN_STATUS_COMPLETED


async def test_images_of_an_archived_conversation_are_there_after_it(provider: Provider, data: Path) -> None:
    keys = {"GEMINI_API_KEY": KEY, "WONDER_GEMINI_BASE_URL": provider.url}
    async with serving(data, environment=keys) as server, server.client() as client:
        scripted = Scripted(client, provider, "gemini")
        agent = await scripted.agent(
            Script(text="Like this?", images=(DATA,)), Script(text="Black."), tools=(), accepts=["image"]
        )
        conv = await client.open(agent, expire_time=Timestamp(seconds=int(time.time()) + 3600))
        cat = await upload(client, "cat.png", PNG + b"cat")
        await settle(client, conv, pb.ConverseSend(parts=[text("Draw another."), image(cat)]))
        before = await client.messages(conv)
    async with (
        serving(data, environment={**keys, "CLOCK_AHEAD_S": AHEAD}) as server,
        server.client() as client,
    ):
        await until(lambda: is_away(client, conv))
        await settle(client, conv, pb.ConverseSend(content="Which colour?"))
        assert (await client.messages(conv))[:2] == before
        made = before[1].parts[1].image.file_id
        assert await content_of(client, made) == PNG
        sent = [
            part["inlineData"]["data"]
            for content in json.loads(json.dumps(scripted.requests[1]))["contents"]
            for part in content["parts"]
            if "inlineData" in part
        ]
        assert sent == [base64.b64encode(PNG + b"cat").decode(), DATA]
