"""The models of the suite: the offline model, and native and LiteLLM with a scripted provider.

LiteLLM's helper process takes seconds to start, so the session has one, and everything that uses it
runs on the session's event loop (``pytestmark`` of those files).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conformance.models.subjects import KEY, OfflineSubject, RemoteSubject, Subject
from tests.fakes.provider import Provider, running_provider
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.litellm.model import LiteLLMModel
from wonder_server.adapters.models.native.model import NativeModel
from wonder_server.adapters.models.offline.model import OfflineModel


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_provider() -> AsyncIterator[Provider]:
    async with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: Provider) -> Provider:
    shared_provider.reset()
    return shared_provider


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def egress() -> AsyncIterator[Egress]:
    made = Egress()
    yield made
    await made.close()


def litellm_model(provider: Provider, egress: Egress) -> LiteLLMModel:
    return LiteLLMModel(
        {
            "openai": Endpoint(api_key=KEY, api_base=f"{provider.url}/v1"),
            "anthropic": Endpoint(api_key=KEY, api_base=provider.url),
            "gemini": Endpoint(api_key=KEY),
            "groq": Endpoint(api_key=KEY, api_base="http://127.0.0.1:1/v1"),
            "unlisted": Endpoint(api_base=f"{provider.url}/v1"),
            "cerebras": Endpoint(api_base=f"{provider.url}/v1"),
        },
        egress,
        allow_remote=False,
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def litellm(shared_provider: Provider, egress: Egress) -> AsyncIterator[LiteLLMModel]:
    model = litellm_model(shared_provider, egress)
    yield model
    await model.close()


def native_model(provider: Provider) -> NativeModel:
    return NativeModel(
        {
            "openai": Endpoint(api_key=KEY, api_base=f"{provider.url}/v1"),
            "anthropic": Endpoint(api_key=KEY, api_base=provider.url),
            "gemini": Endpoint(api_key=KEY, api_base=provider.url),
        },
        allow_remote=False,
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def native(shared_provider: Provider) -> AsyncIterator[NativeModel]:
    model = native_model(shared_provider)
    yield model
    await model.close()


FORMATS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
TRANSLATED = ("openai_chat", "anthropic_messages")
"""The formats that the LiteLLM model supports."""


@pytest.fixture(params=FORMATS)
def request_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=TRANSLATED)
def litellm_subject(
    litellm: LiteLLMModel, provider: Provider, request: pytest.FixtureRequest
) -> RemoteSubject:
    return RemoteSubject(litellm, request.param)


@pytest.fixture(params=FORMATS)
def native_subject(native: NativeModel, provider: Provider, request: pytest.FixtureRequest) -> RemoteSubject:
    return RemoteSubject(native, request.param)


REMOTE = [("native", each) for each in FORMATS] + [("litellm", each) for each in TRANSLATED]


@pytest.fixture(params=REMOTE, ids="-".join)
def remote(provider: Provider, request: pytest.FixtureRequest) -> RemoteSubject:
    """Return a model that calls a provider, for each of its formats."""
    name, request_format = request.param
    return RemoteSubject(request.getfixturevalue(name), request_format)


@pytest.fixture(params=[("offline", each) for each in FORMATS] + REMOTE, ids="-".join)
def subject(provider: Provider, request: pytest.FixtureRequest) -> Subject:
    """Return a model, for each of its formats."""
    name, request_format = request.param
    if name == "offline":
        return OfflineSubject(OfflineModel(), request_format)
    return RemoteSubject(request.getfixturevalue(name), request_format)
