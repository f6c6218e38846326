"""``wonder chat``: talk to an agent."""

from __future__ import annotations

import argparse
import atexit
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder chat
      a new conversation with the agent `assistant`
  wonder chat --agent architect
      with another agent
  wonder chat -m "What is my cat called?"
      one message, its answer, done; exit code 1 if the turn failed. In a pipe or a file, only the answer
  wonder chat --conversation conv_01J9...
      go on with a conversation
  git diff | wonder chat -m "Review this:" -
      a message with what comes through the pipe below it
  printf 'Hello\\nAnd goodbye\\n' | wonder chat
      one message per line

While the agent works, Ctrl-C cancels its turn. At the prompt, Ctrl-C twice, Ctrl-D or /quit leaves;
the conversation stays, and turns go on. /help lists what else can be said.

With a real model each turn costs two calls: the answer, and after it memory extraction, which reads the
exchange for what to remember. Both count in the turn's usage. An agent whose persona says
`memory_extraction_workflow_id: none` makes the first alone.
"""
_HELP = """\
  /new     begin a new conversation
  /quit    leave (or Ctrl-D); the conversation stays
  /help    this
  //text   say something that begins with a slash
  Lines typed while the agent speaks are not sent; Ctrl-C cancels its turn.
  After each answer of a real model a second call of it extracts what to remember (and is charged);
  `memory_extraction_workflow_id: none` in the agent's persona switches that off."""
_PROMPT = "you> "
_HISTORY = Path.home() / ".wonder_history"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "chat",
        help="talk to an agent",
        description="Talk to an agent: words as they come, and what it does in between.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-a", "--agent", help="agent, by name or id (default: assistant)")
    parser.add_argument("-m", "--message", metavar="TEXT", help="say this, show the answer, and leave")
    parser.add_argument("-c", "--conversation", metavar="ID", help="go on with this conversation")
    parser.add_argument(
        "--project", metavar="NAME", help="project of the new conversation (default: the agent's first)"
    )
    parser.add_argument(
        "--user", default="", metavar="NAME", help="who speaks (default: the token's name; without one, user)"
    )
    parser.add_argument(
        "stdin", nargs="?", choices=["-"], metavar="-", help="append what is piped in to --message"
    )
    connection.add_flags(parser)
    parser.set_defaults(run=connection.connected(run))


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    """One message, or as many as come."""
    if arguments.project and arguments.conversation:
        print("wonder: a conversation stays in its project: leave out --project", file=sys.stderr)
        return 2
    terminal = Terminal()
    session = ChatSession(
        client,
        terminal,
        agent=arguments.agent or "",
        user=arguments.user,
        project=arguments.project or "",
    )
    if arguments.message is None:
        return session.run(arguments.conversation or "")
    message = arguments.message
    if arguments.stdin:
        message = f"{message}\n\n{sys.stdin.read()}"
    return session.send_once(arguments.conversation or "", message)


class ChatSession:
    """A person at a terminal, or a script at a pipe, in conversation with an agent."""

    def __init__(
        self, client: sync.Client, terminal: Terminal, *, agent: str, user: str, project: str = ""
    ) -> None:
        self._client, self._terminal = client, terminal
        self._agent, self._user, self._project = agent, user, project
        # Where what is not the answer goes.
        self._notes = terminal
        self._is_person = terminal.is_interactive and sys.stdin.isatty()

    def send_once(self, conversation_id: str, message: str) -> int:
        """Say one thing. Returns 0, or 1 if the turn did not complete, or 130 if it was cancelled here."""
        if not self._terminal.is_interactive:
            self._notes = Terminal(sys.stderr)
        with self._attach(opened := conversation_id or self._create()) as chat:
            code = self._send_turn(chat, message)
        if not conversation_id:
            _print_resume_hint(Terminal(sys.stderr), opened)
        return code

    def run(self, conversation_id: str, *, show_resume_hint: bool = True) -> int:
        """Converse until the person leaves or the input ends. Returns the exit code of the last turn,
        or 0 for a person, who is told how to go on if the server ``is_kept``."""
        code = 0
        while True:
            opened = conversation_id or self._create()
            with self._attach(opened) as chat:
                self._greet(chat.conversation.id, is_old=bool(conversation_id))
                wants_new = False
                for line in self._lines():
                    match line.strip():
                        case "":
                            continue
                        case "/quit" | "/exit":
                            break
                        case "/help":
                            self._terminal.line(_HELP, "dim")
                        case "/new":
                            wants_new = True
                            break
                        case command if command.startswith("/") and not command.startswith("//"):
                            self._terminal.line(
                                f"  There is no {command.split()[0]}; /help lists what there is.", "dim"
                            )
                        case text:
                            code = self._send_turn(
                                chat, text.removeprefix("/") if text.startswith("//") else text
                            )
            if not wants_new:
                break
            conversation_id = ""
        if show_resume_hint and (self._is_person or not conversation_id):
            _print_resume_hint(self._terminal if self._is_person else Terminal(sys.stderr), opened)
        return 0 if self._is_person else code

    def _create(self) -> str:
        return self._client.create_conversation(
            agent=self._agent or "assistant", user=self._user or None, project=self._project
        )

    def _attach(self, conversation_id: str) -> sync.Chat:
        return self._client.converse(conversation_id, tail_only=True)

    def _greet(self, conversation_id: str, *, is_old: bool) -> None:
        if not self._is_person:
            return
        from wonder_sdk import v1

        self._terminal.line(f"  {conversation_id} · /help for help", "dim")
        if is_old:
            page = self._client.conversations.list_messages(
                v1.ListMessagesRequest(conversation_id=conversation_id, page_size=6)
            )
            for message in reversed(page.messages):
                speaker = "you>" if message.role is v1.MessageRole.USER else "agent>"
                self._terminal.line(f"{speaker} {message.content}", "dim")

    def _send_turn(self, chat: sync.Chat, text: str) -> int:
        """One message and its turn. Ctrl-C cancels the turn; once more, and it is no longer waited for."""
        from wonder_sdk import CallCancelledError, WonderError, v1
        from wonder_sdk.cli.conversation.connection_status import ConnectionStatus
        from wonder_sdk.cli.conversation.turn_printer import AnswerPrinter, TurnPrinter

        printer = (
            TurnPrinter(self._terminal, f"{self._speaker(chat)}>")
            if self._notes is self._terminal
            else AnswerPrinter(self._terminal, self._notes)
        )
        reply = chat.send(text, agent=self._agent, user=self._user, check=False)
        status = ConnectionStatus(chat, self._notes, self._client.target)
        interrupts = 0
        while True:
            try:
                if interrupts:
                    reply.give_up()
                    self._notes.note("cancelling …")
                printer.show(status.items(reply))
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1:
                    reply.close()
                    break
            except WonderError as problem:
                if interrupts and isinstance(problem, CallCancelledError):
                    self._notes.note("given up: the message is not sent any more")
                    break
                if not self._is_person:
                    raise
                # A refusal is not the end of the conversation.
                self._terminal.line(connection.explain(problem, self._client.target), "red")
                return 1
        self._terminal.fresh_line()
        if interrupts and not self._is_person:
            return 130
        return 0 if reply.turn is not None and reply.turn.status is v1.TurnStatus.COMPLETED else 1

    def _speaker(self, chat: sync.Chat) -> str:
        agents = [each.agent for each in chat.conversation.participants if each.agent]
        named = [agent for agent in agents if self._agent in (agent.name, agent.agent_id)]
        return next((agent.name for agent in named or agents if agent.name), self._agent or "agent")

    def _lines(self) -> Iterator[str]:
        """What the person types, or the lines of the input."""
        if not self._is_person:
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        _keep_history()
        warned = False
        while True:
            try:
                yield input(_prompt(self._terminal))
                warned = False
            except EOFError:
                self._terminal.line()
                return
            except KeyboardInterrupt:
                self._terminal.line()
                if warned:
                    return
                warned = True
                self._terminal.note("Ctrl-C again, Ctrl-D or /quit leaves")


def _print_resume_hint(terminal: Terminal, conversation_id: str) -> None:
    terminal.line(f"  go on with: wonder chat -c {conversation_id}", "dim")


def _prompt(terminal: Terminal) -> str:
    styled = terminal.style(_PROMPT, "cyan")
    if styled == _PROMPT:
        return _PROMPT
    # Readline must know what takes no room.
    before, after = styled.split(_PROMPT)
    return f"\x01{before}\x02{_PROMPT}\x01{after}\x02"


def _keep_history() -> None:
    try:
        import readline
    except ImportError:
        return
    if readline.get_current_history_length():
        return
    try:
        readline.read_history_file(_HISTORY)
    except OSError:
        pass
    readline.set_history_length(1_000)
    atexit.register(_save_history)


def _save_history() -> None:
    import readline

    try:
        _HISTORY.touch(mode=0o600)
        readline.write_history_file(_HISTORY)
    except OSError:
        pass
