"""A workflow as a Mermaid flowchart.

========================  ==================
shape or arrow            meaning
========================  ==================
box                       task
double-edged box          workflow
stadium                   agent
hexagon                   gate
flag                      wait
thick arrow               fan-out
dotted arrow              closes a cycle
========================  ==================
"""

from __future__ import annotations

import re

from wonder_sdk.drawing.graph import Edge, Graph, Node

_SHAPES = {
    "task": ('["', '"]'),
    "workflow": ('[["', '"]]'),
    "agent": ('(["', '"])'),
    "gate": ('{{"', '"}}'),
    "wait": ('>"', '"]'),
    "missing": ('[/"', '"/]'),
}
# Characters of Mermaid's syntax.
_ESCAPES = {each: f"#{ord(each)};" for each in '#;"`<>&|\\'}


def draw(graph: Graph) -> str:
    """Return the chart, for a ```mermaid block."""
    names = _names(graph)
    lines = ["---", f"title: {_title(graph.title)}", "---", "flowchart TD"]
    lines += (f"  {names[node.id]}{_shape(node)}" for node in graph.nodes.values())
    lines.append(f"  start((( ))) --> {names[graph.initial]}")
    lines += (_arrow(edge, names) for edge in graph.edges())
    return "\n".join(lines) + "\n"


def _shape(node: Node) -> str:
    before, after = _SHAPES[node.kind]
    parts = [
        f"<b>{_escaped(node.id)}</b>",
        _escaped(" ".join(part for part in (node.kind, node.target) if part)),
    ]
    parts += [f"<i>{_escaped(note)}</i>" for note in (node.fan_in, *node.notes) if note]
    return f"{before}{'<br/>'.join(parts)}{after}"


def _arrow(edge: Edge, names: dict[str, str]) -> str:
    arrow = "-.->" if edge.is_back else "==>" if edge.is_parallel else "-->"
    label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
    return f"  {names[edge.source]} {arrow}{label} {names[edge.target]}"


def _names(graph: Graph) -> dict[str, str]:
    """Return a unique name for each node that is valid in Mermaid. ``end`` and ``a--b`` would not be."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for node_id in graph.nodes:
        name = stem = "n_" + re.sub(r"\W", "_", node_id, flags=re.ASCII)
        number = 2
        while name in taken:
            name, number = f"{stem}_{number}", number + 1
        taken.add(name)
        names[node_id] = name
    return names


def _title(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(each, each) for each in text)
