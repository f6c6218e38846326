# Generated from proto/ by tools/gen.py. Do not edit.

from collections.abc import AsyncIterator, Awaitable

import grpc.aio
from wonder.v1 import memory_service_pb2

class MemoryServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    WriteMemory: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.WriteMemoryRequest, memory_service_pb2.WriteMemoryResponse]
    BatchWriteMemories: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.BatchWriteMemoriesRequest, memory_service_pb2.BatchWriteMemoriesResponse]
    GetMemory: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.GetMemoryRequest, memory_service_pb2.GetMemoryResponse]
    UpdateMemory: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.UpdateMemoryRequest, memory_service_pb2.UpdateMemoryResponse]
    DeleteMemory: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.DeleteMemoryRequest, memory_service_pb2.DeleteMemoryResponse]
    ListMemories: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.ListMemoriesRequest, memory_service_pb2.ListMemoriesResponse]
    SearchMemories: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.SearchMemoriesRequest, memory_service_pb2.SearchMemoriesResponse]
    SupersedeMemory: grpc.aio.UnaryUnaryMultiCallable[memory_service_pb2.SupersedeMemoryRequest, memory_service_pb2.SupersedeMemoryResponse]

class MemoryServiceServicer:
    def WriteMemory(
        self, request: memory_service_pb2.WriteMemoryRequest, context: grpc.aio.ServicerContext[memory_service_pb2.WriteMemoryRequest, memory_service_pb2.WriteMemoryResponse]
    ) -> Awaitable[memory_service_pb2.WriteMemoryResponse]: ...
    def BatchWriteMemories(
        self, request: memory_service_pb2.BatchWriteMemoriesRequest, context: grpc.aio.ServicerContext[memory_service_pb2.BatchWriteMemoriesRequest, memory_service_pb2.BatchWriteMemoriesResponse]
    ) -> Awaitable[memory_service_pb2.BatchWriteMemoriesResponse]: ...
    def GetMemory(
        self, request: memory_service_pb2.GetMemoryRequest, context: grpc.aio.ServicerContext[memory_service_pb2.GetMemoryRequest, memory_service_pb2.GetMemoryResponse]
    ) -> Awaitable[memory_service_pb2.GetMemoryResponse]: ...
    def UpdateMemory(
        self, request: memory_service_pb2.UpdateMemoryRequest, context: grpc.aio.ServicerContext[memory_service_pb2.UpdateMemoryRequest, memory_service_pb2.UpdateMemoryResponse]
    ) -> Awaitable[memory_service_pb2.UpdateMemoryResponse]: ...
    def DeleteMemory(
        self, request: memory_service_pb2.DeleteMemoryRequest, context: grpc.aio.ServicerContext[memory_service_pb2.DeleteMemoryRequest, memory_service_pb2.DeleteMemoryResponse]
    ) -> Awaitable[memory_service_pb2.DeleteMemoryResponse]: ...
    def ListMemories(
        self, request: memory_service_pb2.ListMemoriesRequest, context: grpc.aio.ServicerContext[memory_service_pb2.ListMemoriesRequest, memory_service_pb2.ListMemoriesResponse]
    ) -> Awaitable[memory_service_pb2.ListMemoriesResponse]: ...
    def SearchMemories(
        self, request: memory_service_pb2.SearchMemoriesRequest, context: grpc.aio.ServicerContext[memory_service_pb2.SearchMemoriesRequest, memory_service_pb2.SearchMemoriesResponse]
    ) -> Awaitable[memory_service_pb2.SearchMemoriesResponse]: ...
    def SupersedeMemory(
        self, request: memory_service_pb2.SupersedeMemoryRequest, context: grpc.aio.ServicerContext[memory_service_pb2.SupersedeMemoryRequest, memory_service_pb2.SupersedeMemoryResponse]
    ) -> Awaitable[memory_service_pb2.SupersedeMemoryResponse]: ...

def add_MemoryServiceServicer_to_server(
    servicer: MemoryServiceServicer, server: grpc.aio.Server
) -> None: ...
