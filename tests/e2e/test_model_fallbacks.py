"""Three providers of one configuration file, each in the format of another, that stand in for each other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.e2e.client import Client
from tests.e2e.journals import assert_replays
from tests.e2e.process import Server, serving
from tests.fakes.provider import Call, Provider, Script, running_provider
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMATS = {"open": "openai_chat", "anth": "anthropic_messages", "gem": "gemini"}
KEYS = {name: f"sk-of-{name}-0123456789" for name in FORMATS}
LOOK = Call(name="recall", arguments='{"query": "seven"}')


@pytest_asyncio.fixture(loop_scope="session")
async def providers() -> AsyncIterator[dict[str, Provider]]:
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(running_provider()) for name in FORMATS}


@pytest_asyncio.fixture(loop_scope="session")
async def server(providers: dict[str, Provider], tmp_path: Path) -> AsyncIterator[Server]:
    """A server with three providers in one file: keys from a file and from variables, prices of their own."""
    key = tmp_path / "key"
    key.write_text(KEYS["gem"])
    keys = {"open": 'key_env = "OPEN_KEY"', "anth": 'key_env = "ANTH_KEY"', "gem": f'key_file = "{key}"'}
    file = tmp_path / "wonder.toml"
    file.write_text(
        "\n".join(
            f'[[providers]]\nname = "{name}"\nformat = "{format_name}"\n{keys[name]}\n'
            f'base_url = "{providers[name].url}{"/v1" if name == "open" else ""}"\n'
            f"context_window_tokens = 50000\nprices = {{input = {place}, output = {10 * place}}}\n"
            for place, (name, format_name) in enumerate(FORMATS.items(), start=1)
        )
    )
    environment = {"OPEN_KEY": KEYS["open"], "ANTH_KEY": KEYS["anth"]}
    async with serving(tmp_path / "data", "--config", str(file), environment=environment) as running:
        yield running


def profile(name: str, provider: str, model: str, **fields: object) -> dict[str, object]:
    spec = {"provider": provider, "model": model, "max_attempts": 1, **fields}
    return {"name": name, "model_profile": spec}


def persona(name: str, first: str) -> dict[str, object]:
    spec = {
        "system_prompt": "You are played by a script.",
        "model_profile_id": first,
        "memory_extraction_workflow_id": "none",
        "tool_ids": ["wonder/std/recall"],
    }
    return {"name": name, "persona": spec}


async def agent(client: Client, name: str, *profiles: dict[str, object]) -> str:
    documents = [*profiles, persona(name, str(profiles[0]["name"]))]
    await client.apply("e2e/fallbacks", "\n---\n".join(map(json.dumps, documents)))
    await client.agent(name, f"e2e/fallbacks/{name}")
    return name


async def chain(client: Client, name: str) -> str:
    """Return an agent whose model has two fallbacks: a profile, and then a provider's model."""
    return await agent(
        client,
        name,
        profile(f"{name}-1", "open", f"{name}-open", fallbacks=[{"model_profile_id": f"{name}-2"}]),
        profile(f"{name}-2", "anth", f"{name}-anth", fallbacks=[{"provider": "gem", "model": f"{name}-gem"}]),
    )


def script(providers: dict[str, Provider], name: str, **scripts: tuple[Script, ...]) -> None:
    for provider, played in scripts.items():
        providers[provider].script(f"{name}-{provider}", *played)


async def test_a_turn_goes_on_with_another_provider_when_one_is_stopped(
    server: Server, providers: dict[str, Provider], tmp_path: Path
) -> None:
    down = (Script(status=503),)
    async with server.client() as client:
        script(
            providers,
            "stopped",
            open=(Script(text="Let me look.", calls=(LOOK,)), *down),
            anth=down,
            gem=(Script(text="Gem answers."),),
        )
        turn, view = await client.turn(await client.open(await chain(client, "stopped")), "Hello?")
        assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
        assert view.text() == "Let me look.\nGem answers."
        switches = [event.model_switched for event in view.events if event.name == "model.switched"]
        assert [(each.from_provider, each.to_provider) for each in switches] == [
            ("open", "anth"),
            ("anth", "gem"),
        ]
        assert switches[0].from_model_profile == "e2e/fallbacks/stopped-1@1"
        host = providers["open"].url.removeprefix("http://")
        assert f"Provider open at {host}, model stopped-open, model profile" in switches[0].error.message
        moves = await client.conversations.ListMoves(
            pb.ListMovesRequest(conversation_id=turn.conversation_id, turn_id=turn.id)
        )
        recorded = sorted(moves.moves, key=lambda each: each.sequence)
        answered = [(each.provider, each.model_profile.rpartition("/")[2]) for each in recorded]
        assert answered == [("open", "stopped-1@1"), ("gem", "stopped-2@1")]
        # The price of each is its provider's own.
        for move, place in zip(recorded, (1, 3), strict=True):
            expected = place * move.usage.input_tokens + 10 * place * move.usage.output_tokens
            assert move.usage.cost_micros == expected > 0
        [asked] = [seen for seen in providers["gem"].requests if seen.model == "stopped-gem"]
        assert asked.headers["x-goog-api-key"] == KEYS["gem"] and "Let me look." in json.dumps(asked.body)
    await server.stop()
    assert await assert_replays(tmp_path / "data")
    assert not any(key in json.dumps(server.log) for key in KEYS.values())


async def test_text_that_a_dying_provider_sent_is_dropped(
    server: Server, providers: dict[str, Provider]
) -> None:
    async with server.client() as client:
        script(
            providers,
            "dying",
            open=(Script(text="one two three four", break_off="abort"),),
            anth=(Script(text="All said by another."),),
        )
        turn, view = await client.turn(await client.open(await chain(client, "dying")), "Hello?")
        assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
        assert view.text() == "All said by another."
        [message] = [each for each in view.messages.values() if each.role == conversation.MESSAGE_ROLE_AGENT]
        assert not message.partial and not view.texts


async def test_a_wrong_key_fails_the_turn_and_names_where(
    server: Server, providers: dict[str, Provider]
) -> None:
    async with server.client() as client:
        script(providers, "locked", open=(Script(status=401),), anth=(Script(text="never"),))
        turn, _ = await client.turn(await client.open(await chain(client, "locked")), "Hello?")
        assert turn.status == conversation.TURN_STATUS_FAILED
        assert turn.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED
        host = providers["open"].url.removeprefix("http://")
        assert f"Provider open at {host}" in turn.error.message and "locked-1@1" in turn.error.message
        assert KEYS["open"] not in str(turn)
        assert not any(seen.model == "locked-anth" for seen in providers["anth"].requests)


@pytest.mark.parametrize(
    ("fallbacks", "said"),
    [
        ([{"model_profile_id": "self-1"}], "leads back to itself"),
        ([{"model_profile_id": "self-2"}], "leads back to itself"),
        ([{"provider": "open", "model": "m"}], "the model of the profile itself"),
        ([{"model_profile_id": "nowhere"}], "There is no model profile"),
        ([{"model_profile_id": "self"}], "is a persona, not a model profile"),
        ([{"provider": "foo", "model": "m"}], "no model provider 'foo'"),
        ([{"provider": "auto", "model": "m"}], "Name a provider"),
        ([{"provider": "anth"}], "a model_profile_id, or a provider with a model"),
        ([{}], "a model_profile_id, or a provider with a model"),
        ([{"provider": "anth", "model": f"m{n}"} for n in range(9)], "at most 8"),
    ],
)
async def test_a_fallback_that_cannot_help_is_refused_when_saved(
    server: Server, fallbacks: list[dict[str, str]], said: str
) -> None:
    async with server.client() as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await agent(
                client,
                "self",
                profile("self-1", "open", "m", fallbacks=fallbacks),
                profile("self-2", "anth", "m", fallbacks=[{"model_profile_id": "self-1"}]),
            )
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert said in str(refused.value.details()) + str(refused.value.trailing_metadata())


TRANSLATE = """
name: translate
task:
  input_schema: {{type: object, properties: {{text: {{type: string}}}}}}
  steps:
    - id: ask
      action: {{kind: llm, max_attempts: 2, backoff_ms: 1}}
      input_mapping:
        model_profile_id: '"e2e/fallbacks/{name}-1"'
        request: '{{"model": "{name}-open", "messages": [{{"role": "user", "content": input.text}}]}}'
        requests: |-
          {{"anthropic_messages":
            {{"model": "x", "max_tokens": 9, "messages": [{{"role": "user", "content": input.text}}]}}}}
      output_mapping: {{output.text: result.text, output.provider: result.provider}}
---
name: translation
workflow:
  nodes:
    - id: all
      task_id: translate
      input_mapping: {{text: input.text}}
      output_mapping: {{output.text: result.text, output.provider: result.provider}}
"""


async def test_the_action_llm_goes_on_with_another_provider(
    server: Server, providers: dict[str, Provider]
) -> None:
    async with server.client() as client:
        await chain(client, "action")
        await client.apply("e2e/translations", TRANSLATE.format(name="action"))
        # The third format has no request, so the second failure ends the attempt; the next begins anew.
        down = (Script(status=503),)
        script(providers, "action", open=down * 2, anth=(*down, Script(text="Bonjour.")))
        request = runs.StartRunRequest(
            workflow_id="e2e/translations/translation", input={"text": "Hello."}, wait_ms=60_000
        )
        run = (await client.coordinator.StartRun(request)).run
        assert dict(run.output) == {"text": "Bonjour.", "provider": "anth"}, run
        asked = {name: [seen.model for seen in providers[name].requests] for name in FORMATS}
        calls = {name: found.count(f"action-{name}") for name, found in asked.items()}
        assert calls == {"open": 2, "anth": 2, "gem": 0}
        # Every call counts, also those that failed; the tokens are those of the answer.
        counted = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run.id))).run.usage
        assert counted.model_calls == 4
