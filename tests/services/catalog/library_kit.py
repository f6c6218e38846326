"""Helpers of catalog tests: a library over a catalog in memory, short definitions, refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wonder_server
from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.resources import Definition
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.ids import random_id
from wonder_server.ports.catalog import Catalog, Put
from wonder_server.services.actions import ACTIONS
from wonder_server.services.catalog.definitions import DefinitionChange
from wonder_server.services.catalog.library import DeletionHooks, Library, ModelRules
from wonder_server.services.paging import PageRequest

STANDARD = Path(wonder_server.__file__).parent / "std"
ALL = PageRequest(size=500)


class Ticking:
    """A clock that advances by one millisecond on each read."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now


def resolve_profile(profile: ModelProfile) -> ModelProfile:
    settled = replace(profile, provider="offline", model="offline", format="openai_chat")
    return settled if profile.provider == "auto" else profile


def make(catalog: Catalog, **guards: Any) -> Library:
    actions = {name: kind.input_schema for name, kind in ACTIONS.items()}
    return Library(
        catalog,
        Ticking(),
        actions=actions,
        models=ModelRules(resolve_profile=resolve_profile),
        deletion_hooks=DeletionHooks(**guards),
    )


def task(name: str, action: str = "context", **fields: Any) -> DefinitionDraft:
    step = {"id": "s", "action": {"kind": action}}
    return parse_draft({"name": name, "task": {"steps": [step]}, **fields})


def workflow(name: str, *targets: str) -> DefinitionDraft:
    nodes = [{"id": f"n{number}", "task_id": target} for number, target in enumerate(targets)]
    edges = [
        {"from_node_id": f"n{number}", "to_node_id": f"n{number + 1}"} for number in range(len(targets) - 1)
    ]
    return parse_draft({"name": name, "workflow": {"nodes": nodes, "transitions": edges}})


def containing(name: str, inner: str) -> DefinitionDraft:
    return parse_draft({"name": name, "workflow": {"nodes": [{"id": "n", "workflow_id": inner}]}})


def persona(name: str = "helper", **fields: Any) -> DefinitionDraft:
    return parse_draft({"name": name, "persona": {"system_prompt": "You help.", **fields}})


async def keep_agent_tool(library: Library, catalog: Catalog, name: str, agent: str) -> None:
    """Store a tool that calls an agent in the library ``team``, without its validation."""
    home = await library.definitions.create_library("team", "")
    tool = {"target_type": "agent", "target_id": agent}
    draft = parse_draft({"name": name, "description": "Ask.", "tool": tool})
    definition = Definition(
        id=random_id("def", 1),
        library_id=home.id,
        library=home.name,
        revision=1,
        draft=draft,
        content_hash=draft.content_hash(),
    )
    await catalog.commit([Put(definition)])


async def refusal(work: Awaitable[object]) -> Fault:
    with pytest.raises(WonderError) as refused:
        await work
    return refused.value.fault


async def reason(work: Awaitable[object]) -> Reason:
    return (await refusal(work)).reason


def summaries_of(changes: Sequence[DefinitionChange]) -> list[tuple[str, str, int, int]]:
    return [
        (change.name, change.action.value, change.old_revision, change.new_revision) for change in changes
    ]
