# Generated from proto/ by tools/gen.py. Do not edit.

from collections.abc import AsyncIterator, Awaitable

import grpc.aio
from wonder.v1 import library_service_pb2

class LibraryServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    CreateLibrary: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.CreateLibraryRequest, library_service_pb2.CreateLibraryResponse]
    GetLibrary: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.GetLibraryRequest, library_service_pb2.GetLibraryResponse]
    ListLibraries: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListLibrariesRequest, library_service_pb2.ListLibrariesResponse]
    DeleteLibrary: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.DeleteLibraryRequest, library_service_pb2.DeleteLibraryResponse]
    PutDefinition: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.PutDefinitionRequest, library_service_pb2.PutDefinitionResponse]
    GetDefinition: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.GetDefinitionRequest, library_service_pb2.GetDefinitionResponse]
    ListDefinitions: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListDefinitionsRequest, library_service_pb2.ListDefinitionsResponse]
    ListRevisions: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListRevisionsRequest, library_service_pb2.ListRevisionsResponse]
    DeleteDefinition: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.DeleteDefinitionRequest, library_service_pb2.DeleteDefinitionResponse]
    ApplyDefinitions: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ApplyDefinitionsRequest, library_service_pb2.ApplyDefinitionsResponse]
    ExportDefinitions: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ExportDefinitionsRequest, library_service_pb2.ExportDefinitionsResponse]
    CreateAgent: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.CreateAgentRequest, library_service_pb2.CreateAgentResponse]
    GetAgent: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.GetAgentRequest, library_service_pb2.GetAgentResponse]
    ListAgents: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListAgentsRequest, library_service_pb2.ListAgentsResponse]
    UpdateAgent: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.UpdateAgentRequest, library_service_pb2.UpdateAgentResponse]
    DeleteAgent: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.DeleteAgentRequest, library_service_pb2.DeleteAgentResponse]
    CreateProject: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.CreateProjectRequest, library_service_pb2.CreateProjectResponse]
    GetProject: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.GetProjectRequest, library_service_pb2.GetProjectResponse]
    ListProjects: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListProjectsRequest, library_service_pb2.ListProjectsResponse]
    UpdateProject: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.UpdateProjectRequest, library_service_pb2.UpdateProjectResponse]
    DeleteProject: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.DeleteProjectRequest, library_service_pb2.DeleteProjectResponse]
    ReadArtifact: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ReadArtifactRequest, library_service_pb2.ReadArtifactResponse]
    WriteArtifact: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.WriteArtifactRequest, library_service_pb2.WriteArtifactResponse]
    ListArtifacts: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListArtifactsRequest, library_service_pb2.ListArtifactsResponse]
    SearchArtifacts: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.SearchArtifactsRequest, library_service_pb2.SearchArtifactsResponse]
    ListArtifactRevisions: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.ListArtifactRevisionsRequest, library_service_pb2.ListArtifactRevisionsResponse]
    MergeArtifacts: grpc.aio.UnaryUnaryMultiCallable[library_service_pb2.MergeArtifactsRequest, library_service_pb2.MergeArtifactsResponse]

class LibraryServiceServicer:
    def CreateLibrary(
        self, request: library_service_pb2.CreateLibraryRequest, context: grpc.aio.ServicerContext[library_service_pb2.CreateLibraryRequest, library_service_pb2.CreateLibraryResponse]
    ) -> Awaitable[library_service_pb2.CreateLibraryResponse]: ...
    def GetLibrary(
        self, request: library_service_pb2.GetLibraryRequest, context: grpc.aio.ServicerContext[library_service_pb2.GetLibraryRequest, library_service_pb2.GetLibraryResponse]
    ) -> Awaitable[library_service_pb2.GetLibraryResponse]: ...
    def ListLibraries(
        self, request: library_service_pb2.ListLibrariesRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListLibrariesRequest, library_service_pb2.ListLibrariesResponse]
    ) -> Awaitable[library_service_pb2.ListLibrariesResponse]: ...
    def DeleteLibrary(
        self, request: library_service_pb2.DeleteLibraryRequest, context: grpc.aio.ServicerContext[library_service_pb2.DeleteLibraryRequest, library_service_pb2.DeleteLibraryResponse]
    ) -> Awaitable[library_service_pb2.DeleteLibraryResponse]: ...
    def PutDefinition(
        self, request: library_service_pb2.PutDefinitionRequest, context: grpc.aio.ServicerContext[library_service_pb2.PutDefinitionRequest, library_service_pb2.PutDefinitionResponse]
    ) -> Awaitable[library_service_pb2.PutDefinitionResponse]: ...
    def GetDefinition(
        self, request: library_service_pb2.GetDefinitionRequest, context: grpc.aio.ServicerContext[library_service_pb2.GetDefinitionRequest, library_service_pb2.GetDefinitionResponse]
    ) -> Awaitable[library_service_pb2.GetDefinitionResponse]: ...
    def ListDefinitions(
        self, request: library_service_pb2.ListDefinitionsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListDefinitionsRequest, library_service_pb2.ListDefinitionsResponse]
    ) -> Awaitable[library_service_pb2.ListDefinitionsResponse]: ...
    def ListRevisions(
        self, request: library_service_pb2.ListRevisionsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListRevisionsRequest, library_service_pb2.ListRevisionsResponse]
    ) -> Awaitable[library_service_pb2.ListRevisionsResponse]: ...
    def DeleteDefinition(
        self, request: library_service_pb2.DeleteDefinitionRequest, context: grpc.aio.ServicerContext[library_service_pb2.DeleteDefinitionRequest, library_service_pb2.DeleteDefinitionResponse]
    ) -> Awaitable[library_service_pb2.DeleteDefinitionResponse]: ...
    def ApplyDefinitions(
        self, request: library_service_pb2.ApplyDefinitionsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ApplyDefinitionsRequest, library_service_pb2.ApplyDefinitionsResponse]
    ) -> Awaitable[library_service_pb2.ApplyDefinitionsResponse]: ...
    def ExportDefinitions(
        self, request: library_service_pb2.ExportDefinitionsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ExportDefinitionsRequest, library_service_pb2.ExportDefinitionsResponse]
    ) -> Awaitable[library_service_pb2.ExportDefinitionsResponse]: ...
    def CreateAgent(
        self, request: library_service_pb2.CreateAgentRequest, context: grpc.aio.ServicerContext[library_service_pb2.CreateAgentRequest, library_service_pb2.CreateAgentResponse]
    ) -> Awaitable[library_service_pb2.CreateAgentResponse]: ...
    def GetAgent(
        self, request: library_service_pb2.GetAgentRequest, context: grpc.aio.ServicerContext[library_service_pb2.GetAgentRequest, library_service_pb2.GetAgentResponse]
    ) -> Awaitable[library_service_pb2.GetAgentResponse]: ...
    def ListAgents(
        self, request: library_service_pb2.ListAgentsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListAgentsRequest, library_service_pb2.ListAgentsResponse]
    ) -> Awaitable[library_service_pb2.ListAgentsResponse]: ...
    def UpdateAgent(
        self, request: library_service_pb2.UpdateAgentRequest, context: grpc.aio.ServicerContext[library_service_pb2.UpdateAgentRequest, library_service_pb2.UpdateAgentResponse]
    ) -> Awaitable[library_service_pb2.UpdateAgentResponse]: ...
    def DeleteAgent(
        self, request: library_service_pb2.DeleteAgentRequest, context: grpc.aio.ServicerContext[library_service_pb2.DeleteAgentRequest, library_service_pb2.DeleteAgentResponse]
    ) -> Awaitable[library_service_pb2.DeleteAgentResponse]: ...
    def CreateProject(
        self, request: library_service_pb2.CreateProjectRequest, context: grpc.aio.ServicerContext[library_service_pb2.CreateProjectRequest, library_service_pb2.CreateProjectResponse]
    ) -> Awaitable[library_service_pb2.CreateProjectResponse]: ...
    def GetProject(
        self, request: library_service_pb2.GetProjectRequest, context: grpc.aio.ServicerContext[library_service_pb2.GetProjectRequest, library_service_pb2.GetProjectResponse]
    ) -> Awaitable[library_service_pb2.GetProjectResponse]: ...
    def ListProjects(
        self, request: library_service_pb2.ListProjectsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListProjectsRequest, library_service_pb2.ListProjectsResponse]
    ) -> Awaitable[library_service_pb2.ListProjectsResponse]: ...
    def UpdateProject(
        self, request: library_service_pb2.UpdateProjectRequest, context: grpc.aio.ServicerContext[library_service_pb2.UpdateProjectRequest, library_service_pb2.UpdateProjectResponse]
    ) -> Awaitable[library_service_pb2.UpdateProjectResponse]: ...
    def DeleteProject(
        self, request: library_service_pb2.DeleteProjectRequest, context: grpc.aio.ServicerContext[library_service_pb2.DeleteProjectRequest, library_service_pb2.DeleteProjectResponse]
    ) -> Awaitable[library_service_pb2.DeleteProjectResponse]: ...
    def ReadArtifact(
        self, request: library_service_pb2.ReadArtifactRequest, context: grpc.aio.ServicerContext[library_service_pb2.ReadArtifactRequest, library_service_pb2.ReadArtifactResponse]
    ) -> Awaitable[library_service_pb2.ReadArtifactResponse]: ...
    def WriteArtifact(
        self, request: library_service_pb2.WriteArtifactRequest, context: grpc.aio.ServicerContext[library_service_pb2.WriteArtifactRequest, library_service_pb2.WriteArtifactResponse]
    ) -> Awaitable[library_service_pb2.WriteArtifactResponse]: ...
    def ListArtifacts(
        self, request: library_service_pb2.ListArtifactsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListArtifactsRequest, library_service_pb2.ListArtifactsResponse]
    ) -> Awaitable[library_service_pb2.ListArtifactsResponse]: ...
    def SearchArtifacts(
        self, request: library_service_pb2.SearchArtifactsRequest, context: grpc.aio.ServicerContext[library_service_pb2.SearchArtifactsRequest, library_service_pb2.SearchArtifactsResponse]
    ) -> Awaitable[library_service_pb2.SearchArtifactsResponse]: ...
    def ListArtifactRevisions(
        self, request: library_service_pb2.ListArtifactRevisionsRequest, context: grpc.aio.ServicerContext[library_service_pb2.ListArtifactRevisionsRequest, library_service_pb2.ListArtifactRevisionsResponse]
    ) -> Awaitable[library_service_pb2.ListArtifactRevisionsResponse]: ...
    def MergeArtifacts(
        self, request: library_service_pb2.MergeArtifactsRequest, context: grpc.aio.ServicerContext[library_service_pb2.MergeArtifactsRequest, library_service_pb2.MergeArtifactsResponse]
    ) -> Awaitable[library_service_pb2.MergeArtifactsResponse]: ...

def add_LibraryServiceServicer_to_server(
    servicer: LibraryServiceServicer, server: grpc.aio.Server
) -> None: ...
