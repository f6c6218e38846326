"""Providers that read credentials from the machine find none and call no metadata service."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from tests.conformance.models.subjects import ask, collect
from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.litellm.model import LiteLLMModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Nowhere:
    """A resolver that knows no name and records the queries."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        raise OSError("no such name")


class Watched(Dialer):
    """A dialer that records every host, including literal addresses."""

    def __init__(self, names: Nowhere) -> None:
        super().__init__(names)
        self.dialed: list[str] = []

    async def connect(self, host: str, port: int, policy: object) -> object:  # type: ignore[override]
        self.dialed.append(host)
        return await super().connect(host, port, policy)  # type: ignore[arg-type]


CLOUDS = {
    "bedrock": {"aws_region_name": "eu-central-1"},
    "sagemaker_chat": {"aws_region_name": "eu-central-1"},
    "vertex_ai": {"vertex_project": "p", "vertex_location": "europe-west1"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cloud() -> AsyncIterator[tuple[LiteLLMModel, Watched]]:
    """Return one model for all clouds, because its helper process takes seconds to start."""
    dialer = Watched(Nowhere())
    egress = Egress(dialer)
    endpoints = {
        name: Endpoint(format=f"litellm/{name}", options=options) for name, options in CLOUDS.items()
    }
    model = LiteLLMModel(endpoints, egress)
    yield model, dialer
    await model.close()
    await egress.close()


@pytest.mark.parametrize("known_as", CLOUDS)
async def test_no_metadata_service_is_asked_for_credentials(
    cloud: tuple[LiteLLMModel, Watched], known_as: str
) -> None:
    if known_as != "vertex_ai" and importlib.util.find_spec("boto3") is None:
        pytest.skip("boto3 is not installed")
    model, dialer = cloud
    profile = ModelProfile(provider=known_as, model="anthropic.claude-v2")
    with pytest.raises(WonderError) as refused:
        await collect(model, profile, ask("openai_chat", "Hi"))
    assert refused.value.fault.reason in (Reason.MODEL_FAILED, Reason.MODEL_UNAVAILABLE)
    assert not [host for host in dialer.dialed if host.startswith(("169.254.", "fd", "metadata"))]
