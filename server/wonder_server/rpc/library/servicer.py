"""``wonder.v1.LibraryService``: libraries, definitions, agents, projects and artifacts.

The catalog stores a ``request_id`` in the transaction of its change, so a request repeated after a restart
gets its first answer. Git stores the ids of changes to artifacts.
"""

from __future__ import annotations

from wonder_server.ports.accounts import Accounts
from wonder_server.rpc.library.agents import AgentMethods
from wonder_server.rpc.library.artifacts import ArtifactMethods
from wonder_server.rpc.library.definitions import DefinitionMethods
from wonder_server.rpc.library.projects import ProjectMethods
from wonder_server.rpc.server.authorization import NO_GRANTS, ScopeGrants
from wonder_server.services.catalog.library import Library
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.repositories import RepositoryService


class LibraryServicer(DefinitionMethods, AgentMethods, ProjectMethods, ArtifactMethods):
    """Methods of the LibraryService; see ``library_service.proto``."""

    def __init__(
        self,
        library: Library,
        artifacts: Artifacts,
        accounts: Accounts | None = None,
        repositories: RepositoryService | None = None,
        grants: ScopeGrants = NO_GRANTS,
    ) -> None:
        DefinitionMethods.__init__(self, library.definitions, grants)
        AgentMethods.__init__(self, library.agents, accounts)
        ProjectMethods.__init__(self, library.projects, artifacts, repositories, grants)
        ArtifactMethods.__init__(self, artifacts, grants)
