"""Source text of the SDK's gRPC stubs, from descriptors. No I/O; `gen.py` writes the result.

The compiler of betterproto2 makes no stubs for grpc.aio, and none with a serializer of the caller's choice
(docs/adr/0022-betterproto2.md). The missing part is small: per method a path, two message classes, and which
sides stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent, wrap

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

_HEADER = "# Generated from proto/ by tools/gen.py. Do not edit.\n"
_CLIENT_MODULE = f'''"""Stubs of all services over the SDK's channel, with betterproto2 messages."""

{_HEADER}
from __future__ import annotations

import grpc.aio

from ..transport.channel import TypedChannel
from ..transport.encoding import Encoder
from .wonder import v1
'''
_SERVICE = 6  # FileDescriptorProto.service, in source paths
_METHOD = 2  # ServiceDescriptorProto.method


def client_stubs(files: Sequence[FileDescriptorProto]) -> str:
    """One module with a stub class for each service, over betterproto2 messages and the SDK's channel."""
    blocks = [_CLIENT_MODULE]
    for file in files:
        comments = _comments(file)
        for index, service in enumerate(file.service):
            blocks.append(_client_stub(file, service, index, comments))
    return "\n\n".join(blocks)


def _client_stub(
    file: FileDescriptorProto,
    service: ServiceDescriptorProto,
    index: int,
    comments: dict[tuple[int, ...], str],
) -> str:
    lines = [f"class {service.name}Stub:", _docstring(comments[_SERVICE, index])]
    lines.append("    def __init__(self, channel: TypedChannel) -> None:")
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
