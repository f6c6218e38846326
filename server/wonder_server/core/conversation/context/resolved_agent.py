"""What follows from a pinned agent alone, found out once for all its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.context.permissions import forbidden_action, kinds_of
from wonder_server.core.conversation.model.agent_tools import offered_schema
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.identity_cache import cache_by_identity
from wonder_server.core.request_formats import for_side_call
from wonder_server.core.token_estimates import json_tokens, text_tokens

MIN_REQUEST_SHARE = 0.25
"""What a request may have of the model's limit at least, however long the answer may get."""

_FETCHING_KINDS = {
    **dict.fromkeys(("memory.list", "memory.read", "memory.search"), "memory"),
    **dict.fromkeys(("artifact.list", "artifact.read", "artifact.search"), "artifact"),
    **dict.fromkeys(("repo.read", "repo.search", "repo.tree"), "repository"),
}
"""Kinds of action that fetch, and what they fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAgent:
    """Of one pinned agent. ``agent``, ``persona``, ``profile``, ``tools`` and ``indices`` are parts of what
    hooks are given, the same objects each time; ``side_profile`` is for those that ask the model something
    else.

    ``room``: tokens that a request may have; 0 where the model's limit is not known. ``around``: tokens of
    what a request has besides what is said, a summary too. ``limits``: what a turn may spend by its persona.
    """

    agent: dict[str, Any]
    persona: dict[str, Any]
    profile: dict[str, Any]
    side_profile: dict[str, Any]
    tools: list[dict[str, Any]]
    indices: dict[str, list[str]]
    context_limit: int
    overhead_tokens: int
    limits: Budget


@cache_by_identity
def resolve_agent(agent: PinnedAgent) -> ResolvedAgent:
    """What follows from this agent, the same object each time."""
    persona, limits = agent.persona, agent.persona.constraints
    return ResolvedAgent(
        agent={"id": agent.agent_id, "name": agent.name},
        persona={"system_prompt": persona.system_prompt, "instructions": list(persona.instructions)},
        profile=profile_of(agent),
        side_profile=side_profile_of(agent),
        tools=[
            {
                "id": tool.pin.definition_id,
                "name": tool.spec.name,
                "description": tool.spec.description,
                "input_schema": offered_schema(tool),
                "target_type": tool.spec.target_type,
                "async": tool.spec.is_async,
            }
            for tool in agent.tools
        ],
        indices=_indices(agent),
        context_limit=_context_limit(agent),
        overhead_tokens=_overhead_tokens(agent),
        limits=Budget(
            max_tokens=limits.max_tokens_per_turn,
            max_cost_micros=limits.max_cost_micros_per_turn,
            max_duration_ms=limits.max_turn_ms,
        ),
    )


def profile_of(agent: PinnedAgent) -> dict[str, Any]:
    """What a hook is told of the model."""
    profile = agent.profile.spec
    return {
        "provider": profile.provider,
        "model": profile.model,
        "format": profile.format,
        "parameters": profile.parameters,
        "context_window_tokens": profile.context_window_tokens,
    }


def side_profile_of(agent: PinnedAgent) -> dict[str, Any]:
    """What a hook is told of the model that asks it something of its own, such as a summary: without what
    shapes the agent's answers."""
    profile = profile_of(agent)
    return {**profile, "parameters": for_side_call(profile["parameters"])}


def _indices(agent: PinnedAgent) -> dict[str, list[str]]:
    """Of what kinds the agent can fetch the details of what it is pointed to, with the names of the tools
    that fetch them (feature D7)."""
    found: dict[str, list[str]] = {}
    for tool in agent.tools:
        indexed = dict.fromkeys(_FETCHING_KINDS[kind] for kind in kinds_of(tool) if kind in _FETCHING_KINDS)
        if indexed and not forbidden_action(tool, agent.persona.constraints.allowed_actions):
            for name in indexed:
                found.setdefault(name, []).append(tool.spec.name)
    return found


ANSWER_LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
"""How formats call the most tokens that an answer may have; Gemini's stands in a part of its own."""


def answer_limit(parameters: Mapping[str, Any]) -> int:
    """Tokens that an answer may have by a profile's parameters, whatever their format calls it; 0 if they do
    not say."""
    parts = [parameters, *(parameters.get(name) for name in ("generationConfig", "generation_config"))]
    said = [part.get(name) for part in parts if isinstance(part, Mapping) for name in ANSWER_LIMIT_PARAMETERS]
    return max([each for each in said if type(each) is int and each > 0], default=0)


def _context_limit(agent: PinnedAgent) -> int:
    profile = agent.profile.spec
    limit = profile.context_window_tokens
    if not limit:
        return 0
    longest = answer_limit(profile.parameters)
    share = agent.persona.context_window.threshold
    return max(1, int(limit * MIN_REQUEST_SHARE), min(int(limit * share), limit - longest))


def _overhead_tokens(agent: PinnedAgent) -> int:
    persona = agent.persona
    return (
        text_tokens(persona.system_prompt)
        + sum(text_tokens(line) for line in persona.instructions)
        + sum(
            text_tokens(tool.spec.description) + json_tokens(tool.spec.input_schema) for tool in agent.tools
        )
    )
