"""Encoding of requests: each value arrives, or the encoder refuses it with the path of its field."""

from __future__ import annotations

import asyncio
import datetime
from collections import UserDict
from typing import Any

import pytest

from tests.sdk.fake_coordinator import RUN, FakeCoordinator
from tests.sdk.fake_server import serving
from wonder.v1 import conversation_service_pb2 as conversations
from wonder.v1 import coordinator_service_pb2 as coordinator
from wonder.v1 import library_service_pb2 as library
from wonder_sdk import Client, InvalidArgumentError, RequestError, sync, v1
from wonder_sdk._proto import stubs
from wonder_sdk.json_types import JsonDict
from wonder_sdk.transport.encoding import Encoder
from wonder_sdk.values import to_struct, to_value

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


def sent(request: Any, kind: Any, read: Any) -> Any:
    """Return the request as a server decodes it."""
    return read.FromString(Encoder(kind)(request))


def refusal(request: Any, kind: Any) -> tuple[str, str]:
    with pytest.raises(RequestError) as refused:
        Encoder(kind)(request)
    problem = refused.value
    assert isinstance(problem, InvalidArgumentError | TypeError) and isinstance(problem, ValueError)
    assert problem.reason is v1.ErrorReason.FIELD_INVALID
    return problem.field, str(problem)


def test_plain_values_become_messages_at_every_depth() -> None:
    whole = v1.CreateConversationRequest(
        conversation=v1.Conversation(
            title="Cats",
            participants=[
                v1.Participant(user=v1.UserParticipant(user_id="ann")),
                v1.Participant(agent=v1.AgentParticipant(agent_id="assistant")),
            ],
            metadata=to_struct({"a": [1, {"b": None}], "c": True}),
            expire_time=NOON,
            status=v1.ConversationStatus.ACTIVE,
        ),
        request_id="one",
    )
    plain = {
        "conversation": {
            "title": "Cats",
            "participants": ({"user": {"user_id": "ann"}}, {"agent": {"agent_id": "assistant"}}),
            "metadata": {"a": [1, {"b": None}], "c": True},
            "expire_time": NOON,
            "status": "active",
        },
        "request_id": "one",
    }
    mixed = v1.CreateConversationRequest(conversation=plain["conversation"], request_id="one")  # type: ignore[arg-type]
    expected = conversations.CreateConversationRequest.FromString(bytes(whole))
    for given in (whole, plain, UserDict(plain), mixed):
        assert sent(given, v1.CreateConversationRequest, conversations.CreateConversationRequest) == expected
    assert isinstance(mixed.conversation, dict), "the caller's own message is left as it is"


@pytest.mark.parametrize(
    "value", [None, True, 0, 1.5, "", "text", [], [1, [None, {}]], {}, {"a": {"b": [1]}}, (1, 2)]
)
def test_any_json_is_encoded_as_a_value(value: object) -> None:
    request = v1.CallAgentRequest(agent_id="assistant", input=value)
    if value is None:
        return  # which leaves the field out
    wanted = v1.CallAgentRequest(agent_id="assistant", input=to_value([*value] if value == (1, 2) else value))
    read = conversations.CallAgentRequest
    assert sent(request, v1.CallAgentRequest, read) == read.FromString(bytes(wanted))


def test_paths_of_a_mask_are_a_list_or_a_string() -> None:
    for mask in (["title", "metadata"], "title,metadata"):
        request = v1.UpdateConversationRequest(conversation={"id": "c"}, update_mask=mask)  # type: ignore[arg-type]
        read = sent(request, v1.UpdateConversationRequest, conversations.UpdateConversationRequest)
        assert list(read.update_mask.paths) == ["title", "metadata"] and read.conversation.id == "c"


PARTICIPANTS = "conversation.participants"


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"conversation": "hello"}, "conversation", "must be a Conversation or a mapping, not str 'hello'"),
        ({"conversation": ["x"]}, "conversation", "not list"),
        ({"conversation": v1.ConverseSend()}, "conversation", "not ConverseSend"),
        ({"conversation": {"titel": "x"}}, "conversation.titel", "did you mean 'title'?"),
        ({"conversation": {"participants": {"user": {}}}}, PARTICIPANTS, "must be a list, not dict"),
        ({"conversation": {"participants": "ann"}}, PARTICIPANTS, "must be a list, not str"),
        ({"conversation": {"participants": [{"user": {"user_id": 5}}]}},
         f"{PARTICIPANTS}[0].user.user_id", "must be a string, not int 5"),
        ({"conversation": {"participants": [{}, {"usr": {}}]}}, f"{PARTICIPANTS}[1].usr", "no field 'usr'"),
        ({"conversation": {"participants": [{"user": {}, "agent": {}}]}},
         f"{PARTICIPANTS}[0].agent", "only one of user and agent"),
        ({"conversation": {"metadata": [1]}}, "conversation.metadata", "must be a Struct or a mapping"),
        ({"conversation": {"metadata": {"a": [{"b": {1, 2}}]}}},
         "conversation.metadata.a[0].b", "JSON cannot hold set"),
        ({"conversation": {"metadata": {"a": float("nan")}}}, "conversation.metadata.a", "JSON has no nan"),
        ({"conversation": {"metadata": {1: 2}}}, "conversation.metadata", "keys must be strings, not int 1"),
        ({"conversation": {"expire_time": "noon"}}, "conversation.expire_time", "must be a datetime"),
        ({"conversation": {"status": "resting"}}, "conversation.status", "'resting' is not one of"),
        ({"conversation": {"last_sequence": 2**63}}, "conversation.last_sequence", "must be between"),
        ({"conversation": {"last_sequence": 1.0}}, "conversation.last_sequence", "must be a whole number"),
        ({"conversation": {"title": "\ud800"}}, "conversation.title", "surrogate"),
        ({"validate_only": "yes"}, "validate_only", "must be True or False, not str 'yes'"),
        ({"request_id": b"x"}, "request_id", "must be a string, not bytes"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_refused_with_its_path(fields: JsonDict, path: str, words: str) -> None:
    for request in (fields, v1.CreateConversationRequest(**fields)):
        field, sentence = refusal(request, v1.CreateConversationRequest)
        assert field == path and words in sentence and sentence.startswith(f"{path}: ")


def test_a_request_of_another_method_and_no_request_are_refused() -> None:
    assert "must be a GetRunRequest or a mapping" in refusal(v1.GetAgentRequest(), v1.GetRunRequest)[1]
    assert "must be a GetRunRequest or a mapping" in refusal("run_1", v1.GetRunRequest)[1]


def test_a_misspelt_attribute_of_a_message_is_refused() -> None:
    request = v1.GetRunRequest()
    request.runid = "run_1"  # type: ignore[attr-defined]
    assert refusal(request, v1.GetRunRequest)[0] == "runid"


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: JsonDict = {}
    endless["again"] = endless
    assert (
        "nested deeper" in refusal({"conversation": {"metadata": endless}}, v1.CreateConversationRequest)[1]
    )


def test_a_lazy_list_is_read_once() -> None:
    request = v1.ApplyDefinitionsRequest(library="a/b", definitions=({"name": n} for n in "xy"))  # type: ignore[arg-type]
    read = sent(request, v1.ApplyDefinitionsRequest, library.ApplyDefinitionsRequest)
    assert [each.name for each in read.definitions] == ["x", "y"]


def test_every_method_of_every_stub_has_an_encoder() -> None:
    class Channel:
        seen = 0

        def __getattr__(self, shape: str) -> Any:
            def method(path: str, encode: object, decode: object) -> None:
                assert isinstance(encode, Encoder) and issubclass(encode.message, v1.GetRunRequest.__mro__[1])
                Channel.seen += 1

            return method

    for name in dir(stubs):
        if name.endswith("Stub"):
            getattr(stubs, name)(Channel())
    assert Channel.seen > 50


async def test_a_call_takes_plain_values_and_raises_before_anything_is_sent() -> None:
    fake = FakeCoordinator()
    async with serving(coordinator=fake) as address, Client(address) as client:
        call = client.coordinator.get_run
        assert (await call({"run_id": RUN})).run.id == RUN
        with pytest.raises(RequestError) as refused:
            call({"run": RUN})
        assert refused.value.field == "run"
        started = v1.StartRunRequest(workflow_id="acme/flows/release", input={"n": [1, 2]}, wait_ms=1)  # type: ignore[arg-type]
        before = len(fake.requests)
        await client.coordinator.start_run(started)
        [request] = fake.requests[before:]
        assert isinstance(request, coordinator.StartRunRequest) and request.input["n"][1] == 2


async def test_the_sync_client_encodes_alike() -> None:
    def ask(address: str) -> None:
        with sync.Client(address) as client:
            assert client.coordinator.get_run({"run_id": RUN}).run.id == RUN
            with pytest.raises(RequestError, match="run_id: must be a string, not int 5"):
                client.coordinator.get_run(v1.GetRunRequest(run_id=5))  # type: ignore[arg-type]

    async with serving(coordinator=FakeCoordinator()) as address:
        await asyncio.to_thread(ask, address)


async def test_a_request_on_a_stream_that_cannot_be_sent_ends_the_stream_with_its_path() -> None:
    async def requests() -> Any:
        yield v1.ConverseRequest(attach=v1.ConverseAttach(conversation_id="conv_1", after_sequence="5"))  # type: ignore[arg-type]

    async with serving() as address, Client(address) as client:
        with pytest.raises(
            RequestError, match=r"attach\.after_sequence: must be a whole number, not str '5'"
        ):
            async for _ in client.conversations.converse(requests()):
                pass
        call = client.conversations.converse()
        with pytest.raises(RequestError, match="attach: must be a ConverseAttach or a mapping"):
            await call.write({"attach": 5})
        call.cancel()


async def test_an_exception_of_the_requests_reaches_the_caller() -> None:
    async def requests() -> Any:
        raise KeyError("mine")
        yield

    def blocking(address: str) -> None:
        with sync.Client(address) as client, pytest.raises(KeyError, match="mine"):
            next(client.conversations.converse(requests()))

    async with serving() as address, Client(address) as client:
        with pytest.raises(KeyError, match="mine"):
            async for _ in client.conversations.converse(requests()):
                pass
        await asyncio.to_thread(blocking, address)
