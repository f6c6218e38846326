"""``wonder artifact``: read, write, search and merge a project's documents."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.resources import merges
from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder artifact list designs/
      List the documents whose paths begin with designs/.
  wonder artifact read designs/auth.md
      Print a document; --revision prints an older revision.
  wonder artifact write designs/auth.md -f auth.md -m "We use JWT"
      Write a new revision from a file, or without -f from standard input.
  wonder artifact write designs/auth.md -f auth.md --branch drafts/auth
      Write to a branch; a new branch starts at main.
  wonder artifact search token expiry --prefix designs/
      Find the lines below designs/ that contain both words.
  wonder artifact delete designs/auth.md -m "Replaced"
      Delete a document and keep its history; --yes skips the confirmation.
  wonder artifact history designs/auth.md
      List the revisions of a document with their authors and messages.
  wonder artifact merge drafts/auth
      Merge a branch into main; with conflicts, list them and merge nothing.
  wonder artifact merge drafts/auth --show
      Show both sides of each conflict.
  wonder artifact merge drafts/auth --resolve designs/auth.md=agreed.md
      Merge with this content for the file in conflict; repeat the flag for each file.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "artifact",
        help="Read, write and merge a project's documents.",
        description="Manage artifacts: the documents of a project, with their history.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    lists = _verb(verbs, "list", "List documents.", run_list)
    lists.add_argument(
        "prefix", nargs="?", default="", metavar="PREFIX", help="Show only paths that begin with PREFIX."
    )
    read = _verb(verbs, "read", "Print a document.", run_read)
    read.add_argument("path", metavar="PATH", help="Path of the document.")
    read.add_argument(
        "--revision",
        default="",
        metavar="ID",
        help="Print the revision with this complete id; `history` lists them.",
    )
    write = _verb(verbs, "write", "Write a new revision of a document.", run_write)
    write.add_argument("path", metavar="PATH", help="Path of the document.")
    write.add_argument(
        "-f", "--file", type=Path, metavar="FILE", help="Read the content from a file (default: stdin)."
    )
    delete = _verb(verbs, "delete", "Delete a document and keep its history.", run_delete)
    delete.add_argument("path", metavar="PATH", help="Path of the document.")
    deletion.add_yes(delete)
    search = _verb(verbs, "search", "Find lines and paths that contain all words.", run_search)
    search.add_argument("words", nargs="+", metavar="WORD", help="Word to find.")
    search.add_argument(
        "--prefix", default="", metavar="PREFIX", help="Show only paths that begin with PREFIX."
    )
    history = _verb(verbs, "history", "List revisions with their times, authors and messages.", run_history)
    history.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="Show only the revisions of this document."
    )
    history.add_argument(
        "-n", type=connection.count, default=20, metavar="N", help="Limit the number (default: 20; 0: all)."
    )
    merge = _verb(verbs, "merge", "Merge one branch into another.", run_merge)
    merge.add_argument("source", metavar="BRANCH", help="Branch to merge.")
    merges.add_flags(merge)
    for parser in (write, delete, merge):
        parser.add_argument(
            "-m", "--message", default="", metavar="TEXT", help="Store this message with the revision."
        )
        parser.add_argument(
            "--author",
            default="",
            metavar="NAME",
            help="Store this author with the revision (default: the caller).",
        )
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each document: path, size or ``damaged``, time and author of the last change."""
    rows = [
        (
            each.path,
            "damaged" if each.damaged else str(each.size_bytes),
            listing.local(each.revision.create_time),
            each.revision.author,
        )
        for each in client.list_artifacts(arguments.prefix, **_where(arguments))
        if each.revision is not None
    ]
    listing.show(Terminal(), rows, nothing=f"{arguments.project} has no matching documents")
    return 0


def run_read(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print the content byte for byte."""
    found = client.read_artifact(arguments.path, revision=arguments.revision, **_where(arguments))
    sys.stdout.flush()
    sys.stdout.buffer.write(found.content)
    sys.stdout.buffer.flush()
    return 0


def run_write(arguments: argparse.Namespace, client: sync.Client) -> int:
    content = arguments.file.read_bytes() if arguments.file else sys.stdin.buffer.read()
    written = client.write_artifact(
        arguments.path, content, author=arguments.author, message=arguments.message, **_where(arguments)
    )
    revision = written.revision.id if written.revision is not None else ""
    Terminal().line(f"{written.path} written on {written.branch} ({written.size_bytes} bytes, {revision})")
    return 0


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete the document after confirmation; see `deletion.refusal`."""
    where = f"{arguments.project}, branch {arguments.branch or 'main'}"
    if code := deletion.refusal(arguments, f"{arguments.path} in {where}"):
        return code
    client.delete_artifact(
        arguments.path, author=arguments.author, message=arguments.message, **_where(arguments)
    )
    Terminal().line(f"{arguments.path} deleted")
    return 0


def run_search(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each match in grep's format. Exit code 1 without a match."""
    words = " ".join(arguments.words)
    found = client.search_artifacts(
        words, prefix=arguments.prefix, project=arguments.project, branch=arguments.branch
    )
    terminal = Terminal()
    for match in found:
        terminal.line(f"{match.path}:{match.line}:{match.text}" if match.line else match.path)
    return 0 if found else 1


def run_history(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each revision: id, time, author, message."""
    rows: list[tuple[str, str, str, str]] = []
    for each in client.list_artifact_revisions(arguments.path, **_where(arguments)):
        if len(rows) == (arguments.n or None):
            break
        rows.append((each.id, listing.local(each.create_time), each.author, each.message))
    listing.show(Terminal(), rows, nothing=f"{arguments.project} has no matching revisions")
    return 0


def run_merge(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Merge the branch. Exit code 1 if there are conflicts; then nothing is merged."""
    target = arguments.branch
    merged = client.merge_artifacts(
        arguments.source,
        target=target,
        project=arguments.project,
        author=arguments.author,
        message=arguments.message,
        resolutions=merges.resolutions(arguments),
        validate_only=arguments.check,
    )
    terminal, where = Terminal(), target or "main"
    if not merged.merged:
        again = ["wonder", "artifact", "merge", arguments.source]
        again += ["--project", arguments.project] if arguments.project != "default" else []
        again += ["--branch", target] if target else []
        return merges.show_conflicts(
            terminal, arguments, merged.conflicts, source=arguments.source, target=where, again=again
        )
    if merged.nothing_to_merge:
        terminal.line(f"nothing to merge: {where} already contains {arguments.source}")
        return 0
    done = "can be merged" if arguments.check else "merged"
    terminal.line(f"{arguments.source} {done} into {where}")
    return 0


def _where(arguments: argparse.Namespace) -> dict[str, str]:
    return {"project": arguments.project, "branch": arguments.branch}


def _add_place(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--project",
        default="default",
        metavar="NAME",
        help="Use the documents of this project (default: default).",
    )
    verb.add_argument(
        "--branch",
        default="",
        metavar="NAME",
        help="Read or write this branch; for `merge`, the target (default: main).",
    )


_verb = partial(connection.add_verb, arguments=_add_place)
