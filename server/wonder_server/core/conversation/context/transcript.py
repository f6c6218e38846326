"""Messages, tool calls and results of a turn in the neutral form (`core.request_formats.neutral`).

An earlier turn is repeated as the model received it, without the own messages of the provider: thoughts and
ids are valid only for the model and the turn that made them. The planner adds the moves of the turn itself
(`planning.assembly`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.core.content.labels import clean
from wonder_server.core.content.parts import neutral_content
from wonder_server.core.conversation.context.dialects import result_files, result_text
from wonder_server.core.conversation.model.exchange import REPLY_CHARS, Exchange, Quote
from wonder_server.core.conversation.model.speakers import AGENT, Key, Speakers, author_key, author_name
from wonder_server.core.conversation.model.values import (
    Invocation,
    Message,
    Move,
    Role,
    ToolResult,
    Turn,
)
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats.neutral import ASSISTANT, TOOL, USER
from wonder_server.core.request_formats.parts import is_blank
from wonder_server.core.schema.json_nesting import deep_parts_as_text
from wonder_server.core.token_estimates import BYTES_PER_TOKEN, byte_size, json_tokens

NO_RESULT: Final = "(No result: the turn ended before this call did.)"
"""Result of a call whose turn has ended. Providers reject a call without a result."""
NO_RESULT_YET: Final = "(No result yet: this call is still running.)"
"""Result of a call of another turn that goes on, which the turn itself waits for."""
MAX_ARGUMENT_LEVELS: Final = 20
"""Maximum number of levels in the arguments of a call; deeper parts are JSON text. Expressions return at most
32 levels. A request of Gemini has 7 around the arguments, and its assembly up to 3 around the request."""
RULES_OF_REPLIES: Final = 4
"""Version of `TURN_RULES` from which on replies in the history say what they answer."""


@dataclass(frozen=True, slots=True)
class View:
    """The agent that reads a transcript, and the speakers whose labels messages of users have; None for no
    labels. ``replies``: a reply says what it answers.
    """

    agent_id: str
    speakers: Speakers | None = None
    replies: bool = False


def exchanges_of(moves: Sequence[Move], *, has_ended: bool = True) -> tuple[Exchange, ...]:
    """Return all moves of a turn, for requests of other turns; nothing for a turn without tool calls."""
    if not any(move.invocations for move in moves):
        return ()
    all_reported = {entry.operation_id for move in moves for entry in move.reported}
    started: list[Invocation] = []
    reported: set[str] = set()
    exchanges: list[Exchange] = []
    for move in moves:
        reported |= {entry.operation_id for entry in move.reported}
        still = [entry for entry in started if entry.operation_id not in reported]
        said = notice(move.reported, still, move.asker) if move.reported else ""
        results = [
            _result(entry, entry.operation_id in all_reported, has_ended) for entry in move.invocations
        ]
        exchanges.append(_exchange(move, said, results))
        started += [entry for entry in move.invocations if entry.is_async]
    return tuple(exchanges)


def transcript_of(
    turn: Turn, messages: Sequence[Message], exchanges: Sequence[Exchange], view: View, first: int = 0
) -> list[JsonDict]:
    """Return the messages of a turn from the ordinal ``first`` on, as the agent of ``view`` sees them.

    A message names no turn, so that most messages of a request equal those of its input and are stored once.

    It sees its own calls with their results, and only the words of others. A move without a text belongs to
    the text before it.
    """
    if turn.agent_id != view.agent_id:
        exchanges = ()
    by_id = {message.id: message for message in messages} if exchanges else {}
    transcript: list[JsonDict] = []
    left, is_seen = list(messages), bool(messages) and messages[0].ordinal >= first
    for exchange in exchanges:
        text = by_id.get(exchange.message_id)
        while left and (left[0].role is Role.USER or (text is not None and left[0] is not text)):
            transcript += _message(turn, left.pop(0), view, first)
        if text is not None and left:
            left.pop(0)
            is_seen = text.ordinal >= first
        if is_seen:
            transcript += _written(
                exchange, "" if text is None else neutral_content(text.content, text.parts)
            )
    for message in left:
        transcript += _message(turn, message, view, first)
    return transcript


def transcript_of_move(move: Move) -> list[JsonDict]:
    """Return a move of an active turn as the model's message and the results of its calls."""
    results = [_result(entry, is_reported=entry.is_async, has_ended=False) for entry in move.invocations]
    return _written(_exchange(move, "", results), move.reasoning)


def _message(turn: Turn, message: Message, view: View, first: int) -> list[JsonDict]:
    """Return a message of a turn; nothing for one that the agent does not see."""
    # Providers reject messages of white space, which models produce at times.
    if message.ordinal < first or (is_blank(message.content) and not message.parts):
        return []
    content = neutral_content(message.content, message.parts)
    key = author_key(message, turn)
    if key == (AGENT, view.agent_id) and message.role is Role.AGENT:
        return [{"role": ASSISTANT, "content": content}]
    message_of_user: JsonDict = {"role": USER, "content": content}
    if view.speakers is not None:
        message_of_user["speaker"] = view.speakers.get(key, author_name(message, turn))
    if view.replies and message.role is Role.USER and message.reply_to_message_id and turn.quote is not None:
        message_of_user["reply"] = _reply(turn.quote, key, view)
    return [message_of_user]


def _reply(quote: Quote, author: Key, view: View) -> str:
    """Return the line before a reply of ``author``. Its quote is a label, so it cannot end the line."""
    key = quote.kind, quote.author
    if key == (AGENT, view.agent_id):
        whom = "your message"
    elif key == author:
        whom = "their own message"
    elif view.speakers is None:
        whom = "an earlier message"
    else:
        whom = str(view.speakers.get(key, quote.name)["label"])
    text = clean(quote.text, REPLY_CHARS).replace('"', "'")
    return f'[in reply to {whom}: "{text}"]' if text else f"[in reply to {whom}]"


def _written(exchange: Exchange, text: JsonValue) -> list[JsonDict]:
    """Return the messages of a move."""
    written: list[JsonDict] = []
    if exchange.notice:
        written.append({"role": USER, "content": exchange.notice})
    if exchange.calls or isinstance(text, list) or not is_blank(text):
        answer: JsonDict = {"role": ASSISTANT, "content": text}
        written.append({**answer, "tool_calls": list(exchange.calls)} if exchange.calls else answer)
    written += exchange.results
    return written


# --- moves --------------------------------------------------------------------------------------


def _exchange(move: Move, said: str, results: Sequence[JsonDict]) -> Exchange:
    calls = tuple(
        {
            "id": entry.call.id,
            "name": entry.call.name,
            "arguments": deep_parts_as_text(entry.call.arguments or {}, MAX_ARGUMENT_LEVELS),
        }
        for entry in move.invocations
    )
    return Exchange(
        message_id=move.message_id,
        notice=said,
        calls=calls,
        results=tuple(results),
        size_bytes=byte_size(said)
        + sum([BYTES_PER_TOKEN * json_tokens(call) for call in calls])
        + sum([byte_size(result["content"]) for result in results]),
    )


def _result(entry: Invocation, is_reported: bool, has_ended: bool) -> JsonDict:
    """Return the result of a call.

    That of an asynchronous call is "running" while its turn goes on, and later if a notice reports its end:
    this is what the turn itself was given, so the text stays the same and providers find it in their caches.
    """
    message: JsonDict = {"role": TOOL, "tool_call_id": entry.call.id, "name": entry.call.name}
    runs = is_reported or (entry.is_async and not has_ended)
    result = running_result(entry) if runs else entry.result
    if result is None:
        return {**message, "content": NO_RESULT if has_ended else NO_RESULT_YET, "is_error": True}
    message["content"] = result_text(result)
    if files := result_files(result):
        message["files"] = files
    return message if result.success else {**message, "is_error": True}


# --- asynchronous results ---------------------------------------------------------------------------


def running_result(entry: Invocation) -> ToolResult:
    """Return the immediate result of an asynchronous call, for the model."""
    return ToolResult(
        tool_call_id=entry.call.id,
        success=True,
        result={
            "status": "running",
            "operation_id": entry.operation_id,
            "note": "This runs in the background. A notice reports its end, success or failure; "
            "until then answer without it, and do not call the tool again for the same.",
        },
    )


def notice(news: Sequence[Invocation], still: Sequence[Invocation], asker: str = "") -> str:
    """Return the notice for the model about new results. ``still`` are the calls without a result, and
    ``asker`` is the label of those who asked; "" for the only user."""
    parts = ["(A notice of the platform, not the user's words.)"]
    parts += [_report(entry) for entry in news]
    if still:
        names = ", ".join(f"`{entry.call.name}` ({entry.operation_id})" for entry in still)
        parts.append(f"Still running: {names}.")
    whom = f"{asker}, who asked," if asker else "the user"
    parts.append(f"Go on with the task, and tell {whom} what matters of this, failures too.")
    return "\n\n".join(parts)


def _report(entry: Invocation) -> str:
    assert entry.result is not None, "a notice reports only calls with a result"
    end = "has ended. Its result" if entry.result.success else "has failed. Its error"
    return (
        f"The tool `{entry.call.name}` that ran in the background ({entry.operation_id}) {end}:\n"
        f"{result_text(entry.result)}"
    )
