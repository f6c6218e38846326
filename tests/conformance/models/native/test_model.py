"""The native model: connections, addresses, keys, and responses that are not streams."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.conformance.models.conftest import FORMATS, native_model
from tests.conformance.models.subjects import KEY, RemoteSubject, ask, collect
from tests.conformance.models.test_every_provider import fault_of, upstream_closes
from tests.fakes.provider import Provider, Script
from wonder_server.adapters.egress.dialing import Dialer
from wonder_server.adapters.models.common import provider_errors
from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.common.outages import Outages
from wonder_server.adapters.models.native import exchange
from wonder_server.adapters.models.native.model import NativeModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, Reason, WonderError

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refused(model: NativeModel, profile: ModelProfile) -> Fault:
    with pytest.raises(WonderError) as raised:
        await collect(model, profile, ask(profile.format or "openai_chat", "Hi"))
    return raised.value.fault


# --- connections ---------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def fresh_subject(provider: Provider, request_format: str) -> AsyncIterator[RemoteSubject]:
    """A model without connections.

    The shared model keeps connections of earlier tests, 16 after `test_every_model`. aiohttp takes the one
    that has been idle for the longest time, so consecutive requests have different ports.
    """
    model = native_model(provider)
    yield RemoteSubject(model, request_format)
    await model.close()


async def test_connections_are_used_again(fresh_subject: RemoteSubject, provider: Provider) -> None:
    for case in ("text", "tool", "text"):
        await collect(fresh_subject.model, *fresh_subject.case(case))

    assert len({seen.port for seen in provider.requests}) == 1


async def test_a_refused_request_leaves_its_connection_to_the_next(
    fresh_subject: RemoteSubject, provider: Provider
) -> None:
    await fault_of(fresh_subject, "429")
    await collect(fresh_subject.model, *fresh_subject.case("text"))

    assert len({seen.port for seen in provider.requests}) == 1


async def test_an_answer_does_not_wait_for_the_bodys_end(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the test: an answer that waits for the last words never comes.
    monkeypatch.setattr("wonder_server.adapters.models.common.deadlines.END_WAIT_S", 600)
    model = native_model(provider)
    for name in ("openai_chat", "openai_responses", "anthropic_messages"):
        async with asyncio.timeout(60):
            _, result = await collect(model, *RemoteSubject(model, name).case("late-end"))
        assert result.text == "one two"
    await model.close()
    await upstream_closes(provider)


async def test_a_connection_whose_answer_ends_a_little_later_is_used_again(provider: Provider) -> None:
    model = native_model(provider)
    provider.script("later", Script(text="one two", late_end_ms=50))
    for _ in range(2):
        await collect(model, *RemoteSubject(model, "openai_chat").case("later"))
        assert not provider.requests[-1].ended
        async with asyncio.timeout(60):
            await provider.wait_until(lambda: provider.requests[-1].ended)
        for _ in range(10):  # What was sent has to be read, too.
            await asyncio.sleep(0)
    await model.close()

    assert len({seen.port for seen in provider.requests}) == 1


async def test_a_body_that_does_not_end_is_not_waited_for_long(
    native_subject: RemoteSubject, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "RELEASE_TIMEOUT_S", 0.02)
    monkeypatch.setattr("wonder_server.adapters.models.common.deadlines.END_WAIT_S", 0.02)

    async with asyncio.timeout(60):
        _, result = await collect(native_subject.model, *native_subject.case("late-end"))
        assert result.text == "one two"
        await provider.wait_until(lambda: all(seen.closed_early for seen in provider.requests))


async def test_a_connection_lost_after_the_complete_answer_is_no_error(native_subject: RemoteSubject) -> None:
    _, result = await collect(native_subject.model, *native_subject.case("break-end"))

    assert (result.text, result.stop_reason) == ("one two three four", "end")


async def test_closing_the_model_ends_its_calls_and_refuses_new_ones(provider: Provider) -> None:
    model = native_model(provider)
    subject = RemoteSubject(model, "openai_chat")
    under_way = asyncio.create_task(collect(model, *subject.case("stall-chunks")))
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: len(provider.requests) == 1)

    await model.close()

    with pytest.raises(WonderError) as raised:
        await under_way
    assert raised.value.fault.reason is Reason.MODEL_UNAVAILABLE
    await upstream_closes(provider)
    assert "stopping" in (await refused(model, subject.case("text")[0])).message


async def test_closing_a_model_that_was_never_called_is_fine(provider: Provider) -> None:
    await native_model(provider).close()


async def test_two_hundred_answers_arrive_side_by_side(
    native_subject: RemoteSubject, provider: Provider
) -> None:
    answers = await asyncio.gather(
        *(collect(native_subject.model, *native_subject.case("words-50")) for _ in range(200))
    )

    assert {len(result.text.split()) for _, result in answers} == {50}


async def test_a_slow_reader_does_not_cause_a_timeout_between_chunks(
    native_subject: RemoteSubject, provider: Provider
) -> None:
    """The reader is slower than the timeout between chunks, and the provider is not."""
    profile, request = native_subject.case("words-50", chunk_timeout_ms=50, timeout_ms=600_000)
    said = ""
    pauses = 5
    async with aclosing(native_subject.model.stream(profile, request)) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            said += getattr(chunk, "text", "")
            # From here on the provider has sent everything, so any silence is the reader's.
            await provider.wait_until(lambda: provider.requests[-1].ended)
            if pauses:
                pauses -= 1
                await asyncio.sleep(0.12)

    assert len(said.split()) == 50


async def test_a_keep_alive_is_no_answer(native_subject: RemoteSubject, provider: Provider) -> None:
    provider.script("only-comments", Script(text="never", comments=True, stall="first_token"))

    fault = await fault_of(native_subject, "only-comments", first_token_timeout_ms=100)

    assert (fault.reason, fault.transient) == (Reason.TIMEOUT, True)


STALLED, LOST, REFUSED = (
    (Reason.TIMEOUT, True),
    (Reason.MODEL_UNAVAILABLE, True),
    (Reason.MODEL_FAILED, False),
)
FATES: dict[str, tuple[Reason, bool] | None] = {
    **dict.fromkeys(("text", "parallel", "bad-arguments", "comments", "thinking")),
    **dict.fromkeys(("stall-headers", "stall-first", "stall-chunks", "slow"), STALLED),
    **dict.fromkeys(("break-begin", "break-abort", "break-eof", "bad-chunk", "error-event", "nothing"), LOST),
    **dict.fromkeys(("429", "429-retry-after", "500", "529"), LOST),
    **dict.fromkeys(("401", "too-long"), REFUSED),
}
"""The reason of the fault for each behavior of a provider; None for an answer."""


async def test_a_thousand_calls_with_every_outcome_end_in_time_and_leave_nothing(provider: Provider) -> None:
    model = native_model(provider)
    chance = random.Random(4)
    patience = {"first_token_timeout_ms": 200, "chunk_timeout_ms": 200, "timeout_ms": 400}

    async def call(number: int) -> None:
        case = chance.choice(list(FATES))
        subject = RemoteSubject(model, FORMATS[number % len(FORMATS)])
        hurried = patience if FATES[case] is STALLED else {}
        consumer = asyncio.create_task(collect(model, *subject.case(case, **hurried)))
        if number % 10 == 0:
            await asyncio.sleep(chance.random() / 20)
            consumer.cancel()
        try:
            async with asyncio.timeout(60):
                _, result = await consumer
        except WonderError as problem:
            assert (problem.fault.reason, problem.fault.transient) == FATES[case], case
        except asyncio.CancelledError:
            assert number % 10 == 0
        else:
            assert FATES[case] is None and result.raw, case

    for begin in range(0, 1000, 100):
        await asyncio.gather(*(call(number) for number in range(begin, begin + 100)))

    assert len(provider.requests) <= 1000, "one call is one request"
    async with asyncio.timeout(60):
        await provider.wait_until(
            lambda: all(seen.finished or seen.closed_early for seen in provider.requests)
        )
    await model.close()


async def test_a_timeout_as_the_head_arrives_is_reported(
    native_subject: RemoteSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer fires in the iteration of the event loop in which the response's head arrives."""
    posted = aiohttp.ClientSession.post

    async def post(session: aiohttp.ClientSession, *args: Any, **how: Any) -> aiohttp.ClientResponse:
        response = await posted(session, *args, **how)
        [call] = under_way
        call._time_out(provider_errors.stream_timeout("did not begin to answer", 1))
        return response

    under_way: list[exchange.Exchange] = []
    opened = exchange.Exchange.open

    async def opening(call: exchange.Exchange) -> None:
        under_way.append(call)
        await opened(call)

    monkeypatch.setattr(exchange.Exchange, "open", opening)
    monkeypatch.setattr(aiohttp.ClientSession, "post", post)

    async with asyncio.timeout(60):
        assert (await fault_of(native_subject, "stall-first")).reason is Reason.TIMEOUT


# --- answers that are no streams ---------------------------------------------------------------------


async def test_a_redirect_is_not_followed(native_subject: RemoteSubject, provider: Provider) -> None:
    fault = await fault_of(native_subject, "redirect")

    assert (fault.reason, fault.transient, fault.metadata["kind"]) == (
        Reason.MODEL_FAILED,
        False,
        "refused",
    )
    assert len(provider.requests) == 1


async def test_a_page_instead_of_a_stream_is_an_error(native_subject: RemoteSubject) -> None:
    fault = await fault_of(native_subject, "html")

    assert (fault.reason, fault.transient) == (Reason.MODEL_FAILED, False)
    assert "text/html" in fault.message


async def test_an_error_that_is_said_with_200_is_an_error(native_subject: RemoteSubject) -> None:
    fault = await fault_of(native_subject, "no-stream")

    assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, True)
    assert "overloaded" in fault.message


@pytest.mark.parametrize(
    ("case", "reason"),
    [("error-event-429", Reason.MODEL_UNAVAILABLE), ("error-event-400", Reason.MODEL_FAILED)],
)
async def test_an_error_inside_the_stream_keeps_its_kind(
    native_subject: RemoteSubject, case: str, reason: Reason
) -> None:
    fault = await fault_of(native_subject, case)

    assert (fault.reason, fault.transient) == (reason, reason is Reason.MODEL_UNAVAILABLE)
    assert "scripted error" in fault.message


async def test_a_key_inside_an_error_event_is_blotted_out(
    native_subject: RemoteSubject, provider: Provider
) -> None:
    provider.script("tells", Script(text="one two", error_event=503, error=f"the key was {KEY}"))

    assert "***" in (await fault_of(native_subject, "tells")).message


async def test_an_answer_without_end_is_bounded(
    native_subject: RemoteSubject, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER_BYTES", 20_000)
    provider.script("long", Script(text="word " * 20_000))

    fault = await fault_of(native_subject, "long")

    assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, True)


# --- where it goes, and with which key -----------------------------------------------------------------


async def test_the_key_goes_into_its_header_and_nowhere_else(
    native_subject: RemoteSubject, provider: Provider
) -> None:
    await collect(native_subject.model, *native_subject.case("text"))

    [seen] = provider.requests
    name = {"anthropic_messages": "x-api-key", "gemini": "x-goog-api-key"}.get(
        native_subject.format, "authorization"
    )
    assert [header for header, value in seen.headers.items() if KEY in value] == [name]
    assert KEY not in seen.query + str(seen.body)
    assert seen.query == ("alt=sse" if native_subject.format == "gemini" else "")


async def test_a_server_of_ones_own_is_asked_without_a_key(provider: Provider) -> None:
    model = NativeModel({"openai": Endpoint(api_base=f"{provider.url}/v1/")}, allow_remote=False)

    await collect(model, ModelProfile(provider="openai", model="text"), ask("openai_chat", "Hi"))
    await model.close()

    assert "authorization" not in provider.requests[0].headers


@pytest.mark.parametrize(
    "base", ["", "https://api.openai.com/v1", "http://127.0.0.1.example.com", "http://[::"]
)
async def test_no_other_machine_is_reached_when_that_is_not_allowed(base: str) -> None:
    model = NativeModel({"openai": Endpoint(api_key=KEY, api_base=base)}, allow_remote=False)

    for profile in (ModelProfile(provider="openai", model="m"), ModelProfile(provider="gemini", model="m")):
        fault = await refused(model, profile)
        assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, False)
        assert "this machine" in fault.message


@pytest.mark.parametrize("provider_name", ["openai", "anthropic", "gemini"])
async def test_a_provider_without_a_key_is_not_even_called(provider_name: str) -> None:
    fault = await refused(NativeModel({}), ModelProfile(provider=provider_name, model="m"))

    assert fault.message.startswith(
        f"There is no key for {provider_name}: set {provider_name.upper()}_API_KEY"
    )
    assert (fault.reason, fault.metadata["kind"]) == (Reason.MODEL_FAILED, "auth")


@pytest.mark.parametrize(
    "base", ["api.openai.com", "ftp://x/v1", "http://", "http://a:b@127.0.0.1/", "http://x:99999"]
)
async def test_an_address_that_is_none_is_said_plainly(base: str) -> None:
    model = NativeModel({"openai": Endpoint(api_key=KEY, api_base=base)})

    fault = await refused(model, ModelProfile(provider="openai", model="m"))

    assert (fault.reason, fault.transient) == (Reason.MODEL_FAILED, False)
    assert "WONDER_OPENAI_BASE_URL" in fault.message


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
async def test_a_key_that_cannot_be_one_is_not_shown(key: str) -> None:
    model = NativeModel({"openai": Endpoint(api_key=key)})

    fault = await refused(model, ModelProfile(provider="openai", model="m"))

    assert (fault.reason, fault.metadata["kind"]) == (Reason.MODEL_FAILED, "auth")
    assert key not in fault.message


async def test_a_provider_that_cannot_be_reached_may_be_asked_again() -> None:
    model = NativeModel({"openai": Endpoint(api_key=KEY, api_base="http://127.0.0.1:1/v1")})

    fault = await refused(model, ModelProfile(provider="openai", model="m"))
    await model.close()

    assert (fault.reason, fault.transient) == (Reason.MODEL_UNAVAILABLE, True)
    assert fault.message == "openai (127.0.0.1:1) cannot be reached: connection refused."


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "ollama (models.invalid:80) cannot be reached: the host models.invalid does not exist."),
        (
            {"HTTP_PROXY": "http://me:secret@127.0.0.1:1"},
            "ollama (models.invalid:80) cannot be reached: the proxy: connection refused.",
        ),
    ],
)
async def test_a_provider_that_cannot_be_reached_is_named_with_its_place_and_no_secret(
    environment: dict[str, str], message: str
) -> None:
    async def unknown_host(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    endpoint = Endpoint(format="openai_chat", api_key=KEY, api_base="http://models.invalid/v1?token=secret")
    model = NativeModel({"ollama": endpoint}, environment=environment, dialer=Dialer(resolve=unknown_host))

    fault = await refused(model, ModelProfile(provider="ollama", model="m"))
    await model.close()

    assert fault.message == message


async def test_an_answer_whose_connection_breaks_names_its_provider(
    native_subject: RemoteSubject, provider: Provider
) -> None:
    fault = await fault_of(native_subject, "break-abort")

    name = native_subject.case("text")[0].provider
    place = provider.url.removeprefix("http://")
    assert fault.message.startswith(f"The connection to {name} ({place}) was lost"), fault.message


async def test_a_provider_that_cannot_be_reached_leaves_a_line_and_not_one_for_each_call() -> None:
    model = NativeModel({"openai": Endpoint(api_key=KEY, api_base="http://127.0.0.1:1/v1")})
    with capture_logs() as lines:
        for _ in range(3):
            await refused(model, ModelProfile(provider="openai", model="m"))
    await model.close()

    assert lines == [
        {
            "event": "provider_unreachable",
            "log_level": "warning",
            "component": "models",
            "provider": "openai",
            "problem": "openai (127.0.0.1:1) cannot be reached: connection refused.",
            "calls": 1,
        }
    ]


async def test_a_later_line_about_a_provider_says_how_many_calls_it_stands_for() -> None:
    moments = iter((0.0, 1.0, 59.0, 60.0, 60.0))
    outages = Outages(lambda: next(moments))
    with capture_logs() as lines:
        for _ in range(4):
            outages.record("one", provider_errors.unreachable("one"))
            outages.record("one", provider_errors.STREAM_CUT_OFF)
        outages.record("other", provider_errors.connection_lost("other"))

    assert [(line["provider"], line["calls"]) for line in lines] == [("one", 1), ("one", 3), ("other", 1)]


@pytest.mark.parametrize(
    ("format_name", "reason"),
    [
        ("morse", Reason.NOT_IMPLEMENTED),
        ("gemini", Reason.MODEL_FAILED),
        ("anthropic_messages", Reason.MODEL_FAILED),
    ],
)
async def test_a_format_that_is_not_the_providers_is_refused_plainly(
    native: NativeModel, provider: Provider, format_name: str, reason: Reason
) -> None:
    fault = await refused(native, ModelProfile(provider="openai", model="text", format=format_name))

    assert fault.reason is reason
    assert provider.requests == []


async def test_nothing_shows_a_key(native: NativeModel) -> None:
    assert KEY not in repr(native) + repr(vars(native))


async def test_aiohttp_is_imported_with_the_first_call_only() -> None:
    """The import costs 150 ms and 15 MB, which the start of a server avoids."""
    code = (
        "import sys; from wonder_server.adapters.models.native.model import NativeModel; NativeModel({}); "
        "sys.exit('aiohttp' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=subprocess.DEVNULL)
    assert await process.wait() == 0
