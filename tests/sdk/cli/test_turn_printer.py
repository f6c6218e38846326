"""Lines of a turn on a terminal."""

from __future__ import annotations

import io

from wonder_sdk import MessageRestarted, ReasoningDelta, TextDelta, v1
from wonder_sdk.cli.conversation.turn_printer import AnswerPrinter, TurnPrinter
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted


def test_a_limit_is_printed_whole() -> None:
    out = io.StringIO()
    message = "The turn used 0 of 100 tokens, and the next call may need about 336. " + "x" * 100 + " end."
    event = v1.Event(limit_reached=v1.LimitReached(limit=v1.Fault(message=message)))
    TurnPrinter(Terminal(out), "you>").show([event])
    assert out.getvalue() == f"  {message}\n"


def test_a_rejected_answer_is_noted_only_if_another_follows() -> None:
    for repairing, expected in ((True, "asked again: output.total: is missing"), (False, "")):
        out = io.StringIO()
        rejected = v1.OutputRejected(problems=["output.total: is missing"], repairing=repairing)
        TurnPrinter(Terminal(out), "you>").show([v1.Event(output_rejected=rejected)])
        assert expected in out.getvalue() and bool(out.getvalue()) == bool(expected)


def test_counts_have_their_noun_in_the_right_number() -> None:
    assert [counted(n, "model call") for n in (0, 1, 2)] == ["0 model calls", "1 model call", "2 model calls"]
    assert counted(1, "repository", "repositories") == "1 repository"
    assert counted(1234, "repository", "repositories") == "1,234 repositories"


def test_reasoning_stands_on_lines_of_its_own() -> None:
    out = io.StringIO()
    items = [
        ReasoningDelta("msg_1", "turn_1", "Hm, "),
        ReasoningDelta("msg_1", "turn_1", "so."),
        TextDelta("msg_1", "turn_1", "Yes"),
        TextDelta("msg_1", "turn_1", "."),
        ReasoningDelta("msg_1", "turn_1", "More?"),
        MessageRestarted("msg_1", "turn_1", 2),
        ReasoningDelta("msg_1", "turn_1", "Again."),
    ]
    TurnPrinter(Terminal(out), "agent>").show(items)
    assert out.getvalue().splitlines() == [
        "thinking> Hm, so.",
        "agent> Yes.",
        "thinking> More?",
        "  the answer restarts",
        "thinking> Again.",
    ]


def test_an_image_of_the_agent_is_a_line_of_its_own() -> None:
    parts = [v1.ContentPart(text="A cat:"), v1.ContentPart(image=v1.FilePart(file_id="file_1"))]
    message = v1.Message(role=v1.MessageRole.AGENT, content="A cat:", parts=parts)
    items = [TextDelta("msg_1", "turn_1", "A cat:"), v1.Event(message_appended=message)]
    out, notes = io.StringIO(), io.StringIO()
    TurnPrinter(Terminal(out), "agent>").show(items)
    assert out.getvalue().splitlines() == ["agent> A cat:", "[image: file_1]"]
    out = io.StringIO()
    AnswerPrinter(Terminal(out), Terminal(notes)).show(items)
    assert out.getvalue().splitlines() == ["A cat:", "[image: file_1]"]
