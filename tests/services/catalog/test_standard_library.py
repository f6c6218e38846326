"""The wonder/std library: context assembly and tools (features D1, D2, K1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.catalog.standard_run import run_task, run_workflow
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonValue

# --- context assembly ---------------------------------------------------------------------------------

TOOL = {"name": "recall", "description": "Look it up.", "input_schema": {"type": "object", "properties": {}}}


def conversation(format: str = "openai_chat", **changes: JsonValue) -> JsonDict:
    return {
        "conversation_id": "conv_1",
        "turn_id": "turn_3",
        "agent": {"id": "agt_1", "name": "assistant"},
        "persona": {"system_prompt": "You help.", "instructions": []},
        "user_message": "What is my colour?",
        "reply_to": None,
        "recent_turns": [],
        "history": [],
        "tool_definitions": [],
        "active_turns": [],
        "model_profile": {"provider": "openai", "model": "m", "format": format, "parameters": {}},
        **changes,
    }


def assemble(agent: PinnedAgent, given: JsonDict, memories: list[str] | None = None) -> JsonDict:
    found = [{"id": f"mem_{n}", "content": text} for n, text in enumerate(memories or [])]
    searched: list[JsonDict] = []

    def search(asked: JsonDict) -> JsonDict:
        searched.append(asked)
        return {"memories": found}

    def check(asked: JsonDict) -> JsonDict:
        raise error(Reason.ASSERTION_FAILED, asked["message"])

    output = run_workflow(agent.assembly, given, {"context": dict, "memory.search": search, "assert": check})
    assert searched == [{"query": given["user_message"], "limit": 6}]
    return output


HISTORY = [
    {"role": "user", "content": "Hello.", "author": "ada"},
    {"role": "agent", "content": "Hello, Ada.", "author": "assistant"},
    {"role": "agent", "content": "", "author": "assistant"},
]


def test_the_least_request_is_a_system_prompt_and_the_message(assistant: PinnedAgent) -> None:
    assert assemble(assistant, conversation()) == {
        "request": {
            "model": "m",
            "messages": [
                {"role": "system", "content": "You help."},
                {"role": "user", "content": "What is my colour?"},
            ],
        },
        "sources": [],
    }


def test_the_system_prompt_has_memories_and_active_turns(assistant: PinnedAgent) -> None:
    pending = [
        {"operation_id": "op_1", "kind": "workflow", "tool_name": "research"},
        {"operation_id": "op_2", "kind": "model", "tool_name": ""},
    ]
    given = conversation(
        persona={"system_prompt": "You help.", "instructions": ["Be brief.", "Be kind."]},
        active_turns=[{"turn_id": "turn_2", "input": "Research!", "pending": pending}],
        reply_to="Which colour?",
        recent_turns=[{"turn_id": "turn_1", "status": "completed", "messages": []}],
    )
    output = assemble(assistant, given, ["My colour is teal.", "Two\nlines."])
    assert output["request"]["messages"][0]["content"].splitlines() == [
        "You help.",
        "- Be brief.",
        "- Be kind.",
        "",
        "Memories:",
        "- My colour is teal.",
        "- Two lines.",
        "",
        "Work in progress:",
        "- research (workflow op_1)",
        "",
        "The user replies to your message:",
        "> Which colour?",
    ]
    assert output["sources"] == [
        {"source": "memory", "source_id": "mem_0"},
        {"source": "memory", "source_id": "mem_1"},
        {"source": "turn", "source_id": "turn_1"},
    ]


def test_an_openai_request_holds_history_tools_and_the_profiles_parameters(assistant: PinnedAgent) -> None:
    given = conversation(history=HISTORY, tool_definitions=[TOOL])
    given["model_profile"]["parameters"] = {"temperature": 0.5, "model": "not this one"}
    assert assemble(assistant, given)["request"] == {
        "temperature": 0.5,
        "model": "m",
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hello, Ada."},
            {"role": "user", "content": "What is my colour?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "recall",
                    "description": "Look it up.",
                    "parameters": TOOL["input_schema"],
                },
            }
        ],
    }


def test_an_anthropic_request_has_its_system_apart(assistant: PinnedAgent) -> None:
    given = conversation("anthropic_messages", history=HISTORY, tool_definitions=[TOOL])
    assert assemble(assistant, given)["request"] == {
        "model": "m",
        "system": "You help.",
        "messages": [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hello, Ada."},
            {"role": "user", "content": "What is my colour?"},
        ],
        "tools": [TOOL],
    }


def test_an_anthropic_request_begins_with_the_user(assistant: PinnedAgent) -> None:
    given = conversation("anthropic_messages", history=HISTORY[1:])
    given["model_profile"]["parameters"] = {"max_tokens": 10}
    request = assemble(assistant, given)["request"]
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
    assert request["max_tokens"] == 10


def test_a_request_of_openai_responses_has_its_instructions_apart(assistant: PinnedAgent) -> None:
    given = conversation("openai_responses", history=HISTORY, tool_definitions=[TOOL])
    given["model_profile"]["parameters"] = {"store": False, "input": "not this one"}
    assert assemble(assistant, given)["request"] == {
        "store": False,
        "model": "m",
        "instructions": "You help.",
        "input": [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hello, Ada."},
            {"role": "user", "content": "What is my colour?"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "recall",
                "description": "Look it up.",
                "parameters": TOOL["input_schema"],
                "strict": False,
            }
        ],
    }


def test_a_gemini_request_has_its_own_field_names(assistant: PinnedAgent) -> None:
    given = conversation("gemini", history=HISTORY, tool_definitions=[TOOL])
    given["model_profile"]["parameters"] = {"generationConfig": {"temperature": 0.5}}
    assert assemble(assistant, given)["request"] == {
        "generationConfig": {"temperature": 0.5},
        "systemInstruction": {"parts": [{"text": "You help."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Hello."}]},
            {"role": "model", "parts": [{"text": "Hello, Ada."}]},
            {"role": "user", "parts": [{"text": "What is my colour?"}]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "recall",
                        "description": "Look it up.",
                        "parametersJsonSchema": TOOL["input_schema"],
                    }
                ]
            }
        ],
    }


def test_a_gemini_request_begins_with_the_user_and_holds_no_empty_text(assistant: PinnedAgent) -> None:
    given = conversation("gemini", history=HISTORY[1:], persona={"system_prompt": "", "instructions": []})
    request = assemble(assistant, given)["request"]
    assert [content["role"] for content in request["contents"]] == ["user", "model", "user"]
    assert set(request) == {"contents"}


def test_an_unknown_format_fails_with_a_message(assistant: PinnedAgent) -> None:
    with pytest.raises(WonderError, match="cannot write requests in the format 'morse'"):
        assemble(assistant, conversation("morse"))


def indexed(agent: PinnedAgent, given: JsonDict, **actions: Any) -> tuple[list[str], JsonValue]:
    """Return the lines of the system prompt after the first, and the sources."""
    output = run_workflow(agent.assembly, given, {"context": dict, **actions})
    return output["request"]["messages"][0]["content"].splitlines()[1:], output["sources"]


def remembering(count: int) -> JsonDict:
    return {"memories": [{"id": f"mem_{n}", "content": f"Fact {n}."} for n in range(count)]}


def test_the_system_prompt_lists_content_that_tools_can_read(assistant: PinnedAgent) -> None:
    documents = [{"path": "designs/", "files": 3, "text": "designs/ (3 files)"}]
    code = {"path": "main.py", "files": 0, "text": "main.py", "repository": "code"}
    repositories = [{"name": "code", "known": True, "files": 1}, {"name": "far", "known": False}]
    indices = {
        "memory": ["recall"],
        "artifact": ["read_document", "find_documents"],
        "repository": ["read_file"],
    }
    lines, sources = indexed(
        assistant,
        conversation(indices=indices, explain=True),
        **{
            "memory.search": lambda _: remembering(6),
            "memory.list": lambda asked: {"memories": remembering(9)["memories"][-asked["limit"] :]},
            "artifact.index": lambda _: {"files": 3, "lines": documents},
            "repo.index": lambda _: {"repositories": repositories, "lines": [code]},
        },
    )
    assert lines[8:] == [
        "",
        "More that you remember, the newest first (tools: recall):",
        "- Fact 6.",
        "- Fact 7.",
        "- Fact 8.",
        "",
        "Documents of the project, 3 in all (tools: read_document, find_documents):",
        "- designs/ (3 files)",
        "",
        "Files of the code, 1 in code (tools: read_file):",
        "- main.py",
    ]
    assert {"source": "artifact", "source_id": "designs/", "text": "- designs/ (3 files)"} in sources
    assert {"source": "repository", "source_id": "code", "text": "- main.py"} in sources
    assert {"source": "memory", "source_id": "mem_8", "text": "- Fact 8."} in sources


def test_the_system_prompt_omits_empty_indices(assistant: PinnedAgent) -> None:
    indices = {"memory": ["recall"], "artifact": ["read_document"], "repository": ["read_file"]}
    lines, _ = indexed(
        assistant,
        conversation(indices=indices),
        **{
            "memory.search": lambda _: remembering(0),
            "artifact.index": lambda _: {"files": 0, "lines": []},
            "repo.index": lambda _: {"repositories": [], "lines": []},
        },
    )
    assert lines == []


def test_a_turn_continues_without_an_unavailable_index(assistant: PinnedAgent) -> None:
    def fails(_: JsonDict) -> JsonDict:
        raise error(Reason.STORAGE_UNAVAILABLE, "Not now.", transient=True)

    indices = {"memory": ["recall"], "artifact": ["read_document"], "repository": ["read_file"]}
    lines, _ = indexed(
        assistant,
        conversation(indices=indices),
        **{
            "memory.search": lambda _: remembering(6),
            "memory.list": fails,
            "artifact.index": fails,
            "repo.index": fails,
        },
    )
    assert lines == ["", "Memories:", *(f"- Fact {n}." for n in range(6))]


# --- tools ----------------------------------------------------------------------------------------------


def test_the_assistant_remembers_and_recalls(assistant: PinnedAgent) -> None:
    tasks = {tool.spec.name: tool.task for tool in assistant.tools}
    assert tasks["remember"] is not None and tasks["recall"] is not None

    def write(given: JsonDict) -> JsonDict:
        assert given == {"content": "Tea.", "type": "fact", "significance": 0.8, "unless_known": True}
        return {"id": "mem_1", **given}

    remembered = run_task(tasks["remember"], {"fact": "Tea."}, {"memory.write": write})
    assert remembered == {"remembered": "Tea.", "memory_id": "mem_1"}

    memory = {"id": "mem_1", "type": "fact", "content": "Tea.", "score": 0.9}
    recalled = run_task(
        tasks["recall"], {"query": "tea"}, {"memory.search": lambda _: {"memories": [memory]}}
    )
    assert recalled == {"memories": [{"id": "mem_1", "type": "fact", "content": "Tea."}]}
