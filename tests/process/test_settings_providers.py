"""Providers of models come from the operator's list. A start refuses any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wonder_server.compose.models import make_endpoints, own_prices
from wonder_server.settings import TABLE, SettingsError, load

GROQ = {
    "name": "groq",
    "format": "litellm",
    "key": "gsk_of_the_test_1234",
    "headers": {"X-Team": "a-team-name"},
}
OLLAMA = {"name": "ollama", "format": "openai_chat", "base_url": "http://127.0.0.1:11434/v1"}
BEDROCK = {"name": "eu", "format": "litellm/bedrock", "options": {"aws_region_name": "eu-central-1", "n": 5}}


def test_providers_are_json_or_tables_of_the_config_file(tmp_path: Path) -> None:
    by_json = load({}, {"WONDER_PROVIDERS": json.dumps([GROQ, OLLAMA, BEDROCK])})
    file = tmp_path / "wonder.toml"
    file.write_text(
        '[[providers]]\nname = "groq"\nformat = "litellm"\nkey = "gsk_of_the_test_1234"\n'
        'headers = {"X-Team" = "a-team-name"}\n'
        '[[providers]]\nname = "ollama"\nformat = "openai_chat"\nbase_url = "http://127.0.0.1:11434/v1"\n'
        '[[providers]]\nname = "eu"\nformat = "litellm/bedrock"\n'
        '[providers.options]\naws_region_name = "eu-central-1"\nn = 5\n'
    )
    by_file = load({"config": str(file)}, {})
    assert by_json.providers == by_file.providers
    assert by_file.provider_names == {"openai", "anthropic", "gemini", "offline", "groq", "ollama", "eu"}
    found = make_endpoints(by_file)
    assert found["eu"].family("eu") == "bedrock" and found["eu"].options["n"] == 5
    assert found["ollama"].family("ollama") == "openai" and not found["ollama"].uses_litellm


def test_keys_headers_and_options_are_never_shown() -> None:
    settings = load({}, {"WONDER_PROVIDERS": json.dumps([GROQ, BEDROCK])})
    assert "gsk_of" not in repr(settings) and "a-team-name" not in repr(make_endpoints(settings))
    assert {"gsk_of_the_test_1234", "a-team-name", "eu-central-1"} <= set(settings.secrets())


def test_a_key_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-of-the-file-123\n")
    listed = [
        {"name": "one", "format": "anthropic_messages", "key_env": "HOUSE_KEY"},
        {"name": "two", "format": "openai_chat", "key_file": str(file), "base_url": "http://127.0.0.1:1/v1"},
        {"name": "three", "format": "openai_chat", "base_url": "http://127.0.0.1:2/v1"},
    ]
    settings = load({}, {"WONDER_PROVIDERS": json.dumps(listed), "HOUSE_KEY": " sk-of-the-house-1 "})
    assert [each.key for each in settings.providers] == ["sk-of-the-house-1", "sk-of-the-file-123", ""]
    assert {"sk-of-the-house-1", "sk-of-the-file-123"} <= set(settings.secrets())
    found = make_endpoints(settings)
    assert [found[name].api_base for name in ("two", "three")] == [
        "http://127.0.0.1:1/v1",
        "http://127.0.0.1:2/v1",
    ]
    for content in (b"", b"two\nlines", "schl\u00fcssel".encode(), b"x" * 70_000):
        file.write_bytes(content)
        with pytest.raises(SettingsError, match="the provider two takes its key from the file") as caught:
            load({}, {"WONDER_PROVIDERS": json.dumps(listed), "HOUSE_KEY": "k"})
        assert "lines" not in str(caught.value)


def test_prices_and_windows_are_of_a_model_or_of_all_models_of_a_provider() -> None:
    prices = {"input": 0.25, "output": 1, "cached": 0.025, "cache_write": 0.3, "reasoning": 2}
    house = {
        "name": "house",
        "format": "openai_chat",
        "context_window_tokens": 32_000,
        "prices": prices,
        "models": {"big": {"context_window_tokens": 100_000}, "dear": {"prices": {"input": 5, "output": 10}}},
    }
    own = own_prices(load({}, {"WONDER_PROVIDERS": json.dumps([house, GROQ])}))
    assert set(own) == {("house", ""), ("house", "big"), ("house", "dear")}
    [tier] = own["house", ""].tiers
    assert (tier.input, tier.output, tier.cached, tier.cache_write, tier.reasoning) == (
        *(250_000, 1_000_000, 25_000),
        *(300_000, 2_000_000),
    )
    assert own["house", "big"].tiers == (tier,) and own["house", "big"].context_tokens == 100_000
    assert own["house", "dear"].tiers[0].cached == 5_000_000
    assert own["house", "dear"].context_tokens == 32_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "expected a list"),
        ("{}", "expected a list"),
        ('["groq"]', "needs a name"),
        ('[{"name": "A b", "format": "litellm"}]', "needs a name"),
        ('[{"name": "offline", "format": "litellm"}]', "the server's own"),
        ('[{"name": "a"}]', "needs a format"),
        ('[{"name": "a", "format": "morse"}]', "needs a format"),
        ('[{"name": "a", "format": "litellm/../b"}]', "needs a format"),
        ('[{"name": "a", "format": "litellm", "api_key": "sk-secret"}]', "has no api_key"),
        ('[{"name": "a", "format": "litellm", "base_url": "file:///etc"}]', "needs a base_url"),
        ('[{"name": "a", "format": "gemini", "base_url": "http://u:p@a/"}]', "needs a base_url"),
        ('[{"name": "a", "format": "gemini", "base_url": "http://[::1"}]', "needs a base_url"),
        ('[{"name": "a", "format": "gemini", "options": {"x": "y"}}]', "only litellm takes"),
        ('[{"name": "a", "format": "gemini", "headers": {"a b": "c"}}]', "cannot be sent"),
        ('[{"name": "a", "format": "gemini", "headers": {"a": "b\\r\\nc: d"}}]', "cannot be sent"),
        ('[{"name": "a", "format": "gemini", "key": 5}]', "needs texts"),
        ('[{"name": "a", "format": "gemini", "key": "x", "key_env": "Y"}]', "takes one of"),
        ('[{"name": "a", "format": "gemini", "key": "sk-secret\\u00e9"}]', "cannot be sent"),
        ('[{"name": "a", "format": "gemini", "key_env": "A=B"}]', "name of a variable"),
        ('[{"name": "a", "format": "gemini", "key_file": "key.txt"}]', "absolute path"),
        ('[{"name": "a", "format": "gemini", "key_env": "NOT_SET"}]', "NOT_SET, which is not set"),
        ('[{"name": "a", "format": "gemini", "key_file": "/nowhere/key"}]', "cannot be read: No such file"),
        (
            '[{"name": "a", "format": "litellm", "options": {"api_key": "sk-secret"}}]',
            "cannot set the option",
        ),
        ('[{"name": "a", "format": "litellm", "options": {"x": {}}}]', "needs an object"),
        ('[{"name": "a", "format": "gemini", "prices": {"input": 1}}]', "both input and output"),
        ('[{"name": "a", "format": "gemini", "prices": {"input": -1, "output": 1}}]', "price input"),
        ('[{"name": "a", "format": "gemini", "prices": {"input": NaN, "output": 1}}]', "price input"),
        ('[{"name": "a", "format": "gemini", "prices": {"input": "1", "output": 1}}]', "price input"),
        ('[{"name": "a", "format": "gemini", "prices": {"in": 1, "output": 1}}]', "has prices for"),
        ('[{"name": "a", "format": "gemini", "prices": {"inputt": 1, "output": 1}}]', "none for 'inputt'"),
        ('[{"name": "a", "format": "gemini", "models": {"m": {"price": 1}}}]', "context_window_tokens and"),
        ('[{"name": "a", "format": "gemini", "models": ["m"]}]', "object of models"),
        ('[{"name": "a", "format": "gemini", "context_window_tokens": true}]', "a number from 0"),
        ("[" * 5_000, "expected a list"),
        ('[{"name": "a", "format": "gemini"}, {"name": "a", "format": "litellm"}]', "listed twice"),
    ],
)
def test_an_invalid_provider_is_refused_without_its_secrets(given: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        load({}, {"WONDER_PROVIDERS": given})
    assert "sk-secret" not in str(caught.value) and "WONDER_PROVIDERS" in str(caught.value)


@pytest.mark.parametrize("chosen", ["foo/bar", "groq/llama", "opena/gpt", "gpt-5", "openai/", "/gpt"])
def test_a_model_of_an_unknown_provider_is_refused_at_the_start(chosen: str) -> None:
    with pytest.raises(SettingsError, match="default_model: "):
        load({"default_model": chosen}, {})
    with pytest.raises(SettingsError, match="no model provider 'groq'"):
        load({}, {"WONDER_EMBEDDER": "groq/e", "WONDER_EMBEDDER_DIMENSIONS": "8"})


def test_a_model_of_a_listed_or_built_in_provider_is_accepted() -> None:
    listed = {"WONDER_PROVIDERS": json.dumps([GROQ])}
    for chosen in ("groq/llama/4", "openai/gpt", "offline", ""):
        assert load({"default_model": chosen}, listed).default_model == chosen
    with pytest.raises(SettingsError, match="Did you mean openai"):
        load({"default_model": "opena/gpt"}, {})


def test_an_embedder_needs_a_listed_or_built_in_provider() -> None:
    cohere = {"name": "cohere", "format": "litellm"}
    chosen = {"embedder": "cohere/embed-v4", "embedder_dimensions": "1024"}
    with pytest.raises(
        SettingsError, match=r"no model provider 'cohere'.* Add others with \[\[providers\]\]"
    ):
        load(chosen, {})
    assert load(chosen, {"WONDER_PROVIDERS": json.dumps([cohere])}).embedder == "cohere/embed-v4"
    [row] = [row for row in TABLE if row.name == "embedder"]
    assert "[[providers]]" in row.help and "as LiteLLM knows it" not in row.help
