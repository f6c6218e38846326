"""Demonstration of a server and a conversation: `make demo`.

It starts a server on a free port with its data in a temporary folder, tells the agent a fact, shows a tool
call, and asks for the fact in a second conversation. On a terminal you can then chat yourself. At the end it
stops the server and removes the data.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault(
    "GRPC_VERBOSITY", "NONE"
)  # Set before the import of gRPC, which would print messages otherwise.

from wonder_sdk import WonderError, sync, v1
from wonder_sdk.cli.conversation.chat import ChatOptions, ChatSession
from wonder_sdk.cli.conversation.turn_printer import TurnPrinter
from wonder_sdk.cli.shared.terminal import Terminal

FACT = "Please remember that my cat is called Mia."
QUESTION = "What is my cat called?"
OFFLINE = "offline"
READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A ready server: its address and its default model."""

    address: str
    model: str


class DemoError(Exception):
    """The demonstration failed. The message is for users."""


def main() -> int:
    # Clean up after these signals too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    terminal = Terminal()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="wonder-demo-") as folder,
            server(Path(folder), terminal) as running,
            sync.Client(running.address) as client,
        ):
            show(client, terminal, running.model)
            if terminal.is_interactive and sys.stdin.isatty():
                heading(terminal, "Your turn. The server and what it remembers go when you leave.")
                options = ChatOptions(agents=("assistant",), user="you")
                ChatSession(client, terminal, options).run("", show_resume_hint=False)
        return 0
    except KeyboardInterrupt:
        terminal.line()
        return 130
    except (DemoError, WonderError) as problem:
        terminal.line(f"The demo failed: {problem}", "red")
        return 1


@contextmanager
def server(folder: Path, terminal: Terminal) -> Iterator[Running]:
    """A `wonder serve` of our own; stops it whatever happens."""
    terminal.line("Starting a server ...", "bold")
    began = time.monotonic()
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "wonder_sdk.cli", "serve", "--log-format", "json"),
            *("--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        # A Ctrl-C at the terminal is for the demo, which then stops the server itself.
        start_new_session=True,
    )
    try:
        address = _wait_until_ready(process, folder)
        terminal.note(f"ready at {address} after {time.monotonic() - began:.1f} s")
        yield Running(address, _model(folder))
    finally:
        # However impatient the person is, nothing may be left behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        log.close()
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], folder: Path) -> str:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            address = (folder / "data" / "ADDRESS").read_text(encoding="ascii").strip()
            with sync.Client(address) as client:
                if client.health(timeout=5) == "SERVING":
                    return address
        except (OSError, WonderError):
            pass
        time.sleep(0.05)
    output = (folder / "server.log").read_text(errors="replace").strip().splitlines()[-10:]
    raise DemoError("the server did not start. It said:\n" + "\n".join(output))


def _model(folder: Path) -> str:
    """Return the model that the server's log names."""
    for line in (folder / "server.log").read_text(errors="replace").splitlines():
        if '"event": "ready"' in line:
            return str(json.loads(line).get("model", "unknown"))
    return "unknown"


def show(client: sync.Client, terminal: Terminal, model: str) -> None:
    """The demo itself. Raises `DemoError` if the agent does not remember."""
    library = client.library.get_library(v1.GetLibraryRequest(library_id="wonder/std")).library
    terminal.note(f"library {library.name} applied: {library.definition_count} definitions")
    if model == OFFLINE:
        terminal.note(
            "model: offline, a few plain rules; set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY"
        )
        terminal.note("or WONDER_DEFAULT_MODEL, and run this again, to talk to a real one")
    else:
        terminal.note(f"model: {model}")

    heading(terminal, "A first conversation: the agent learns a fact, and a tool stores it.")
    tell(client, terminal, FACT)
    heading(terminal, "A second conversation, which knows nothing of the first: the agent remembers.")
    answer = tell(client, terminal, QUESTION)
    if "mia" not in answer.lower():
        if model == OFFLINE:
            raise DemoError(f"asked {QUESTION!r}, the agent did not know: {answer!r}")
        terminal.note("(this model did not mention it; the memory is there: `wonder chat` may find it)")


def tell(client: sync.Client, terminal: Terminal, text: str) -> str:
    """One message in a conversation of its own; what the agent said, once its memory has settled."""
    conversation_id = client.create_conversation(agent="assistant", user="you")
    with client.converse(conversation_id) as chat:
        events = chat.events()
        terminal.write("you> ", "cyan")
        terminal.write(f"{text}\n")
        reply = chat.send(text)
        TurnPrinter(terminal, "assistant>").show(reply)
        if reply.turn is None or reply.turn.status is not v1.TurnStatus.COMPLETED:
            raise DemoError("the turn did not complete")
        said = []
        for event in events:
            match event:
                case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT, content=content)):
                    said.append(content)
                case v1.Event(memory_extraction_completed=v1.HookOutcome()):
                    terminal.note("memory extraction: done")
                    break
                case v1.Event(memory_extraction_failed=v1.HookOutcome()):
                    terminal.note("memory extraction: failed")
                    break
    return "\n".join(said)


def heading(terminal: Terminal, text: str) -> None:
    terminal.line()
    terminal.line(text, "bold")


if __name__ == "__main__":
    sys.exit(main())
