"""Ids of what clients may call by name."""

from __future__ import annotations

from typing import Protocol


class NameResolver(Protocol):
    """What servicers need of the library. Keys are ids or names."""

    async def agent_id(self, key: str) -> str:
        """The agent's id. AGENT_NOT_FOUND."""
        ...

    async def project_id(self, key: str) -> str:
        """The project's id; empty is the project ``default``. PROJECT_NOT_FOUND."""
        ...
