"""The requests of the native model, without sending them."""

from __future__ import annotations

import json

import pytest

from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.native.requests import ProviderRequest, build_request
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict, JsonValue

FORMATS = {"openai": "openai_chat", "anthropic": "anthropic_messages", "gemini": "gemini"}


def built(
    provider: str = "openai",
    base: str = "",
    *,
    model: str = "m",
    format_name: str = "",
    environment: dict[str, str] | None = None,
    request: JsonDict | None = None,
    **parameters: JsonValue,
) -> ProviderRequest:
    profile = ModelProfile(provider=provider, model=model, format=format_name, parameters=parameters)
    endpoint = Endpoint(api_key="sk-secret-of-mine", api_base=base)
    return build_request(profile, request or {"messages": []}, endpoint, environment or {})


@pytest.mark.parametrize(
    ("provider", "format_name", "base", "url"),
    [
        ("openai", "", "", "https://api.openai.com/v1/chat/completions"),
        ("openai", "openai_responses", "", "https://api.openai.com/v1/responses"),
        ("openai", "", "http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1/chat/completions"),
        ("openai", "", "https://x.net/openai/v1?api-version=1", "https://x.net/openai/v1/chat/completions?api-version=1"),
        ("anthropic", "", "", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "", "https://proxy.net/claude/v1", "https://proxy.net/claude/v1/messages"),
        ("gemini", "", "", "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("gemini", "", "http://[::1]:9/v1", "http://[::1]:9/v1/models/m:streamGenerateContent?alt=sse"),
        ("gemini", "", "http://h/?a=b#c", "http://h/v1beta/models/m:streamGenerateContent?a=b&alt=sse"),
    ],
)  # fmt: skip
def test_each_format_has_its_address(provider: str, format_name: str, base: str, url: str) -> None:
    assert built(provider, base, format_name=format_name).url == url


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("models/gemini-x", "/v1beta/models/gemini-x:"),
        ("tunedModels/mine", "/v1beta/tunedModels/mine:"),
        ("../../evil?x=", "/v1beta/models/..%2F..%2Fevil%3Fx%3D:"),
        ("models/../../evil", "/v1beta/models/..%2F..%2Fevil:"),
        ("a b\n#c", "/v1beta/models/a%20b%0A%23c:"),
        ("é", "/v1beta/models/%C3%A9:"),
    ],
)
def test_a_models_name_cannot_lead_elsewhere(model: str, path: str) -> None:
    assert path in built("gemini", model=model).url


def test_the_body_is_the_request_with_what_it_leaves_open() -> None:
    request = {"messages": [{"role": "user", "content": "Łódź"}], "temperature": 0.9, "model": "another"}

    body = json.loads(built(request=request, temperature=0.1, seed=7, token_delay_ms=5).body)

    assert body == {
        **request, "seed": 7, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


SAID = [{"role": "user", "parts": [{"text": "Hello?"}]}]


def test_geminis_model_is_in_the_address_and_not_in_the_body() -> None:
    asked = built("gemini", request={"contents": SAID, "model": "another"})

    assert "/models/another:" in asked.url
    assert json.loads(asked.body) == {"contents": SAID}


def test_anthropic_wants_a_limit() -> None:
    assert json.loads(built("anthropic").body)["max_tokens"] == 4096
    assert json.loads(built("anthropic", request={"messages": [], "max_tokens": 5}).body)["max_tokens"] == 5


@pytest.mark.parametrize(
    ("odd", "as_sent"),
    [(10**30, 10**30), ("\ud83d", "\ufffd"), ("a\x00b", "ab"), ({"\ud83d": ["\x00"]}, {"\ufffd": [""]})],
)
def test_what_json_can_say_is_sent_and_what_no_text_can_is_not(odd: JsonValue, as_sent: JsonValue) -> None:
    body = json.loads(built(request={"messages": [], "odd": odd}).body)

    assert body["odd"] == as_sent


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(WonderError, match="cannot be written as JSON"):
        built(request={"messages": [], "odd": object()})
    with pytest.raises(WonderError, match="is not a text"):
        built(request={"model": 5})


def test_nothing_shows_a_key_or_the_proxys_password() -> None:
    asked = built(environment={"HTTPS_PROXY": "http://me:hunter2@proxy:3128"})

    assert asked.proxy == "http://me:hunter2@proxy:3128"
    assert "secret" not in repr(asked) and "hunter2" not in repr(asked)


@pytest.mark.parametrize(
    ("base", "environment", "proxy"),
    [
        ("https://a.net/v1", {"https_proxy": "proxy:1"}, "http://proxy:1"),
        ("https://a.net/v1", {"http_proxy": "proxy:1"}, None),
        ("http://a.net/v1", {"HTTP_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("https://a.net/v1", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "b.net, a.net"}, None),
        ("https://sub.a.net/v1", {"HTTPS_PROXY": "http://proxy:1", "no_proxy": ".a.net"}, None),
        ("http://127.0.0.1:5/v1", {"HTTP_PROXY": "http://proxy:1"}, None),
        ("http://localhost/v1", {"HTTP_PROXY": "http://proxy:1"}, None),
        ("https://a.net/v1", {}, None),
    ],
)
def test_the_environments_proxy_is_used_but_never_for_this_machine(
    base: str, environment: dict[str, str], proxy: str | None
) -> None:
    assert built(base=base, environment=environment).proxy == proxy
