"""``wonder artifact``: a project's documents, their history and their branches."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.resources import merges
from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder artifact list designs/
      the documents whose paths begin so
  wonder artifact read designs/auth.md
      one document, as it is; --revision shows it as it was
  wonder artifact write designs/auth.md -f auth.md -m "We use JWT"
      a new version from a file, or without -f from standard input
  wonder artifact write designs/auth.md -f auth.md --branch drafts/auth
      on a branch of its own, which begins at main
  wonder artifact history designs/auth.md
      who changed it, when and why
  wonder artifact merge drafts/auth
      bring a branch into main; conflicts are named, and then nothing is merged
  wonder artifact merge drafts/auth --show
      show what both sides say where they are in conflict
  wonder artifact merge drafts/auth --resolve designs/auth.md=agreed.md
      merge, and make this of the file in conflict; once for each
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "artifact",
        help="read and write a project's documents",
        description="Artifacts: the documents of a project, with their history.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    lists = _verb(verbs, "list", "list documents", run_list)
    lists.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only paths that begin so")
    read = _verb(verbs, "read", "print a document", run_read)
    read.add_argument("path", metavar="PATH", help="its path")
    read.add_argument("--revision", default="", metavar="ID", help="as it was then; see `history`")
    write = _verb(verbs, "write", "write a new version of a document", run_write)
    write.add_argument("path", metavar="PATH", help="its path")
    write.add_argument("-f", "--file", type=Path, metavar="FILE", help="its content (default: stdin)")
    delete = _verb(verbs, "delete", "delete a document; its history stays", run_delete)
    delete.add_argument("path", metavar="PATH", help="its path")
    search = _verb(verbs, "search", "find lines and paths that contain words", run_search)
    search.add_argument("words", nargs="+", metavar="WORD", help="all of them have to be there")
    search.add_argument("--in", dest="prefix", default="", metavar="PREFIX", help="only paths that begin so")
    history = _verb(verbs, "history", "who changed what, when and why", run_history)
    history.add_argument("path", nargs="?", default="", metavar="PATH", help="only this document's")
    history.add_argument("-n", type=connection.count, default=20, metavar="N", help="how many (default 20)")
    merge = _verb(verbs, "merge", "bring one branch into another", run_merge)
    merge.add_argument("source", metavar="BRANCH", help="whose work is merged")
    merges.add_flags(merge)
    for parser in (write, delete, merge):
        parser.add_argument("-m", "--message", default="", metavar="TEXT", help="why")
        parser.add_argument("--author", default="", metavar="NAME", help="who (default: the caller)")


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """One line a document: path, size or ``damaged``, when and by whom it was changed."""
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
    listing.show(Terminal(), rows)
    return 0


def run_read(arguments: argparse.Namespace, client: sync.Client) -> int:
    """The content, byte for byte."""
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
    revision = written.revision.id[:12] if written.revision is not None else ""
    Terminal().line(f"{written.path} written on {written.branch} ({written.size_bytes} bytes, {revision})")
    return 0


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    client.delete_artifact(
        arguments.path, author=arguments.author, message=arguments.message, **_where(arguments)
    )
    Terminal().line(f"{arguments.path} deleted")
    return 0


def run_search(arguments: argparse.Namespace, client: sync.Client) -> int:
    """One line a match, as grep prints it. 1 if there is none."""
    words = " ".join(arguments.words)
    found = client.search_artifacts(
        words, prefix=arguments.prefix, project=arguments.project, branch=arguments.branch
    )
    terminal = Terminal()
    for match in found:
        terminal.line(f"{match.path}:{match.line}:{match.text}" if match.line else match.path)
    return 0 if found else 1


def run_history(arguments: argparse.Namespace, client: sync.Client) -> int:
    """One line a revision: id, time, author, message."""
    rows: list[tuple[str, str, str, str]] = []
    for each in client.list_artifact_revisions(arguments.path, **_where(arguments)):
        if len(rows) >= arguments.n:
            break
        rows.append((each.id, listing.local(each.create_time), each.author, each.message))
    listing.show(Terminal(), rows)
    return 0


def run_merge(arguments: argparse.Namespace, client: sync.Client) -> int:
    """1, and nothing is merged, if there are conflicts."""
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
        terminal.line(f"nothing to merge: {where} has all of {arguments.source}")
        return 0
    done = "can be merged" if arguments.check else "merged"
    terminal.line(f"{arguments.source} {done} into {where}")
    return 0


def _where(arguments: argparse.Namespace) -> dict[str, str]:
    return {"project": arguments.project, "branch": arguments.branch}


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    command: connection.Command,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    verb.add_argument("--project", default="default", metavar="NAME", help="the project (default: default)")
    verb.add_argument("--branch", default="", metavar="NAME", help="the branch (default: main)")
    connection.add_flags(verb)
    verb.set_defaults(run=connection.connected(command))
    return verb
