"""``wonder branch``: what a conversation or a run has changed in a repository, and merging it."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from wonder_sdk.cli.resources import merges
from wonder_sdk.cli.shared import connection
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder branch diff conv_01J9...
      what the conversation has changed, what nobody has committed included
  wonder branch merge conv_01J9... --head 3f2a...
      merge it, if it is still what the diff showed
  wonder branch merge conv_01J9... --show
      should there be conflicts, show what both sides say; then, for each file:
  wonder branch merge conv_01J9... --resolve src/cart.py=my_cart.py
      merge it with these contents
  wonder branch merge conv_01J9... --remove
      merge it, and remove the branch and its files
  wonder branch diff run_01J9...
      the work of a run that belongs to no conversation is seen and merged in the same way
"""
_MARKS = {"ADDED": "A", "MODIFIED": "M", "DELETED": "D", "RENAMED": "R"}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "branch",
        help="see and merge what a conversation has changed",
        description="The work of a conversation, or of a run, on the code of its project.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    diff = _verb(verbs, "diff", "show what a conversation has changed", run_diff)
    diff.add_argument(
        "--base", default="", metavar="BRANCH", help="compare with it (default: where it began)"
    )
    diff.add_argument("--stat", action="store_true", help="only which files")
    merge = _verb(verbs, "merge", "merge what a conversation has changed", run_merge)
    merge.add_argument("--into", default="", metavar="BRANCH", help="(default: the default branch)")
    merge.add_argument("--head", default="", metavar="COMMIT", help="only if it is still this; see `diff`")
    merge.add_argument("-m", "--message", default="", metavar="TEXT", help="why")
    merge.add_argument("--remove", action="store_true", help="remove branch and files once merged")
    merges.add_flags(merge)


def run_diff(arguments: argparse.Namespace, client: sync.Client) -> int:
    """A diff as git shows it."""
    found = client.diff_branch(arguments.work, repository=arguments.repository, base=arguments.base)
    terminal = Terminal()
    head = found.head_commit[:12] or "nothing yet"
    terminal.line(f"{found.branch} ({head}) beside {found.base_branch}", "bold")
    for file in found.files:
        _show(terminal, file, patch=not arguments.stat)
    if found.truncated:
        terminal.line("not every patch is shown: they are over 1 MiB", "dim")
    if found.head_commit:
        terminal.line(f"merge it: {shlex.join(_again(arguments))} --head {found.head_commit[:12]}", "dim")
    return 0


def _show(terminal: Terminal, file: v1.FileDiff, *, patch: bool) -> None:
    mark = _MARKS.get(file.change.name or "", "?")
    was = f"{file.old_path} -> " if file.old_path else ""
    terminal.line(f"{mark} {was}{file.path}  +{file.additions} -{file.deletions}", "bold")
    for line in file.patch.splitlines() if patch else ():
        terminal.line(line)


def run_merge(arguments: argparse.Namespace, client: sync.Client) -> int:
    """1, and nothing is merged, if there are conflicts."""
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
        terminal.line(f"nothing to merge: {target} has all of it")
    else:
        terminal.line("can be merged" if arguments.check else f"merged ({merged.commit[:12]})")
    if merged.branch_kept:
        terminal.line("the branch is kept: more was written, or a command runs there; merge again")
    return 0


def _again(arguments: argparse.Namespace) -> list[str]:
    """The command that merges this."""
    where = ["--repository", arguments.repository] if arguments.repository else []
    return ["wonder", "branch", "merge", arguments.work, *where]


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    command: connection.Command,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    verb.add_argument("work", metavar="CONVERSATION", help="id of the conversation, or of a run")
    verb.add_argument("--repository", default="", metavar="NAME", help="where the project has several")
    connection.add_flags(verb)
    verb.set_defaults(run=connection.connected(command))
    return verb
