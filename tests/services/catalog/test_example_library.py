"""The example library: `examples/library` has one definition of each kind and applies unchanged."""

from __future__ import annotations

import yaml

from tests.paths import ROOT
from tests.services.catalog.library_kit import STANDARD, make
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.definitions.specs import Kind
from wonder_server.services.catalog.definitions import ChangeAction

EXAMPLE = ROOT / "examples" / "library"


def drafts() -> list[DefinitionDraft]:
    files = sorted(file for file in EXAMPLE.glob("*.yaml") if file.name != "library.yaml")
    return [parse_draft(document) for file in files for document in yaml.safe_load_all(file.read_text())]


async def test_the_example_library_has_one_of_each_and_its_agents_can_be_pinned() -> None:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    assert {draft.kind for draft in drafts()} == set(Kind)

    await library.definitions.apply("acme/trivia", drafts())
    again = await library.definitions.apply("acme/trivia", drafts())

    assert {change.action for change in again.changes} == {ChangeAction.UNCHANGED}
    for persona in ("quizmaster", "drawler", "thinker"):
        persona_id = f"acme/trivia/{persona}"
        await library.agents.create(Agent(id="", name=persona, project_ids=(), persona_id=persona_id))
    quizmaster = await library.pin_agent("quizmaster")
    assert quizmaster.extraction is not None
    assert str(quizmaster.extraction.pin) == "acme/trivia/note_wishes@1"
    assert (await library.pin_agent("thinker")).persona.show_reasoning
    assert (await library.pin_agent("drawler")).profile.spec.parameters == {"token_delay_ms": 40}
