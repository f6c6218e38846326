"""The workflows of docs/definitions.md, saved unchanged."""

from __future__ import annotations

import re

import yaml

from tests.paths import ROOT
from tests.services.catalog.library_kit import STANDARD, make
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.graph import graph_of
from wonder_server.core.definitions.specs import Kind

GUIDE = ROOT / "docs" / "definitions.md"


def examples() -> list[DefinitionDraft]:
    """Return the documents of the section about workflows, in their order."""
    (section,) = re.findall(r"^## Workflows$(.*?)^## ", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    return [
        parse_draft(yaml.safe_load(text)) for text in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    ]


async def test_every_example_of_the_guide_is_saved_and_pinned() -> None:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    drafts = examples()
    await library.definitions.apply("guide", drafts)
    pinned = {
        draft.name: await library.pin_workflow(f"guide/{draft.name}")
        for draft in drafts
        if draft.kind is Kind.WORKFLOW
    }
    assert list(pinned) == [
        "both_ways",
        "double_all",
        "until_large",
        "refund",
        "payment",
        "second_opinion",
        "twice_over",
    ]
    joins = {name: dict(graph_of(each.spec).joins) for name, each in pinned.items()}
    assert (joins["both_ways"], joins["double_all"]) == ({"start": "meet"}, {"start": "meet"})
    assert pinned["second_opinion"].agents == {"assistant": await library.agent_id("assistant")}
