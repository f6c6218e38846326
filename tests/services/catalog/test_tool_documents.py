"""The inputs of the tools of ``wonder/std`` in the documents are those of their schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
STD = ROOT / "server" / "wonder_server" / "std"


def inputs(file: str, tool: str) -> set[str]:
    """Return the input fields of a tool, with ``?`` after optional ones."""
    documents = yaml.safe_load_all((STD / file).read_text(encoding="utf-8"))
    schema = next(each["tool"]["input_schema"] for each in documents if each["name"] == tool)
    return {name if name in schema["required"] else f"{name}?" for name in schema["properties"]}


@pytest.mark.parametrize(
    ("document", "file", "tools"),
    [
        ("agents.md", "history.yaml", ("search_history", "read_history", "read_result")),
        ("memory.md", "tools.yaml", ("memory_block_replace", "memory_block_append")),
    ],
)
def test_a_table_of_tools_names_every_input(document: str, file: str, tools: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    for tool in tools:
        row = re.search(rf"^\| `{tool}` \| ([^|]*) \|", text, re.MULTILINE)
        assert row is not None, tool
        assert set(re.findall(r"`([^`]+)`", row[1])) == inputs(file, tool), tool
