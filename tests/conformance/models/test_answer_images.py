"""Images in answers: every adapter of the model port, and what the accumulators make of bad ones."""

from __future__ import annotations

import base64
from contextlib import aclosing

import pytest

from tests.conformance.models.subjects import RemoteSubject
from tests.fakes.provider import Provider, Script
from wonder_server.adapters.models.formats import accumulator, feed, finish
from wonder_server.core.content.answer_images import MAX_IMAGES, MAX_IMAGES_BYTES
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.model import Finished, TextDelta

DATA = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2000).decode()


@pytest.mark.asyncio(loop_scope="session")
async def test_an_image_comes_with_the_end_and_not_in_the_message(
    remote: RemoteSubject, provider: Provider
) -> None:
    if remote.format == "anthropic_messages":
        pytest.skip("Its models make no images.")
    provider.script("images", Script(text="A cat:", images=(DATA,), caption="Nice?"))
    texts, last = "", None
    async with aclosing(remote.model.stream(*remote.case("images"))) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            if isinstance(chunk, TextDelta):
                texts += chunk.text
            elif isinstance(chunk, Finished):
                last = chunk
    assert last is not None
    assert texts == last.result.text == "A cat:\nNice?"
    [image] = last.images
    assert (image.number, image.data, image.position, image.problem) == (1, DATA, 6, "")
    assert DATA not in str(last.result)


def chat(*urls: object) -> JsonDict:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"choices": [{"delta": {"images": images}, "finish_reason": "stop"}]}


def test_an_address_is_no_content_and_is_not_fetched() -> None:
    gathered = accumulator("openai_chat")
    addresses = ["https://example.com/cat.png", "data:image/png,plain", "data:", None, 7, ""]
    feed(gathered, chat(*addresses))
    assert finish(gathered).text == ""
    assert [image.data for image in gathered.images.found] == [""] * len(addresses)
    assert {image.problem for image in gathered.images.found} == {
        "the provider sent an address instead of the content"
    }


def test_images_beyond_the_limits_have_the_reason() -> None:
    gathered = accumulator("openai_chat")
    feed(gathered, chat("data:image/png;base64," + "A" * (MAX_IMAGES_BYTES + 1)))
    feed(gathered, chat(*[f"data:image/png;base64,AAA{number:x}" for number in range(200)]))
    found = gathered.images.found
    assert len(found) == 100 and found[0].data == "" and found[0].problem.startswith("an answer may have")
    assert sum(bool(image.data) for image in found) == MAX_IMAGES - 1
    assert all(image.problem for image in found[MAX_IMAGES:])


def test_an_image_that_the_end_repeats_is_one_image() -> None:
    gathered = accumulator("openai_responses")
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": DATA}
    feed(gathered, {"type": "response.output_item.done", "output_index": 0, "item": item})
    feed(gathered, {"type": "response.completed", "response": {"status": "completed", "output": [item]}})
    assert len(gathered.images.found) == 1
    place = {"type": "image_generation_call", "id": "ig_1", "status": "completed"}
    assert finish(gathered).raw == {"output": [{**place, "wonder_file": {"image": 1}}]}


def test_an_image_of_geminis_thoughts_is_not_shown() -> None:
    gathered = accumulator("gemini")
    inline = {"inlineData": {"mimeType": "image/png", "data": DATA}}
    parts = [{**inline, "thought": True}, {"inlineData": {"mimeType": 7}}, {"inlineData": "x"}]
    feed(gathered, {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})
    assert gathered.images.found == [] and gathered.character_count < 200
    assert len(finish(gathered).raw["parts"]) == 2
