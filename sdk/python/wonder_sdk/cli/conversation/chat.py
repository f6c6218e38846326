"""``wonder chat``: talk to an agent."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.conversation import line_history
from wonder_sdk.cli.shared import connection, overrides, uploads
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.cli.conversation.turn_printer import AnswerPrinter, TurnPrinter
    from wonder_sdk.cli.conversation.waiting import FollowedTurn
    from wonder_sdk.conversation.event_cursor import DeltaKind

_EXAMPLES = """\
examples:
  wonder chat
      Start a conversation with the agent `assistant`.
  wonder chat --agent architect
      Start a conversation with another agent.
  wonder chat -a architect -a critic
      Start a conversation with several agents. `@critic ...` addresses one; otherwise the first answers.
  wonder chat -m "What is my cat called?"
      Send one message, print the answer, exit. Exit code 1 if the turn failed, 3 if a tool call waits for
      approval. A pipe or a file gets only the answer.
  wonder chat --conversation conv_01J9...
      Continue a conversation.
  wonder chat -m "What is this?" --file cat.png
      Send an image or a file with the message.
  git diff | wonder chat -m "Review this:" -
      Send a message followed by the standard input.
  printf 'Hello\\nAnd goodbye\\n' | wonder chat
      Send each line as a message.

While the agent works, Ctrl-C cancels its turn. At the prompt, press Ctrl-C twice or Ctrl-D, or type /quit, to
exit; the conversation stays and running turns continue. /help lists the commands.

With a real model each turn makes two calls: the answer, and then memory extraction, which selects facts to
remember. Both count in the turn's usage. `memory_extraction_workflow_id: none` in a persona turns off the
second.
"""
_HELP = """\
  /new     Start a new conversation.
  /approve Answer tool calls that wait for approval, which you have left for later.
  /quit    Exit (or Ctrl-D); the conversation stays.
  /help    Show this help.
  //text   Send a message that begins with a slash.
  @NAME    In a conversation with several agents, the agent with this name answers.
  Lines typed while the agent answers are sent afterwards; Ctrl-C cancels its turn.
  After each answer of a real model, memory extraction makes a second model call, which is charged;
  `memory_extraction_workflow_id: none` in the agent's persona turns it off."""
_DEFAULT_AGENT = "assistant"
_WAITS = 3
"""Exit code if a tool call waits for approval."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "chat",
        help="Talk to an agent.",
        description="Talk to an agent: stream its answers and show its tool calls.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-a",
        "--agent",
        action="append",
        default=[],
        metavar="NAME",
        help="Talk to this agent, by name or id (default: assistant). Repeat it for more agents.",
    )
    parser.add_argument("-m", "--message", metavar="TEXT", help="Send one message, print the answer, exit.")
    parser.add_argument("-c", "--conversation", metavar="ID", help="Continue this conversation.")
    parser.add_argument(
        "--project",
        metavar="NAME",
        help="Start the conversation in this project (default: the agent's first).",
    )
    parser.add_argument(
        "--concurrent-turns",
        choices=["parallel", "queue", "interrupt", "steer"],
        default="",
        metavar="POLICY",
        help="Handle messages that arrive while the agent works by parallel, queue, interrupt or steer "
        "(default: that of its persona).",
    )
    parser.add_argument(
        "--user", default="", metavar="NAME", help="Send as this user (default: the token's name, else user)."
    )
    overrides.add_options(parser)
    parser.add_argument(
        "--show-reasoning",
        action="store_true",
        help="At a terminal, show the model's reasoning, dimmed, if the agent's persona has show_reasoning.",
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PATH",
        help="Upload this file and send it with --message. Repeat it for more.",
    )
    parser.add_argument(
        "stdin", nargs="?", choices=["-"], metavar="-", help="Append the standard input to --message."
    )
    connection.connect(parser, run)


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Send one message, or all messages of the input."""
    if arguments.conversation and (flag := _flag_of_new_conversations(arguments)):
        print(f"wonder: {flag} to new conversations only. Remove it.", file=sys.stderr)
        return 2
    if arguments.file and arguments.message is None:
        print("wonder: --file sends files with one message. Add -m TEXT.", file=sys.stderr)
        return 2
    terminal = Terminal()
    options = ChatOptions(
        agents=tuple(dict.fromkeys(arguments.agent)),
        user=arguments.user,
        project=arguments.project or "",
        concurrent_turns=arguments.concurrent_turns,
        shows_reasoning=arguments.show_reasoning,
        overrides=overrides.overrides_of(arguments),
    )
    session = ChatSession(client, terminal, options)
    if arguments.message is None:
        return session.run(arguments.conversation or "")
    message = arguments.message
    if arguments.stdin:
        message = f"{message}\n\n{sys.stdin.read()}"
    return session.send_once(arguments.conversation or "", message, arguments.file)


def _flag_of_new_conversations(arguments: argparse.Namespace) -> str:
    """Return the flag that an existing conversation does not take, with its verb; "" without one."""
    if arguments.project:
        return "--project applies"
    if arguments.concurrent_turns:
        return "--concurrent-turns applies"
    return "several --agent apply" if len(arguments.agent) > 1 else ""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of a chat. Several ``agents`` take part in new conversations only; one also addresses it."""

    agents: tuple[str, ...] = ()
    user: str = ""
    project: str = ""
    concurrent_turns: str = ""
    shows_reasoning: bool = False
    overrides: v1.TurnOverrides | None = None
    """Settings of each message's turn in place of the persona's."""


class ChatSession:
    """A conversation of a user at a terminal, or of a script at a pipe, with agents."""

    def __init__(self, client: sync.Client, terminal: Terminal, options: ChatOptions) -> None:
        self._client, self._terminal, self._options = client, terminal, options
        self._user, self._project = options.user, options.project
        # Only one agent is addressed: with several, the server decides by the text.
        self._agent = options.agents[0] if len(options.agents) == 1 else ""
        # Receives everything except the answer.
        self._notes = terminal
        self._is_person = terminal.is_interactive and sys.stdin.isatty()
        self._is_once = False
        # Turns whose calls the person answers later.
        self._waiting: list[FollowedTurn] = []

    def send_once(self, conversation_id: str, message: str, paths: Sequence[str] = ()) -> int:
        """Send one message, with the files at ``paths``. Return 0, 1 if the turn did not complete, 3 if a
        call waits for approval, or 130 if the turn was cancelled here."""
        self._is_once = True
        if not self._terminal.is_interactive:
            self._notes = Terminal(sys.stderr)
        if not uploads.check(paths):
            return 1
        # Before the conversation is created: none remains if the server rejects a file.
        files = self._upload(paths, conversation_id) if paths else []
        with self._attach(opened := conversation_id or self._create()) as chat:
            code = self._send_turn(chat, message, files)
        if not conversation_id:
            _print_resume_hint(Terminal(sys.stderr), opened)
        return code

    def run(self, conversation_id: str, *, show_resume_hint: bool = True) -> int:
        """Converse until the user exits or the input ends.

        Returns the exit code of the last turn, or 0 for a user at a terminal. ``show_resume_hint`` says that
        the conversation stays, and prints the command that continues it.
        """
        while True:
            opened = conversation_id or self._create()
            with self._attach(opened) as chat:
                self._greet(chat.conversation, is_old=bool(conversation_id), stays=show_resume_hint)
                code, wants_new = self._talk(chat)
                self._leave_waiting()
            if not wants_new:
                break
            conversation_id = ""
        if show_resume_hint and (self._is_person or not conversation_id):
            _print_resume_hint(self._terminal if self._is_person else Terminal(sys.stderr), opened)
        return 0 if self._is_person else code

    def _talk(self, chat: sync.Chat) -> tuple[int, bool]:
        """Send the lines and carry out the commands, to the end of the conversation here.

        Return the exit code of the last turn, and True if the user wants a new conversation.
        """
        code = 0
        for line in self._lines(partial(self._catch_up, chat)):
            match line.strip():
                case "":
                    continue
                case "/quit" | "/exit":
                    break
                case "/new":
                    return code, True
                case "/approve":
                    self._answer_waiting(chat)
                case "/help":
                    self._terminal.line(_HELP, "dim")
                case command if command.startswith("/") and not command.startswith("//"):
                    self._terminal.line(
                        f"  {command.split()[0]} is not a command; /help lists the commands.", "dim"
                    )
                case text:
                    code = self._send_turn(chat, text.removeprefix("/") if text.startswith("//") else text)
                    if code == _WAITS and not self._is_person:
                        break
        return code, False

    def _upload(self, paths: Sequence[str], conversation_id: str) -> list[v1.File]:
        """Upload the files to the project of the conversation. If one is rejected, delete those before it."""
        from wonder_sdk import WonderError, v1

        if conversation_id:
            known = v1.GetConversationRequest(conversation_id=conversation_id)
            project = self._client.conversations.get_conversation(known).conversation.project_id
        elif not (project := self._project):
            agent = v1.GetAgentRequest(agent_id=self._agents[0])
            project = next(iter(self._client.library.get_agent(agent).agent.project_ids), "")
        files: list[v1.File] = []
        try:
            for path in paths:
                files.append(uploads.upload(self._client, path, project=project))
        except (WonderError, OSError):
            for file in files:
                self._client.delete_file(file.id)
            raise
        return files

    @property
    def _agents(self) -> tuple[str, ...]:
        return self._options.agents or (_DEFAULT_AGENT,)

    def _create(self) -> str:
        return self._client.create_conversation(
            agent=self._agents,
            user=self._user or None,
            project=self._project,
            concurrent_turns=self._options.concurrent_turns,
        )

    def _attach(self, conversation_id: str) -> sync.Chat:
        kinds: list[DeltaKind] = ["reasoning"] if self._options.shows_reasoning else []
        return self._client.converse(conversation_id, tail_only=True, delta_kinds=kinds)

    def _greet(self, conversation: v1.Conversation, *, is_old: bool, stays: bool) -> None:
        if not self._is_person:
            return
        from wonder_sdk import v1
        from wonder_sdk.cli.conversation import addressing
        from wonder_sdk.cli.conversation.message_parts import readable

        leave = f"Ctrl-D or /quit leaves{', the conversation stays' if stays else ''}"
        self._terminal.line(f"  {conversation.id} · {leave} · /help for help", "dim")
        if several := addressing.welcome(conversation):
            self._terminal.line(f"  {several}", "dim")
        if is_old:
            page = self._client.conversations.list_messages(
                v1.ListMessagesRequest(conversation_id=conversation.id, page_size=6)
            )
            for message in reversed(page.messages):
                speaker = addressing.speaker(message, conversation, self._user)
                self._terminal.line(f"{speaker}> {readable(message)}", "dim")
            self._mention_gates(conversation.id)

    def _mention_gates(self, conversation_id: str) -> None:
        from wonder_sdk import WonderError

        try:
            waiting = len(list(self._client.list_gates(conversation=conversation_id)))
        except WonderError:  # The caller may talk here and see no gates.
            return
        if waiting:
            calls = "1 call waits" if waiting == 1 else f"{waiting} calls wait"
            self._terminal.line(f"  {calls} for approval; /approve answers", "dim")

    def _send_turn(self, chat: sync.Chat, text: str, files: Sequence[v1.File] = ()) -> int:
        """Send one message and print its turn.

        The first Ctrl-C cancels the turn; the second stops waiting for it.
        """
        from wonder_sdk.cli.conversation import addressing
        from wonder_sdk.cli.conversation.waiting import FollowedTurn

        if not self._agent and (hint := addressing.hint(text, chat.conversation)):
            self._notes.line(f"  {hint}", "dim")
        printer = self._printer(chat)
        user = self._user or addressing.default_user(chat.conversation)
        own = self._options.overrides
        reply = chat.send(text, parts=files, agent=self._agent, user=user, overrides=own, check=False)
        return self._follow(chat, FollowedTurn(reply, printer))

    def _follow(self, chat: sync.Chat, turn: FollowedTurn) -> int:
        """Print a turn to its end, or until the person leaves a call of it for later."""
        from wonder_sdk import CallCancelledError, WonderError
        from wonder_sdk.cli.conversation.approval import CallWaitsError
        from wonder_sdk.cli.conversation.connection_status import ConnectionStatus

        reply, interrupts = turn.reply, 0
        status = ConnectionStatus(chat, self._notes, self._client.target)
        while True:
            try:
                if interrupts:
                    reply.give_up()
                    self._notes.note("cancelling …")
                else:
                    turn.ask_again(self._client, self._approve)
                turn.printer.show(status.items(reply))
                break
            except CallWaitsError as waits:
                return self._defer(turn, waits.gate)
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1:
                    reply.close()
                    break
            except WonderError as problem:
                if interrupts and isinstance(problem, CallCancelledError):
                    self._notes.note("cancelled: the message will not be sent again")
                    break
                if not self._is_person:
                    raise
                # The conversation continues after a rejected message.
                self._terminal.line(connection.explain(problem, self._client.target), "red")
                return 1
        self._terminal.fresh_line()
        if interrupts and not self._is_person:
            return 130
        return 0 if turn.is_completed else 1

    def _defer(self, turn: FollowedTurn, gate: v1.Gate) -> int:
        """Say how to answer a call later, and keep the turn if the prompt returns."""
        from wonder_sdk.cli.conversation import waiting

        turn.gates[gate.id] = gate
        returns = self._is_person and not self._is_once
        waiting.show_deferred(self._notes, gate, returns=returns)
        if returns:
            self._waiting.append(turn)
        return _WAITS

    def _answer_waiting(self, chat: sync.Chat) -> None:
        """Ask again about the calls that wait, and print the rest of their turns."""
        turns, self._waiting = self._waiting, []
        if not turns:
            self._answer_earlier(chat.conversation.id)
        for turn in turns:
            self._follow(chat, turn)

    def _answer_earlier(self, conversation_id: str) -> None:
        """Ask about calls that wait since before this chat, whose turns it does not print."""
        from wonder_sdk.cli.conversation import waiting
        from wonder_sdk.cli.conversation.approval import CallWaitsError

        gates = list(self._client.list_gates(conversation=conversation_id))
        if not gates:
            self._terminal.line("  no tool call waits for approval", "dim")
        for gate in gates:
            self._terminal.line(f"  {waiting.waits(gate)}", "dim")
            try:
                self._approve(gate)
                self._terminal.line(
                    "  the turn goes on; its answer is in: wonder events " + conversation_id, "dim"
                )
            except CallWaitsError:
                waiting.show_deferred(self._terminal, gate, returns=True)
            except KeyboardInterrupt:
                self._terminal.line()
                return

    def _catch_up(self, chat: sync.Chat) -> None:
        """Print what has arrived of the turns whose calls wait; all of those whose calls others answered."""
        from wonder_sdk import WonderError

        for turn in list(self._waiting):
            try:
                has_ended = turn.catch_up(self._terminal)
                if has_ended or not turn.gates:
                    self._waiting.remove(turn)
                    self._terminal.fresh_line()
                if not has_ended and not turn.gates:
                    self._follow(chat, turn)
            except WonderError as problem:
                self._waiting.remove(turn)
                self._terminal.line(connection.explain(problem, self._client.target), "red")

    def _leave_waiting(self) -> None:
        """Print the calls that go on waiting."""
        if not self._waiting:
            return
        from wonder_sdk.cli.conversation import waiting

        waiting.show_left(self._terminal, [gate for turn in self._waiting for gate in turn.gates.values()])
        self._waiting.clear()

    def _printer(self, chat: sync.Chat) -> TurnPrinter | AnswerPrinter:
        from wonder_sdk.cli.conversation.addressing import agent_names
        from wonder_sdk.cli.conversation.turn_printer import AnswerPrinter, TurnPrinter

        names = agent_names(chat.conversation)
        if self._notes is not self._terminal:
            return AnswerPrinter(self._terminal, self._notes, names, self._approve)
        return TurnPrinter(self._terminal, f"{self._speaker(chat)}>", self._approve, names)

    def _approve(self, gate: v1.Gate) -> None:
        from wonder_sdk.cli.conversation.approval import CallWaitsError, ask

        if not self._is_person:
            raise CallWaitsError(gate)
        ask(self._client, self._terminal, gate, self._user)

    def _speaker(self, chat: sync.Chat) -> str:
        agents = [each.agent for each in chat.conversation.participants if each.agent]
        named = [agent for agent in agents if self._agent in (agent.name, agent.agent_id)]
        return next((agent.name for agent in named or agents if agent.name), self._agent or "agent")

    def _lines(self, before: Callable[[], None] = lambda: None) -> Iterator[str]:
        """Yield the lines that the user types, or those of the input. ``before`` precedes each prompt."""
        if not self._is_person:
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        line_history.keep()
        warned = False
        while True:
            try:
                before()
                yield input(line_history.prompt(self._terminal))
                warned = False
            except EOFError:
                self._terminal.line()
                return
            except KeyboardInterrupt:
                self._terminal.line()
                if warned:
                    return
                warned = True
                self._terminal.note("Press Ctrl-C again or Ctrl-D, or type /quit, to exit.")


def _print_resume_hint(terminal: Terminal, conversation_id: str) -> None:
    terminal.line(f"  continue with: wonder chat -c {conversation_id}", "dim")
