# Generated from proto/ by tools/gen.py. Do not edit.

from collections.abc import AsyncIterator, Awaitable

import grpc.aio
from wonder.v1 import executor_service_pb2

class ExecutorServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    ExecuteTask: grpc.aio.UnaryUnaryMultiCallable[executor_service_pb2.ExecuteTaskRequest, executor_service_pb2.ExecuteTaskResponse]
    StreamTask: grpc.aio.UnaryStreamMultiCallable[executor_service_pb2.StreamTaskRequest, executor_service_pb2.StreamTaskResponse]
    ListActionKinds: grpc.aio.UnaryUnaryMultiCallable[executor_service_pb2.ListActionKindsRequest, executor_service_pb2.ListActionKindsResponse]
    Work: grpc.aio.StreamStreamMultiCallable[executor_service_pb2.WorkRequest, executor_service_pb2.WorkResponse]

class ExecutorServiceServicer:
    def ExecuteTask(
        self, request: executor_service_pb2.ExecuteTaskRequest, context: grpc.aio.ServicerContext[executor_service_pb2.ExecuteTaskRequest, executor_service_pb2.ExecuteTaskResponse]
    ) -> Awaitable[executor_service_pb2.ExecuteTaskResponse]: ...
    def StreamTask(
        self, request: executor_service_pb2.StreamTaskRequest, context: grpc.aio.ServicerContext[executor_service_pb2.StreamTaskRequest, executor_service_pb2.StreamTaskResponse]
    ) -> AsyncIterator[executor_service_pb2.StreamTaskResponse]: ...
    def ListActionKinds(
        self, request: executor_service_pb2.ListActionKindsRequest, context: grpc.aio.ServicerContext[executor_service_pb2.ListActionKindsRequest, executor_service_pb2.ListActionKindsResponse]
    ) -> Awaitable[executor_service_pb2.ListActionKindsResponse]: ...
    def Work(
        self, request_iterator: AsyncIterator[executor_service_pb2.WorkRequest], context: grpc.aio.ServicerContext[executor_service_pb2.WorkRequest, executor_service_pb2.WorkResponse]
    ) -> AsyncIterator[executor_service_pb2.WorkResponse]: ...

def add_ExecutorServiceServicer_to_server(
    servicer: ExecutorServiceServicer, server: grpc.aio.Server
) -> None: ...
