# mypy: ignore-errors
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from wonder.v1 import access_pb2 as _access_pb2
from wonder.v1 import artifact_pb2 as _artifact_pb2
from wonder.v1 import common_pb2 as _common_pb2
from wonder.v1 import definition_pb2 as _definition_pb2
from wonder.v1 import library_pb2 as _library_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DefinitionChangeAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEFINITION_CHANGE_ACTION_UNSPECIFIED: _ClassVar[DefinitionChangeAction]
    DEFINITION_CHANGE_ACTION_CREATED: _ClassVar[DefinitionChangeAction]
    DEFINITION_CHANGE_ACTION_UPDATED: _ClassVar[DefinitionChangeAction]
    DEFINITION_CHANGE_ACTION_UNCHANGED: _ClassVar[DefinitionChangeAction]
    DEFINITION_CHANGE_ACTION_DELETED: _ClassVar[DefinitionChangeAction]

class AppliedResource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPLIED_RESOURCE_UNSPECIFIED: _ClassVar[AppliedResource]
    APPLIED_RESOURCE_AGENT: _ClassVar[AppliedResource]
    APPLIED_RESOURCE_PROJECT: _ClassVar[AppliedResource]
DEFINITION_CHANGE_ACTION_UNSPECIFIED: DefinitionChangeAction
DEFINITION_CHANGE_ACTION_CREATED: DefinitionChangeAction
DEFINITION_CHANGE_ACTION_UPDATED: DefinitionChangeAction
DEFINITION_CHANGE_ACTION_UNCHANGED: DefinitionChangeAction
DEFINITION_CHANGE_ACTION_DELETED: DefinitionChangeAction
APPLIED_RESOURCE_UNSPECIFIED: AppliedResource
APPLIED_RESOURCE_AGENT: AppliedResource
APPLIED_RESOURCE_PROJECT: AppliedResource

class CreateLibraryRequest(_message.Message):
    __slots__ = ("library", "request_id", "validate_only")
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    library: _library_pb2.Library
    request_id: str
    validate_only: bool
    def __init__(self, library: _Optional[_Union[_library_pb2.Library, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class CreateLibraryResponse(_message.Message):
    __slots__ = ("library",)
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    library: _library_pb2.Library
    def __init__(self, library: _Optional[_Union[_library_pb2.Library, _Mapping]] = ...) -> None: ...

class GetLibraryRequest(_message.Message):
    __slots__ = ("library_id",)
    LIBRARY_ID_FIELD_NUMBER: _ClassVar[int]
    library_id: str
    def __init__(self, library_id: _Optional[str] = ...) -> None: ...

class GetLibraryResponse(_message.Message):
    __slots__ = ("library",)
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    library: _library_pb2.Library
    def __init__(self, library: _Optional[_Union[_library_pb2.Library, _Mapping]] = ...) -> None: ...

class ListLibrariesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLibrariesResponse(_message.Message):
    __slots__ = ("libraries", "next_page_token")
    LIBRARIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    libraries: _containers.RepeatedCompositeFieldContainer[_library_pb2.Library]
    next_page_token: str
    def __init__(self, libraries: _Optional[_Iterable[_Union[_library_pb2.Library, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteLibraryRequest(_message.Message):
    __slots__ = ("library_id", "force", "etag", "request_id")
    LIBRARY_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    library_id: str
    force: bool
    etag: str
    request_id: str
    def __init__(self, library_id: _Optional[str] = ..., force: _Optional[bool] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteLibraryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PutDefinitionRequest(_message.Message):
    __slots__ = ("library_id", "definition", "etag", "request_id", "validate_only")
    LIBRARY_ID_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    library_id: str
    definition: _definition_pb2.Definition
    etag: str
    request_id: str
    validate_only: bool
    def __init__(self, library_id: _Optional[str] = ..., definition: _Optional[_Union[_definition_pb2.Definition, _Mapping]] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class PutDefinitionResponse(_message.Message):
    __slots__ = ("definition", "change")
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    definition: _definition_pb2.Definition
    change: DefinitionChange
    def __init__(self, definition: _Optional[_Union[_definition_pb2.Definition, _Mapping]] = ..., change: _Optional[_Union[DefinitionChange, _Mapping]] = ...) -> None: ...

class DefinitionChange(_message.Message):
    __slots__ = ("action", "kind", "name", "old_revision", "new_revision", "diff")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OLD_REVISION_FIELD_NUMBER: _ClassVar[int]
    NEW_REVISION_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    action: DefinitionChangeAction
    kind: _definition_pb2.DefinitionKind
    name: str
    old_revision: int
    new_revision: int
    diff: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, action: _Optional[_Union[DefinitionChangeAction, str]] = ..., kind: _Optional[_Union[_definition_pb2.DefinitionKind, str]] = ..., name: _Optional[str] = ..., old_revision: _Optional[int] = ..., new_revision: _Optional[int] = ..., diff: _Optional[_Iterable[str]] = ...) -> None: ...

class GetDefinitionRequest(_message.Message):
    __slots__ = ("definition_id",)
    DEFINITION_ID_FIELD_NUMBER: _ClassVar[int]
    definition_id: str
    def __init__(self, definition_id: _Optional[str] = ...) -> None: ...

class GetDefinitionResponse(_message.Message):
    __slots__ = ("definition",)
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    definition: _definition_pb2.Definition
    def __init__(self, definition: _Optional[_Union[_definition_pb2.Definition, _Mapping]] = ...) -> None: ...

class ListDefinitionsRequest(_message.Message):
    __slots__ = ("library_id", "kinds", "labels", "page_size", "page_token")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LIBRARY_ID_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    library_id: str
    kinds: _containers.RepeatedScalarFieldContainer[_definition_pb2.DefinitionKind]
    labels: _containers.ScalarMap[str, str]
    page_size: int
    page_token: str
    def __init__(self, library_id: _Optional[str] = ..., kinds: _Optional[_Iterable[_Union[_definition_pb2.DefinitionKind, str]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDefinitionsResponse(_message.Message):
    __slots__ = ("definitions", "next_page_token")
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    definitions: _containers.RepeatedCompositeFieldContainer[_definition_pb2.Definition]
    next_page_token: str
    def __init__(self, definitions: _Optional[_Iterable[_Union[_definition_pb2.Definition, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListRevisionsRequest(_message.Message):
    __slots__ = ("definition_id", "page_size", "page_token")
    DEFINITION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    definition_id: str
    page_size: int
    page_token: str
    def __init__(self, definition_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRevisionsResponse(_message.Message):
    __slots__ = ("definitions", "next_page_token")
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    definitions: _containers.RepeatedCompositeFieldContainer[_definition_pb2.Definition]
    next_page_token: str
    def __init__(self, definitions: _Optional[_Iterable[_Union[_definition_pb2.Definition, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteDefinitionRequest(_message.Message):
    __slots__ = ("definition_id", "etag", "request_id")
    DEFINITION_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    definition_id: str
    etag: str
    request_id: str
    def __init__(self, definition_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteDefinitionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ApplyDefinitionsRequest(_message.Message):
    __slots__ = ("library", "definitions", "prune", "validate_only", "request_id", "agents", "projects")
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    library: str
    definitions: _containers.RepeatedCompositeFieldContainer[_definition_pb2.Definition]
    prune: bool
    validate_only: bool
    request_id: str
    agents: _containers.RepeatedCompositeFieldContainer[_library_pb2.Agent]
    projects: _containers.RepeatedCompositeFieldContainer[_library_pb2.Project]
    def __init__(self, library: _Optional[str] = ..., definitions: _Optional[_Iterable[_Union[_definition_pb2.Definition, _Mapping]]] = ..., prune: _Optional[bool] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[str] = ..., agents: _Optional[_Iterable[_Union[_library_pb2.Agent, _Mapping]]] = ..., projects: _Optional[_Iterable[_Union[_library_pb2.Project, _Mapping]]] = ...) -> None: ...

class ApplyDefinitionsResponse(_message.Message):
    __slots__ = ("changes", "library", "resource_changes", "notices")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CHANGES_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[DefinitionChange]
    library: _library_pb2.Library
    resource_changes: _containers.RepeatedCompositeFieldContainer[ResourceChange]
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[_Union[DefinitionChange, _Mapping]]] = ..., library: _Optional[_Union[_library_pb2.Library, _Mapping]] = ..., resource_changes: _Optional[_Iterable[_Union[ResourceChange, _Mapping]]] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class ResourceChange(_message.Message):
    __slots__ = ("action", "type", "name", "id", "diff")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    action: DefinitionChangeAction
    type: AppliedResource
    name: str
    id: str
    diff: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, action: _Optional[_Union[DefinitionChangeAction, str]] = ..., type: _Optional[_Union[AppliedResource, str]] = ..., name: _Optional[str] = ..., id: _Optional[str] = ..., diff: _Optional[_Iterable[str]] = ...) -> None: ...

class ExportDefinitionsRequest(_message.Message):
    __slots__ = ("library_id", "page_size", "page_token")
    LIBRARY_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    library_id: str
    page_size: int
    page_token: str
    def __init__(self, library_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ExportDefinitionsResponse(_message.Message):
    __slots__ = ("definitions", "next_page_token")
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    definitions: _containers.RepeatedCompositeFieldContainer[_definition_pb2.Definition]
    next_page_token: str
    def __init__(self, definitions: _Optional[_Iterable[_Union[_definition_pb2.Definition, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateAgentRequest(_message.Message):
    __slots__ = ("agent", "request_id", "validate_only")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    agent: _library_pb2.Agent
    request_id: str
    validate_only: bool
    def __init__(self, agent: _Optional[_Union[_library_pb2.Agent, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class CreateAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _library_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_library_pb2.Agent, _Mapping]] = ...) -> None: ...

class GetAgentRequest(_message.Message):
    __slots__ = ("agent_id",)
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    def __init__(self, agent_id: _Optional[str] = ...) -> None: ...

class GetAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _library_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_library_pb2.Agent, _Mapping]] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ("project_id", "page_size", "page_token")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    page_size: int
    page_token: str
    def __init__(self, project_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents", "next_page_token")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[_library_pb2.Agent]
    next_page_token: str
    def __init__(self, agents: _Optional[_Iterable[_Union[_library_pb2.Agent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateAgentRequest(_message.Message):
    __slots__ = ("agent", "update_mask", "request_id", "validate_only")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    agent: _library_pb2.Agent
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    validate_only: bool
    def __init__(self, agent: _Optional[_Union[_library_pb2.Agent, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class UpdateAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _library_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_library_pb2.Agent, _Mapping]] = ...) -> None: ...

class DeleteAgentRequest(_message.Message):
    __slots__ = ("agent_id", "etag", "request_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    etag: str
    request_id: str
    def __init__(self, agent_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteAgentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateProjectRequest(_message.Message):
    __slots__ = ("project", "request_id", "validate_only")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    project: _library_pb2.Project
    request_id: str
    validate_only: bool
    def __init__(self, project: _Optional[_Union[_library_pb2.Project, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class CreateProjectResponse(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: _library_pb2.Project
    def __init__(self, project: _Optional[_Union[_library_pb2.Project, _Mapping]] = ...) -> None: ...

class GetProjectRequest(_message.Message):
    __slots__ = ("project_id",)
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    def __init__(self, project_id: _Optional[str] = ...) -> None: ...

class GetProjectResponse(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: _library_pb2.Project
    def __init__(self, project: _Optional[_Union[_library_pb2.Project, _Mapping]] = ...) -> None: ...

class ListProjectsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListProjectsResponse(_message.Message):
    __slots__ = ("projects", "next_page_token")
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    projects: _containers.RepeatedCompositeFieldContainer[_library_pb2.Project]
    next_page_token: str
    def __init__(self, projects: _Optional[_Iterable[_Union[_library_pb2.Project, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateProjectRequest(_message.Message):
    __slots__ = ("project", "update_mask", "request_id", "validate_only")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    project: _library_pb2.Project
    update_mask: _field_mask_pb2.FieldMask
    request_id: str
    validate_only: bool
    def __init__(self, project: _Optional[_Union[_library_pb2.Project, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class UpdateProjectResponse(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: _library_pb2.Project
    def __init__(self, project: _Optional[_Union[_library_pb2.Project, _Mapping]] = ...) -> None: ...

class DeleteProjectRequest(_message.Message):
    __slots__ = ("project_id", "etag", "request_id")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    etag: str
    request_id: str
    def __init__(self, project_id: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteProjectResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadArtifactRequest(_message.Message):
    __slots__ = ("project_id", "path", "branch", "revision_id")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    path: str
    branch: str
    revision_id: str
    def __init__(self, project_id: _Optional[str] = ..., path: _Optional[str] = ..., branch: _Optional[str] = ..., revision_id: _Optional[str] = ...) -> None: ...

class ReadArtifactResponse(_message.Message):
    __slots__ = ("artifact",)
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    artifact: _artifact_pb2.Artifact
    def __init__(self, artifact: _Optional[_Union[_artifact_pb2.Artifact, _Mapping]] = ...) -> None: ...

class WriteArtifactRequest(_message.Message):
    __slots__ = ("project_id", "path", "branch", "content", "deletion", "author", "message", "etag", "request_id")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    DELETION_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    path: str
    branch: str
    content: bytes
    deletion: bool
    author: str
    message: str
    etag: str
    request_id: str
    def __init__(self, project_id: _Optional[str] = ..., path: _Optional[str] = ..., branch: _Optional[str] = ..., content: _Optional[bytes] = ..., deletion: _Optional[bool] = ..., author: _Optional[str] = ..., message: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class WriteArtifactResponse(_message.Message):
    __slots__ = ("artifact",)
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    artifact: _artifact_pb2.Artifact
    def __init__(self, artifact: _Optional[_Union[_artifact_pb2.Artifact, _Mapping]] = ...) -> None: ...

class ListArtifactsRequest(_message.Message):
    __slots__ = ("project_id", "branch", "path_prefix", "page_size", "page_token")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    PATH_PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    branch: str
    path_prefix: str
    page_size: int
    page_token: str
    def __init__(self, project_id: _Optional[str] = ..., branch: _Optional[str] = ..., path_prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListArtifactsResponse(_message.Message):
    __slots__ = ("artifacts", "next_page_token")
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_artifact_pb2.Artifact]
    next_page_token: str
    def __init__(self, artifacts: _Optional[_Iterable[_Union[_artifact_pb2.Artifact, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SearchArtifactsRequest(_message.Message):
    __slots__ = ("project_id", "query", "branch", "path_prefix", "limit")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    PATH_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    query: str
    branch: str
    path_prefix: str
    limit: int
    def __init__(self, project_id: _Optional[str] = ..., query: _Optional[str] = ..., branch: _Optional[str] = ..., path_prefix: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SearchArtifactsResponse(_message.Message):
    __slots__ = ("matches", "truncated")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[_artifact_pb2.ArtifactMatch]
    truncated: bool
    def __init__(self, matches: _Optional[_Iterable[_Union[_artifact_pb2.ArtifactMatch, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ListArtifactRevisionsRequest(_message.Message):
    __slots__ = ("project_id", "path", "branch", "page_size", "page_token")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    path: str
    branch: str
    page_size: int
    page_token: str
    def __init__(self, project_id: _Optional[str] = ..., path: _Optional[str] = ..., branch: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListArtifactRevisionsResponse(_message.Message):
    __slots__ = ("revisions", "next_page_token")
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedCompositeFieldContainer[_artifact_pb2.ArtifactRevision]
    next_page_token: str
    def __init__(self, revisions: _Optional[_Iterable[_Union[_artifact_pb2.ArtifactRevision, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MergeArtifactsRequest(_message.Message):
    __slots__ = ("project_id", "source_branch", "target_branch", "author", "message", "validate_only", "request_id", "resolutions")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BRANCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_BRANCH_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLUTIONS_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    source_branch: str
    target_branch: str
    author: str
    message: str
    validate_only: bool
    request_id: str
    resolutions: _containers.RepeatedCompositeFieldContainer[_common_pb2.MergeResolution]
    def __init__(self, project_id: _Optional[str] = ..., source_branch: _Optional[str] = ..., target_branch: _Optional[str] = ..., author: _Optional[str] = ..., message: _Optional[str] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[str] = ..., resolutions: _Optional[_Iterable[_Union[_common_pb2.MergeResolution, _Mapping]]] = ...) -> None: ...

class MergeArtifactsResponse(_message.Message):
    __slots__ = ("merged", "revision", "conflicts", "nothing_to_merge")
    MERGED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    NOTHING_TO_MERGE_FIELD_NUMBER: _ClassVar[int]
    merged: bool
    revision: _artifact_pb2.ArtifactRevision
    conflicts: _containers.RepeatedCompositeFieldContainer[_common_pb2.MergeConflict]
    nothing_to_merge: bool
    def __init__(self, merged: _Optional[bool] = ..., revision: _Optional[_Union[_artifact_pb2.ArtifactRevision, _Mapping]] = ..., conflicts: _Optional[_Iterable[_Union[_common_pb2.MergeConflict, _Mapping]]] = ..., nothing_to_merge: _Optional[bool] = ...) -> None: ...
