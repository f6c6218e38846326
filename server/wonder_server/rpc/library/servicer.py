"""``wonder.v1.LibraryService``: libraries, definitions, agents, projects and artifacts.

The catalog stores a ``request_id`` in the transaction of its change, so a request repeated after a restart
gets its first answer. Git stores the ids of changes to artifacts.
"""

from __future__ import annotations

from wonder_server.ports.access import ByPrincipal
from wonder_server.rpc.library.agents import AgentMethods
from wonder_server.rpc.library.artifacts import ArtifactMethods
from wonder_server.rpc.library.definitions import DefinitionMethods
from wonder_server.rpc.library.parts import LibraryMethods, LibraryParts
from wonder_server.rpc.library.projects import ProjectMethods
from wonder_server.services.content.project_removals import ProjectRemovals
from wonder_server.services.content.repositories import RepositoryService


class LibraryServicer(DefinitionMethods, AgentMethods, ProjectMethods, ArtifactMethods):
    """Methods of the LibraryService; see ``library_service.proto``."""

    def __init__(
        self,
        parts: ByPrincipal[LibraryParts],
        repositories: RepositoryService | None = None,
        removals: ProjectRemovals | None = None,
    ) -> None:
        LibraryMethods.__init__(self, parts)
        self._repositories = repositories
        self._removals = removals
