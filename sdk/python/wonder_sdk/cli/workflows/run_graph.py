"""Facts about a run that only its workflow's definition contains, such as the signals that nodes await."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from wonder_sdk import WonderError, v1

if TYPE_CHECKING:
    from wonder_sdk import sync

_READ = re.compile(r"\bsignals\s*(?:\.\s*([A-Za-z0-9_]+)|\[\s*[\"']([^\"']+)[\"'])")


def workflow_of(client: sync.Client, run: v1.Run) -> v1.WorkflowSpec | None:
    """Return the revision of a run's workflow, or None if it is not available."""
    try:
        request = v1.GetDefinitionRequest(definition_id=run.workflow)
        definition = client.library.get_definition(request).definition
    except WonderError:
        return None
    return definition.workflow if definition is not None else None


def nodes_of(workflow: v1.WorkflowSpec | None) -> dict[str, v1.Node]:
    """Return the workflow's nodes by id."""
    return {node.id: node for node in workflow.nodes} if workflow is not None else {}


def wait_text(node: v1.Node | None, since: datetime | None) -> str:
    """Return the signal and the time for which a node waits, or "" if they are unknown."""
    if node is None or node.wait is None:
        return ""
    parts = [f"the signal {node.wait.signal}"] if node.wait.signal else []
    if node.wait.duration_ms and since is not None:
        until = (since + timedelta(milliseconds=node.wait.duration_ms)).astimezone()
        form = "%H:%M:%S" if node.wait.duration_ms < 12 * 3_600_000 else "%Y-%m-%d %H:%M:%S"
        parts.append(f"until {until.strftime(form)}")
    if len(parts) == 2:
        return f"waits for {parts[0]}, {parts[1]}"
    return f"waits {'for ' if node.wait.signal else ''}{parts[0]}" if parts else ""


def fan_in_status(node: v1.Node | None, arrived_count: int, branch_count: int) -> str:
    """Return the number of branches that have arrived and are needed: ``1 of 2 needed (3 branches)``."""
    fan_in = node.fan_in if node is not None else None
    if fan_in is not None and fan_in.mode is v1.FanInMode.M_OF_N:
        return f"{arrived_count} of {fan_in.count} needed ({branch_count} branches)"
    if fan_in is not None and fan_in.mode is v1.FanInMode.ANY:
        return f"{arrived_count} of 1 needed ({branch_count} branches)"
    return f"{arrived_count} of {branch_count}"


def signals(workflow: v1.WorkflowSpec) -> set[str]:
    """Return the signals that a workflow waits for or reads."""
    names = {node.wait.signal for node in workflow.nodes if node.wait is not None and node.wait.signal}
    for text in _expressions(workflow):
        names.update(first or second for first, second in _READ.findall(text))
    return names


def _expressions(workflow: v1.WorkflowSpec) -> Iterator[str]:
    mappings: list[Mapping[str, str]] = [workflow.output_mapping]
    for node in workflow.nodes:
        mappings += [node.input_mapping, node.output_mapping]
    for mapping in mappings:
        yield from mapping.values()
    for edge in workflow.transitions:
        yield edge.condition
        if edge.for_each is not None:
            yield edge.for_each.items
