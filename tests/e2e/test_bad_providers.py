"""Providers that cannot be used: at the start, when a definition is saved, and in a turn (feature M7)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.fakes.provider import Provider, Script, running_provider
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import errors_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "sk-secret-of-the-house-0123456789"

GOOD = f'[[providers]]\nname = "good"\nformat = "openai_chat"\nkey = "{SECRET}"\n'
BAD_STARTS = {
    "no variable": ('key_env = "UNSET_KEY_OF_A_TEST"', "UNSET_KEY_OF_A_TEST, which is not set"),
    "an empty variable": ('key_env = "EMPTY_KEY"', "EMPTY_KEY, which is not set"),
    "no file": ('key_file = "FOLDER/nowhere"', "cannot be read: No such file"),
    "an empty file": ('key_file = "FOLDER/empty"', "must hold the key alone"),
    "a file of 1 MB": ('key_file = "FOLDER/large"', "must hold the key alone"),
    "an unreadable file": ('key_file = "FOLDER/folder"', "cannot be read: Is a directory"),
    "two keys in a file": ('key_file = "FOLDER/two"', "must hold the key alone"),
    "a relative file": ('key_file = "empty"', "absolute path"),
    "two sources of keys": (f'key = "{SECRET}"\nkey_env = "HOME"', "takes one of"),
    "an address that is no URL": ('base_url = "ftp://127.0.0.1"', "needs a base_url"),
    "an address that is a number": ('base_url = "http://2852039166/v1"', "needs a base_url"),
    "an address without a port": ('base_url = "http://127.0.0.1:99999/v1"', "needs a base_url"),
    "a metadata service": ('base_url = "http://169.254.169.254/v1"', "has a base_url that is never reached"),
    "a metadata service inside IPv6": ('base_url = "http://[::ffff:169.254.169.254]/"', "is never reached"),
    "another metadata service": ('base_url = "http://[fd00:ec2::254]/"', "is never reached"),
    "a metadata service by name": ('base_url = "http://metadata.google.internal/"', "is never reached"),
    "a link-local address": ('base_url = "http://[fe80::1]:8080/v1"', "is never reached"),
    "a negative price": ("prices = {input = -1, output = 1}", "price input"),
    "an absurd price": ("prices = {input = 1, output = 1e300}", "price output"),
    "an infinite price": ("prices = {input = inf, output = 1}", "price input"),
    "a price that is no number": ("prices = {input = nan, output = 1}", "price input"),
    "a price in words": ('prices = {input = "cheap", output = 1}', "price input"),
    "half a price": ("prices = {input = 1}", "both input and output"),
    "a negative window": ("context_window_tokens = -5", "context_window_tokens"),
    "options of another format": ("options = {a = 1}", "which only litellm takes"),
    "options that are a list": ("options = [1]", "needs an object of texts for options"),
    "an option that is a list": ('options = {aws_region_name = ["x"]}', "needs an object of texts"),
    "an option that is an object": ("options = {a = {b = 1}}", "needs an object of texts"),
    "an option that is a date": ("options = {a = 2026-01-01}", "needs an object of texts"),
    "an option of the server": (
        f'\n[[providers]]\nname = "far"\nformat = "litellm"\noptions = {{api_key = "{SECRET}"}}',
        "cannot set the option 'api_key'",
    ),
    "a name twice": (f"\n{GOOD}", "the provider good is listed twice"),
}


@pytest.mark.parametrize("name", BAD_STARTS)
async def test_a_start_with_a_bad_provider_ends_with_its_reason_and_makes_nothing(
    name: str, tmp_path: Path
) -> None:
    given, said = BAD_STARTS[name]
    keys = {"empty": "", "large": "x" * 1_000_000, "two": f"{SECRET}\n{SECRET}\n"}
    for file, content in keys.items():
        (tmp_path / file).write_text(content)
    (tmp_path / "folder").mkdir()
    config = tmp_path / "wonder.toml"
    bad = '[[providers]]\nname = "bad"\nformat = "gemini"\n'
    config.write_text(f"{GOOD}{bad}{given.replace('FOLDER', str(tmp_path))}\n")
    data = tmp_path / "data"
    server = Server(data, "--config", str(config), environment={"EMPTY_KEY": " "})
    await server.begin()
    assert not await server.is_ready() and await server.ended() == 2
    shown = "\n".join(map(str, server.log))
    assert said in shown and "provider" in shown, shown
    assert SECRET not in shown and "Traceback" not in shown
    assert not data.exists()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def vendor() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(vendor: Provider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with providers that a start accepts and no turn can use."""
    url, speaks = f"{vendor.url}/v1", "openai_chat"
    listed: list[dict[str, object]] = [
        {"name": "locked", "format": speaks, "base_url": url, "key": SECRET},
        {"name": "claude", "format": "anthropic_messages", "base_url": vendor.url, "key": SECRET},
        {"name": "gems", "format": "gemini", "base_url": vendor.url, "key": SECRET},
        {"name": "far", "format": "litellm/openai", "base_url": url, "key": SECRET},
        {"name": "keyless", "format": speaks, "base_url": url},
        {
            "name": "odd",
            "format": "litellm/azure",
            "base_url": vendor.url,
            "key": SECRET,
            "options": {"api_version": 5},
        },
        {
            "name": "odder",
            "format": "litellm/azure",
            "base_url": vendor.url,
            "options": {"azure_ad_token": True},
        },
    ]
    environment = {
        "WONDER_PROVIDERS": json.dumps(listed),
        "WONDER_ALLOW_REMOTE_MODELS": "true",
        "WONDER_DEFAULT_MODEL": "offline",
        "OPENAI_API_KEY": "",
        "ANTHROPIC_API_KEY": SECRET,
        "WONDER_ANTHROPIC_BASE_URL": "http://169.254.169.254:80",
        "GEMINI_API_KEY": SECRET,
        "WONDER_GEMINI_BASE_URL": "http://[fe80::1]:80",
    }
    data = tmp_path_factory.mktemp("bad") / "data"
    async with serving(data, environment=environment) as server:
        yield server
    assert SECRET not in str(server.log)
    assert not [line for line in server.log if line.get("level") == "error"]


async def failed(server: Server, provider: str, model: str, *, max_attempts: int = 1) -> conversation.Turn:
    """Return the failed turn of an agent with this model."""
    async with server.client() as client:
        documents = (
            {
                "name": f"m-{model}",
                "model_profile": {"provider": provider, "model": model, "max_attempts": max_attempts},
            },
            {
                "name": model,
                "persona": {
                    "system_prompt": "You wait.",
                    "model_profile_id": f"m-{model}",
                    "memory_extraction_workflow_id": "none",
                },
            },
        )
        await client.apply("e2e/bad_providers", "\n---\n".join(map(json.dumps, documents)))
        await client.agent(model, f"e2e/bad_providers/{model}")
        conv = await client.open(model)
        turn, _ = await client.turn(conv, "Hello?")
        assert turn.status == conversation.TURN_STATUS_FAILED
        assert [each.role for each in await client.messages(conv)] == [conversation.MESSAGE_ROLE_USER]
        # The next message finds the conversation as it was.
        again, _ = await client.turn(conv, "And now?")
        assert again.error.reason == turn.error.reason
        everything = f"{turn} {await client.events(conv)} {await client.moves(turn.id, conv)}"
        assert SECRET not in everything and "Traceback" not in everything
        return turn


@pytest.mark.parametrize("provider", ["locked", "claude", "gems", "far", "keyless"])
async def test_a_refused_key_names_provider_address_and_profile_and_no_secret(
    place: Server, vendor: Provider, provider: str
) -> None:
    model = f"shut-{provider}"
    vendor.script(model, Script(status=401, error=f"Incorrect API key provided: {SECRET}."))
    turn = await failed(place, provider, model)
    assert turn.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED
    assert turn.error.metadata["kind"] == "auth"
    host = vendor.url.removeprefix("http://")
    for named in (f"Provider {provider} at {host}", f"model {model}", f"e2e/bad_providers/m-{model}@1"):
        assert named in turn.error.message, turn.error.message
    assert len([seen for seen in vendor.requests if seen.model == model]) == 2, "one call for each turn"


async def test_a_provider_without_a_key_fails_the_turn_and_names_the_variable(place: Server) -> None:
    turn = await failed(place, "openai", "none")
    assert turn.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED
    assert turn.error.metadata["kind"] == "auth" and "set OPENAI_API_KEY" in turn.error.message


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
async def test_a_forbidden_address_is_never_asked_and_no_other_attempt_hides_it(
    place: Server, provider: str
) -> None:
    turn = await failed(place, provider, f"in-cloud-{provider}", max_attempts=3)
    assert turn.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED and not turn.error.retriable
    assert "are forbidden" in turn.error.message and f"Provider {provider} at " in turn.error.message
    assert turn.usage.model_calls == 1


@pytest.mark.parametrize(("provider", "option"), [("odd", "api_version"), ("odder", "azure_ad_token")])
async def test_an_option_of_the_wrong_type_fails_the_turn_and_is_named(
    place: Server, provider: str, option: str
) -> None:
    turn = await failed(place, provider, f"options-{provider}", max_attempts=3)
    assert turn.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED and not turn.error.retriable
    assert option in turn.error.message and f"Provider {provider} at " in turn.error.message


CYCLES: dict[str, list[tuple[str, list[dict[str, str]]]]] = {
    "itself": [("a", [{"model_profile_id": "a"}])],
    "three": [(one, [{"model_profile_id": other}]) for one, other in ("ab", "bc", "ca")],
    "behind another": [
        ("a", [{"provider": "offline", "model": "m"}, {"model_profile_id": "b"}]),
        ("b", [{"model_profile_id": "c"}]),
        ("c", [{"provider": "offline", "model": "n"}, {"model_profile_id": "a"}]),
    ],
}


def profiles(given: list[tuple[str, list[dict[str, str]]]]) -> str:
    return "\n---\n".join(
        json.dumps(
            {"name": name, "model_profile": {"provider": "offline", "model": name, "fallbacks": fallbacks}}
        )
        for name, fallbacks in given
    )


async def saved(client: Client, lib: str) -> list[str]:
    """Return the ids and revisions of the model profiles of a library."""
    request = library.ListDefinitionsRequest(library_id=lib)
    try:
        listed = await client.library.ListDefinitions(request)
    except grpc.aio.AioRpcError as problem:
        assert problem.code() is grpc.StatusCode.NOT_FOUND
        return []
    return [f"{each.name}@{each.revision}" for each in listed.definitions]


@pytest.mark.parametrize("name", CYCLES)
async def test_a_cycle_of_fallbacks_is_refused_and_nothing_of_it_is_saved(client: Client, name: str) -> None:
    lib = f"e2e/cycle_{name.replace(' ', '_')}"
    reason, _ = await rejected(client.apply(lib, profiles(CYCLES[name])))
    assert reason == "DEFINITION_INVALID"
    assert await saved(client, lib) == []


async def test_a_cycle_that_a_later_change_would_close_is_refused(client: Client) -> None:
    """Each of three libraries is saved for itself; the last change leads back to the first."""
    chain = (("x", "e2e/ring_y/y"), ("y", "e2e/ring_z/z"), ("z", ""))
    for name, other in reversed(chain):
        fallbacks = [{"model_profile_id": other}] if other else []
        await client.apply(f"e2e/ring_{name}", profiles([(name, fallbacks)]))
    before = await saved(client, "e2e/ring_z")
    closing = profiles([("z", [{"model_profile_id": "e2e/ring_x/x"}])])
    reason, _ = await rejected(client.apply("e2e/ring_z", closing))
    assert reason == "DEFINITION_INVALID" and await saved(client, "e2e/ring_z") == before


async def test_a_fallback_whose_profile_or_provider_is_missing_is_refused(client: Client) -> None:
    for fallback, reason in (
        ({"model_profile_id": "nowhere"}, "DEFINITION_INVALID"),
        ({"model_profile_id": "e2e/nowhere/at_all"}, "DEFINITION_INVALID"),
        ({"provider": "foo", "model": "m"}, "DEFINITION_INVALID"),
    ):
        found, _ = await rejected(client.apply("e2e/missing", profiles([("a", [fallback])])))
        assert found == reason
    assert await saved(client, "e2e/missing") == []


async def test_a_remote_provider_is_refused_where_only_this_machine_may_be_asked(tmp_path: Path) -> None:
    listed = [
        {"name": "near", "format": "gemini", "base_url": "http://10.0.0.1:8080", "key": SECRET},
        {"name": "relay", "format": "litellm/openai", "base_url": "http://10.0.0.1:8080/v1", "key": SECRET},
    ]
    environment = {"WONDER_PROVIDERS": json.dumps(listed), "WONDER_ALLOW_REMOTE_MODELS": "false"}
    async with serving(tmp_path / "data", environment=environment) as server:
        for provider in ("near", "relay"):
            turn = await failed(server, provider, f"remote-{provider}", max_attempts=3)
            assert turn.error.reason == errors_pb2.ERROR_REASON_MODEL_UNAVAILABLE, turn.error
            assert not turn.error.retriable and turn.usage.model_calls <= 1
            assert f"the provider {provider} is remote" in turn.error.message
    assert SECRET not in str(server.log)
