"""Tools of MCP servers as tools of a persona (feature M10).

`check_listing` makes safe what a server lists; it needs the list alone, so its result is kept. `with_sources`
adds the tools that a persona takes to a pinned agent. Both are pure. Names, descriptions and schemas come
from a server that may be hostile: an unusable tool is left out, with a notice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from wonder_server.core.definitions.parse import canonical
from wonder_server.core.definitions.specs import (
    Action,
    Pin,
    PinnedAgent,
    PinnedSource,
    PinnedTask,
    PinnedTool,
    Retry,
    Step,
    Task,
    Tool,
)
from wonder_server.core.definitions.tool_specs import ToolSource
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.printable import printable, quoted
from wonder_server.core.schema.schemas import check_schema

MAX_LISTED_TOOLS: Final = 5_000
"""Maximum number of tools that the server reads from a list. Each costs about 0.1 ms to check."""

TOO_MANY: Final = f"The server lists more than {MAX_LISTED_TOOLS:,} tools; the others are left out."

MAX_SOURCE_TOOLS: Final = 1_000
"""Maximum number of tools that an agent gets from its sources together."""

MAX_DESCRIPTION: Final = 1_024
"""Maximum length of a description in characters: the smallest maximum of the providers."""

MAX_SCHEMA_BYTES: Final = 32_768
MAX_NAME: Final = 200
"""Maximum length of a server's name for a tool, as of the action ``mcp``."""

MAX_NOTICES: Final = 20

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names that every provider accepts."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_HEAD: Final = 55
"""Characters of a name before its hash: with ``_`` and eight digits 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool as its server describes it."""

    name: str
    description: str = ""
    input_schema: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolListing:
    """The tools of a server. ``cut`` is the reason, as a sentence, why the server has more than were read."""

    tools: tuple[ListedTool, ...]
    cut: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTool:
    """A usable tool: the server's name for it, and what the model may read."""

    name: str
    description: str
    input_schema: JsonDict
    revision: int
    """The first 32 bits of the hash of all the above. It stands for the revision that a definition has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTools:
    """The usable tools of a server. ``problem``: why these may be out of date, as a sentence."""

    server: str
    tools: tuple[KnownTool, ...] = ()
    digest: str = ""
    notices: tuple[str, ...] = ()
    problem: str = ""


def check_listing(server: str, listing: ToolListing) -> KnownTools:
    """Return the usable tools of a list, in its order, with notices about the others."""
    tools: dict[str, KnownTool] = {}
    notices: list[str] = []
    for number, listed in enumerate(listing.tools[:MAX_LISTED_TOOLS], start=1):
        problem = _problem(listed, tools)
        if problem:
            whose = quoted(listed.name, 100) if listed.name else f"number {number}"
            notices.append(f"The tool {whose} is left out: {problem}.")
            continue
        description = _text(listed.description)
        if len(listed.description) > MAX_DESCRIPTION:
            notices.append(
                f"The description of {quoted(listed.name, 100)} has {len(listed.description):,} characters; "
                f"the model gets {MAX_DESCRIPTION:,}."
            )
        tools[listed.name] = _known(server, listed, description)
    cut = TOO_MANY if len(listing.tools) > MAX_LISTED_TOOLS else listing.cut
    if cut:
        notices.insert(0, cut)
    return KnownTools(
        server=server, tools=tuple(tools.values()), digest=_digest(listing), notices=_bounded(notices)
    )


def with_sources(agent: PinnedAgent, known: Mapping[str, KnownTools]) -> PinnedAgent:
    """Return the agent with the tools of its persona's sources, which ``known`` has by server.

    The agent's own tools keep their names. A tool whose name is taken gets the server's name before it.
    """
    names = {tool.spec.name for tool in agent.tools}
    tools: list[PinnedTool] = list(agent.tools)
    sources: list[PinnedSource] = []
    remaining = MAX_SOURCE_TOOLS
    for source in agent.persona.tool_sources:
        found = known.get(source.mcp, KnownTools(server=source.mcp))
        notices = [found.problem] if found.problem else []
        wanted = [tool for tool in found.tools if _is_wanted(source, tool.name)]
        notices += [f"No tool of the server matches {quoted(each, 100)}." for each in _idle(source, found)]
        if len(wanted) > remaining:
            notices.append(
                f"{len(wanted):,} tools match, and the agent may have {remaining:,} more of its "
                f"{MAX_SOURCE_TOOLS:,}: the others are left out. Name fewer in 'include'."
            )
        chosen = dict(_names(source.mcp, wanted[:remaining], names))
        remaining -= len(chosen)
        for tool in wanted:
            if tool.name in chosen:
                tools.append(_pinned(source, tool, chosen[tool.name]))
                if chosen[tool.name] != tool.name:
                    notices.append(f"The tool {quoted(tool.name, 100)} is offered as {chosen[tool.name]}.")
        sources.append(
            PinnedSource(
                mcp=source.mcp,
                tools=len(chosen),
                digest=found.digest,
                notices=_bounded([*notices, *found.notices]),
            )
        )
    return replace(agent, tools=tuple(tools), sources=tuple(sources))


def _problem(tool: ListedTool, earlier: Mapping[str, KnownTool]) -> str:
    """Return why a tool cannot be used, as a part of a sentence; empty if it can."""
    schema = tool.input_schema
    if not tool.name or len(tool.name) > MAX_NAME:
        return f"a name has 1 to {MAX_NAME} characters"
    if not tool.name.isprintable():
        return "its name has characters that cannot be printed"
    if tool.name in earlier:
        return "the server lists another tool of this name before"
    if not isinstance(schema, dict):
        return "its input schema is not an object"
    fault = check_schema(schema)
    if fault is not None:
        place = f"{fault.path}: " if fault.path else ""
        return f"its input schema is invalid: {quoted(f'{place}{fault.message}', 200)}"
    if schema.get("type", "object") != "object":
        return "its input schema is not of the type object"
    size = len(canonical(schema).encode("utf-8", "surrogatepass"))
    if size > MAX_SCHEMA_BYTES:
        return f"its input schema has {size:,} bytes; the maximum is {MAX_SCHEMA_BYTES:,}"
    return ""


def _known(server: str, listed: ListedTool, description: str) -> KnownTool:
    schema = listed.input_schema
    assert isinstance(schema, dict), "checked by _problem"
    description = description or f"The tool {printable(listed.name, 100)} of the server {server}."
    content = canonical([listed.name, description, schema]).encode("utf-8", "surrogatepass")
    revision = int.from_bytes(hashlib.sha256(content).digest()[:4]) or 1
    return KnownTool(name=listed.name, description=description, input_schema=schema, revision=revision)


def _text(description: str) -> str:
    """Return a description without control characters, and with at most `MAX_DESCRIPTION` characters."""
    head = description[:MAX_DESCRIPTION].replace("\r\n", "\n")
    text = "".join([each if each.isprintable() or each in "\n\t" else " " for each in head]).strip()
    return text if len(description) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1]}…"


def _digest(listing: ToolListing) -> str:
    hashed = hashlib.sha256()
    for tool in listing.tools:
        line = canonical([tool.name, tool.description, tool.input_schema])
        hashed.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return hashed.hexdigest()[:16]


def _is_wanted(source: ToolSource, name: str) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in source.exclude):
        return False
    return not source.include or any(fnmatchcase(name, pattern) for pattern in source.include)


def _idle(source: ToolSource, found: KnownTools) -> Iterator[str]:
    """Yield the patterns of ``include`` that match no tool of a server that has listed its tools."""
    for pattern in source.include if found.digest else ():
        if not any(fnmatchcase(tool.name, pattern) for tool in found.tools):
            yield pattern


def _names(server: str, tools: Sequence[KnownTool], taken: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the server's name and the model's name of each tool, and add the latter to ``taken``.

    Tools with a valid name come first, so that no changed name takes one away from them.
    """
    for tool in sorted(tools, key=lambda each: _NAME.fullmatch(each.name) is None):
        prefixed = _valid(f"{server}_{tool.name}")
        hashed = f"{prefixed[:_HEAD]}_{_hash(f'{server}/{tool.name}')}"
        for name in (_valid(tool.name), prefixed, hashed):
            if name not in taken:
                taken.add(name)
                yield tool.name, name
                break


def _valid(name: str) -> str:
    text = _NOT_IN_NAMES.sub("_", name)
    text = text if _NAME.match(text) else f"_{text}"
    return text if len(text) <= _HEAD + 9 else f"{text[:_HEAD]}_{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _pinned(source: ToolSource, tool: KnownTool, name: str) -> PinnedTool:
    """Return the tool with a task that calls it."""
    library = f"mcp:{source.mcp}"
    pin = Pin(definition_id=f"{library}/{name}", library=library, name=name, revision=tool.revision)
    retry = Retry(timeout_ms=source.timeout_ms)
    call = Step(
        id="call",
        action=Action(
            kind="mcp",
            config={"server": source.mcp, "tool": tool.name, "store_files": True},
            timeout_ms=source.timeout_ms,
        ),
        input_mapping={"arguments": "input"},
        output_mapping={"output.result": "result"},
    )
    spec = Tool(
        name=name,
        description=tool.description,
        target_type="task",
        target_id=library,
        input_schema=tool.input_schema,
        is_async=source.is_async,
        retry=retry,
        approval=source.approval,
        approval_gate=source.approval_gate,
    )
    return PinnedTool(pin=pin, spec=spec, task=PinnedTask(pin=pin, spec=Task(steps=(call,), retry=retry)))


def _bounded(notices: Iterable[str]) -> tuple[str, ...]:
    found = list(notices)
    if len(found) <= MAX_NOTICES:
        return tuple(found)
    return (*found[: MAX_NOTICES - 1], f"There are {len(found) - MAX_NOTICES + 1:,} more notices.")
