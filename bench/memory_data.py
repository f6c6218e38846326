"""Data sets of `memory_quality`: agents with messages, and questions with the messages that answer them.

A set is a JSONL file, or a folder of such files. Each line is one agent, in one of three forms:

- the form of docs/memory.md
- QMSum, a meeting: public repository Yale-LILY/QMSum, MIT licence. A turn is a message.
- RealMem, months of chats of one person with an assistant: public repository zhiyuan5986/RealMemBench, Apache
  licence. A session is a conversation.

QMSum and RealMem are no part of this repository.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wonder_server.core.json_types import JsonDict

HELD_OUT_FILE = "test.jsonl"


@dataclass(frozen=True, slots=True)
class Question:
    """``before``: the number of messages that existed when it was asked; only these are searched."""

    text: str
    evidence: frozenset[str]
    before: int
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """Content of one line. ``held_out``: constants may not be chosen on it. Questions are in order of
    ``before``."""

    name: str
    messages: tuple[JsonDict, ...]
    questions: tuple[Question, ...]
    held_out: bool


def agents(path: Path, most_evidence: int) -> Iterator[Agent]:
    """Yield the agents of a file or folder, without questions that have no evidence or more than
    ``most_evidence``.

    Of a folder with a file `HELD_OUT_FILE`, its agents are held out; else every second agent.

    Raises `SystemExit` if the set has another form.
    """
    files = sorted(path.glob("*.jsonl"), reverse=True) if path.is_dir() else [path]
    if not files:
        raise SystemExit(f"{path} has no *.jsonl files.")
    by_file = path.is_dir() and any(file.name == HELD_OUT_FILE for file in files)
    number = 0
    for file in files:
        for line, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if not text.strip():
                continue
            held_out = file.name == HELD_OUT_FILE if by_file else number % 2 == 1
            yield _agent(text, f"{file.stem}-{line}", f"{file}, line {line}", most_evidence, held_out)
            number += 1


def _agent(text: str, name: str, place: str, most_evidence: int, held_out: bool) -> Agent:
    try:
        given = json.loads(text)
        if "meeting_transcripts" in given:
            given = _meeting(given, name)
        elif any("text" in message for message in given["messages"]):
            given = _chats(given)
        messages = tuple(given["messages"])
        ids = {message["id"] for message in messages}
        for message in messages:
            message["content"].strip()
        questions = [
            Question(
                each["query"], frozenset(each["evidence"]), int(each.get("before", len(messages))),
                time_ms(each["now"]) if "now" in each else None,
            )
            for each in given["questions"]
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise SystemExit(f"{place}, is not an agent in the form of docs/memory.md: {problem!r}") from None
    unknown = {id for question in questions for id in question.evidence} - ids
    if unknown or len(ids) < len(messages):
        raise SystemExit(
            f"{place}: ids are not unique, or evidence has unknown ids: {sorted(map(str, unknown))[:3]}"
        )
    kept = [question for question in questions if 1 <= len(question.evidence) <= most_evidence]
    kept.sort(key=lambda question: question.before)
    return Agent(str(given.get("agent", name)), messages, tuple(kept), held_out)


def time_ms(text: str) -> int:
    """Return a date or time in ISO 8601; without a zone it is in UTC."""
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _meeting(meeting: JsonDict, name: str) -> JsonDict:
    """Return one meeting of QMSum. Spans out of range are omitted."""
    turns = meeting["meeting_transcripts"]
    questions = []
    for asked in meeting["specific_query_list"]:
        spans = ((int(first), int(last)) for first, last in asked["relevant_text_span"])
        places = sorted(
            {place for first, last in spans for place in range(first, last + 1) if place < len(turns)}
        )
        questions.append({"query": asked["query"], "evidence": [str(place) for place in places]})
    messages = [
        {"id": str(place), "conversation": name, "ordinal": place + 1, **turn}
        for place, turn in enumerate(turns)
    ]
    return {"agent": name, "messages": messages, "questions": questions}


def _chats(given: JsonDict) -> JsonDict:
    """Return one person of RealMem. A question is a message of the person; it is asked on its day."""
    person, ordinals = given["agent"].replace("_", " "), Counter[str]()
    messages = []
    for message in given["messages"]:
        ordinals[message["session"]] += 1
        is_person = message["role"] == "user"
        messages.append(
            {
                "id": message["id"],
                "conversation": message["session"],
                "ordinal": ordinals[message["session"]],
                "speaker": person if is_person else "assistant",
                "role": "user" if is_person else "agent",
                "said_at": message["date"],
                "content": message["text"],
            }
        )
    questions = [
        {
            "query": asked["text"],
            "evidence": asked["evidence"],
            "before": asked["before"],
            "now": given["messages"][asked["before"]]["date"],
        }
        for asked in given["questions"]
    ]
    return {"agent": given["agent"], "messages": messages, "questions": questions}
