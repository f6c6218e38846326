"""Models with failing providers: feature I1, and the timeouts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.conformance.models.subjects import KEY, RemoteSubject, ask, collect
from tests.fakes.provider import Provider, Script
from wonder_server.adapters.models.litellm.model import LiteLLMModel
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.model import Usage

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLASS_NAMES = ("litellm", "OpenAIException", "AnthropicException", "Error:", "Traceback")


async def fault_of(subject: RemoteSubject, case: str, **patience: int) -> Fault:
    with pytest.raises(WonderError) as raised:
        await collect(subject.model, *subject.case(case, **patience))
    fault = raised.value.fault
    assert KEY not in fault.message
    assert not any(name in fault.message for name in CLASS_NAMES), fault.message
    return fault


@pytest.mark.parametrize("case", ["429", "500", "502", "503", "529"])
async def test_a_provider_in_trouble_may_be_asked_again(remote: RemoteSubject, case: str) -> None:
    fault = await fault_of(remote, case)

    assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, True)
    assert "scripted error" in fault.message


async def test_a_busy_provider_says_when_to_come_back(remote: RemoteSubject) -> None:
    assert (await fault_of(remote, "429-retry-after")).retry_after_ms == 7000
    assert (await fault_of(remote, "429")).retry_after_ms is None


async def test_a_busy_provider_says_when_to_come_back_by_date(
    remote: RemoteSubject, provider: Provider
) -> None:
    until = datetime.now(UTC) + timedelta(seconds=60)
    provider.script("429-date", Script(status=429, retry_after=format_datetime(until, usegmt=True)))

    pause = (await fault_of(remote, "429-date")).retry_after_ms

    assert pause is not None and 50_000 <= pause <= 61_000


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("400", "refused"),
        ("401", "auth"),
        ("403", "auth"),
        ("404", "not_found"),
        ("too-long", "context_length"),
    ],
)
async def test_a_request_that_is_wrong_is_not_tried_again(
    remote: RemoteSubject, case: str, kind: str
) -> None:
    fault = await fault_of(remote, case)

    assert (fault.reason, fault.transient) == (Reason.MODEL_FAILED, False)
    assert fault.metadata["kind"] == kind


@pytest.mark.parametrize("case", ["429", "500", "400", "break-abort", "break-eof"])
async def test_one_call_is_one_attempt(remote: RemoteSubject, provider: Provider, case: str) -> None:
    await fault_of(remote, case)

    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "case", ["break-begin", "break-abort", "break-eof", "bad-chunk", "nothing", "error-event"]
)
async def test_an_answer_that_breaks_off_may_be_asked_for_again(remote: RemoteSubject, case: str) -> None:
    fault = await fault_of(remote, case)

    assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, True)


@pytest.mark.parametrize("case", ["stall-headers", "stall-first"])
async def test_silence_before_the_first_token_ends_the_call(
    remote: RemoteSubject, provider: Provider, case: str
) -> None:
    fault = await fault_of(remote, case, first_token_timeout_ms=100)

    assert (fault.reason, fault.transient) == (Reason.TIMEOUT, True)
    assert "did not begin" in fault.message
    await upstream_closes(provider)


async def test_silence_between_chunks_ends_the_call(remote: RemoteSubject, provider: Provider) -> None:
    fault = await fault_of(remote, "stall-chunks", chunk_timeout_ms=100)

    assert (fault.reason, fault.transient) == (Reason.TIMEOUT, True)
    assert "nothing more" in fault.message
    await upstream_closes(provider)


async def test_an_answer_without_end_is_ended(remote: RemoteSubject, provider: Provider) -> None:
    fault = await fault_of(remote, "slow", timeout_ms=200)

    assert (fault.reason, fault.transient) == (Reason.TIMEOUT, True)
    assert "did not finish" in fault.message
    await upstream_closes(provider)


@pytest.mark.parametrize("case", ["slow", "stall-chunks"])
async def test_closing_the_stream_closes_the_request(
    remote: RemoteSubject, provider: Provider, case: str
) -> None:
    chunks = remote.model.stream(*remote.case(case))
    await anext(chunks)

    await chunks.aclose()  # type: ignore[attr-defined]

    await upstream_closes(provider)


@pytest.mark.parametrize("case", ["stall-headers", "stall-first", "stall-chunks"])
async def test_cancelling_the_consumer_closes_the_request(
    remote: RemoteSubject, provider: Provider, case: str
) -> None:
    consumer = asyncio.create_task(collect(remote.model, *remote.case(case)))
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: len(provider.requests) == 1)

    consumer.cancel()

    with pytest.raises(asyncio.CancelledError):
        await consumer
    await upstream_closes(provider)


async def upstream_closes(provider: Provider) -> None:
    """Wait until the client has closed each request. A script that stalls does so for ten minutes."""
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: all(seen.closed_early for seen in provider.requests))


async def test_the_request_reaches_the_provider_unchanged(remote: RemoteSubject, provider: Provider) -> None:
    profile, request = remote.case("text")
    request |= {"temperature": 0.5, "metadata": {"user_id": "u1"}}
    if not (isinstance(remote.model, LiteLLMModel) and remote.format == "openai_chat"):
        request |= {"x_experimental": [1, {"a": None}]}

    await collect(remote.model, profile, request)

    [seen] = provider.requests
    added = {} if remote.format == "gemini" else {"model": "text", "stream": True}
    if remote.format == "openai_chat":
        added |= {"stream_options": {"include_usage": True}}
    assert seen.body == {**request, **added}


@pytest.mark.parametrize("field", ["api_base", "base_url", "api_key", "mock_response", "extra_headers"])
async def test_a_request_cannot_choose_where_it_goes(
    remote: RemoteSubject, provider: Provider, field: str
) -> None:
    profile, request = remote.case("text")
    if isinstance(remote.model, LiteLLMModel) and remote.format == "openai_chat":
        # LiteLLM would use it, so the server passes only listed parameters.
        with pytest.raises(WonderError, match=f"'{field}' is not passed on"):
            await collect(remote.model, profile, {**request, field: "http://127.0.0.1:1"})
        assert not provider.requests
        return

    _, result = await collect(remote.model, profile, {**request, field: "http://127.0.0.1:1"})

    assert result.text == "Hello there, this is a scripted answer."
    assert provider.requests[0].body[field] == "http://127.0.0.1:1", "it is data for the provider, no more"


async def test_a_refusal_is_an_answer(remote: RemoteSubject) -> None:
    _, result = await collect(remote.model, *remote.case("refusal"))

    assert (result.text, result.stop_reason) == ("I will not.", "refusal")


async def test_a_provider_that_says_nothing_answers_with_nothing(remote: RemoteSubject) -> None:
    texts, result = await collect(remote.model, *remote.case("silent"))

    assert (texts, result.text, result.stop_reason) == ([], "", "end")


async def test_a_large_answer_and_a_large_request_pass(remote: RemoteSubject, provider: Provider) -> None:
    provider.script("large", Script(echo=True))
    profile, request = remote.case("large")
    request |= ask(remote.format, "x" * 2_000_000)

    _, result = await collect(remote.model, profile, request)

    assert len(result.text) > 2_000_000


async def test_thinking_is_separate_from_the_text(remote: RemoteSubject) -> None:
    texts, result = await collect(remote.model, *remote.case("thinking"))

    assert "".join(texts) == result.text == "It is so."
    assert result.reasoning == "Let me think."


async def test_tokens_are_counted_as_the_provider_says_those_from_its_cache_included(
    remote: RemoteSubject,
) -> None:
    _, result = await collect(remote.model, *remote.case("text"))

    assert result.usage == Usage(
        input_tokens=11,
        output_tokens=7,
        cached_input_tokens=5,
        cache_write_input_tokens=4 if remote.format == "anthropic_messages" else None,
        reasoning_tokens=3,
    )


async def test_comments_between_events_and_other_line_ends_are_ignored(remote: RemoteSubject) -> None:
    _, result = await collect(remote.model, *remote.case("comments"))

    assert result.text == "one two three four"
