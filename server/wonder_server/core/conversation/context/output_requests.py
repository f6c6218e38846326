"""Requests for answers that match an output schema.

The provider's own means is used where the format has one for the schema (`RequestFormat.ask_output`). In all
other cases the instructions contain the schema. The server checks the answer in both cases.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from wonder_server.core.conversation.context.dialects import Request, dialect_of
from wonder_server.core.conversation.context.window import head_length
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.definitions.specs import ModelProfile, PinnedAgent
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema.truncation import utf8_size

INSTRUCTION: Final = (
    "When you give your final answer, answer with one JSON object that is valid against this JSON Schema, and"
    " with nothing else: no other text and no code fence.\n"
)
REPAIR: Final = (
    "[Notice of the platform] Your last answer does not satisfy the required JSON Schema:\n{}\n"
    "Answer again with one corrected JSON object and nothing else. Do not call tools."
)
MAX_REPEATED_BYTES: Final = 64 * 1024
"""A larger invalid answer is not repeated in the request for its repair."""


def output_schema_of(turn: Turn, agent: PinnedAgent) -> JsonDict:
    """Return the schema of the turn's final answer, its caller's or its persona's; empty for plain text."""
    return turn.output_schema or agent.persona.output_schema


def ask_for_output(body: Request, agent: PinnedAgent, schema: JsonDict) -> Request:
    """Return the first request of a turn with the output schema."""
    return with_output_schema(body, agent.profile.spec, schema)


def with_output_schema(body: Request, profile: ModelProfile, schema: JsonDict) -> Request:
    """Return a request to the model of ``profile`` for an answer that is valid against ``schema``."""
    dialect = dialect_of(profile.format)
    asked = dialect.format.ask_output(body, profile.parameters, schema)
    if asked is not None:
        return asked
    text = INSTRUCTION + json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return dialect.insert_notice(body, head_length(body[dialect.messages]), text)


def ask_for_repair(
    body: Request, agent: PinnedAgent, raw: JsonDict, text: str, problems: Sequence[str]
) -> Request:
    """Return the request that follows an invalid answer: the answer, its problems, and no tools.

    ``raw`` is the answer in the provider's form, ``text`` its text.
    """
    dialect = dialect_of(agent.profile.spec.format)
    if utf8_size(text) <= MAX_REPEATED_BYTES:
        body = dialect.resume(body, raw, ())
    notice = REPAIR.format("\n".join(f"- {problem}" for problem in problems))
    return dialect.forbid_tools(dialect.notice(body, notice))
