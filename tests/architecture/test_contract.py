"""The contract keeps its promises: every RPC of the design, one set of conventions, one vocabulary."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor

from tests.paths import ROOT
from wonder.v1 import (
    backup_service_pb2,
    conversation_service_pb2,
    coordinator_service_pb2,
    definition_pb2,
    errors_pb2,
    executor_service_pb2,
    file_service_pb2,
    library_service_pb2,
    memory_service_pb2,
)
from wonder_sdk._proto import stubs
from wonder_sdk.definitions import documents
from wonder_server.core.definitions import specs
from wonder_server.core.errors import Reason
from wonder_server.rpc.server.error_codes import STATUS

PROTO = ROOT / "proto/wonder/v1"

RPCS = {
    "ConversationService": """CreateConversation ForkConversation GetConversation ListConversations
        UpdateConversation
        DeleteConversation CompleteConversation ReopenConversation ResetConversation AddParticipant
        RemoveParticipant Converse SendMessage StreamTurn Subscribe CallAgent CancelTurn GetTurn ListTurns
        ListMessages
        SearchMessages ListMoves ListEvents ListDecisions ReadMessage PreviewContext DiffBranch
        MergeBranch""",
    "CoordinatorService": """StartRun GetRun ListRuns CancelRun SignalRun WatchRun ListGates ResolveGate
        ReplayRun ForkRun""",
    "ExecutorService": "ExecuteTask StreamTask ListActionKinds Work",
    "MemoryService": """WriteMemory BatchWriteMemories GetMemory UpdateMemory DeleteMemory ListMemories
        SearchMemories SupersedeMemory GetMemoryBlock ListMemoryBlocks SetMemoryBlock DeleteMemoryBlock
        ListMemoryBlockChanges""",
    "BackupService": "CreateBackup",
    "FileService": "UploadFile GetFile ListFiles DeleteFile",
    "LibraryService": """CreateLibrary GetLibrary ListLibraries DeleteLibrary PutDefinition GetDefinition
        ListDefinitions ListRevisions DeleteDefinition ApplyDefinitions ExportDefinitions CreateAgent GetAgent
        ListAgents UpdateAgent DeleteAgent CreateProject GetProject ListProjects UpdateProject DeleteProject
        ReadArtifact WriteArtifact ListArtifacts SearchArtifacts ListArtifactRevisions MergeArtifacts""",
}
SERVICES: dict[str, ServiceDescriptor] = {
    name: service
    for module in (
        backup_service_pb2,
        conversation_service_pb2,
        coordinator_service_pb2,
        executor_service_pb2,
        file_service_pb2,
        library_service_pb2,
        memory_service_pb2,
    )
    for name, service in module.DESCRIPTOR.services_by_name.items()
}
READS = ("Get", "List", "Search", "Read", "Export", "Preview", "Diff", "Replay")
SPECS = {
    specs.Persona: "PersonaSpec",
    specs.Constraints: "Constraints",
    specs.Tool: "ToolSpec",
    specs.Retry: "RetryPolicy",
    specs.ModelProfile: "ModelProfileSpec",
    specs.Action: "ActionSpec",
    specs.Task: "TaskSpec",
    specs.Step: "Step",
    specs.Workflow: "WorkflowSpec",
    specs.Node: "Node",
    specs.Transition: "Transition",
}


def methods() -> Iterator[MethodDescriptor]:
    for service in SERVICES.values():
        yield from service.methods


def unary(*, reads: bool) -> list[MethodDescriptor]:
    return [
        method
        for method in methods()
        if not (method.client_streaming or method.server_streaming) and method.name.startswith(READS) is reads
    ]


def test_every_rpc_of_the_design_is_there_and_no_other() -> None:
    wanted = {name: set(rpcs.split()) for name, rpcs in RPCS.items()}
    assert {name: set(service.methods_by_name) for name, service in SERVICES.items()} == wanted


@pytest.mark.parametrize("method", unary(reads=False), ids=lambda method: method.name)
def test_a_change_takes_a_request_id(method: MethodDescriptor) -> None:
    fields = method.input_type.fields_by_name
    request_ids = "request_id" in fields or "request_id" in fields["send"].message_type.fields_by_name
    assert request_ids


@pytest.mark.parametrize(
    "method", [m for m in methods() if m.name.startswith(("List", "Export"))], ids=lambda method: method.name
)
def test_a_list_is_paged(method: MethodDescriptor) -> None:
    assert {"page_size", "page_token"} <= set(method.input_type.fields_by_name)
    assert "next_page_token" in method.output_type.fields_by_name


@pytest.mark.parametrize(
    "method", [m for m in methods() if m.name.startswith("Update")], ids=lambda method: method.name
)
def test_an_update_takes_a_mask_and_the_resource_its_etag(method: MethodDescriptor) -> None:
    fields = method.input_type.fields_by_name
    assert fields["update_mask"].message_type.full_name == "google.protobuf.FieldMask"
    resource = fields[method.name.removeprefix("Update").lower()].message_type
    assert "etag" in resource.fields_by_name


def test_what_converse_and_subscribe_say_is_the_same_on_the_wire() -> None:
    converse = _numbers(conversation_service_pb2.ConverseResponse.DESCRIPTOR)
    subscribe = _numbers(conversation_service_pb2.SubscribeResponse.DESCRIPTOR)
    assert subscribe.items() <= converse.items()


@pytest.mark.parametrize(
    "response",
    [
        conversation_service_pb2.ConverseResponse.DESCRIPTOR,
        conversation_service_pb2.SubscribeResponse.DESCRIPTOR,
        coordinator_service_pb2.WatchRunResponse.DESCRIPTOR,
    ],
    ids=lambda response: response.name,
)
def test_a_response_with_one_event_is_a_group_of_one(response: Any) -> None:
    """The server puts groups together from encoded responses (`rpc/shared/event_groups.py`)."""
    group = response.fields_by_name["events"].message_type
    one, several = response.fields_by_name["event"], group.fields_by_name["events"]
    assert (one.number, one.message_type) == (several.number, several.message_type)
    assert several.is_repeated and len(group.fields) == 1


def test_the_reasons_are_those_of_the_core() -> None:
    wanted = {f"ERROR_REASON_{reason}" for reason in Reason} | {"ERROR_REASON_UNSPECIFIED"}
    assert set(errors_pb2.ErrorReason.keys()) == wanted


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_documents_its_status_and_an_example(reason: Reason) -> None:
    comment = _comment_above(f"ERROR_REASON_{reason} =", PROTO / "errors.proto")
    assert STATUS[reason].name in comment
    assert re.search(r'"[^"]+"', comment)


@pytest.mark.parametrize(("spec", "message"), SPECS.items(), ids=list(SPECS.values()))
def test_the_fields_of_a_spec_are_those_of_its_message(spec: type, message: str) -> None:
    fields = {field.name for field in dataclasses.fields(spec)}
    assert fields <= set(definition_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name)


def test_the_sdk_knows_every_json_name_that_the_contract_sets() -> None:
    fields = [
        field
        for message in definition_pb2.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    ]
    assert fields
    camel = {
        field.name: re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), field.name) for field in fields
    }
    named = {field.name: field.json_name for field in fields if field.json_name != camel[field.name]}
    assert named == documents._JSON_NAMES


def test_a_definition_has_one_spec_for_each_kind() -> None:
    oneof = definition_pb2.Definition.DESCRIPTOR.oneofs_by_name["spec"]
    kinds = {name.removeprefix("DEFINITION_KIND_").lower() for name in definition_pb2.DefinitionKind.keys()}
    assert {field.name for field in oneof.fields} == kinds - {"unspecified"} == set(specs.Kind)


@pytest.mark.parametrize("path", sorted(PROTO.glob("*.proto")), ids=lambda path: path.stem)
def test_no_comment_opens_with_a_question_word(path: Path) -> None:
    comments = re.findall(r"^ *// (.*)\n(?: *//.*\n)*", path.read_text(encoding="utf-8"), re.M)
    opening = re.compile(r"(What|Who|How|Whether|Where|When|Which|Why)\b")
    assert comments
    assert [comment for comment in comments if opening.match(comment)] == []


@pytest.mark.parametrize("path", sorted(PROTO.glob("*.proto")), ids=lambda path: path.stem)
def test_every_file_names_its_package_in_other_languages(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for option in (
        'csharp_namespace = "Wonder.V1"',
        'go_package = "wonder/v1;wonderv1"',
        "java_multiple_files = true",
        'java_package = "wonder.v1"',
    ):
        assert f"option {option};\n" in text


async def test_the_sdk_has_a_stub_for_every_rpc() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        for name, service in SERVICES.items():
            stub = getattr(stubs, f"{name}Stub")(channel)
            assert set(vars(stub)) == {_snake(method.name) for method in service.methods}


def _numbers(message: Descriptor) -> dict[str, tuple[int, str]]:
    return {field.name: (field.number, field.message_type.full_name) for field in message.fields}


def _comment_above(line: str, path: Path) -> str:
    before = path.read_text().split(f"  {line}")[0].rstrip("\n").splitlines()
    comment: list[str] = []
    while before and before[-1].lstrip().startswith("//"):
        comment.insert(0, before.pop().strip(" /"))
    return " ".join(comment)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
