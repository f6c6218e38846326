"""The wonder/std library: what its workflows make of a turn (features D1, D2, D4, K1)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wonder_server
from tests.services.catalog.standard_run import run_task, run_workflow
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.models.defaults import OFFLINE, resolve_profile
from wonder_server.core import expressions
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.services.actions import ACTIONS
from wonder_server.services.catalog.library import Library, ModelRules

STANDARD = Path(wonder_server.__file__).parent / "std"


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


@pytest_asyncio.fixture
async def assistant() -> PinnedAgent:
    library = Library(
        MemoryCatalog(),
        FixedClock(),
        actions={name: kind.input_schema for name, kind in ACTIONS.items()},
        models=ModelRules(resolve_profile=partial(resolve_profile, default=OFFLINE)),
    )
    await library.ensure_standard(STANDARD)
    return await library.pin_agent("assistant")


# --- context assembly ---------------------------------------------------------------------------------

TOOL = {"name": "recall", "description": "Look it up.", "input_schema": {"type": "object", "properties": {}}}


def conversation(format: str = "openai_chat", **changes: Any) -> dict[str, Any]:
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


def assemble(agent: PinnedAgent, given: dict[str, Any], memories: list[str] | None = None) -> dict[str, Any]:
    found = [{"id": f"mem_{n}", "content": text} for n, text in enumerate(memories or [])]
    searched: list[dict[str, Any]] = []

    def search(asked: dict[str, Any]) -> dict[str, Any]:
        searched.append(asked)
        return {"memories": found}

    def check(asked: dict[str, Any]) -> dict[str, Any]:
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


def test_the_system_prompt_says_what_is_known_and_what_is_going_on(assistant: PinnedAgent) -> None:
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


def test_a_gemini_request_has_its_own_words_for_everything(assistant: PinnedAgent) -> None:
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


def test_a_format_that_nobody_writes_fails_with_a_sentence(assistant: PinnedAgent) -> None:
    with pytest.raises(WonderError, match="cannot write requests in the format 'morse'"):
        assemble(assistant, conversation("morse"))


def indexed(agent: PinnedAgent, given: dict[str, Any], **actions: Any) -> tuple[list[str], Any]:
    """The system prompt's lines after its first, and the sources."""
    output = run_workflow(agent.assembly, given, {"context": dict, **actions})
    return output["request"]["messages"][0]["content"].splitlines()[1:], output["sources"]


def remembering(count: int) -> dict[str, Any]:
    return {"memories": [{"id": f"mem_{n}", "content": f"Fact {n}."} for n in range(count)]}


def test_the_model_is_pointed_to_what_its_tools_fetch(assistant: PinnedAgent) -> None:
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


def test_where_there_is_nothing_to_point_to_nothing_is_said(assistant: PinnedAgent) -> None:
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


def test_what_cannot_be_looked_up_does_not_keep_a_turn_from_going_on(assistant: PinnedAgent) -> None:
    def fails(_: dict[str, Any]) -> dict[str, Any]:
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


# --- memory extraction ------------------------------------------------------------------------------


def turn(message: str, provider: str = "offline", **changes: Any) -> dict[str, Any]:
    return {
        "agent_id": "agt_1",
        "conversation_id": "conv_1",
        "turn_id": "turn_1",
        "user_message": message,
        "answer": "I see.",
        "transcript": [{"sequence": 1, "reasoning": "I see.", "tool_calls": [], "tool_results": []}],
        "model_profile": {"provider": provider, "model": "m", "format": "openai_chat", "parameters": {}},
        **changes,
    }


def nothing_known(_: dict[str, Any]) -> dict[str, Any]:
    return {"memories": []}


def asserted(given: dict[str, Any]) -> dict[str, Any]:
    assert given["condition"], given["message"]
    return {}


def facts(agent: PinnedAgent, given: dict[str, Any], answers: list[str] | None = None) -> list[str]:
    assert agent.extraction is not None
    left = list(answers or [])
    actions = {
        "context": dict,
        "llm": lambda _: {"text": left.pop(0)},
        "memory.search": nothing_known,
        "assert": asserted,
    }
    output = run_workflow(agent.extraction, given, actions)
    assert not left
    for operation in output["memory_operations"]:
        assert operation["op"] == "write" and operation["type"] == "fact"
        assert 0 <= operation["significance"] <= 1
    return [operation["content"] for operation in output["memory_operations"]]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("My favourite colour is teal.", ["My favourite colour is teal."]),
        (
            "I live in Łódź! We use Postgres 16.2 at work.",
            ["I live in Łódź!", "We use Postgres 16.2 at work."],
        ),
        ("Hi. Our API runs on port 8080.\nIs that fine?", ["Our API runs on port 8080."]),
        ("Remember that my dog is called Rex.", ["Remember that my dog is called Rex."]),
        ("I'm allergic to nuts", ["I'm allergic to nuts"]),
        ("By the way, my sister lives in Rome.", ["By the way, my sister lives in Rome."]),
        ("I’m allergic to cats. We’re based in Oslo.", ["I’m allergic to cats.", "We’re based in Oslo."]),
        ("Don’t forget we’re here.", ["Don’t forget we’re here."]),
        ("My wife’s name is Ann", ["My wife’s name is Ann"]),
    ],
)
def test_without_a_model_statements_of_fact_are_kept_word_for_word(
    assistant: PinnedAgent, message: str, found: list[str]
) -> None:
    assert facts(assistant, turn(message)) == found


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("My dog\tis called Rex", ["My dog is called Rex"]),
        ("My\u00a0dog is called Rex.\u00a0I\u00a0like tea.", ["My dog is called Rex.", "I like tea."]),
        ("We  use Postgres.  We \t\u202f \u3000 run Linux.", ["We use Postgres.", "We run Linux."]),
        ("\t I   live  in Rome  \r\n   by   the sea", ["I live in Rome"]),
    ],
)
def test_without_a_model_words_may_stand_apart_by_any_white_space(
    assistant: PinnedAgent, message: str, found: list[str]
) -> None:
    assert facts(assistant, turn(message)) == found


@pytest.mark.parametrize("end", [".", "\n", "!"])
def test_without_a_model_a_sentence_that_is_cut_off_is_not_kept(assistant: PinnedAgent, end: str) -> None:
    before = "I like tea. ".ljust(3_980, "x") + ". "
    assert facts(assistant, turn(before + "My dog is Rex the old" + end)) == ["I like tea."]
    whole = (before + "My dog is Rex.").ljust(4_000)
    assert facts(assistant, turn(whole)) == ["I like tea.", "My dog is Rex."]
    assert facts(assistant, turn(whole + "y" * 1_000)) == ["I like tea.", "My dog is Rex."]


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Hello!",
        "What is my favourite colour?",
        "is my dog called Rex?",
        "Tell me what I like.",
        "Use the tool weather with {}",
        "Say 50 words",
        "My question is about bees.",
        "I like that.",
        "I love it, thanks.",
        "My password is hunter2.",
        "I have a question.",
        "I want you to sing.",
        "You said my colour is teal.",
        "What do you remember about my dog? Tell me.",
        "x" * 5000,
    ],
)
def test_without_a_model_nothing_else_is_kept(assistant: PinnedAgent, message: str) -> None:
    assert facts(assistant, turn(message)) == []


OPENINGS = st.sampled_from(
    ["my", "Our", "I", "i'm", "I’m", "We", "we're", "We’re", "We are", "Call me", "It", "You", "Time"]
)
PREFACES = st.sampled_from(
    ["", "Please remember that ", "note: ", "By the way, ", "btw ", "Don't forget ", "Don’t\u00a0forget\t"]
)
SENTENCES = st.builds(
    "{}{}{}{}{}{}".format,
    PREFACES,
    OPENINGS,
    st.sampled_from([" ", "  ", "\t", "\u00a0", "\u3000 "]),
    st.sampled_from(
        ["dog is old", "live in Łódź", "use Postgres", "a nurse", "Sam", "like tea", "question is"]
    ),
    st.sampled_from([".", "!", "?", "", "…"]),
    st.sampled_from([" ", "\n", "\u00a0\n", "\u3000", "\n\x1f", "é"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.lists(SENTENCES | st.text(max_size=20), max_size=4).map("".join))
def test_whoever_is_not_read_closely_states_no_fact(assistant: PinnedAgent, message: str) -> None:
    """The words that are looked for first hide no sentence from the rules."""
    assert assistant.extraction is not None
    steps = assistant.extraction.tasks["recognise_facts"].spec.steps
    [sentences] = [step for step in steps if step.id == "sentences"]
    seen = {"input": {"user_message": message}, "output": {"remembered": []}}
    found = expressions.evaluate(sentences.output_mapping["state.facts"], seen)
    assert not found or expressions.evaluate(sentences.condition, seen)


def test_a_flood_of_facts_is_cut(assistant: PinnedAgent) -> None:
    assert len(facts(assistant, turn("My dog is old. " * 500))) == 10


def test_what_the_agent_has_remembered_itself_is_not_kept_again(assistant: PinnedAgent) -> None:
    call = {"id": "c", "name": "remember", "input": {"fact": "The dog is Rex."}}
    given = turn("Remember that my dog is called Rex.")
    given["transcript"][0]["tool_calls"] = [call]
    given["transcript"][0]["tool_results"] = [{"tool_call_id": "c", "success": True}]
    assert facts(assistant, given) == []
    given["transcript"][0]["tool_results"] = [{"tool_call_id": "c", "success": False}]
    assert facts(assistant, given) == ["Remember that my dog is called Rex."]


def test_with_a_model_its_facts_are_kept_whatever_it_wraps_them_in(assistant: PinnedAgent) -> None:
    answer = json.dumps(
        [{"content": "Ada likes teal.", "significance": 7}, {"content": ""}, "x", {"content": "B."}]
    )
    found = facts(assistant, turn("My colour is teal.", "openai"), [f"Here you are:\n```json\n{answer}\n```"])
    assert found == ["Ada likes teal.", "B."]


@pytest.mark.parametrize(
    "answer",
    [
        'Here you are:\n```json\n[{"content": "Ann likes tea."}]\n```\nAnything else?',
        '[{"content": "Ann likes tea.", "significance": 0.5,},]',
        '{"facts": [{"content": "Ann likes tea."}]}',
        '{"content": "Ann likes tea."}',
        'As said in [1]: [{"content": "Ann likes tea."}]',
        '[note] {"note": [] } [{"content": "Ann likes tea."}]',
    ],
)
def test_with_a_model_json_is_found_whatever_is_said_around_it(assistant: PinnedAgent, answer: str) -> None:
    assert facts(assistant, turn("Hello.", "openai"), [answer]) == ["Ann likes tea."]


@pytest.mark.parametrize("answer", ["Nothing.", "", "[broken", '["a" "b"', "{" * 5_000, "[NaN]"])
def test_with_a_model_an_answer_without_json_fails_the_extraction_and_is_not_asked_for_again(
    assistant: PinnedAgent, answer: str
) -> None:
    with pytest.raises(AssertionError, match="holds no JSON"):
        facts(assistant, turn("Hello.", "openai"), [answer])


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_the_model_is_asked_in_its_own_format(assistant: PinnedAgent, format: str) -> None:
    asked: list[dict[str, Any]] = []

    def llm(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given)
        return {"text": "[]"}

    given = turn("My colour is teal.", "openai")
    given["model_profile"]["format"] = format
    assert assistant.extraction is not None
    actions = {"context": dict, "llm": llm, "memory.search": nothing_known}
    run_workflow(assistant.extraction, given, actions)
    (request,) = [each["request"] for each in asked]
    instructions, said = {
        "openai_chat": lambda: [message["content"] for message in request["messages"]],
        "openai_responses": lambda: (request["instructions"], request["input"][-1]["content"]),
        "anthropic_messages": lambda: (request["system"], request["messages"][-1]["content"]),
        "gemini": lambda: [
            content["parts"][0]["text"] for content in (request["systemInstruction"], *request["contents"])
        ],
    }[format]()
    assert "long-term memory" in instructions
    exchange = json.loads(said)
    assert exchange == {"user": "My colour is teal.", "assistant": "I see.", "remembered": [], "known": []}
    assert asked[0]["model_profile"] == given["model_profile"]


def test_what_holds_no_more_is_replaced(assistant: PinnedAgent) -> None:
    asked: list[str] = []

    def llm(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given["request"]["messages"][-1]["content"])
        answers = [{"content": "Ada likes red.", "replaces": "mem_1"}, {"content": "B.", "replaces": "mem_9"}]
        return {"text": json.dumps(answers)}

    def search(given: dict[str, Any]) -> dict[str, Any]:
        assert given == {"limit": 8, "types": ["fact"], "query": "My colour is red now."}
        return {"memories": [{"id": "mem_1", "content": "Ada likes teal.", "type": "fact"}]}

    assert assistant.extraction is not None
    actions = {"context": dict, "llm": llm, "memory.search": search}
    output = run_workflow(assistant.extraction, turn("My colour is red now.", "openai"), actions)
    assert output["memory_operations"] == [
        {
            "op": "supersede",
            "id": "mem_1",
            "type": "fact",
            "content": "Ada likes red.",
            "significance": 0.5,
        },
        {"op": "write", "type": "fact", "content": "B.", "significance": 0.5},
    ]
    assert json.loads(asked[0])["known"] == [{"id": "mem_1", "content": "Ada likes teal."}]


# --- tools ----------------------------------------------------------------------------------------------


def test_the_assistant_remembers_and_recalls(assistant: PinnedAgent) -> None:
    tasks = {tool.spec.name: tool.task for tool in assistant.tools}
    assert tasks["remember"] is not None and tasks["recall"] is not None

    def write(given: dict[str, Any]) -> dict[str, Any]:
        assert given == {"content": "Tea.", "type": "fact", "significance": 0.8, "unless_known": True}
        return {"id": "mem_1", **given}

    remembered = run_task(tasks["remember"], {"fact": "Tea."}, {"memory.write": write})
    assert remembered == {"remembered": "Tea.", "memory_id": "mem_1"}

    memory = {"id": "mem_1", "type": "fact", "content": "Tea.", "score": 0.9}
    recalled = run_task(
        tasks["recall"], {"query": "tea"}, {"memory.search": lambda _: {"memories": [memory]}}
    )
    assert recalled == {"memories": [{"id": "mem_1", "type": "fact", "content": "Tea."}]}
