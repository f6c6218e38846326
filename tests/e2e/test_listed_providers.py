"""Providers of the operator's list, and one that is not in it, as a client sees them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.fakes.provider import Provider, Script, running_provider
from wonder.v1 import conversation_pb2 as conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "sk-of-the-house-0123456789"


@pytest_asyncio.fixture(loop_scope="session")
async def mine() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        yield running


def definitions(provider: str) -> str:
    profile = {"provider": provider, "model": f"of-{provider}"}
    persona = {
        "system_prompt": "You are played by a script.",
        "model_profile_id": f"{provider}-profile",
        "memory_extraction_workflow_id": "none",
    }
    return "\n---\n".join(
        json.dumps(each)
        for each in (
            {"name": f"{provider}-profile", "model_profile": profile},
            {"name": provider, "persona": persona},
        )
    )


async def test_listed_providers_are_reached_and_others_refused_when_saved(
    mine: Provider, tmp_path: Path
) -> None:
    listed = [
        {
            "name": "house",
            "format": "anthropic_messages",
            "base_url": mine.url,
            "key": KEY,
            "headers": {"X-Team": "blue"},
        },
        {"name": "far", "format": "litellm/openai", "base_url": f"{mine.url}/v1", "key": KEY},
    ]
    environment = {"WONDER_PROVIDERS": json.dumps(listed), "WONDER_DEFAULT_MODEL": "house/of-house"}
    async with serving(tmp_path / "data", environment=environment) as server, server.client() as client:
        await turns(client, mine)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.apply("e2e/listed", definitions("foo"))
        assert "no model provider 'foo'" in str(refused.value.details())
    assert KEY not in json.dumps(server.log)


async def turns(client: Client, mine: Provider) -> None:
    for provider in ("house", "far"):
        mine.script(f"of-{provider}", Script(text=f"Said by {provider}."))
        await client.apply("e2e/listed", definitions(provider))
        await client.agent(provider, f"e2e/listed/{provider}")
        turn, view = await client.turn(await client.open(provider), "Hello?")
        assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
        assert view.text() == f"Said by {provider}."
    house, far = (
        next(seen for seen in mine.requests if seen.model == f"of-{name}") for name in ("house", "far")
    )
    assert house.headers["x-team"] == "blue" and house.headers["x-api-key"] == KEY
    assert far.headers["authorization"] == f"Bearer {KEY}"
