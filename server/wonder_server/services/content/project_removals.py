"""Removal of the documents and repositories of deleted projects.

They are outside of the catalog, so no transaction removes both. The commit that deletes a project notes its
id, and the note stays until nothing of the project is left. A kill or an error in between leaves the note,
and the next removal or start finishes the work. Folders without a note are never removed: a catalog that
was lost or restored does not know its projects.
"""

from __future__ import annotations

from typing import Protocol

from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.catalog import RemovedProjects

_log = logger("content")


class ProjectContent(Protocol):
    """The content of a project outside of the catalog."""

    async def delete_project(self, project_id: str) -> None:
        """Remove it. Without effect if it is gone."""
        ...


class KnownProjects(Protocol):
    """The projects of the catalog."""

    async def project(self, key: str) -> Project | None: ...


class ProjectRemovals:
    """Removes what deleted projects have left."""

    def __init__(
        self, removed: RemovedProjects, projects: KnownProjects, contents: tuple[ProjectContent, ...]
    ) -> None:
        self._removed = removed
        self._projects = projects
        self._contents = contents

    async def finish(self) -> None:
        """Remove what is left of all deleted projects. An error is logged, and the next call tries again."""
        for project_id in await self._removed.removed_projects():
            try:
                await self._remove(project_id)
            except (WonderError, OSError) as problem:
                _log.error("project_not_removed", project=project_id, problem=str(problem))

    async def _remove(self, project_id: str) -> None:
        if await self._projects.project(project_id) is None:
            for content in self._contents:
                await content.delete_project(project_id)
        await self._removed.forget_removed(project_id)
