"""Record all drawings again: ``python -m tests.sdk.drawings.record``, then read the difference.

Drawings lie beside this file, one ``.txt`` and one ``.mmd`` for each workflow of ``graphs.yaml`` and of the
examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wonder_sdk import v1
from wonder_sdk.definitions.definition_files import load
from wonder_sdk.drawing import graph, mermaid, text

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "workflows"


def workflows() -> Iterator[v1.Definition]:
    for source in (HERE / "graphs.yaml", EXAMPLES):
        yield from (each for each in load(source).definitions if each.workflow is not None)


def drawings(definition: v1.Definition) -> dict[Path, str]:
    drawn = graph.of(definition)
    return {
        HERE / f"{definition.name}.txt": text.draw(drawn),
        HERE / f"{definition.name}.mmd": mermaid.draw(drawn),
    }


if __name__ == "__main__":
    for workflow in workflows():
        for file, drawing in drawings(workflow).items():
            file.write_text(drawing, encoding="utf-8")
