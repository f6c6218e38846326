"""Short workflows for tests of definitions: nodes by name, transitions as ``a>b``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wonder_server.core.definitions.parse import parse_spec
from wonder_server.core.definitions.specs import Kind, Workflow
from wonder_server.core.json_types import JsonDict, JsonObject

TARGETS = {"task_id", "workflow_id", "agent_id", "human_gate", "wait"}


def flow(
    transitions: str,
    /,
    nodes: Mapping[str, JsonObject] | None = None,
    edges: Mapping[str, JsonObject] | None = None,
    **fields: Any,
) -> JsonDict:
    """Return the document of a workflow.

    ``transitions`` names nodes and transitions in order: ``a>b b>c``. Nodes run the task ``t`` unless
    ``nodes`` says otherwise. ``nodes`` and ``edges`` add fields to nodes and transitions.
    """
    names: dict[str, None] = {}
    drawn = []
    for way in transitions.split():
        names.update(dict.fromkeys(way.split(">")))
        if ">" in way:
            start, end = way.split(">")
            drawn.append({"from_node_id": start, "to_node_id": end, **(edges or {}).get(way, {})})
    extra = nodes or {}
    return {
        "nodes": [
            {
                "id": name,
                **({} if TARGETS & extra.get(name, {}).keys() else {"task_id": "t"}),
                **extra.get(name, {}),
            }
            for name in names
        ],
        "transitions": drawn,
        **fields,
    }


def workflow(*given: Any, **fields: Any) -> Workflow:
    """Return the workflow of a `flow`."""
    spec = parse_spec(Kind.WORKFLOW, flow(*given, **fields))
    assert isinstance(spec, Workflow)
    return spec


FAN_OUT = {"fan_out": True}
FAN_IN: JsonDict = {"fan_in": {}}
EACH = {"for_each": {"items": "input.list"}}
LOOP = {"loop_limit": 3}
