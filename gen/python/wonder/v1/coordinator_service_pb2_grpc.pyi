# Generated from proto/ by tools/gen.py. Do not edit.

from collections.abc import AsyncIterator, Awaitable

import grpc.aio
from wonder.v1 import coordinator_service_pb2

class CoordinatorServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    StartRun: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.StartRunRequest, coordinator_service_pb2.StartRunResponse]
    GetRun: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.GetRunRequest, coordinator_service_pb2.GetRunResponse]
    ListRuns: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.ListRunsRequest, coordinator_service_pb2.ListRunsResponse]
    CancelRun: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.CancelRunRequest, coordinator_service_pb2.CancelRunResponse]
    SignalRun: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.SignalRunRequest, coordinator_service_pb2.SignalRunResponse]
    WatchRun: grpc.aio.UnaryStreamMultiCallable[coordinator_service_pb2.WatchRunRequest, coordinator_service_pb2.WatchRunResponse]
    ListGates: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.ListGatesRequest, coordinator_service_pb2.ListGatesResponse]
    ResolveGate: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.ResolveGateRequest, coordinator_service_pb2.ResolveGateResponse]
    ReplayRun: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.ReplayRunRequest, coordinator_service_pb2.ReplayRunResponse]
    ForkRun: grpc.aio.UnaryUnaryMultiCallable[coordinator_service_pb2.ForkRunRequest, coordinator_service_pb2.ForkRunResponse]

class CoordinatorServiceServicer:
    def StartRun(
        self, request: coordinator_service_pb2.StartRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.StartRunRequest, coordinator_service_pb2.StartRunResponse]
    ) -> Awaitable[coordinator_service_pb2.StartRunResponse]: ...
    def GetRun(
        self, request: coordinator_service_pb2.GetRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.GetRunRequest, coordinator_service_pb2.GetRunResponse]
    ) -> Awaitable[coordinator_service_pb2.GetRunResponse]: ...
    def ListRuns(
        self, request: coordinator_service_pb2.ListRunsRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.ListRunsRequest, coordinator_service_pb2.ListRunsResponse]
    ) -> Awaitable[coordinator_service_pb2.ListRunsResponse]: ...
    def CancelRun(
        self, request: coordinator_service_pb2.CancelRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.CancelRunRequest, coordinator_service_pb2.CancelRunResponse]
    ) -> Awaitable[coordinator_service_pb2.CancelRunResponse]: ...
    def SignalRun(
        self, request: coordinator_service_pb2.SignalRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.SignalRunRequest, coordinator_service_pb2.SignalRunResponse]
    ) -> Awaitable[coordinator_service_pb2.SignalRunResponse]: ...
    def WatchRun(
        self, request: coordinator_service_pb2.WatchRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.WatchRunRequest, coordinator_service_pb2.WatchRunResponse]
    ) -> AsyncIterator[coordinator_service_pb2.WatchRunResponse]: ...
    def ListGates(
        self, request: coordinator_service_pb2.ListGatesRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.ListGatesRequest, coordinator_service_pb2.ListGatesResponse]
    ) -> Awaitable[coordinator_service_pb2.ListGatesResponse]: ...
    def ResolveGate(
        self, request: coordinator_service_pb2.ResolveGateRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.ResolveGateRequest, coordinator_service_pb2.ResolveGateResponse]
    ) -> Awaitable[coordinator_service_pb2.ResolveGateResponse]: ...
    def ReplayRun(
        self, request: coordinator_service_pb2.ReplayRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.ReplayRunRequest, coordinator_service_pb2.ReplayRunResponse]
    ) -> Awaitable[coordinator_service_pb2.ReplayRunResponse]: ...
    def ForkRun(
        self, request: coordinator_service_pb2.ForkRunRequest, context: grpc.aio.ServicerContext[coordinator_service_pb2.ForkRunRequest, coordinator_service_pb2.ForkRunResponse]
    ) -> Awaitable[coordinator_service_pb2.ForkRunResponse]: ...

def add_CoordinatorServiceServicer_to_server(
    servicer: CoordinatorServiceServicer, server: grpc.aio.Server
) -> None: ...
