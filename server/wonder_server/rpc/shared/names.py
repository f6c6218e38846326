"""Resolution of names and ids that requests give."""

from __future__ import annotations

from typing import Protocol


class NameResolver(Protocol):
    """Resolves the id or name of an agent or project to its id."""

    async def agent_id(self, key: str) -> str:
        """Return the agent's id. Raises AGENT_NOT_FOUND."""
        ...

    async def project_id(self, key: str) -> str:
        """Return the project's id; an empty key is the project ``default``. Raises PROJECT_NOT_FOUND."""
        ...
