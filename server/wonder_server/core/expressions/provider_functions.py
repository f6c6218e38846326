"""Functions of expressions that write the lists of a request in a provider's format.

One function for a whole list: a macro takes 20 times as long for a history of hundreds of messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wonder_server.core.expressions.faults import SyntaxFault
from wonder_server.core.expressions.values import Frame, type_name
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import FORMATS, RequestFormat
from wonder_server.core.request_formats.tool_lists import TOOL_LISTS


def provider_messages(frame: Frame, messages: JsonValue, format_name: JsonValue) -> list[JsonDict]:
    """Return messages of the neutral form (`core.request_formats.neutral`) in that of a request format."""
    request_format = _format(format_name)
    return request_format.write_messages(_maps(frame, messages))


def provider_tools(frame: Frame, tools: JsonValue, format_name: JsonValue) -> list[JsonDict]:
    """Return tools ``{name, description, input_schema}`` in the form of a request format.

    The same list costs the same budget each time, so that a result does not depend on what is kept.
    """
    request_format = _format(format_name)
    try:
        return TOOL_LISTS.written(_maps(frame, tools), request_format.name)
    except KeyError as missing:
        raise SyntaxFault(f"a tool has no {missing}") from None


def _format(name: JsonValue) -> RequestFormat:
    if not isinstance(name, str):
        raise SyntaxFault(f"it takes a text, not {type_name(name)}")
    found = FORMATS.get(name)
    if found is None:
        raise SyntaxFault(f"there is no request format '{name[:40]}': use {', '.join(FORMATS)}")
    return found


def _maps(frame: Frame, items: JsonValue) -> Sequence[JsonDict]:
    if not isinstance(items, (list, tuple)):
        raise SyntaxFault(f"it takes a list, not {type_name(items)}")
    frame.spend(8 * len(items))
    for item in items:
        if type(item) is not dict and not isinstance(item, Mapping):
            raise SyntaxFault(f"it takes a map, not {type_name(item)}")
    return items
