"""Providers of models come from the operator's list. A start refuses any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wonder_server.compose.models import make_endpoints
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
    assert found["eu"].family("eu") == "bedrock" and found["eu"].options["n"] == "5"
    assert found["ollama"].family("ollama") == "openai" and not found["ollama"].uses_litellm


def test_keys_headers_and_options_are_never_shown() -> None:
    settings = load({}, {"WONDER_PROVIDERS": json.dumps([GROQ, BEDROCK])})
    assert "gsk_of" not in repr(settings) and "a-team-name" not in repr(make_endpoints(settings))
    assert {"gsk_of_the_test_1234", "a-team-name", "eu-central-1"} <= set(settings.secrets())


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
