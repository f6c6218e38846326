"""``history.search``: finds messages of the conversation that contain words."""

from __future__ import annotations

from wonder_server.core.history.text_query import MAX_QUERY_CHARACTERS, MAX_QUERY_WORDS
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.history.common import MESSAGE_FIELDS, message_as_json
from wonder_server.services.paging import PageRequest

DEFAULT_MATCHES = 10
MAX_MATCHES = 50


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    size = int(given.get("limit", 0)) or DEFAULT_MATCHES
    request = PageRequest(size=size, token=given.get("page_token", ""))
    best_first = given.get("order", "newest") == "best"
    page = await call.services.history.search(call.context, given["query"], request, best_first=best_first)
    return {
        "messages": [message_as_json(item.message, item.speaker, item.snippet) for item in page.items],
        "next_page_token": page.next_page_token,
    }


HISTORY_SEARCH = ActionKind(
    name="history.search",
    description="Finds messages of the task's conversation that contain words. Agents see nothing before a "
    "reset.",
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": f"Up to {MAX_QUERY_WORDS} words, in {MAX_QUERY_CHARACTERS:,} characters. A "
                "message matches if it has words that begin with each of them. There are no operators.",
            },
            "order": {
                "enum": ["newest", "best"],
                "description": "newest: newest first, in pages. best: those in which the words count most. "
                "Default: newest.",
            },
            "limit": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_MATCHES,
                "description": f"Maximum number of messages. 0 means {DEFAULT_MATCHES}.",
            },
            "page_token": {"type": "string", "description": "next_page_token of the previous page."},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": {"type": "object", "properties": MESSAGE_FIELDS},
                "description": "`text` is the part around the first match, in one line.",
            },
            "next_page_token": {
                "type": "string",
                "description": "Empty on the last page. A page may be short, or empty, before the last.",
            },
        },
    },
    run=_run,
)
