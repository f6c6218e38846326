"""`RequestFormat`: the declaration of one request format, as far as it needs no I/O. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from wonder_server.core.request_formats.parts import Notes, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFormat:
    """The facts of one request format that definitions, planners and settings need.

    - ``name`` is the name in model profiles and settings. It is stored and never changes.
    - ``provider`` is the provider whose API defines the format; ``provider_title`` is its name in messages.
    - ``messages`` is the field that lists the messages.
    - ``tool_name`` matches the names of tools that the format accepts.
    - ``max_description`` is the maximum length of a tool's description in characters; 0 means no limit.
    - ``make_valid(request, provider, notes)`` returns a request that the provider accepts.
    """

    name: str
    provider: str
    provider_title: str
    messages: str
    tool_name: re.Pattern[str]
    max_description: int = 0
    make_valid: Callable[[Request, str, Notes], Request]
