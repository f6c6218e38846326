"""`RequestFormat`: the declaration of one request format, as far as it needs no I/O. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wonder_server.core.content.answer_images import described
from wonder_server.core.content.media_types import IMAGES, PDF
from wonder_server.core.content.parts import reference_of
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.request_formats.indentation import indent, with_newlines
from wonder_server.core.request_formats.parts import Notes, Request
from wonder_server.core.token_estimates import FILE_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """A file in a request to a model. ``data`` is the content in base64."""

    media_type: str
    name: str
    data: str = field(repr=False)

    @property
    def url(self) -> str:
        """The content as a URL of the scheme ``data``."""
        return f"data:{self.media_type};base64,{self.data}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFile:
    """The replacement of a file's place in a request: ``part``, or else the words.

    ``words`` describe the file on one line; ``text`` is the content of a text file, and ``content`` that of
    another, which ``part`` has in the format of the request. ``label`` is a text before the part in a user's
    message; "" for none.
    """

    words: str
    text: str = ""
    label: str = ""
    content: FileContent | None = None
    part: JsonDict | None = None

    def as_text(self, *, indented: bool = False) -> str:
        """Return the words and the text. A space precedes each line of an indented text."""
        if not self.text:
            return self.words
        text = indent(with_newlines(self.text), " ", " ") if indented else self.text
        return f"{self.words}\n{text}"


Show = Callable[[JsonDict], ShownFile]
"""Returns what the description of a file in a request becomes."""


def file_of(item: JsonValue) -> JsonDict | None:
    """Return the description in the place of a file in a request; None for anything else."""
    file = item.get(FILE_KEY) if isinstance(item, dict) else None
    return file if isinstance(file, dict) else None


def in_words(items: Sequence[JsonDict], show: Show) -> tuple[list[JsonDict | str], list[JsonDict]]:
    """Return the items of a tool's result with texts in the places of files, and the parts of those files
    that are shown after the result."""
    words, parts = list[JsonDict | str](), list[JsonDict]()
    for item in items:
        file = file_of(item)
        if file is None:
            words.append(item)
            continue
        shown = show(file)
        words.append(shown.as_text())
        if shown.part is not None:
            parts.append(shown.part)
    return words, parts


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFormat:
    """The facts of one request format that definitions, planners and settings need.

    - ``name`` is the name in model profiles and settings. It is stored and never changes.
    - ``provider`` is the provider whose API defines the format; ``provider_title`` is its name in messages.
    - ``messages`` is the field that lists the messages.
    - ``tool_name`` matches the names of tools that the format accepts.
    - ``max_description`` is the maximum length of a tool's description in characters; 0 means no limit.
    - ``make_valid(request, provider, notes)`` returns a request that the provider accepts.
    - ``ask_output(request, parameters, schema)`` returns a request whose answer the provider makes match
      ``schema``. The profile's ``parameters`` are kept in fields that the schema shares with them. It returns
      None if the provider's means cannot be used: for this schema, beside tools, or since the author set the
      form of answers.
    - ``write_messages(messages)`` returns messages in the neutral form (`neutral`) as those of the format.
    - ``write_text(text)`` and ``write_file(content)`` return parts of a user's message.
    - ``write_own(others, file)`` returns a part of the model's own message with an image: its other members,
      and the content or words.
    - ``describe_images(raw, files)`` returns the model's own message with descriptions of its images.
    - ``fill_result(message, show)`` returns the message with words in the places of files in its tool
      results, and the parts that `files_message` shows after the results; None for a message without results.
      A format without it takes texts, images and documents in its results.
    - ``files_message(parts)`` returns the message after tool results with their images and documents.
    - ``media_types`` are the types of files that the format has parts for.
    """

    name: str
    provider: str
    provider_title: str
    messages: str
    tool_name: re.Pattern[str]
    max_description: int = 0
    make_valid: Callable[[Request, str, Notes], Request]
    ask_output: Callable[[Request, JsonObject, JsonDict], Request | None]
    write_messages: Callable[[Sequence[JsonObject]], list[JsonDict]]
    write_text: Callable[[str], JsonDict]
    write_file: Callable[[FileContent], JsonDict]
    write_own: Callable[[JsonDict, FileContent | str], JsonDict] | None = None
    describe_images: Callable[[JsonDict, Sequence[JsonDict]], JsonDict] = described
    fill_result: Callable[[JsonDict, Show], tuple[JsonDict, list[JsonDict]] | None] | None = None
    files_message: Callable[[Sequence[JsonDict]], JsonDict] | None = None
    media_types: frozenset[str] = frozenset({*IMAGES, PDF})

    def write_result(self, text: JsonValue, files: Sequence[JsonObject]) -> JsonValue:
        """Return a tool's result: the text, or a list of the text and the places of its files."""
        if not files:
            return text
        return [self.write_text(str(text)), *(reference_of(file) for file in files)]
