"""The neutral form of messages. Context assemblies build it; each request format writes it in its own form.

A message is ``{role, content}`` with further members:

==================  ======================================================================================
``role``            ``user``, ``assistant`` or ``tool``
``content``         the text, or a list of parts: ``{type: text, text}``, and ``{type: image, file_id,
                    media_type, name, size_bytes}`` or the same of the type file; of a tool its result as the
                    model receives it. ``indented: true`` of a file: a space precedes each line of its text.
``speaker``         of a user: a speaker whose label precedes the text (several parties)
``reply``           of a user: a line before the text that says what it answers
``turn_id``         the turn that the message is from; not written
``tool_calls``      of an assistant: ``[{id, name, arguments}]``
``tool_call_id``    of a tool: the id of the call. Results follow the message with their calls.
``name``            of a tool: the name of the called tool
``files``           of a tool: image and file parts of the result, which are shown beside the text
``is_error``        of a tool: True if the call failed
==================  ======================================================================================

Other members belong to the format that the author of an assembly writes for, and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from wonder_server.core.content.parts import joined, reference_of, stand_in
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats.indentation import indent, with_newlines
from wonder_server.core.request_formats.parts import is_blank, objects

USER: Final = "user"
ASSISTANT: Final = "assistant"
TOOL: Final = "tool"

_encode = msgspec.json.Encoder().encode

_PLAIN: Final = frozenset({"role", "content"})
_OF_TURN: Final = frozenset({"role", "content", "turn_id"})
_TEXTUAL: Final = frozenset({"role", "content", "speaker", "turn_id"})
_TEXT_PART: Final = frozenset({"type", "text"})
_OWN: Final = frozenset({"speaker", "reply", "turn_id", "raw", "format", "is_error"})
"""Members that no format has. Assemblies of earlier builds had ``raw`` and ``format``."""


def content_of(message: JsonObject) -> JsonValue:
    """Return `text_of`, with descriptions in place of the files of an assistant: most formats take none
    there."""
    content = message.get("content")
    if message.get("role") == ASSISTANT and isinstance(content, list) and is_parts(content):
        items = [item for item in content if isinstance(item, dict)]
        return joined([_words(item) for item in items])
    return text_of(message)


def _words(item: JsonDict) -> str:
    return stand_in(item) if reference_of(item) is not None else str(item.get("text", ""))


def text_of(message: JsonObject) -> JsonValue:
    """Return the content of a message; a text has the label of its speaker before it, and what it answers.

    A space precedes further lines of a text with a label, so that it cannot pose as another message.
    """
    content, speaker, reply = message.get("content"), message.get("speaker"), message.get("reply")
    before = f"{reply}\n" if isinstance(reply, str) and message.get("role") == USER else ""
    if isinstance(speaker, Mapping):
        label = f"{before}[{speaker.get('label', '')}] "
        if isinstance(content, str):
            return indent(with_newlines(content), " ", label)
        if isinstance(content, list):
            return _labelled(content, label)
    if before and isinstance(content, list):
        return [{"type": "text", "text": reply}, *content]
    return f"{before}{content}" if before and isinstance(content, str) else content


def _labelled(items: list[JsonValue], label: str) -> list[JsonValue]:
    """Return parts whose texts are indented, the first with the label before it.

    So is the text of a file, which takes the place of its part when the request is sent.
    """
    first = items[0] if items else None
    if not isinstance(first, dict) or first.get("type") != "text":
        items = [{"type": "text", "text": ""}, *items]
    labelled: list[JsonValue] = []
    for item in items:
        if isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("text"), str):
            before = label if not labelled else " "
            item = {**item, "text": indent(with_newlines(item["text"]), " ", before)}
        elif isinstance(item, dict) and reference_of(item) is not None:
            item = {**item, "indented": True}
        labelled.append(item)
    return labelled


WriteText = Callable[[str], JsonDict]
"""Writes a text as a part of a message in one format."""


def write_parts(items: Sequence[JsonValue], write_text: WriteText) -> list[JsonValue]:
    """Return parts in the neutral form as those of a format; files as places that are filled at the sending.

    Parts of other forms belong to the format that the author of an assembly writes for, and stay.
    """
    written: list[JsonValue] = []
    for item in items:
        if isinstance(item, dict) and item.keys() == _TEXT_PART and isinstance(item["text"], str):
            if not is_blank(item["text"]):
                written.append(write_text(item["text"]))
        else:
            reference = reference_of(item)
            written.append(item if reference is None else reference)
    return written


def is_parts(content: JsonValue) -> bool:
    """Return True for a list with a text or a file in the neutral form."""
    return isinstance(content, list) and any(
        reference_of(item) is not None or (isinstance(item, dict) and item.keys() == _TEXT_PART)
        for item in content
    )


def calls_of(message: JsonObject) -> list[JsonDict]:
    """Return the tool calls of an assistant in the neutral form."""
    return [call for call in objects(message.get("tool_calls")) if "name" in call]


ASIDE: Final = "(A notice of the platform, not the user's words. It needs no answer of its own.)"
"""First line of notices beside the turn's task. They have the role of the user."""

FILES_NOTE: Final = f"{ASIDE}\n\nImages and documents of the tool results above, in their order:"
"""First part of the message with the files that the format takes in no tool result."""


def files_of(message: JsonObject) -> list[JsonDict]:
    """Return the images and files of a tool's result."""
    return [file for file in objects(message.get("files")) if reference_of(file) is not None]


def arguments_of(call: JsonObject) -> JsonDict:
    """Return the arguments of a call; an empty object if they are none."""
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def arguments_text(call: JsonObject) -> str:
    """Return the arguments of a call as JSON."""
    return _encode(arguments_of(call)).decode()


def text_message(message: JsonObject) -> JsonDict | None:
    """Return a message of a turn that is one text without a label as role and content; None for any other.

    Nearly all messages of a history are such texts, and the other steps take four times as long for one.
    """
    if message.keys() != _OF_TURN:
        return None
    role, content = message["role"], message["content"]
    if type(content) is not str or not (role == USER or (role == ASSISTANT and not is_blank(content))):
        return None
    return {"role": role, "content": content}


def plain_message(message: JsonObject, write_text: WriteText) -> JsonDict:
    """Return a message as role and content, with the members that no format knows. An equal one is itself."""
    if isinstance(message, dict) and message.keys() == _PLAIN and not is_parts(message["content"]):
        return message
    kept = {name: value for name, value in message.items() if name not in _OWN}
    content = content_of(message)
    return {**kept, "content": write_parts(content, write_text) if is_parts(content) else content}


def text_block(text: str) -> JsonDict:
    """Return a text as OpenAI chat and Anthropic write it."""
    return {"type": "text", "text": text}


def is_empty(message: JsonObject) -> bool:
    """Return True for a message of an assistant that has only a text, and the text is empty."""
    content = message.get("content")
    is_text = content is None or isinstance(content, str)
    return message.get("role") == ASSISTANT and is_text and is_blank(content) and message.keys() <= _TEXTUAL
