"""Requests that are longer than the model's context window, made to fit.

An assembly may add more than the history that was selected for it, and each move of a turn adds tool results.
Two steps make a request fit: omit its oldest messages, and cut its longest texts, each with a notice. The
first goes down to `STEP` of the limit, so that the beginning of the request stays the same for some moves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from wonder_server.core.conversation.context.dialects import Request, dialect_of
from wonder_server.core.conversation.context.history import MIN_TEXT_BYTES, STEP
from wonder_server.core.conversation.context.window import (
    TrimmedRequest,
    encode,
    head_length,
    is_plain_message,
    role_of,
    trim_request,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.truncation import truncate_text
from wonder_server.core.token_estimates import json_tokens

NOTICE: Final = "[Note: {} older messages are left out.]"
_NOTICE: Final = re.compile(r"\[Note: (\d+) older messages are left out\.\]")

_LONGEST: Final = 1 << 22
"""First length to which texts are cut: the maximum size of a payload."""

_KEPT: Final = frozenset({"thoughtSignature", "signature"})
"""Members of parts that the provider requires unchanged."""
_FIXED: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "tool_use", "function_call"})
"""Types of parts that the provider requires unchanged."""
_TEXTS: Final = frozenset({"content", "text", "output"})
_PARTS: Final = frozenset({"content", "parts", "output", "functionResponse"})


def fit_request(
    state: ConversationState, turn: Turn, agent: PinnedAgent, body: Request, limit: int
) -> TrimmedRequest | None:
    """Return ``body`` within ``limit`` tokens; None if it fits, or if nothing can be omitted or cut."""
    work, request_format = state.turn_work.get(turn.id), agent.profile.spec.format
    if work is not None and not work.rules:
        return trim_request(body, request_format, limit)
    # A request has at most one token a byte of JSON.
    if not limit or len(encode(body)) <= limit:
        return None
    before = json_tokens(body)
    if before <= limit:
        return None
    smaller, omitted = _without_oldest(body, agent, limit, before)
    after = json_tokens(smaller)
    if after > limit:
        smaller = _with_cut_texts(smaller, dialect_of(request_format).messages, limit)
        after = json_tokens(smaller)
    return None if smaller is body else TrimmedRequest(smaller, omitted, before, after)


# --- messages -----------------------------------------------------------------------------------


def _without_oldest(body: Request, agent: PinnedAgent, limit: int, tokens: int) -> tuple[Request, int]:
    """Return the request without its oldest messages, and their number. The newest messages stay."""
    dialect = dialect_of(agent.profile.spec.format)
    messages = body.get(dialect.messages)
    if not isinstance(messages, list):
        return body, 0
    head = head_length(messages)
    last = _last_start(messages, head, agent.persona.context_window.keep_recent_messages)
    # Cut only before a plain message, never between a call and its result.
    starts = [at for at in range(head + 1, last + 1) if is_plain_message(messages[at])]
    if not starts:
        return body, 0
    left, at = tokens, head
    for start in starts:
        left -= sum([json_tokens(message) + 2 for message in messages[at:start]])
        at = start
        if left <= limit * STEP:
            break
    kept = {**body, dialect.messages: [*messages[:head], *messages[at:]]}
    return _with_notice(kept, agent.profile.spec.format, head, at - head), at - head


def _last_start(messages: Sequence[JsonValue], head: int, kept: int) -> int:
    """Return the last place where a request may begin: before the newest message and ``kept`` earlier ones.

    Calls and results do not count.
    """
    plain = [at for at in range(head, len(messages)) if is_plain_message(messages[at])]
    if not plain:
        return head
    left = kept
    for at in range(plain[-1] - 1, head, -1):
        if left <= 0:
            return at + 1
        left -= is_plain_message(messages[at]) or role_of(messages[at]) in ("assistant", "model")
    return plain[-1] if not kept else head


def _with_notice(body: Request, request_format: str, head: int, omitted: int) -> Request:
    """Return the request with a notice about omitted messages, together with those of a notice in it."""
    dialect = dialect_of(request_format)
    found: list[int] = []

    def add(match: re.Match[str]) -> str:
        found.append(int(match[1]))
        return NOTICE.format(int(match[1]) + omitted)

    changed: Request = {}
    for name, value in body.items():
        if name == dialect.messages:
            changed[name] = [*(_replaced(each, add, found) for each in value[:head]), *value[head:]]
        elif name in ("system", "instructions", "systemInstruction", "system_instruction"):
            changed[name] = _replaced(value, add, found)
        else:
            changed[name] = value
    return changed if found else dialect.insert_notice(body, head, NOTICE.format(omitted))


def _replaced(value: JsonValue, add: Callable[[re.Match[str]], str], found: list[int]) -> JsonValue:
    """Return instructions with the last notice in them replaced, if none is ``found`` yet."""
    if isinstance(value, dict):
        return {key: _replaced(member, add, found) for key, member in value.items()}
    if isinstance(value, list):
        return [_replaced(member, add, found) for member in value]
    if not isinstance(value, str) or found:
        return value
    matches = list(_NOTICE.finditer(value))
    if not matches:
        return value
    last = matches[-1]
    return value[: last.start()] + add(last) + value[last.end() :]


# --- texts --------------------------------------------------------------------------------------


def _with_cut_texts(body: Request, messages_field: str, limit: int) -> Request:
    """Return the request with its longest texts cut. The length is a power of two, so that it rarely changes
    from move to move.
    """
    messages = body.get(messages_field)
    if not isinstance(messages, list):
        return body
    head, most, smaller = head_length(messages), _LONGEST, body
    while most > MIN_TEXT_BYTES:
        most //= 2
        cut = [*messages[:head], *(_cut_message(message, most) for message in messages[head:])]
        if all(one is other for one, other in zip(cut, messages, strict=True)):
            continue
        smaller = {**body, messages_field: cut}
        if json_tokens(smaller) <= limit:
            break
    return smaller


def _cut_message(message: JsonValue, most: int) -> JsonValue:
    """Return a message, or a part of one, with texts of at most ``most`` bytes; itself if nothing is cut."""
    if isinstance(message, list):
        items = [_cut_message(item, most) for item in message]
        return message if all(one is other for one, other in zip(items, message, strict=True)) else items
    if not isinstance(message, dict) or message.get("type") in _FIXED or _KEPT & message.keys():
        return message
    changed: JsonDict = {}
    for name, value in message.items():
        shorter = value
        if isinstance(value, str):
            shorter = truncate_text(value, most) if name in _TEXTS else value
        elif name == "response":
            shorter = _cut_strings(value, most)
        elif name in _PARTS:
            shorter = _cut_message(value, most)
        if shorter is not value:
            changed[name] = shorter
    return {**message, **changed} if changed else message


def _cut_strings(value: JsonValue, most: int) -> JsonValue:
    """Return the response of a function with every text cut."""
    if isinstance(value, str):
        return truncate_text(value, most)
    if isinstance(value, dict):
        members = {key: _cut_strings(member, most) for key, member in value.items()}
        return value if all(members[key] is member for key, member in value.items()) else members
    if isinstance(value, list):
        items = [_cut_strings(item, most) for item in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    return value
