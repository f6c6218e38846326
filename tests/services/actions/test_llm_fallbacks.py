"""Fallbacks of the action ``llm``: which models a call asks, with which request, and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.services.actions.test_actions import CONTEXT, DEFAULT, Nothing, RememberedCalls
from wonder_server.core.definitions.specs import ModelProfile, Pin, PinnedProfile
from wonder_server.core.errors import Fault, Reason, WonderError, not_found
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, Usage
from wonder_server.core.schema.schemas import validate
from wonder_server.ports.model import Chunk, Finished, TextDelta
from wonder_server.services.actions import ACTIONS, ActionCall
from wonder_server.services.actions.contract.services import ModelAccess, Services

DOWN = Fault(reason=Reason.MODEL_UNAVAILABLE, message="It is down.", transient=True)
QUOTA = Fault(reason=Reason.MODEL_FAILED, message="No quota.", metadata={"kind": "quota"})
REFUSED = Fault(reason=Reason.MODEL_FAILED, message="A wrong key.")


@dataclass
class Models:
    """Models by provider, each with the fault that it has, saved profiles, and a record of the calls."""

    faults: dict[str, Fault] = field(default_factory=dict)
    saved: dict[str, Sequence[ModelProfile]] = field(default_factory=dict)
    asked: list[tuple[str, str, JsonDict]] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    starts: int = 0

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        self.asked.append((profile.provider, profile.model, request))
        yield TextDelta("Hel")
        if fault := self.faults.get(profile.provider):
            raise WonderError(fault)
        yield Finished(ModelResult(text="Hello", usage=Usage(input_tokens=3), model=profile.model))

    async def close(self) -> None: ...

    async def pin_profiles(self, reference: str) -> Sequence[PinnedProfile]:
        if reference not in self.saved:
            raise not_found(Reason.DEFINITION_NOT_FOUND, reference)
        pin = Pin(definition_id="def_1", library="team", name="p", revision=1)
        return [PinnedProfile(pin=pin, spec=each) for each in self.saved[reference]]

    async def report_start(self, _scope: Any) -> None:
        self.starts += 1

    def report_usage(self, _scope: Any, usage: Usage) -> None:
        self.usage.append(usage)

    async def run(self, **input: Any) -> Any:
        services = Services(
            models=ModelAccess(model=self, default_profile=DEFAULT, usage_reporter=self, profiles=self),
            memory=RememberedCalls(),
            history=Nothing(),
            network=Nothing(),  # type: ignore[arg-type]
            clock=Nothing(),  # type: ignore[arg-type]
        )
        kind = ACTIONS["llm"]
        assert validate(kind.input_schema, input) == []
        result = await kind.run(ActionCall(input=input, context=CONTEXT, services=services))
        assert validate(kind.output_schema, result) == []
        return result


CHAT = {"model": "m1", "messages": []}


def profile(provider: str = "one", **fields: Any) -> JsonDict:
    return {"provider": provider, "model": "m1", "format": "openai_chat", **fields}


TWO: JsonDict = {"provider": "two", "model": "m2"}
THREE: JsonDict = {"provider": "three", "model": "m3"}


@pytest.mark.parametrize("fault", [DOWN, QUOTA], ids=["down", "quota"])
async def test_the_next_model_answers_when_a_provider_is_unavailable(fault: Fault) -> None:
    models = Models(faults={"one": fault, "two": fault})
    result = await models.run(request=CHAT, model_profile=profile(fallbacks=[TWO, THREE]))
    assert (result["text"], result["model"], result["provider"]) == ("Hello", "m3", "three")
    # The body names the model that is asked.
    assert [(who, model, body["model"]) for who, model, body in models.asked] == [
        ("one", "m1", "m1"),
        ("two", "m2", "m2"),
        ("three", "m3", "m3"),
    ]
    # Each call is counted and charged by itself, those that failed too.
    assert (models.starts, len(models.usage)) == (3, 3)


async def test_a_refusal_is_not_hidden_by_another_model() -> None:
    models = Models(faults={"one": REFUSED})
    with pytest.raises(WonderError, match="wrong key"):
        await models.run(request=CHAT, model_profile=profile(fallbacks=[TWO]))
    assert [who for who, _, _ in models.asked] == ["one"]


async def test_the_error_of_the_last_model_is_that_of_the_call() -> None:
    last = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Two is down.", transient=True)
    models = Models(faults={"one": DOWN, "two": last})
    with pytest.raises(WonderError, match="Two is down") as caught:
        await models.run(request=CHAT, model_profile=profile(fallbacks=[TWO]))
    # So the executor repeats the action, from the first model.
    assert caught.value.fault.transient


async def test_a_model_of_another_format_needs_a_request_in_it() -> None:
    models = Models(faults={"one": DOWN})
    other = {"provider": "anthropic", "model": "m2"}
    with pytest.raises(WonderError, match="It is down"):
        await models.run(request=CHAT, model_profile=profile(fallbacks=[other]))
    body = {"model": "x", "max_tokens": 9, "messages": []}
    result = await models.run(
        request=CHAT, model_profile=profile(fallbacks=[other]), requests={"anthropic_messages": body}
    )
    assert result["provider"] == "anthropic"
    assert models.asked[-1] == ("anthropic", "m2", {**body, "model": "m2"})


async def test_a_saved_profile_has_its_own_fallbacks() -> None:
    saved = [
        ModelProfile(provider="one", model="m1", format="openai_chat"),
        ModelProfile(provider="two", model="m2", format="openai_chat"),
    ]
    models = Models(faults={"one": DOWN}, saved={"team/p": saved})
    assert (await models.run(request=CHAT, model_profile_id="team/p"))["provider"] == "two"
    # Also as a fallback of fields.
    models = Models(faults={"zero": DOWN, "one": DOWN}, saved={"team/p": saved})
    chain = profile("zero", fallbacks=[{"model_profile_id": "team/p"}])
    assert (await models.run(request=CHAT, model_profile=chain))["provider"] == "two"


async def test_fallbacks_go_on_after_a_silent_model() -> None:
    class Silent(Models):
        async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
            if profile.provider == "one":
                self.asked.append((profile.provider, profile.model, request))
                await asyncio.Event().wait()
            async for chunk in super().stream(profile, request):
                yield chunk

    models = Silent()
    result = await models.run(request=CHAT, model_profile=profile(timeout_ms=5, fallbacks=[TWO]))
    assert result["provider"] == "two"


@pytest.mark.parametrize(
    ("input", "reason"),
    [
        ({"model_profile": profile(), "model_profile_id": "team/p"}, Reason.FIELD_INVALID),
        ({"model_profile_id": "team/unknown"}, Reason.DEFINITION_NOT_FOUND),
        (
            {"model_profile": profile(fallbacks=[{"model_profile_id": "team/unknown"}])},
            Reason.DEFINITION_NOT_FOUND,
        ),
        ({"model_profile": profile(fallbacks=[TWO] * 9)}, Reason.FIELD_INVALID),
        ({"model_profile": profile(fallbacks=[{"provider": 7}])}, Reason.DEFINITION_INVALID),
        ({"model_profile": profile(fallbacks="two")}, Reason.DEFINITION_INVALID),
        ({"model_profile": profile(fallbacks=[{}])}, Reason.FIELD_INVALID),
    ],
)
async def test_wrong_fallbacks_are_refused_before_a_model_is_asked(input: Any, reason: Reason) -> None:
    models = Models()
    with pytest.raises(WonderError) as caught:
        await models.run(request=CHAT, **input)
    assert (caught.value.fault.reason, models.asked) == (reason, [])
