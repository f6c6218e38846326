"""``wonder conversations fork``, ``import`` and ``export``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1
    from wonder_sdk.conversation.transcripts import Transcript


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs of ``wonder conversations``."""
    fork = connection.add_verb(
        verbs, "fork", "Make a new conversation with the beginning of another.", run_fork, inherited=True
    )
    fork.add_argument("conversation", metavar="CONVERSATION", help="Id of the source.")
    fork.add_argument(
        "message",
        nargs="?",
        default="",
        metavar="MESSAGE",
        help="Id of the last message of the fork (default: the newest).",
    )
    fork.add_argument("--before", action="store_true", help="End the fork before MESSAGE.")
    fork.add_argument("-m", "--send", metavar="TEXT", help="Send this message to the fork.")
    fork.add_argument(
        "--regenerate",
        action="store_true",
        help="Have the message answered again.",
    )
    fork.add_argument("--title", default="", metavar="TEXT", help="Give the fork this title.")
    fork.add_argument("--ref", default="", metavar="NAME", help="Give the fork this external_ref.")
    fork.add_argument("--request-id", default="", metavar="ID", help="Repeat a request with this id safely.")
    fork.add_argument("--json", action="store_true", help="Print the response as JSON.")
    imported = connection.add_verb(
        verbs, "import", "Make conversations of a transcript.", run_import, inherited=True
    )
    imported.add_argument(
        "file", metavar="FILE", help="JSON: OpenAI's messages, or ChatGPT's export; - for standard input."
    )
    imported.add_argument(
        "-a",
        "--agent",
        action="append",
        dest="agents",
        metavar="NAME",
        help="Add this agent; the first one wrote what has no name (default: assistant).",
    )
    imported.add_argument("--user", default="", metavar="ID", help="Add the user who wrote what has no name.")
    imported.add_argument("--project", default="", metavar="NAME", help="Create them in this project.")
    imported.add_argument("--title", default="", metavar="TEXT", help="Give them this title.")
    imported.add_argument("--ref", default="", metavar="NAME", help="Give it this external_ref.")
    imported.add_argument(
        "--request-id", default="", metavar="ID", help="Repeat a request with this id safely."
    )
    exported = connection.add_verb(
        verbs, "export", "Write a conversation as OpenAI's messages.", run_export, inherited=True
    )
    exported.add_argument("conversation", metavar="CONVERSATION", help="Id of the conversation.")
    exported.add_argument("-o", "--output", metavar="PATH", help="Write to this new file.")


def run_fork(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the id of the fork, and that of the turn it starts with."""
    from wonder_sdk.methods.histories import ForkOptions

    if arguments.before and (arguments.regenerate or not arguments.message):
        need = "with --regenerate" if arguments.regenerate else "without MESSAGE"
        print(f"wonder: --before ends the fork before MESSAGE; it is of no use {need}.", file=sys.stderr)
        return 2
    options = ForkOptions(
        before=arguments.before,
        regenerate=arguments.regenerate,
        title=arguments.title,
        external_ref=arguments.ref,
        request_id=arguments.request_id,
    )
    if arguments.send is not None:
        if arguments.regenerate:
            print("wonder: use --send or --regenerate, not both.", file=sys.stderr)
            return 2
        options["send"] = arguments.send
    answer = client.fork_conversation(arguments.conversation, arguments.message, **options)
    terminal = Terminal()
    if arguments.json:
        terminal.line(connection.as_json(answer))
        return 0
    if answer.conversation is not None:
        terminal.line(answer.conversation.id)
    if answer.turn is not None:
        Terminal(sys.stderr).line(f"started {answer.turn.id}", "dim")
    return 0


def run_import(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the id of each new conversation. Nothing is created if the file cannot be read as a whole."""
    from wonder_sdk.conversation.transcripts import read_transcripts

    agents = arguments.agents or ["assistant"]
    try:
        text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text("utf-8")
        transcripts = read_transcripts(json.loads(text), agents)
    except UnicodeDecodeError:
        return _fail(f"{arguments.file}: the content is not UTF-8 text")
    except json.JSONDecodeError as problem:
        return _fail(f"{arguments.file}: not JSON ({problem.msg.lower()}, line {problem.lineno})")
    except RecursionError:
        return _fail(f"{arguments.file}: nested too deeply")
    except ValueError as problem:
        return _fail(f"{arguments.file}: {problem}")
    if len(transcripts) > 1 and (arguments.ref or arguments.request_id):
        return _fail(
            f"{arguments.file} has {len(transcripts)} conversations; --ref and --request-id need one"
        )
    terminal, notes = Terminal(), Terminal(sys.stderr)
    for transcript in transcripts:
        if not transcript.messages:
            notes.line("skipped a conversation without messages", "yellow")
            continue
        made = client.conversations.create_conversation(_creation(arguments, agents, transcript))
        if made.conversation is not None:
            terminal.line(made.conversation.id)
        for kind, count in sorted(transcript.skipped.items()):
            notes.line(f"left out: {count} × {kind}", "yellow")
    return 0


def _creation(
    arguments: argparse.Namespace, agents: list[str], transcript: Transcript
) -> v1.CreateConversationRequest:
    from wonder_sdk import v1

    people = [v1.Participant(agent=v1.AgentParticipant(agent_id=agent)) for agent in agents]
    if arguments.user:
        people.insert(0, v1.Participant(user=v1.UserParticipant(user_id=arguments.user)))
    return v1.CreateConversationRequest(
        conversation=v1.Conversation(
            title=arguments.title or transcript.title.encode()[:500].decode("utf-8", "ignore"),
            project_id=arguments.project,
            participants=people,
            external_ref=arguments.ref,
        ),
        messages=transcript.messages,
        request_id=arguments.request_id,
    )


def run_export(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Write a JSON list of messages to a new file or to stdout."""
    text = json.dumps(client.export_transcript(arguments.conversation), ensure_ascii=False, indent=1)
    if not arguments.output:
        print(text)
        return 0
    with Path(arguments.output).open("x", encoding="utf-8") as file:
        file.write(text + "\n")
    return 0


def _fail(problem: str) -> int:
    print(f"wonder: {problem}.", file=sys.stderr)
    return 1
