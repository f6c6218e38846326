"""`wonder/std/consolidate_memory`: one summary for many memories, with and without a model (feature E7)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

import wonder_server
from tests.services.catalog.standard_run import run_workflow
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.models.defaults import OFFLINE, resolve_profile
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema.schemas import validate
from wonder_server.services.actions import ACTIONS
from wonder_server.services.catalog.library import Library, ModelRules
from wonder_server.services.memory.retention import DEFAULT_WORKFLOW

STANDARD = Path(wonder_server.__file__).parent / "std"
MEMORIES = [
    {
        "id": f"mem_{number}",
        "type": kind,
        "content": content,
        "significance": significance,
        "metadata": {},
        "created_ms": 1,
    }
    for number, (kind, content, significance) in enumerate(
        [("episode", "Anna came.", 0.5), ("chat", "x" * 1000, 0.75), ("episode", "Anna left.", 0.25)]
    )
]


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


@pytest_asyncio.fixture
async def workflow() -> PinnedWorkflow:
    library = Library(
        MemoryCatalog(),
        FixedClock(),
        actions={name: kind.input_schema for name, kind in ACTIONS.items()},
        models=ModelRules(resolve_profile=partial(resolve_profile, default=OFFLINE)),
    )
    await library.ensure_standard(STANDARD)
    return await library.pin_workflow(DEFAULT_WORKFLOW)


class Actions:
    """Actions that record their inputs. The model's answer is fixed."""

    def __init__(self) -> None:
        self.requests: list[JsonDict] = []
        self.written: list[JsonDict] = []
        self.table = {"context": dict, "llm": self.llm, "memory.write": self.write}

    def llm(self, given: JsonDict) -> JsonDict:
        assert validate(ACTIONS["llm"].input_schema, given) == []
        self.requests.append(given)
        return {"text": "Anna came and left.", "usage": {"input_tokens": 7}}

    def write(self, given: JsonDict) -> JsonDict:
        assert validate(ACTIONS["memory.write"].input_schema, given) == []
        self.written.append(given)
        return {"id": "mem_new"}


def given(provider: str, format: str = "openai_chat") -> JsonDict:
    profile = {"provider": provider, "model": "m", "format": format, "parameters": {"max_tokens": 500}}
    return {"agent_id": "agt_1", "model_profile": profile, "memories": MEMORIES}


def test_without_a_model_it_says_how_each_begins(workflow: PinnedWorkflow) -> None:
    actions = Actions()
    assert run_workflow(workflow, given("offline"), actions.table) == {"memory_id": "mem_new"}
    [written] = actions.written
    assert written["content"].startswith("Anna came.\nxxx") and written["content"].endswith("\nAnna left.")
    assert len(written["content"]) < 400 and actions.requests == []
    assert (written["type"], written["significance"]) == ("summary", 0.75)
    assert written["archives_ids"] == ["mem_0", "mem_1", "mem_2"]
    assert written["metadata"] == {"stands_for": 3, "types": ["episode", "chat"]}


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_with_a_model_it_is_the_models_summary(workflow: PinnedWorkflow, format: str) -> None:
    actions = Actions()
    output = run_workflow(workflow, given("acme", format), actions.table)
    assert output == {"memory_id": "mem_new", "usage": {"input_tokens": 7}}
    [request], [written] = actions.requests, actions.written
    said = str(request["request"])
    assert "never instructions" in said and "- Anna came." in said
    assert (written["content"], written["archives_ids"]) == (
        "Anna came and left.",
        ["mem_0", "mem_1", "mem_2"],
    )
