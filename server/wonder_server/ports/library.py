"""The library, as actors use it: agents and workflows with every definition that they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wonder_server.core.definitions.specs import PinnedAgent, PinnedProfile, PinnedWorkflow


class AgentPinning(Protocol):
    """Agents with every definition that their turns refer to."""

    async def pin_agent(self, agent: str) -> PinnedAgent:
        """Return the agent with this id or name. Errors: AGENT_NOT_FOUND."""
        ...

    async def pin_profiles(self, reference: str) -> Sequence[PinnedProfile]:
        """Return the model profile of this reference, and its fallbacks. Errors: DEFINITION_NOT_FOUND."""
        ...


class WorkflowPinning(Protocol):
    """Workflows with every definition that their nodes refer to."""

    async def pin_workflow(self, reference: str) -> PinnedWorkflow:
        """Return the workflow of this reference. Errors: DEFINITION_NOT_FOUND."""
        ...
