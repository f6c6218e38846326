"""Settings of one message: another model profile, a tool choice and further instructions for its turn."""

from __future__ import annotations

import dataclasses
from typing import Final

from wonder_server.core.conversation.context.dialects import NAMED
from wonder_server.core.definitions.overrides import TurnOverrides
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace, stored_text
from wonder_server.core.suggestions import did_you_mean
from wonder_server.ports.library import AgentPinning

MAX_INSTRUCTIONS: Final = 20
"""Maximum number of instructions of one message."""
MAX_INSTRUCTION_CHARACTERS: Final = 8_192
_WORDS: Final = ("auto", "none", "required")


def fingerprint(overrides: TurnOverrides | None) -> dict[str, str]:
    """Return the part of a request's fingerprint; nothing for a request without overrides."""
    return {} if overrides is None else {"overrides": stored_text("TurnOverrides", overrides)}


async def with_overrides(
    agents: AgentPinning, agent: PinnedAgent, overrides: TurnOverrides | None
) -> tuple[PinnedAgent, TurnOverrides | None]:
    """Return the agent as the turn has it, and the overrides with the pinned model profile.

    Errors: FIELD_INVALID for a tool that the agent lacks and for instructions that are empty, too long or too
    many; DEFINITION_NOT_FOUND for an unknown model profile.
    """
    if overrides is None:
        return agent, None
    _check_tool_choice(agent, overrides.tool_choice)
    _check_instructions(overrides.instructions)
    if overrides.instructions:
        persona = agent.persona
        own = dataclasses.replace(persona, instructions=(*persona.instructions, *overrides.instructions))
        agent = dataclasses.replace(agent, persona=own)
    if overrides.model_profile_id:
        profile, *fallbacks = await agents.pin_profiles(overrides.model_profile_id)
        agent = dataclasses.replace(agent, profile=profile, fallbacks=tuple(fallbacks))
        overrides = replace(overrides, model_profile_id=str(profile.pin))
    return agent, overrides


def _check_tool_choice(agent: PinnedAgent, choice: str) -> None:
    names = [tool.spec.name for tool in agent.tools]
    if not choice or choice.removeprefix(NAMED) in names or choice in _WORDS[:2]:
        return
    field = "overrides.tool_choice"
    if choice == "required":
        if names:
            return
        raise error(Reason.FIELD_INVALID, f"The agent {agent.name} has no tools to choose from.", field=field)
    raise error(
        Reason.FIELD_INVALID,
        f"The agent {agent.name} has no tool '{choice[:100]}'{did_you_mean(choice[:100], names)}. Choose"
        " 'auto', 'none', 'required' or one of its tools.",
        field=field,
    )


def _check_instructions(instructions: tuple[str, ...]) -> None:
    if len(instructions) > MAX_INSTRUCTIONS:
        raise error(
            Reason.FIELD_INVALID,
            f"There are {len(instructions)} instructions; the maximum is {MAX_INSTRUCTIONS}.",
            field="overrides.instructions",
        )
    for index, text in enumerate(instructions):
        if not text.strip() or len(text) > MAX_INSTRUCTION_CHARACTERS:
            raise error(
                Reason.FIELD_INVALID,
                f"An instruction has 1 to {MAX_INSTRUCTION_CHARACTERS} characters, and not only spaces.",
                field=f"overrides.instructions[{index}]",
            )
