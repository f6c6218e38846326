"""Memory extraction of the wonder/std library (feature D4)."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.services.catalog.standard_run import run_workflow
from wonder_server.core import expressions
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import output_schemas
from wonder_server.core.schema.output_schemas import check_output_schema

MIA = {"id": "mia", "kind": "user", "name": "Mia", "label": "user Mia"}
BOB = {"id": "bob", "kind": "user", "name": "", "label": "user bob"}
OWN = {"id": "agt_1", "kind": "agent", "name": "assistant", "label": "agent assistant"}
ASKED = {
    "message_id": "msg_1",
    "move_id": "",
    "speaker": MIA,
    "said_ms": 1_000,
    "said_at": "1970-01-01T00:00:01.000Z",
}
ANSWERED = {
    "message_id": "msg_2",
    "move_id": "move_1",
    "speaker": OWN,
    "said_ms": 2_000,
    "said_at": "1970-01-01T00:00:02.000Z",
    "content": "I see.",
}
SOURCE = {"message_id": "msg_1", "speaker": "Mia", "speaker_id": "mia", "role": "user", "said_ms": 1_000}
FROM_MIA = {**SOURCE, "move_id": ""}
FROM_AGENT = {
    "message_id": "msg_2",
    "move_id": "move_1",
    "speaker": "assistant",
    "speaker_id": "agt_1",
    "role": "agent",
    "said_ms": 2_000,
}


def turn(message: str, provider: str = "offline", **changes: JsonValue) -> JsonDict:
    return {
        "agent_id": "agt_1",
        "conversation_id": "conv_1",
        "turn_id": "turn_1",
        "agent": {"id": "agt_1", "name": "assistant"},
        "caller": MIA,
        "participants": [MIA, BOB, OWN],
        "messages": [{**ASKED, "content": message}, ANSWERED],
        "user_message": message,
        "answer": "I see.",
        "transcript": [{"sequence": 1, "reasoning": "I see.", "tool_calls": [], "tool_results": []}],
        "model_profile": {"provider": provider, "model": "m", "format": "openai_chat", "parameters": {}},
        **changes,
    }


def nothing_known(_: JsonDict) -> JsonDict:
    return {"memories": []}


def asserted(given: JsonDict) -> JsonDict:
    assert given["condition"], given["message"]
    return {}


def facts(agent: PinnedAgent, given: JsonDict, answers: list[str] | None = None) -> list[str]:
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
    kept = [operation for operation in output["memory_operations"] if "refused" not in operation]
    for operation in kept:
        assert operation["op"] == "write" and operation["type"] == "fact"
        assert {name: operation[name] for name in SOURCE} == SOURCE
        assert 0 <= operation["significance"] <= 1
    return [operation["content"] for operation in kept]


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
def test_the_quick_check_for_facts_misses_no_fact(assistant: PinnedAgent, message: str) -> None:
    """The quick check for words hides no sentence from the rules."""
    assert assistant.extraction is not None
    steps = assistant.extraction.tasks["recognise_facts"].spec.steps
    [sentences] = [step for step in steps if step.id == "sentences"]
    seen = {"input": {"user_message": message}, "output": {"remembered": []}}
    found = expressions.evaluate(sentences.output_mapping["state.facts"], seen)
    assert not found or expressions.evaluate(sentences.condition, seen)


def test_a_flood_of_facts_is_cut(assistant: PinnedAgent) -> None:
    assert len(facts(assistant, turn("My dog is old. " * 500))) == 10


def test_a_memory_that_the_agent_wrote_itself_is_not_written_again(assistant: PinnedAgent) -> None:
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
    asked: list[JsonDict] = []

    def llm(given: JsonDict) -> JsonDict:
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
    assert json.loads(said) == {
        "speakers": [{name: each[name] for name in ("id", "kind", "label")} for each in (MIA, BOB, OWN)],
        "messages": [
            {
                "message_id": "msg_1",
                "speaker": "user Mia",
                "said_at": "1970-01-01T00:00:01.000Z",
                "text": "My colour is teal.",
            },
            {
                "message_id": "msg_2",
                "speaker": "agent assistant",
                "said_at": "1970-01-01T00:00:02.000Z",
                "text": "I see.",
            },
        ],
        "remembered": [],
        "known": [],
    }
    assert asked[0]["model_profile"] == given["model_profile"]


def test_the_model_is_asked_for_an_object_that_every_provider_can_be_asked_for(
    assistant: PinnedAgent,
) -> None:
    assert assistant.extraction is not None
    steps = assistant.extraction.tasks["read_facts"].spec.steps
    [schema] = [
        step.action.config["schema"] for step in steps if step.id == "prompt" and step.action is not None
    ]
    assert check_output_schema(schema) is None
    assert output_schemas.is_strict(schema)
    closed = output_schemas.closed(schema)
    assert closed is not None and closed["properties"]["operations"]["items"]["required"] == [
        *("op", "id", "content", "subject", "message_id", "significance")
    ]


KNOWN = [
    {"id": "mem_1", "content": "Mia likes teal.", "subject": "mia", "type": "fact"},
    {"id": "mem_2", "content": "Bob likes red.", "subject": "bob", "type": "fact"},
    {"id": "mem_3", "content": "The sky is blue.", "subject": "", "type": "note"},
]


def extracted(
    agent: PinnedAgent, *operations: JsonValue, valid: bool = True, **changes: JsonValue
) -> list[JsonDict]:
    """Return the memory operations of an answer with these operations, beside `KNOWN`."""
    asked: list[str] = []

    def llm(given: JsonDict) -> JsonDict:
        asked.append(given["request"]["messages"][-1]["content"])
        answer = {"operations": list(operations)}
        return {"text": json.dumps(answer), "output": answer if valid else None}

    def search(given: JsonDict) -> JsonDict:
        assert given == {"limit": 8, "query": "My colour is red now.\nI see."}
        return {"memories": KNOWN}

    assert agent.extraction is not None
    actions = {"context": dict, "llm": llm, "memory.search": search}
    output = run_workflow(agent.extraction, turn("My colour is red now.", "openai", **changes), actions)
    [exchange] = asked
    names = ("id", "content", "subject")
    assert json.loads(exchange)["known"] == [{name: each[name] for name in names} for each in KNOWN]
    found: list[JsonDict] = output["memory_operations"]
    return found


def fact(op: str = "write", **fields: JsonValue) -> JsonDict:
    nothing = {"id": None, "subject": None, "message_id": None, "significance": 0.5}
    return {"op": op, "content": "Mia likes red.", **nothing, **fields}


@pytest.mark.parametrize("valid", [True, False])
def test_what_the_model_says_of_known_memories_changes_them(assistant: PinnedAgent, valid: bool) -> None:
    found = extracted(
        assistant,
        fact(subject="mia", message_id="msg_1"),
        fact("supersede", id="mem_1", subject="mia"),
        fact("update", id="mem_3", content="The sky is light blue.", significance=0.9),
        fact("contradict", id="mem_2", subject="bob"),
        fact(message_id="msg_2", content="The assistant has seen it."),
        valid=valid,
    )
    new = {"type": "fact", "content": "Mia likes red.", "significance": 0.5}
    assert found == [
        {"op": "write", **new, "subject": "mia", **FROM_MIA},
        {"op": "supersede", "id": "mem_1", **new, "subject": "mia", **FROM_MIA},
        {"op": "update", "id": "mem_3", "content": "The sky is light blue.", "significance": 0.9},
        {"op": "write", "contradicts_ids": ["mem_2"], **new, "subject": "bob", **FROM_MIA},
        {"op": "write", **new, "content": "The assistant has seen it.", "subject": "", **FROM_AGENT},
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (fact("supersede", id="mem_9"), 'names the memory "mem_9", which the model was not given'),
        (fact("update"), 'names the memory "", which'),
        (fact("update", id=7), "names the memory 7, which"),
        (fact(id="mem_1"), 'writes a new memory and names the memory "mem_1"'),
        (fact("supersede", id="mem_2"), "changes the memory mem_2, which is about another user"),
        (fact("update", id="mem_2"), "changes the memory mem_2, which is about another user"),
        (fact(subject="eve"), 'about the user "eve", who does not take part'),
        (fact(subject="agt_1"), 'about the user "agt_1", who'),
        (fact(subject=["mia"]), 'about the user ["mia"], who'),
        (fact(message_id="msg_9"), 'names the message "msg_9", which'),
        (fact("erase"), 'op is "erase"'),
        (fact(content=" "), "has no content"),
        (fact(content=7), "has no content"),
    ],
)
def test_an_operation_that_names_something_else_is_refused_alone(
    assistant: PinnedAgent, given: JsonDict, reason: str
) -> None:
    before, refused, after = extracted(assistant, fact(subject="mia"), given, fact(subject="mia"))
    assert before == after and "refused" not in before
    assert reason in refused["refused"] and refused["op"] == given["op"]


def test_without_a_model_the_user_is_the_subject(assistant: PinnedAgent) -> None:
    assert assistant.extraction is not None
    for caller, subject in ((MIA, "mia"), ({**MIA, "id": ""}, ""), ({**OWN, "id": "agt_2"}, "")):
        given = turn(
            "I like tea a lot.", messages=[{**ASKED, "speaker": caller, "content": "I like tea a lot."}]
        )
        [operation] = run_workflow(assistant.extraction, given, {"context": dict})["memory_operations"]
        assert (operation["subject"], operation["speaker_id"]) == (subject, caller["id"])


def test_a_turn_whose_search_fails_is_extracted_without_known_memories(assistant: PinnedAgent) -> None:
    def fails(_: JsonDict) -> JsonDict:
        raise error(Reason.STORAGE_UNAVAILABLE, "Not now.")

    answer = {"operations": [fact(), fact("update", id="mem_1")]}
    actions = {"context": dict, "memory.search": fails, "llm": lambda _: {"text": "", "output": answer}}
    assert assistant.extraction is not None
    output = run_workflow(assistant.extraction, turn("My colour is red.", "openai"), actions)
    assert ["refused" in each for each in output["memory_operations"]] == [False, True]
