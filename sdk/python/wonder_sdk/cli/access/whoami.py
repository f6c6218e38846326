"""``wonder whoami``: the caller, its roles and its permissions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import place, word
from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder whoami
      Show who the server takes you for, and what you may do.
  WONDER_TOKEN=wk_... wonder whoami
      The same for another key.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "whoami",
        help="Show who the server takes you for, and what you may do.",
        description="Show the caller, its key, its roles and its permissions.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    connection.connect(parser, run)


def run(_arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    found = client.identity.who_am_i(v1.WhoAmIRequest())
    terminal, principal = Terminal(), found.principal
    kind = word(principal.kind) if principal is not None else "anonymous"
    name = f":{principal.subject}" if principal is not None and principal.subject else ""
    terminal.line(f"{kind}{name}", "bold")
    if found.tenant is not None and found.tenant.id:
        terminal.line(f"tenant {found.tenant.name} ({found.tenant.id})")
    if found.key is not None:
        until = f", until {listing.local(found.key.expire_time)}" if found.key.expire_time else ""
        terminal.line(f"key {found.key.id} {found.key.label}{until}".rstrip())
    for each in found.role_bindings:
        group = f" (group {each.group})" if each.group else ""
        terminal.line(f"role {word(each.role)} {place(client, each)}{group}")
    if found.permissions:
        terminal.line(f"permissions everywhere: {', '.join(found.permissions)}")
    for project in found.project_permissions:
        terminal.line(f"permissions in {project.project_id}: {', '.join(project.permissions)}")
    if not found.permissions and not found.project_permissions:
        terminal.line("no permissions: ask an administrator for a role", "dim")
    return 0
