"""Structured output of the action ``llm`` (feature M3)."""

from __future__ import annotations

import pytest

from tests.services.actions.test_actions import ScriptedModel, run
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import NO_USAGE, ModelResult
from wonder_server.ports.model import Finished

SCHEMA: JsonDict = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        ({"provider": "openai", "format": "openai_chat"}, "response_format"),
        ({"provider": "openai", "format": "openai_responses"}, "text"),
        ({"provider": "anthropic", "format": "anthropic_messages"}, "output_config"),
        ({"provider": "gemini", "format": "gemini"}, "generationConfig"),
        # The form of answers that the profile sets stays, so the instructions have the schema.
        (
            {"provider": "openai", "format": "openai_chat", "parameters": {"response_format": {"type": "x"}}},
            "",
        ),
    ],
)
async def test_a_model_is_asked_for_an_object_by_its_providers_own_means(
    profile: JsonDict, field: str
) -> None:
    model = ScriptedModel(Finished(ModelResult(text='{"total": 5}', usage=NO_USAGE)))
    body = {"contents" if profile["format"] == "gemini" else "messages": []}
    if profile["format"] == "openai_responses":
        body = {"input": []}
    asked = {"request": body, "model_profile": {"model": "m", **profile}, "output_schema": SCHEMA}
    answer = await run("llm", asked, model=model)
    assert (answer["output"], answer["problems"]) == ({"total": 5}, [])
    [(_, request)] = model.asked
    assert field in request if field else '"total"' in str(request["messages"])


@pytest.mark.parametrize("text", ['{"total": "five"}', "It is 5.", "", '{"total": 5'])
async def test_an_answer_of_a_model_that_is_not_valid_says_why(text: str) -> None:
    model = ScriptedModel(Finished(ModelResult(text=text, usage=NO_USAGE)))
    answer = await run("llm", {"request": {"messages": []}, "output_schema": SCHEMA}, model=model)
    assert (answer["text"], answer["output"], len(answer["problems"])) == (text, None, 1)


async def test_a_model_is_not_asked_for_an_object_that_cannot_be() -> None:
    with pytest.raises(WonderError, match="output_schema: ") as caught:
        await run("llm", {"request": {}, "output_schema": {"type": "array"}}, model=ScriptedModel())
    assert (caught.value.fault.reason, caught.value.fault.field) == (
        Reason.FIELD_INVALID,
        "output_schema.type",
    )
