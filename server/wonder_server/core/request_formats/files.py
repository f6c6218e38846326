"""Files in requests: the places where a stored request names a file, and their content in the sent request.

A stored request has ``{wonder_file: {file_id, media_type, name, size_bytes}}`` where its format has a part
of a message or of a tool's result. `filled` replaces each place by a part in the format.

What a tool's result says about its files, and the text of its text files, stays in the result: in a message
with the role of the user the model could take it for the user's words. Only images and documents that the
format takes in no result follow in such a message, which says whose they are.

A model that has a tool for files gets the ids of users' files in words: `takes_file_ids`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats.format import RequestFormat, Show, ShownFile, file_of
from wonder_server.core.token_estimates import FILE_KEY

_NESTED: Final = ("content", "parts", "output")
"""Members of messages and of parts that list parts: a tool result lists some in a part of a message."""
_RESPONSE: Final = "functionResponse"
"""Member of a part of Gemini's format that is a tool's result."""
_ID_PROPERTY: Final = re.compile(r"(?:.*_)?file_ids?")
"""Names of properties of a tool's arguments that are ids of files."""


def takes_file_ids(request: JsonDict) -> bool:
    """Return True if a tool of the request has an argument, at any depth, whose name is `file_id` or
    `file_ids` or ends so after an underscore."""
    pending = [request.get("tools")]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            properties = value.get("properties")
            if isinstance(properties, dict) and any(map(_ID_PROPERTY.fullmatch, properties)):
                return True
            pending.extend(value.values())
    return False


def places(request_format: RequestFormat, request: JsonDict) -> list[JsonDict]:
    """Return the descriptions of the files in a request, in order."""
    found: list[JsonDict] = []
    messages = request.get(request_format.messages)
    if type(messages) is list:
        for message in messages:
            # Nearly all messages are texts; this halves the time of a request without files.
            if type(message) is not dict or type(message.get("content")) is not str:
                _find(message, found)
    return found


def filled(request_format: RequestFormat, request: JsonDict, show: Show) -> JsonDict:
    """Return the request with a part in each place of a file."""
    messages: list[JsonValue] = []
    later: list[JsonDict] = []
    for message in [*request[request_format.messages], None]:
        found = None
        if request_format.fill_result is not None and isinstance(message, dict):
            found = request_format.fill_result(message, show)
        if found is not None:
            message, parts = found
            later += parts
        elif later and request_format.files_message is not None:
            messages.append(request_format.files_message(later))
            later = []
        messages.append(_fill(request_format, message, show))
    return {**request, request_format.messages: messages[:-1]}


def labelled(request_format: RequestFormat, request: JsonDict, labels: Mapping[str, str]) -> JsonDict:
    """Return the request with the labels of users' files, by their ids, before the places; for previews."""

    def show(file: JsonDict) -> ShownFile:
        return ShownFile(words="", label=labels.get(str(file.get("file_id")), ""), part={FILE_KEY: file})

    messages = [_fill(request_format, each, show) for each in request[request_format.messages]]
    return {**request, request_format.messages: messages}


def _find(value: JsonValue, found: list[JsonDict]) -> None:
    if type(value) is not dict:
        return
    file = file_of(value)
    if file is not None:
        found.append(file)
        return
    _find(value.get(_RESPONSE), found)
    for key in _NESTED:
        inner = value.get(key)
        if type(inner) is list:
            for item in inner:
                _find(item, found)


def _fill(request_format: RequestFormat, value: JsonValue, show: Show, *, is_user: bool = False) -> JsonValue:
    """Fill the places in ``value``; ``is_user`` of the parts of a user's message, which have labels."""
    if isinstance(value, list):
        items = list[JsonValue]()
        for item in value:
            if is_user and (file := file_of(item)) is not None and (label := show(file).label):
                items.append(request_format.write_text(label))
            items.append(_fill(request_format, item, show))
        return items
    if not isinstance(value, dict):
        return value
    file = file_of(value)
    if file is not None:
        return _written(request_format, value, show(file), indented=file.get("indented") is True)
    inner = {key: value[key] for key in _NESTED if isinstance(value.get(key), list)}
    is_user = value.get("role") == "user"
    filled_in = {key: _fill(request_format, each, show, is_user=is_user) for key, each in inner.items()}
    return {**value, **filled_in} if inner else value


def _written(request_format: RequestFormat, place: JsonDict, shown: ShownFile, *, indented: bool) -> JsonDict:
    """Return the part in the place of a file. A place in the model's own message has other members."""
    others = {name: place[name] for name in place if name != FILE_KEY}
    if others and request_format.write_own is not None:
        return request_format.write_own(others, shown.content or shown.as_text())
    return shown.part or request_format.write_text(shown.as_text(indented=indented))
