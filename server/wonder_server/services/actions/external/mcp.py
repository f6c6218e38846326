"""``mcp``: calls a tool of an MCP server (Model Context Protocol; feature H3).

The effect of a tool is unknown, so a call is repeated only if the action is declared idempotent."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wonder_server.core.content.parts import IMAGE
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.printable import quoted
from wonder_server.ports.mcp import McpCall, McpResult
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.contract.stored_results import default_name, stored_content

TEXT_HEAD: Final = 1_000
"""Maximum number of characters of a tool's text in a fault."""


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    server, url = given.get("server", ""), given.get("url", "")
    if bool(server) == bool(url):
        raise error(
            Reason.INPUT_INVALID,
            "The input needs exactly one of server and url.",
            field="url" if server else "server",
        )
    if server and given.get("headers"):
        raise error(
            Reason.INPUT_INVALID,
            "headers are allowed only with url. The operator sets the headers of a named server.",
            field="headers",
        )
    policy = NetworkPolicy()
    if url:
        policy = await call.services.network.policies.network_policy(call.context.project_id)
    mcp_call = McpCall(
        server=server,
        url=url,
        headers=given.get("headers", {}),
        tool=given["tool"],
        arguments=given.get("arguments", {}),
        key=call.context.key,
        timeout_s=call.timeout_ms / 1000,
    )
    result = await _call_tool(call, mcp_call, policy)
    text = _text(result)
    if result.is_error and given.get("fail_on_error", True):
        excerpt = quoted(text, TEXT_HEAD)
        raise error(Reason.TASK_FAILED, f"The tool '{mcp_call.tool}' failed: {excerpt}", tool=mcp_call.tool)
    content = await _stored(call, result.content) if given.get("store_files", False) else result.content
    return {
        "content": content,
        "text": text,
        "structured": result.structured,
        "is_error": result.is_error,
    }


async def _stored(call: ActionCall, content: list[JsonValue]) -> list[JsonValue]:
    """Return the content blocks with a file of the project in place of each image.

    An image that the server does not accept becomes a text with the reason.
    """
    stored: list[JsonValue] = []
    images = 0
    for number, block in enumerate(content):
        if isinstance(block, dict) and block.get("type") == "image" and isinstance(block.get("data"), str):
            media_type = str(block.get("mimeType", ""))
            name = default_name(IMAGE, number, media_type)
            stored.append(await stored_content(call, block["data"], name, media_type, images))
            images += 1
        else:
            stored.append(block)
    return stored


async def _call_tool(call: ActionCall, mcp_call: McpCall, policy: NetworkPolicy) -> McpResult:
    """Make the call. A timeout is not retried: another attempt would take as long."""
    try:
        return await call.services.network.mcp.call(mcp_call, policy, call.progress)
    except WonderError as problem:
        if problem.fault.reason is Reason.TIMEOUT and call.repeatable:
            raise WonderError(replace(problem.fault, transient=False)) from None
        raise


def _text(result: McpResult) -> str:
    """Return the text blocks of a result."""
    blocks = [block for block in result.content if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(str(block.get("text", "")) for block in blocks)


MCP = ActionKind(
    name="mcp",
    description=(
        "Calls a tool of an MCP server: a server that the operator configured, or one at an address that the"
        " project's network policy allows. Repeated after an error only if the action is declared idempotent."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "server": {
                "type": "string",
                "maxLength": 100,
                "description": "Name of a server in the operator's setting mcp_servers.",
            },
            "url": {
                "type": "string",
                "maxLength": 8192,
                "description": "URL of a server instead, for streamable HTTP.",
            },
            "headers": {
                "type": "object",
                "maxProperties": 100,
                "propertyNames": {"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$"},
                "additionalProperties": {
                    "type": "string",
                    "maxLength": 8192,
                    "pattern": "^[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$",
                },
                "description": "Headers of the requests to url, such as Authorization.",
            },
            "tool": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the tool."},
            "arguments": {"type": "object", "description": "Arguments, valid for the tool's schema."},
            "store_files": {
                "type": "boolean",
                "description": "True to store images as files of the project: `content` has {type, file_id, "
                "media_type, name, size_bytes} in their places, and a tool's result shows them to the model. "
                "Default: false.",
            },
            "fail_on_error": {
                "type": "boolean",
                "description": "False to return an error of the tool as a result. Default: true.",
            },
        },
        "required": ["tool"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "content": {"type": "array", "description": "Content blocks of the tool, in MCP's format."},
            "text": {"type": "string", "description": "The text blocks, joined by line breaks."},
            "structured": {"description": "Structured content of the tool; null if there is none."},
            "is_error": {"type": "boolean"},
        },
    },
    run=_run,
    enforces_timeout=True,
)
