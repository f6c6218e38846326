"""Codec of PreviewContext."""

from __future__ import annotations

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.context_preview import Preview
from wonder_server.core.definitions.specs import PinnedProfile
from wonder_server.rpc.shared.common_codec import enum_value
from wonder_server.rpc.shared.payload import dict_to_struct


def preview_to_proto(preview: Preview) -> pb.PreviewContextResponse:
    """Encode a preview, with the source of each block."""
    return pb.PreviewContextResponse(
        request=dict_to_struct(preview.request),
        provider=preview.provider,
        model=preview.model,
        format=preview.format,
        blocks=[
            pb.ContextBlock(
                path=block.path,
                source=enum_value(pb.ContextSource, "CONTEXT_SOURCE", block.source or "unspecified"),
                source_id=block.source_id,
                excerpt=block.excerpt,
                tokens=block.tokens,
            )
            for block in preview.blocks
        ],
        input_tokens=preview.input_tokens,
        context_window_tokens=preview.context_window_tokens,
        workflow=preview.workflow,
        tool_sources=[
            pb.ToolSourceState(
                mcp=source.mcp,
                tool_count=source.tools,
                tools_hash=source.digest,
                notices=source.notices,
            )
            for source in preview.sources
        ],
        extraction_model=_side_model(preview.extraction),
        summary_model=_side_model(preview.summary),
    )


def _side_model(profile: PinnedProfile | None) -> pb.SideModel | None:
    if profile is None:
        return None
    return pb.SideModel(
        model_profile=str(profile.pin), provider=profile.spec.provider, model=profile.spec.model
    )
