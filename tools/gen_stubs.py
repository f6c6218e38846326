"""Source text of typed gRPC stubs, from descriptors. No I/O; `gen.py` writes what comes out.

protoc's own gRPC output is untyped, and betterproto2's clients need another transport than grpc.aio; what
is missing is small: per method a path, two message classes and whether each side streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import indent, wrap

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

_HEADER = "# Generated from proto/ by tools/gen.py. Do not edit.\n"
_CLIENT_MODULE = f'''"""Stubs of all services over grpc.aio channels, with betterproto2 messages."""

{_HEADER}
from __future__ import annotations

import grpc.aio

from ..transport.encoding import Encoder
from .wonder import v1
'''
_SERVICE = 6  # FileDescriptorProto.service, in source paths
_METHOD = 2  # ServiceDescriptorProto.method


def client_stubs(files: Sequence[FileDescriptorProto]) -> str:
    """One module with a stub class for each service, over betterproto2 messages and a grpc.aio channel."""
    blocks = [_CLIENT_MODULE]
    for file in files:
        comments = _comments(file)
        for index, service in enumerate(file.service):
            blocks.append(_client_stub(file, service, index, comments))
    return "\n\n".join(blocks)


def servicer_types(file: FileDescriptorProto, files: Sequence[FileDescriptorProto]) -> str:
    """The type stub beside a file's ``_pb2_grpc.py``: stub, servicer, registration."""
    homes = _message_homes(files)
    used = {
        homes[name]
        for service in file.service
        for m in service.method
        for name in (m.input_type, m.output_type)
    }
    imports = "".join(f"from wonder.v1 import {module}\n" for module in sorted(used))
    header = f"{_HEADER}\nfrom collections.abc import AsyncIterator, Awaitable\n\nimport grpc.aio\n{imports}"
    return header + "".join(_servicer(service, homes) for service in file.service)


def _client_stub(
    file: FileDescriptorProto,
    service: ServiceDescriptorProto,
    index: int,
    comments: dict[tuple[int, ...], str],
) -> str:
    lines = [f"class {service.name}Stub:", _docstring(comments[_SERVICE, index])]
    lines.append("    def __init__(self, channel: grpc.aio.Channel) -> None:")
    for number, method in enumerate(service.method):
        request, response = f"v1.{_short(method.input_type)}", f"v1.{_short(method.output_type)}"
        kind = f"grpc.aio.{_callable(method)}[{request}, {response}]"
        lines += [
            f"        self.{_snake(method.name)}: {kind} = channel.{_shape(method)}(",
            f'            "/{file.package}.{service.name}/{method.name}",',
            f"            Encoder({request}),",
            f"            {response}.FromString,",
            "        )",
            indent(_docstring(comments[_SERVICE, index, _METHOD, number]), "    "),
        ]
    return "\n".join(lines)


def _servicer(service: ServiceDescriptorProto, homes: dict[str, str]) -> str:
    stub, servicer = [f"\nclass {service.name}Stub:"], [f"\nclass {service.name}Servicer:"]
    stub.append("    def __init__(self, channel: grpc.aio.Channel) -> None: ...")
    for method in service.method:
        request = f"{homes[method.input_type]}.{_short(method.input_type)}"
        response = f"{homes[method.output_type]}.{_short(method.output_type)}"
        argument = (
            f"request_iterator: AsyncIterator[{request}]"
            if method.client_streaming
            else f"request: {request}"
        )
        result = f"AsyncIterator[{response}]" if method.server_streaming else f"Awaitable[{response}]"
        stub.append(f"    {method.name}: grpc.aio.{_callable(method)}[{request}, {response}]")
        servicer += [
            f"    def {method.name}(",
            f"        self, {argument}, context: grpc.aio.ServicerContext[{request}, {response}]",
            f"    ) -> {result}: ...",
        ]
    register = (
        f"\ndef add_{service.name}Servicer_to_server(\n"
        f"    servicer: {service.name}Servicer, server: grpc.aio.Server\n) -> None: ...\n"
    )
    return "\n".join(stub) + "\n" + "\n".join(servicer) + "\n" + register


def _message_homes(files: Iterable[FileDescriptorProto]) -> dict[str, str]:
    """Full message name -> the ``_pb2`` module that holds it."""
    return {
        f".{file.package}.{message.name}": file.name.rsplit("/", 1)[1].replace(".proto", "_pb2")
        for file in files
        for message in file.message_type
    }


def _comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Source path -> leading comment."""
    return {tuple(at.path): at.leading_comments for at in file.source_code_info.location}


def _docstring(comment: str) -> str:
    paragraphs = [" ".join(part.split()) for part in comment.split("\n\n")]
    text = "\n\n".join("\n".join(wrap(part, 96, break_on_hyphens=False)) for part in paragraphs)
    return indent(f'"""{text}\n"""' if "\n" in text else f'"""{text}"""', "    ")


def _short(full_name: str) -> str:
    return full_name.rsplit(".", 1)[1]


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def _shape(method: MethodDescriptorProto) -> str:
    sides = (method.client_streaming, method.server_streaming)
    return "_".join("stream" if streams else "unary" for streams in sides)


def _callable(method: MethodDescriptorProto) -> str:
    return "".join(side.title() for side in _shape(method).split("_")) + "MultiCallable"
