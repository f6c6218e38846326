"""``wonder branch``: show and merge the changes of a conversation or run in a repository."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.resources import merges
from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder branch diff conv_01J9...
      Show the changes of a conversation, including uncommitted ones.
  wonder branch merge conv_01J9... --head 3f2a...
      Merge the branch if its head is still that of the diff.
  wonder branch merge conv_01J9... --show
      Show both sides of each conflict.
  wonder branch merge conv_01J9... --resolve src/cart.py=my_cart.py
      Merge with this content for the file in conflict; repeat the flag for each file.
  wonder branch merge conv_01J9... --remove
      Merge the branch, and remove it with its files.
  wonder branch diff run_01J9...
      Show the changes of a run without a conversation.
"""
_MARKS = {"ADDED": "A", "MODIFIED": "M", "DELETED": "D", "RENAMED": "R"}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "branch",
        help="Show and merge the changes of a conversation.",
        description="Show and merge the changes of a conversation or run in its project's code.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    diff = _verb(verbs, "diff", "Show the changes of a conversation or run.", run_diff)
    diff.add_argument(
        "--base",
        default="",
        metavar="BRANCH",
        help="Compare with this branch (default: the start of the work).",
    )
    diff.add_argument("--stat", action="store_true", help="List the files only.")
    merge = _verb(verbs, "merge", "Merge the changes of a conversation or run.", run_merge)
    merge.add_argument(
        "--into", default="", metavar="BRANCH", help="Merge into this branch (default: the default branch)."
    )
    merge.add_argument(
        "--head", default="", metavar="COMMIT", help="Merge only this head, as shown by `diff`."
    )
    merge.add_argument("-m", "--message", default="", metavar="TEXT", help="Commit with this message.")
    merge.add_argument(
        "--remove", action="store_true", help="Remove the branch and its files after the merge."
    )
    merges.add_flags(merge)
    add_examples(verbs, _EXAMPLES)


def run_diff(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print a diff in git's format."""
    found = client.diff_branch(arguments.work, repository=arguments.repository, base=arguments.base)
    terminal = Terminal()
    head = found.head_commit[:12] or "no commits"
    terminal.line(f"{found.branch} ({head}) compared with {found.base_branch}", "bold")
    for file in found.files:
        _show(terminal, file, patch=not arguments.stat)
    if found.truncated:
        terminal.line("some patches are omitted: together they exceed 1 MiB", "dim")
    if found.head_commit and _is_merged(arguments, client, found.head_commit):
        terminal.line("the default branch already contains these changes", "dim")
    elif found.head_commit:
        terminal.line(f"merge: {shlex.join(_again(arguments))} --head {found.head_commit[:12]}", "dim")
    return 0


def _is_merged(arguments: argparse.Namespace, client: sync.Client, head: str) -> bool:
    """Return True if the default branch contains ``head``; False also if the server cannot tell."""
    from wonder_sdk import WonderError

    try:
        checked = client.merge_branch(
            arguments.work, repository=arguments.repository, expected_head=head, validate_only=True
        )
    except WonderError:
        return False
    return checked.nothing_to_merge


def _show(terminal: Terminal, file: v1.FileDiff, *, patch: bool) -> None:
    mark = _MARKS.get(file.change.name or "", "?")
    was = f"{file.old_path} -> " if file.old_path else ""
    terminal.line(f"{mark} {was}{file.path}  +{file.additions} -{file.deletions}", "bold")
    for line in file.patch.splitlines() if patch else ():
        terminal.line(line)


def run_merge(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Merge the branch. Exit code 1 if there are conflicts; then nothing is merged."""
    merged = client.merge_branch(
        arguments.work,
        repository=arguments.repository,
        target=arguments.into,
        message=arguments.message,
        expected_head=arguments.head,
        resolutions=merges.resolutions(arguments),
        remove_branch=arguments.remove,
        validate_only=arguments.check,
    )
    terminal, target = Terminal(), arguments.into or "the default branch"
    if not merged.merged:
        again = [*_again(arguments), *(["--into", arguments.into] if arguments.into else [])]
        return merges.show_conflicts(
            terminal, arguments, merged.conflicts, source=arguments.work, target=target, again=again
        )
    if merged.nothing_to_merge:
        terminal.line(f"nothing to merge: {target} already contains these changes")
    else:
        terminal.line("can be merged" if arguments.check else f"merged ({merged.commit[:12]})")
    if merged.branch_kept:
        terminal.line("the branch is kept: it has new changes or a running command. Merge again.")
    return 0


def _again(arguments: argparse.Namespace) -> list[str]:
    """Return the command that merges this branch."""
    where = ["--repository", arguments.repository] if arguments.repository else []
    return ["wonder", "branch", "merge", arguments.work, *where]


def _add_work(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("work", metavar="CONVERSATION", help="Id of the conversation or run.")
    verb.add_argument(
        "--repository",
        default="",
        metavar="NAME",
        help="Use this repository; required if the project has several.",
    )


_verb = partial(connection.add_verb, arguments=_add_work)
