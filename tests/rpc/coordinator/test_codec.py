"""Conversion of whole workflows between files, the contract and the core, without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from wonder.v1 import definition_pb2 as pb
from wonder_sdk._proto.wonder.v1 import Definition
from wonder_sdk.definitions.definition_files import dump, load
from wonder_server.actors.runs.lookup import RunDetails, RunView
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model.values import Run
from wonder_server.core.definitions.diff import diff
from wonder_server.core.definitions.document import DefinitionDraft, draft_to_json, parse_draft
from wonder_server.core.definitions.parse import LATER
from wonder_server.core.definitions.specs import FanInMode, MergeStrategy, Workflow
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.records import Head
from wonder_server.rpc.coordinator import codec
from wonder_server.rpc.library.codec import draft_from_proto, draft_to_proto

WHOLE: JsonDict = {
    "name": "whole",
    "workflow": {
        "nodes": [
            {
                "id": "ask",
                "human_gate": {
                    "prompt": "Shall we?",
                    "answer_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
                    "user_ids": ["ada", "bob"],
                    "expire_after_ms": 365 * 24 * 3600 * 1000,
                    "on_expire": "approve",
                },
                "timeout_ms": 5_000_000_000,
            },
            {"id": "ask_plainly", "human_gate": {"prompt": "Well?"}},
            {"id": "pause", "wait": {"signal": "go", "duration_ms": 5_000_000_000}},
            {"id": "delegate", "agent_id": "expert", "retry": {"max_attempts": 3, "backoff_ms": 0}},
            {"id": "loop_in", "agent_id": "expert", "invocation_mode": "loop_in", "retry": {}},
            {"id": "split", "task_id": "t", "fan_out": True, "description": "One each."},
            {"id": "meet", "workflow_id": "w", "fan_in": {}},
            {
                "id": "meet_some",
                "task_id": "t",
                "fan_in": {
                    "mode": "m_of_n",
                    "count": 2,
                    "timeout_ms": 1_000,
                    "on_timeout": "proceed",
                    "fan_out_node_id": "split",
                    "merges": [
                        {"source": "branch.x", "target": f"state.{strategy}", "strategy": strategy}
                        for strategy in ("append", "merge_object", "keyed_by_branch", "last_wins")
                    ]
                    + [{"source": "item", "target": "output.x"}],
                },
            },
        ],
        "transitions": [
            {"from_node_id": "a", "to_node_id": "b", "for_each": {"items": "input.list"}},
            {
                "from_node_id": "a",
                "to_node_id": "b",
                "priority": -1,
                "loop_limit": 7,
                "for_each": {"items": "input.list", "max_concurrency": 4, "max_items": 20},
            },
        ],
        "timeout_ms": 5_000_000_000,
        "state_schema": {"type": "object"},
    },
}

ACTIONS = [{"name": "a", "action": {"kind": "worker", "idempotent": each}} for each in (True, False)]


@pytest.mark.parametrize("document", [WHOLE, *ACTIONS])
def test_a_definition_survives_the_conversion_to_the_contract(document: JsonDict) -> None:
    draft = parse_draft(document)
    message = pb.Definition.FromString(draft_to_proto(draft).SerializeToString())
    assert draft_from_proto(message, "definition") == draft
    assert draft_to_json(draft) == document


@pytest.mark.parametrize("document", [WHOLE, *ACTIONS])
def test_client_and_server_read_a_file_alike(tmp_path: Path, document: JsonDict) -> None:
    file = tmp_path / "whole.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    (sent,) = load(file).definitions
    draft = draft_from_proto(pb.Definition.FromString(bytes(sent)), "definition")
    assert draft == parse_draft(document)
    exported = Definition.parse(draft_to_proto(draft).SerializeToString())
    file.write_text(dump(exported))
    assert draft_to_json(parse_draft(yaml.safe_load(file.read_text()))) == document


def test_unset_enum_fields_have_their_defaults() -> None:
    message = pb.Definition(name="w")
    node = message.workflow.nodes.add(id="a", task_id="t")
    node.fan_in.merges.add(source="item", target="state.x")
    message.workflow.nodes.add(id="b", agent_id="x")
    spec = draft_from_proto(message, "definition").spec
    assert isinstance(spec, Workflow) and spec.nodes[0].fan_in is not None
    assert spec.nodes[0].fan_in.mode is FanInMode.ALL
    assert spec.nodes[0].fan_in.merges[0].strategy is MergeStrategy.COLLECT
    assert spec.nodes[1].invocation_mode == "delegate"


def test_an_unknown_enum_value_is_refused_with_its_field() -> None:
    message = pb.Definition(name="w")
    node = message.workflow.nodes.add(id="a", task_id="t")
    node.fan_in.mode = 99  # type: ignore[assignment]
    with pytest.raises(WonderError) as refused:
        draft_from_proto(message, "definition")
    (fault,) = refused.value.faults
    assert (fault.field, fault.message) == (
        "definition.workflow.nodes[0].fan_in.mode",
        "workflow.nodes[0].fan_in.mode must be one of: all, any, m_of_n.",
    )


def test_a_diff_shows_the_change_of_a_fan_in() -> None:
    def saved(mode: str) -> DefinitionDraft:
        fan_in = {"mode": mode, "count": 2, "merges": [{"source": "item", "target": "state.x"}]}
        return parse_draft({"name": "w", "workflow": {"nodes": [{"id": "a", "fan_in": fan_in}]}})

    lines = diff(saved("m_of_n"), saved("any")).splitlines()
    assert "-        mode: m_of_n" in lines and "+        mode: any" in lines


def test_every_field_of_the_contract_is_read_or_refused() -> None:
    later = {name for names in LATER.values() for name in names}
    for path, field in _fields(pb.WorkflowSpec.DESCRIPTOR, "workflow"):
        message = pb.Definition(name="w")
        _set(message, path)
        messages = _refusals(message)
        assert not [each for each in messages if "is not a field of" in each], path
        assert any("does not support it yet" in each for each in messages) == (field.name in later), path


def _refusals(message: pb.Definition) -> list[str]:
    try:
        draft_from_proto(message, "definition")
    except WonderError as refused:
        return [fault.message for fault in refused.faults]
    return []


def _fields(message: Descriptor, path: str) -> list[tuple[str, FieldDescriptor]]:
    found = []
    for field in message.fields:
        here = f"{path}.{field.name}"
        found.append((here, field))
        inner = field.message_type
        if inner is not None and inner.file == message.file and not inner.GetOptions().map_entry:
            found += _fields(inner, here)
    return found


def _set(message: Any, path: str) -> None:
    """Set the field at ``path``; add one element to every list on the path."""
    *way, last = path.split(".")
    for name in way:
        message = getattr(message, name)
        message = message.add() if hasattr(message, "add") else message
    field = message.DESCRIPTOR.fields_by_name[last]
    value = getattr(message, last)
    if field.is_repeated:
        if field.message_type is None:
            value.append("x")
        elif field.message_type.GetOptions().map_entry:
            value["x"] = "y"
        else:
            value.add()
    elif field.message_type is not None:
        value.SetInParent()
    else:
        setattr(message, last, {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1))


@pytest.mark.parametrize(
    ("megabytes", "shown"),
    [
        ((1, 1, 0.5), {"input", "output", "state"}),
        ((1, 1, 2), {"input", "output"}),
        ((1.9, 1.9, 1.9), {"input", "output"}),
        ((3.5, 0, 1.9), {"input", "state"}),
        ((3.5, 3.5, 3.5), {"input", "output"}),  # each is cut, with a notice
    ],
)
def test_a_run_is_truncated_to_the_message_limit(
    megabytes: tuple[float, float, float], shown: set[str]
) -> None:
    given, output, state = ({"x": "x" * int(each * 2**20)} if each else {} for each in megabytes)
    run = Run(
        id="run_1",
        workflow_ref="team/w@1",
        workflow_id="def_1",
        scope=Scope(),
        input=given,
        output=output,
        created_ms=1,
        updated_ms=1,
    )
    details = RunDetails(state=state, tokens=[], executions=[], gates=[], parent_node_id="")
    message = codec.run_to_proto(RunView(run, Head(1, 1, 0), details))
    assert message.ByteSize() < 4 << 20
    fields = {name: getattr(message, name) for name in ("input", "output", "state")}
    assert {name for name, value in fields.items() if value.fields} == shown
