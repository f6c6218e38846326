"""Embedders in a helper process, batching, and the effect of a change of embedder on memories."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from array import array
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.fakes.embedding_provider import EmbeddingProvider
from tests.paths import ROOT
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.embedders.batched import MAX_TEXTS, BatchedEmbedder
from wonder_server.adapters.embedders.hashing import HashingEmbedder
from wonder_server.adapters.embedders.helper import HelperConfig, HelperEmbedder
from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.core.errors import Reason, WonderError

SENTENCE = "We deploy the billing service on Fridays, never on Mondays."


class CountingEmbedder(HashingEmbedder):
    """The built-in embedder with recorded calls; it can be delayed and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.failure: Exception | None = None
        self.resume = asyncio.Event()
        self.resume.set()

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.calls.append(list(texts))
        await self.resume.wait()
        if self.failure is not None:
            raise self.failure
        return await super().embed(texts)


async def test_concurrent_requests_share_one_call_with_each_text_once() -> None:
    inner = CountingEmbedder()
    embedder = BatchedEmbedder(inner)
    answers = await asyncio.gather(*(embedder.embed([f"text {n % 5}", "same"]) for n in range(20)))
    assert len(inner.calls) == 1
    assert sorted(inner.calls[0]) == ["same", *(f"text {n}" for n in range(5))]
    [direct] = await HashingEmbedder().embed(["text 3"])
    assert answers[3][0] == answers[8][0] == direct
    await embedder.embed(["same", "text 1"])
    assert len(inner.calls) == 1, "cached"
    await embedder.close()


async def test_many_texts_are_split_into_calls_of_bounded_size() -> None:
    inner = CountingEmbedder()
    embedder = BatchedEmbedder(inner)
    texts = [f"text {n}" for n in range(3 * MAX_TEXTS + 1)]
    assert await embedder.embed(texts) == await HashingEmbedder().embed(texts)
    assert [len(call) for call in inner.calls] == [MAX_TEXTS] * 3 + [1]
    await embedder.close()


async def test_the_cache_is_bounded() -> None:
    inner = CountingEmbedder()
    embedder = BatchedEmbedder(inner, cache_bytes=3 * (4 * inner.dimensions + 200))
    for text in ("a", "b", "c", "a", "d", "a", "b"):
        await embedder.embed([text])
    assert [call[0] for call in inner.calls] == ["a", "b", "c", "d", "b"]
    await embedder.close()


async def test_cancellation_affects_one_caller_and_an_error_all_and_errors_are_not_cached() -> None:
    inner = CountingEmbedder()
    embedder = BatchedEmbedder(inner)
    inner.resume.clear()
    impatient, patient = (asyncio.create_task(embedder.embed(["tea"])) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    inner.resume.set()
    assert len(await patient) == 1
    inner.failure = ValueError("no")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await embedder.embed(["coffee", "milk"])
    inner.failure = None
    assert len(await embedder.embed(["coffee"])) == 1
    await embedder.close()


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    made = Egress()
    yield made
    await made.close()


@pytest.fixture
async def provider() -> AsyncIterator[EmbeddingProvider]:
    made = EmbeddingProvider()
    await made.start()
    yield made
    await made.stop()


async def test_a_provider_is_reached_through_litellm(
    provider: EmbeddingProvider, environment: dict[str, str], egress: Egress
) -> None:
    """One test for all, because importing LiteLLM takes seconds."""
    inner = HelperEmbedder(
        HelperConfig(
            kind="litellm",
            model="openai/small",
            dimensions=384,
            endpoint=Endpoint(api_key="sk-secret-secret-secret", api_base=provider.url),
            allow_remote=False,
        ),
        egress,
        environment=environment,
    )
    embedder = BatchedEmbedder(inner)
    vectors = await embedder.embed([SENTENCE, "tea", " "])
    expected = await HashingEmbedder().embed([SENTENCE, "tea"])
    for vector, direct in zip(vectors, expected, strict=False):
        assert array("f", vector).tolist() == pytest.approx(array("f", direct).tolist(), abs=1e-5)
    assert len(provider.batches) == 1 and len(provider.batches[0]) == 3

    provider.status = 503
    with pytest.raises(WonderError) as caught:
        await embedder.embed(["milk"])
    assert caught.value.fault.reason is Reason.MODEL_UNAVAILABLE and caught.value.fault.transient
    assert "secret" not in str(caught.value.fault)

    provider.status = 200
    starting = inner._starting
    assert starting is not None
    os.kill(starting.result()._process.pid, signal.SIGKILL)
    await starting.result()._disconnected.wait()
    assert len(await embedder.embed(["milk"])) == 1, "another helper was started"
    await embedder.close()
    with pytest.raises(WonderError):
        await inner.embed(["cocoa"])


async def test_a_remote_provider_is_not_called_if_that_is_forbidden(
    environment: dict[str, str],
    egress: Egress,
) -> None:
    embedder = HelperEmbedder(
        HelperConfig(kind="litellm", model="openai/small", dimensions=384, allow_remote=False),
        egress,
        environment=environment,
    )
    with pytest.raises(WonderError, match="on this machine"):
        await embedder.embed(["tea"])
    await embedder.close()


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is not None, reason="sentence-transformers is installed"
)
async def test_a_local_model_without_its_package_says_what_to_install(
    environment: dict[str, str], egress: Egress
) -> None:
    embedder = HelperEmbedder(
        HelperConfig(kind="local", model="/nowhere", dimensions=384), egress, environment=environment
    )
    with pytest.raises(WonderError, match="pip install sentence-transformers") as caught:
        await embedder.embed(["tea"])
    assert caught.value.fault.reason is Reason.MODEL_FAILED
    await embedder.close()


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None or "LOCAL_MODEL" not in os.environ,
    reason="needs the package sentence-transformers, and LOCAL_MODEL=/a/folder with a model",
)
async def test_a_local_model_knows_meaning(environment: dict[str, str], egress: Egress) -> None:
    folder = os.environ["LOCAL_MODEL"]
    dimensions = int(os.environ.get("LOCAL_DIMENSIONS", "384"))
    embedder = HelperEmbedder(
        HelperConfig(kind="local", model=folder, dimensions=dimensions), egress, environment=environment
    )
    car, automobile, tea = (
        array("f", v) for v in await embedder.embed(["a car", "an automobile", "green tea"])
    )
    assert sum(map(float.__mul__, car, automobile)) > sum(map(float.__mul__, car, tea))
    await embedder.close()


def test_the_extra_is_never_installed_unasked() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        assert "sentence-transformers" not in (ROOT / name).read_text()
