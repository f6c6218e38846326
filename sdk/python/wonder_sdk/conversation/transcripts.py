"""Transcripts of conversations in the form of OpenAI's chat messages, and of ChatGPT's data export.

A transcript is a list of ``{"role", "content"}`` with the roles ``user``, ``assistant`` and ``tool``, and
optionally ``name`` (of the person or assistant), ``create_time``, ``tool_calls`` and ``tool_call_id``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from wonder_sdk._proto.google import protobuf
from wonder_sdk._proto.wonder import v1
from wonder_sdk.json_types import JsonDict, JsonObject, JsonValue
from wonder_sdk.values import from_struct, from_value, to_struct

_TIMES: Final = ("create_time", "timestamp", "created_at")
"""Names of the time of a message, in the order in which they are looked for."""
_MILLISECONDS: Final = 10**11
"""Number from which on a time is one of milliseconds: in seconds it is the year 5138."""


@dataclass(slots=True)
class Transcript:
    """A conversation to import. ``skipped`` counts what was left out, by kind."""

    title: str = ""
    messages: list[v1.HistoryMessage] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, kind: str) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + 1


def read_transcripts(value: JsonValue, agents: Collection[str] = ()) -> list[Transcript]:
    """Return the conversations of a transcript: a list of messages, an object with ``messages``, or one or
    several conversations of ChatGPT's export.

    A message of an assistant is of the first agent of the new conversation, or of that of ``agents`` with its
    ``name``; of another assistant if no agent has it. Messages with the roles ``system`` and ``developer``
    are skipped: an agent has its own. Raises ValueError for another form, with the place in the transcript.
    """
    if isinstance(value, list) and value and all(_is_tree(each) for each in value):
        return [_from_tree(each) for each in value if isinstance(each, dict)]
    if isinstance(value, dict) and _is_tree(value):
        return [_from_tree(value)]
    transcript = Transcript()
    if isinstance(value, dict):
        title, value = value.get("title"), value.get("messages")
        transcript.title = title if isinstance(title, str) else ""
    if not isinstance(value, list):
        raise ValueError("a transcript is a JSON list of messages, or an object with the list `messages`")
    calls: dict[str, v1.HistoryToolCall] = {}
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            raise ValueError(f"messages[{index}]: a message is an object with `role` and `content`")
        try:
            _add(transcript, message, agents, calls)
        except ValueError as problem:
            raise ValueError(f"messages[{index}]: {problem}") from None
    return [transcript]


def _add(
    transcript: Transcript, message: JsonDict, agents: Collection[str], calls: dict[str, v1.HistoryToolCall]
) -> None:
    role = message.get("role")
    if role in ("system", "developer"):
        transcript.skip(f"{role} message")
        return
    content = _content(transcript, message.get("content"))
    if role == "tool":
        call = calls.pop(_text(message, "tool_call_id"), None)
        if call is None:
            raise ValueError("`tool_call_id` names no earlier call without a result")
        call.result = protobuf.Value(string_value=content)
        return
    if role not in ("user", "assistant"):
        raise ValueError(f"the role {json.dumps(role)[:50]} is unknown; use user, assistant, tool or system")
    made = v1.HistoryMessage(content=content, create_time=_time(message))
    name = _text(message, "name")
    if role == "user":
        made.user_id = name
    elif name and name not in agents:
        made.other_agent = name
    else:
        made.agent_id = name
    made.tool_calls = [_call(call) for call in _list(message, "tool_calls")]
    calls.update({call.id: call for call in made.tool_calls})
    if not made.content.strip() and not made.tool_calls:
        transcript.skip("empty message")
        return
    transcript.messages.append(made)


def _call(value: JsonValue) -> v1.HistoryToolCall:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(function, dict):
        raise ValueError("a tool call is an object with `id` and `function`")
    arguments = function.get("arguments") or "{}"
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("the arguments of a tool call are no JSON object")
    return v1.HistoryToolCall(
        id=_text(value, "id"),
        tool_name=_text(function, "name"),
        input=to_struct(parsed, "arguments") if parsed else None,
    )


def _content(transcript: Transcript, content: JsonValue) -> str:
    """Return the text of a message. Other parts are named in it."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
            continue
        kind = str(part.get("type", "part"))[:50] if isinstance(part, dict) else "part"
        transcript.skip(kind)
        texts.append(f"[{kind} left out]")
    return "\n".join(texts)


def _time(message: JsonObject) -> datetime | None:
    given = next((message[name] for name in _TIMES if message.get(name) is not None), None)
    if given is None:
        return None
    try:
        if isinstance(given, str):
            when = datetime.fromisoformat(given)
            return when if when.tzinfo else when.replace(tzinfo=UTC)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return datetime.fromtimestamp(given / 1000 if given >= _MILLISECONDS else given, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError("the time is neither seconds since 1970 nor a time such as 2026-01-31T12:00:00Z")


def _text(value: JsonObject, name: str) -> str:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"`{name}` is no text")
    return found or ""


def _list(value: JsonObject, name: str) -> list[JsonValue]:
    found = value.get(name)
    if found is not None and not isinstance(found, list):
        raise ValueError(f"`{name}` is no list")
    return found or []


# --- ChatGPT's export ---------------------------------------------------------------------------------


def _is_tree(value: JsonValue) -> bool:
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def _from_tree(value: JsonDict) -> Transcript:
    """Return the branch of a conversation that ends with its current message."""
    nodes = value["mapping"]
    title, at = value.get("title"), value.get("current_node")
    transcript = Transcript(title if isinstance(title, str) else "")
    branch: list[JsonDict] = []
    seen: set[str] = set()
    while isinstance(at, str) and isinstance(nodes.get(at), dict) and at not in seen:
        seen.add(at)
        message = nodes[at].get("message")
        if isinstance(message, dict):
            branch.append(message)
        at = nodes[at].get("parent")
    last: datetime | None = None
    for message in reversed(branch):
        author = message.get("author")
        role = author.get("role") if isinstance(author, dict) else None
        body = message.get("content")
        text = _content(transcript, body.get("parts")) if isinstance(body, dict) else ""
        if role not in ("user", "assistant") or message.get("recipient", "all") != "all" or not text.strip():
            transcript.skip(f"{role if isinstance(role, str) else 'other'} message without a visible text")
            continue
        made = v1.HistoryMessage(content=text)
        if role == "user":
            made.user_id = ""
        else:
            made.agent_id = ""
        when = _time(message)
        # A regenerated message may be older than the one before.
        last = when if when is not None and (last is None or when > last) else last
        made.create_time = last
        transcript.messages.append(made)
    return transcript


# --- export -------------------------------------------------------------------------------------------


def write_transcript(
    messages: Sequence[v1.Message], moves: Sequence[v1.Move], names: Mapping[str, str]
) -> list[JsonDict]:
    """Return messages and moves of one conversation, oldest first, as a transcript.

    ``names`` are those of its agents, by id. Results of asynchronous tools follow their call.
    """
    by_turn: dict[str, list[v1.Move]] = {}
    results: dict[tuple[str, str], v1.ToolResult] = {}
    for move in moves:
        if move.tool_calls:
            by_turn.setdefault(move.turn_id, []).append(move)
        results.update({(move.turn_id, each.tool_call_id): each for each in move.tool_results})
    last_of_turn = {message.turn_id: message.id for message in messages}
    written: list[JsonDict] = []
    for message in messages:
        left = by_turn.get(message.turn_id, [])
        if message.role is v1.MessageRole.AGENT:
            while left and left[0].message_id != message.id and _is_before(left[0], message):
                written += _written(None, left.pop(0), message, names, results)
        own = left.pop(0) if left and left[0].message_id == message.id else None
        written += _written(message, own, message, names, results)
        if last_of_turn[message.turn_id] == message.id:
            while left:
                written += _written(None, left.pop(0), message, names, results)
    return written


def _is_before(move: v1.Move, message: v1.Message) -> bool:
    return not (move.create_time and message.create_time and move.create_time > message.create_time)


def _written(
    message: v1.Message | None,
    move: v1.Move | None,
    near: v1.Message,
    names: Mapping[str, str],
    results: Mapping[tuple[str, str], v1.ToolResult],
) -> list[JsonDict]:
    """Return a message, a move, or both, with the results of the calls. ``near`` is a message of the turn."""
    is_user = move is None and near.role is v1.MessageRole.USER
    made: JsonDict = {"role": "user" if is_user else "assistant"}
    made["content"] = None if message is None else _exported_text(message)
    author = near.author if is_user or near.role is v1.MessageRole.AGENT else ""
    name = author if is_user else names.get(author, author)
    if name:
        made["name"] = name
    when = move.create_time if message is None and move is not None else near.create_time
    if when is not None:
        made["create_time"] = when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if move is None:
        return [made]
    made["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.tool_name, "arguments": _dumped(from_struct(call.input))},
        }
        for call in move.tool_calls
    ]
    answered = [(call.id, results.get((move.turn_id, call.id))) for call in move.tool_calls]
    return [
        made,
        *(
            {"role": "tool", "tool_call_id": call_id, "content": _result(result)}
            for call_id, result in answered
            if result is not None
        ),
    ]


def _exported_text(message: v1.Message) -> JsonValue:
    if not message.parts:
        return message.content
    parts: list[JsonValue] = []
    for part in message.parts:
        named = part.image or part.file
        if named is None:
            parts.append({"type": "text", "text": part.text or ""})
        else:
            parts.append({"type": "file", "file": {"file_id": named.file_id, "filename": named.name}})
    return parts


def _result(result: v1.ToolResult) -> str:
    if result.error is not None:
        return _dumped({"error": {"code": result.error.code.name, "message": result.error.message}})
    value = from_value(result.result)
    return value if isinstance(value, str) else _dumped(value)


def _dumped(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
