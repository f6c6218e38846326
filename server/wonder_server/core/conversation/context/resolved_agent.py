"""Values that follow from a pinned agent alone, computed once for all its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wonder_server.core.budget import Budget
from wonder_server.core.conversation.context.permissions import DECLINE_DEFINITION, forbidden_action, kinds_of
from wonder_server.core.conversation.model.agent_tools import offered_schema
from wonder_server.core.definitions.specs import ModelProfile, PinnedAgent
from wonder_server.core.identity_cache import cache_by_identity
from wonder_server.core.json_types import JsonDict, JsonObject
from wonder_server.core.request_formats import for_side_call
from wonder_server.core.token_estimates import json_tokens, text_tokens

MIN_REQUEST_SHARE = 0.25
"""Minimum share of the context window for a request, however long the answer may be."""

_FETCHING_KINDS = {
    **dict.fromkeys(("memory.list", "memory.read", "memory.search"), "memory"),
    **dict.fromkeys(("artifact.list", "artifact.read", "artifact.search"), "artifact"),
    **dict.fromkeys(("repo.read", "repo.search", "repo.tree"), "repository"),
}
"""Kinds of action that read data, with the kind of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAgent:
    """Values of one pinned agent.

    ``agent``, ``persona``, ``profile``, ``tools`` and ``indices`` are parts of hook inputs. They are the
    same objects each time; ``tools_and_decline`` is for called agents. ``extraction_profile`` and
    ``summary_profile`` are for the hooks that call a model themselves.

    ``context_limit`` is the maximum number of tokens of a request, ``summary_limit`` that of the request
    for a summary; 0 if the model's limit is unknown.
    ``overhead_tokens`` counts the parts of a request besides messages and summary. ``limits`` are the
    persona's limits of a turn.
    """

    agent: JsonDict
    persona: JsonDict
    profile: JsonDict
    extraction_profile: JsonDict
    summary_profile: JsonDict
    tools: list[JsonDict]
    tools_and_decline: list[JsonDict]
    indices: dict[str, list[str]]
    context_limit: int
    summary_limit: int
    overhead_tokens: int
    limits: Budget


@cache_by_identity
def resolve_agent(agent: PinnedAgent) -> ResolvedAgent:
    """Return the values of this agent, the same object each time."""
    persona, limits = agent.persona, agent.persona.constraints
    tools: list[JsonDict] = [
        {
            "id": tool.pin.definition_id,
            "name": tool.spec.name,
            "description": tool.spec.description,
            "input_schema": offered_schema(tool),
            "target_type": tool.spec.target_type,
            "async": tool.spec.is_async,
        }
        for tool in agent.tools
    ]
    return ResolvedAgent(
        agent={"id": agent.agent_id, "name": agent.name},
        persona={"system_prompt": persona.system_prompt, "instructions": list(persona.instructions)},
        profile=_profile(agent.profile.spec),
        extraction_profile=_side_profile(extraction_profile(agent)),
        summary_profile=_side_profile(summary_profile(agent)),
        tools=tools,
        tools_and_decline=[*tools, DECLINE_DEFINITION],
        indices=_indices(agent),
        context_limit=_context_limit(agent, agent.profile.spec),
        summary_limit=_context_limit(agent, summary_profile(agent)),
        overhead_tokens=_overhead_tokens(agent),
        limits=Budget(
            max_tokens=limits.max_tokens_per_turn,
            max_cost_micros=limits.max_cost_micros_per_turn,
            max_duration_ms=limits.max_turn_ms,
        ),
    )


def extraction_profile(agent: PinnedAgent) -> ModelProfile:
    """Return the model profile of memory extraction."""
    return (*agent.extraction_profiles, agent.profile)[0].spec


def summary_profile(agent: PinnedAgent) -> ModelProfile:
    """Return the model profile of summaries."""
    return (*agent.summary_profiles, agent.profile)[0].spec


def extraction_profile_input(agent: PinnedAgent) -> JsonDict:
    """Return the model profile of memory extraction, as its workflow gets it."""
    return _side_profile(extraction_profile(agent))


def _profile(profile: ModelProfile) -> JsonDict:
    """Return a model profile for a hook's input."""
    return {
        "provider": profile.provider,
        "model": profile.model,
        "format": profile.format,
        "parameters": profile.parameters,
        "context_window_tokens": profile.context_window_tokens,
    }


def _side_profile(profile: ModelProfile) -> JsonDict:
    """Return a model profile for a hook that calls the model itself, such as summarization.

    It omits the parameters that shape the agent's answers.
    """
    given = _profile(profile)
    return {**given, "parameters": for_side_call(given["parameters"])}


def _indices(agent: PinnedAgent) -> dict[str, list[str]]:
    """Return the kinds of data that the agent's tools can read, with the names of these tools (feature
    D7).
    """
    found: dict[str, list[str]] = {}
    for tool in agent.tools:
        indexed = dict.fromkeys(_FETCHING_KINDS[kind] for kind in kinds_of(tool) if kind in _FETCHING_KINDS)
        if indexed and not forbidden_action(tool, agent.persona.constraints.allowed_actions):
            for name in indexed:
                found.setdefault(name, []).append(tool.spec.name)
    return found


ANSWER_LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
"""Names of the maximum number of answer tokens. Gemini's is in a nested object."""


def answer_limit(parameters: JsonObject) -> int:
    """Return the maximum number of answer tokens in a profile's parameters; 0 if they set none."""
    parts = [parameters, *(parameters.get(name) for name in ("generationConfig", "generation_config"))]
    limits = [
        part.get(name) for part in parts if isinstance(part, Mapping) for name in ANSWER_LIMIT_PARAMETERS
    ]
    return max([each for each in limits if type(each) is int and each > 0], default=0)


def _context_limit(agent: PinnedAgent, profile: ModelProfile) -> int:
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
        + (json_tokens(persona.output_schema) if persona.output_schema else 0)
    )
