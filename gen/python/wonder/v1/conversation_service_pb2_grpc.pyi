# Generated from proto/ by tools/gen.py. Do not edit.

from collections.abc import AsyncIterator, Awaitable

import grpc.aio
from wonder.v1 import conversation_service_pb2

class ConversationServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    CreateConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.CreateConversationRequest, conversation_service_pb2.CreateConversationResponse]
    GetConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.GetConversationRequest, conversation_service_pb2.GetConversationResponse]
    ListConversations: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ListConversationsRequest, conversation_service_pb2.ListConversationsResponse]
    UpdateConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.UpdateConversationRequest, conversation_service_pb2.UpdateConversationResponse]
    DeleteConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.DeleteConversationRequest, conversation_service_pb2.DeleteConversationResponse]
    CompleteConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.CompleteConversationRequest, conversation_service_pb2.CompleteConversationResponse]
    ReopenConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ReopenConversationRequest, conversation_service_pb2.ReopenConversationResponse]
    ResetConversation: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ResetConversationRequest, conversation_service_pb2.ResetConversationResponse]
    AddParticipant: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.AddParticipantRequest, conversation_service_pb2.AddParticipantResponse]
    RemoveParticipant: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.RemoveParticipantRequest, conversation_service_pb2.RemoveParticipantResponse]
    Converse: grpc.aio.StreamStreamMultiCallable[conversation_service_pb2.ConverseRequest, conversation_service_pb2.ConverseResponse]
    SendMessage: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.SendMessageRequest, conversation_service_pb2.SendMessageResponse]
    Subscribe: grpc.aio.UnaryStreamMultiCallable[conversation_service_pb2.SubscribeRequest, conversation_service_pb2.SubscribeResponse]
    CallAgent: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.CallAgentRequest, conversation_service_pb2.CallAgentResponse]
    CancelTurn: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.CancelTurnRequest, conversation_service_pb2.CancelTurnResponse]
    GetTurn: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.GetTurnRequest, conversation_service_pb2.GetTurnResponse]
    ListTurns: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ListTurnsRequest, conversation_service_pb2.ListTurnsResponse]
    ListMessages: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ListMessagesRequest, conversation_service_pb2.ListMessagesResponse]
    ListMoves: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ListMovesRequest, conversation_service_pb2.ListMovesResponse]
    ListEvents: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.ListEventsRequest, conversation_service_pb2.ListEventsResponse]
    ReadMessage: grpc.aio.UnaryStreamMultiCallable[conversation_service_pb2.ReadMessageRequest, conversation_service_pb2.ReadMessageResponse]
    PreviewContext: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.PreviewContextRequest, conversation_service_pb2.PreviewContextResponse]
    DiffBranch: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.DiffBranchRequest, conversation_service_pb2.DiffBranchResponse]
    MergeBranch: grpc.aio.UnaryUnaryMultiCallable[conversation_service_pb2.MergeBranchRequest, conversation_service_pb2.MergeBranchResponse]

class ConversationServiceServicer:
    def CreateConversation(
        self, request: conversation_service_pb2.CreateConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.CreateConversationRequest, conversation_service_pb2.CreateConversationResponse]
    ) -> Awaitable[conversation_service_pb2.CreateConversationResponse]: ...
    def GetConversation(
        self, request: conversation_service_pb2.GetConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.GetConversationRequest, conversation_service_pb2.GetConversationResponse]
    ) -> Awaitable[conversation_service_pb2.GetConversationResponse]: ...
    def ListConversations(
        self, request: conversation_service_pb2.ListConversationsRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ListConversationsRequest, conversation_service_pb2.ListConversationsResponse]
    ) -> Awaitable[conversation_service_pb2.ListConversationsResponse]: ...
    def UpdateConversation(
        self, request: conversation_service_pb2.UpdateConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.UpdateConversationRequest, conversation_service_pb2.UpdateConversationResponse]
    ) -> Awaitable[conversation_service_pb2.UpdateConversationResponse]: ...
    def DeleteConversation(
        self, request: conversation_service_pb2.DeleteConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.DeleteConversationRequest, conversation_service_pb2.DeleteConversationResponse]
    ) -> Awaitable[conversation_service_pb2.DeleteConversationResponse]: ...
    def CompleteConversation(
        self, request: conversation_service_pb2.CompleteConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.CompleteConversationRequest, conversation_service_pb2.CompleteConversationResponse]
    ) -> Awaitable[conversation_service_pb2.CompleteConversationResponse]: ...
    def ReopenConversation(
        self, request: conversation_service_pb2.ReopenConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ReopenConversationRequest, conversation_service_pb2.ReopenConversationResponse]
    ) -> Awaitable[conversation_service_pb2.ReopenConversationResponse]: ...
    def ResetConversation(
        self, request: conversation_service_pb2.ResetConversationRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ResetConversationRequest, conversation_service_pb2.ResetConversationResponse]
    ) -> Awaitable[conversation_service_pb2.ResetConversationResponse]: ...
    def AddParticipant(
        self, request: conversation_service_pb2.AddParticipantRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.AddParticipantRequest, conversation_service_pb2.AddParticipantResponse]
    ) -> Awaitable[conversation_service_pb2.AddParticipantResponse]: ...
    def RemoveParticipant(
        self, request: conversation_service_pb2.RemoveParticipantRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.RemoveParticipantRequest, conversation_service_pb2.RemoveParticipantResponse]
    ) -> Awaitable[conversation_service_pb2.RemoveParticipantResponse]: ...
    def Converse(
        self, request_iterator: AsyncIterator[conversation_service_pb2.ConverseRequest], context: grpc.aio.ServicerContext[conversation_service_pb2.ConverseRequest, conversation_service_pb2.ConverseResponse]
    ) -> AsyncIterator[conversation_service_pb2.ConverseResponse]: ...
    def SendMessage(
        self, request: conversation_service_pb2.SendMessageRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.SendMessageRequest, conversation_service_pb2.SendMessageResponse]
    ) -> Awaitable[conversation_service_pb2.SendMessageResponse]: ...
    def Subscribe(
        self, request: conversation_service_pb2.SubscribeRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.SubscribeRequest, conversation_service_pb2.SubscribeResponse]
    ) -> AsyncIterator[conversation_service_pb2.SubscribeResponse]: ...
    def CallAgent(
        self, request: conversation_service_pb2.CallAgentRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.CallAgentRequest, conversation_service_pb2.CallAgentResponse]
    ) -> Awaitable[conversation_service_pb2.CallAgentResponse]: ...
    def CancelTurn(
        self, request: conversation_service_pb2.CancelTurnRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.CancelTurnRequest, conversation_service_pb2.CancelTurnResponse]
    ) -> Awaitable[conversation_service_pb2.CancelTurnResponse]: ...
    def GetTurn(
        self, request: conversation_service_pb2.GetTurnRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.GetTurnRequest, conversation_service_pb2.GetTurnResponse]
    ) -> Awaitable[conversation_service_pb2.GetTurnResponse]: ...
    def ListTurns(
        self, request: conversation_service_pb2.ListTurnsRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ListTurnsRequest, conversation_service_pb2.ListTurnsResponse]
    ) -> Awaitable[conversation_service_pb2.ListTurnsResponse]: ...
    def ListMessages(
        self, request: conversation_service_pb2.ListMessagesRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ListMessagesRequest, conversation_service_pb2.ListMessagesResponse]
    ) -> Awaitable[conversation_service_pb2.ListMessagesResponse]: ...
    def ListMoves(
        self, request: conversation_service_pb2.ListMovesRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ListMovesRequest, conversation_service_pb2.ListMovesResponse]
    ) -> Awaitable[conversation_service_pb2.ListMovesResponse]: ...
    def ListEvents(
        self, request: conversation_service_pb2.ListEventsRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ListEventsRequest, conversation_service_pb2.ListEventsResponse]
    ) -> Awaitable[conversation_service_pb2.ListEventsResponse]: ...
    def ReadMessage(
        self, request: conversation_service_pb2.ReadMessageRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.ReadMessageRequest, conversation_service_pb2.ReadMessageResponse]
    ) -> AsyncIterator[conversation_service_pb2.ReadMessageResponse]: ...
    def PreviewContext(
        self, request: conversation_service_pb2.PreviewContextRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.PreviewContextRequest, conversation_service_pb2.PreviewContextResponse]
    ) -> Awaitable[conversation_service_pb2.PreviewContextResponse]: ...
    def DiffBranch(
        self, request: conversation_service_pb2.DiffBranchRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.DiffBranchRequest, conversation_service_pb2.DiffBranchResponse]
    ) -> Awaitable[conversation_service_pb2.DiffBranchResponse]: ...
    def MergeBranch(
        self, request: conversation_service_pb2.MergeBranchRequest, context: grpc.aio.ServicerContext[conversation_service_pb2.MergeBranchRequest, conversation_service_pb2.MergeBranchResponse]
    ) -> Awaitable[conversation_service_pb2.MergeBranchResponse]: ...

def add_ConversationServiceServicer_to_server(
    servicer: ConversationServiceServicer, server: grpc.aio.Server
) -> None: ...
