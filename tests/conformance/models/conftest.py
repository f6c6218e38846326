"""What the models' suite runs against: the offline model, and LiteLLM before a scripted provider.

LiteLLM's helper process takes seconds to start, so the session has one, and everything that uses it
runs on the session's event loop (``pytestmark`` of those files).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conformance.models.subjects import KEY, LiteLLMSubject, OfflineSubject, Subject
from tests.fakes.provider import Provider, running_provider
from wonder_server.adapters.models.endpoints import Endpoint
from wonder_server.adapters.models.litellm import LiteLLMModel
from wonder_server.adapters.models.offline import OfflineModel


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_provider() -> AsyncIterator[Provider]:
    async with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: Provider) -> Provider:
    shared_provider.reset()
    return shared_provider


def litellm_model(provider: Provider) -> LiteLLMModel:
    return LiteLLMModel(
        {
            "openai": Endpoint(api_key=KEY, api_base=f"{provider.url}/v1"),
            "anthropic": Endpoint(api_key=KEY, api_base=provider.url),
            "gemini": Endpoint(api_key=KEY),
            "groq": Endpoint(api_key=KEY, api_base="http://127.0.0.1:1/v1"),
            "nobody": Endpoint(api_base=f"{provider.url}/v1"),
            "cerebras": Endpoint(api_base=f"{provider.url}/v1"),
        },
        allow_remote=False,
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def litellm(shared_provider: Provider) -> AsyncIterator[LiteLLMModel]:
    model = litellm_model(shared_provider)
    yield model
    await model.close()


@pytest.fixture(params=["openai_chat", "anthropic_messages"])
def request_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def litellm_subject(litellm: LiteLLMModel, provider: Provider, request_format: str) -> LiteLLMSubject:
    return LiteLLMSubject(litellm, request_format)


@pytest.fixture(params=["offline", "litellm"])
def subject(request: pytest.FixtureRequest, request_format: str) -> Subject:
    if request.param == "offline":
        return OfflineSubject(OfflineModel(), request_format)
    found: LiteLLMSubject = request.getfixturevalue("litellm_subject")
    return found
