"""Printing of a turn, for users and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from wonder_sdk import Item, MessageRestarted, ReasoningDelta, TextDelta, v1
from wonder_sdk.cli.conversation.message_parts import file_line, readable
from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted, one_line
from wonder_sdk.values import from_struct

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class AnswerPrinter:
    """Prints the agent's complete messages on ``answers``, and tool calls and errors on ``notes``.

    With several agents (``names`` by id), a note says which of them answers.
    """

    def __init__(
        self,
        answers: Terminal,
        notes: Terminal,
        names: Mapping[str, str] = _NO_NAMES,
        approve: Callable[[v1.Gate], None] | None = None,
    ) -> None:
        self._answers = answers
        self._notes = TurnPrinter(notes, "", approve)
        self._names = names
        self._announce = notes.note

    def fresh_line(self) -> None:
        """Begin a new line."""
        self._notes.fresh_line()

    def show(self, items: Iterable[Item]) -> None:
        for item in items:
            match item:
                case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                    if shown := readable(message):
                        self._answers.line(shown)
                case v1.Event(conversation_turn=v1.Turn(agent_id=agent_id)) if len(self._names) > 1:
                    self._announce(f"{self._names.get(agent_id, agent_id)} answers")
                case v1.Event() | v1.ToolProgress():
                    self._notes.item(item)
                case _:  # Parts of a message: the message can restart.
                    pass


class TurnPrinter:
    """Prints the items of a turn as they arrive: the agent's text, and a dim line for each action.

    ``speaker`` stands before the text. The name of the turn's agent replaces it if it is in ``names``, by id.
    """

    def __init__(
        self,
        terminal: Terminal,
        speaker: str,
        approve: Callable[[v1.Gate], None] | None = None,
        names: Mapping[str, str] = _NO_NAMES,
    ) -> None:
        self._terminal = terminal
        self._names = names
        self._approve = approve
        self._speaker = speaker
        self._message_id = ""
        """Message whose text is being printed."""
        self._reasoning_id = ""
        """Message whose reasoning is being printed."""

    def fresh_line(self) -> None:
        """Begin a new line; text that follows has its speaker before it."""
        self._message_id = self._reasoning_id = ""
        self._terminal.fresh_line()

    def show(self, items: Iterable[Item]) -> None:
        for item in items:
            self.item(item)

    def item(self, item: Item) -> None:
        """Print one item, if users need to see its kind."""
        match item:
            case TextDelta(message_id=message_id, text=text):
                self._write_text(message_id, text)
            case ReasoningDelta(message_id=message_id, text=text):
                self._write_reasoning(message_id, text)
            case MessageRestarted():
                self._message_id = self._reasoning_id = ""
                self._terminal.note("the answer restarts")
            case v1.ToolProgress(progress=v1.Progress(message=message)) if message:
                self._terminal.note(f"… {message}")
            case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                self._write_files(message)
            case v1.Event(conversation_turn=v1.Turn(agent_id=agent_id)) if agent_id in self._names:
                self._speaker = f"{self._names[agent_id]}>"
            case v1.Event():
                self._event(item)
            case _:
                pass

    def _write_reasoning(self, message_id: str, text: str) -> None:
        if message_id != self._reasoning_id:
            self._message_id, self._reasoning_id = "", message_id
            self._terminal.fresh_line()
            self._terminal.write("thinking> ", "dim")
        self._terminal.write(text, "dim")

    def _write_text(self, message_id: str, text: str) -> None:
        if message_id != self._message_id:
            self._message_id, self._reasoning_id = message_id, ""
            self._terminal.fresh_line()
            self._terminal.write(f"{self._speaker} ", "green")
        self._terminal.write(text)

    def _write_files(self, message: v1.Message) -> None:
        """Print the images and files of a message. Its text is printed already."""
        for line in filter(None, map(file_line, message.parts)):
            self._message_id = ""
            self._terminal.fresh_line()
            self._terminal.line(line)

    def _event(self, event: v1.Event) -> None:
        match event:
            case v1.Event(tool_dispatched=v1.ToolDispatched(tool_call=v1.ToolCall() as call)):
                self._terminal.note(
                    f"→ {call.tool_name} {one_line(call.input.to_dict() if call.input else {})}"
                )
            case v1.Event(gate_opened=v1.Gate() as gate):
                self._gate(gate)
            case v1.Event(gate_resolved=v1.Gate(status=status, resolution=resolution) as gate):
                comment = f": {resolution.comment}" if resolution and resolution.comment else ""
                self._terminal.note(f"{(status.name or '').lower()} {_waiting(gate)}{comment}")
            case v1.Event(tool_completed=v1.ToolOutcome() as outcome):
                value = outcome.tool_result.result if outcome.tool_result else None
                self._result("←", outcome, one_line(value.to_dict() if value else None))
            case v1.Event(tool_failed=v1.ToolOutcome(tool_result=v1.ToolResult(error=error)) as outcome):
                self._result("✗", outcome, error.message if error else "failed")
            case v1.Event(limit_reached=v1.LimitReached(limit=v1.Fault(message=message))):
                # Not a note, which is cut to one line: the message ends with the consequence.
                self._terminal.line(f"  {message}", "dim")
            case v1.Event(turn_completed=v1.Turn() as turn):
                self._end(turn, "")
            case v1.Event(turn_cancelled=v1.Turn() as turn):
                self._end(turn, "cancelled")
            case v1.Event(turn_failed=v1.Turn(error=error) as turn):
                self._terminal.line(error.message if error else "The turn failed.", "red")
                self._end(turn, "failed")
            case _:
                self._notice(event)

    def _notice(self, event: v1.Event) -> None:
        """Print what happened to the request or the answer of the turn."""
        match event:
            case v1.Event(context_reduced=v1.ContextReduced(messages_left_out=left_out)):
                self._terminal.note(
                    f"{left_out} older messages were omitted to fit the model's context window"
                )
            case v1.Event(
                model_switched=v1.ModelSwitched(
                    from_provider=former, to_provider=other, to_model=model, hook=""
                )
            ):
                self._terminal.note(f"{former} is unavailable; {other}/{model} goes on")
            case v1.Event(output_rejected=v1.OutputRejected(problems=problems, repairing=True)):
                self._terminal.note(
                    f"The answer does not satisfy the schema; asked again: {' '.join(problems)}"
                )
            case _:
                pass

    def _gate(self, gate: v1.Gate) -> None:
        """Ask about a tool call or a run that waits for a person, or print how to answer."""
        self.fresh_line()
        self._terminal.note(f"? {_waiting(gate)} {one_line(from_struct(gate.shown))} waits for approval")
        if not gate.tool_name:
            self._terminal.line(f"  {gate.prompt}")
        if self._approve is None:
            self._terminal.note(f"wonder gates approve {gate.id}  (or reject, with --comment)")
        else:
            self._approve(gate)

    def _result(self, mark: str, outcome: v1.ToolOutcome, text: str) -> None:
        name = outcome.tool_call.tool_name if outcome.tool_call else "tool"
        self._terminal.note(f"{mark} {name} {text}")

    def _end(self, turn: v1.Turn, how: str) -> None:
        facts = [f"turn {turn.ordinal}" + (f" {how}" if how else ""), counted(turn.move_count, "move")]
        if turn.create_time and turn.complete_time:
            facts.append(f"{(turn.complete_time - turn.create_time).total_seconds():.1f} s")
        if turn.usage and (tokens := turn.usage.input_tokens + turn.usage.output_tokens):
            facts.append(counted(tokens, "token"))
        self._terminal.note(" · ".join(facts))


def _waiting(gate: v1.Gate) -> str:
    """Return what waits at the gate: a tool, or a node of a run."""
    return gate.tool_name or f"{gate.workflow.partition('@')[0]} {gate.node_id}"
