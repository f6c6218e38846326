"""Short workflows for tests of definitions: nodes by name, transitions as ``a>b``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wonder_server.core.definitions.parse import parse_spec
from wonder_server.core.definitions.specs import Kind, Workflow

TARGETS = {"task_id", "workflow_id", "agent_id", "human_gate", "wait"}


def flow(
    transitions: str,
    /,
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    edges: Mapping[str, Mapping[str, Any]] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The document of a workflow. ``ways`` names nodes and transitions in their order: ``a>b b>c``; nodes run
    the task ``t`` if they say nothing else. ``nodes`` and ``edges`` say more about each."""
    names: dict[str, None] = {}
    drawn = []
    for way in transitions.split():
        names.update(dict.fromkeys(way.split(">")))
        if ">" in way:
            start, end = way.split(">")
            drawn.append({"from_node_id": start, "to_node_id": end, **(edges or {}).get(way, {})})
    told = nodes or {}
    return {
        "nodes": [
            {
                "id": name,
                **({} if TARGETS & told.get(name, {}).keys() else {"task_id": "t"}),
                **told.get(name, {}),
            }
            for name in names
        ],
        "transitions": drawn,
        **fields,
    }


def workflow(*given: Any, **fields: Any) -> Workflow:
    """The workflow that `flow` spells."""
    spec = parse_spec(Kind.WORKFLOW, flow(*given, **fields))
    assert isinstance(spec, Workflow)
    return spec


FAN_OUT = {"fan_out": True}
FAN_IN: dict[str, Any] = {"fan_in": {}}
EACH = {"for_each": {"items": "input.list"}}
LOOP = {"loop_limit": 3}
