"""``wonder roles``: roles of principals and groups, on the server and in projects."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import (
    ROLES,
    add_tenant,
    bindings,
    described,
    member_of,
    place,
    principal_id,
    principals,
    word,
)
from wonder_sdk.cli.access.refusals import explained
from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder roles list --project shop
      List who has which role in a project, and everywhere.
  wonder roles give ann member --project shop
      Let ann talk, run and remember in a project.
  wonder roles give ann admin
      Make ann an administrator of the server.
  wonder roles give chief admin --tenant acme
      Make chief an administrator of a tenant.
  wonder roles give --group engineers developer --project shop
      Give a role to a group of an issuer of tokens.
  wonder roles take ann member --project shop
      Take a role away.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "roles",
        help="Give, take and list roles.",
        description="Manage roles: admin of the server or of a tenant; developer, member, viewer, worker, "
        "everywhere or in a project.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listed = connection.add_verb(verbs, "list", "List the roles.", run_list)
    add_tenant(listed)
    listed.add_argument("--project", default="", metavar="NAME", help="Only of this project, and everywhere.")
    for name, text, command in (
        ("give", "Give a role.", run_give),
        ("take", "Take a role away.", run_take),
    ):
        verb = connection.add_verb(verbs, name, text, explained(command))
        verb.add_argument(
            "principal", nargs="?", default="", metavar="PRINCIPAL", help="Name, kind:name or id; or --group."
        )
        add_tenant(verb)
        verb.add_argument("role", choices=ROLES, help="The role.")
        verb.add_argument("--project", default="", metavar="NAME", help="In a project (default: everywhere).")
        verb.add_argument("--group", default="", metavar="NAME", help="A group instead of a principal.")
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each role: member, role, place, id."""
    names = {each.id: described(each) for each in principals(client, arguments.tenant)}
    rows = [
        (
            member_of(each, names),
            word(each.role),
            place(client, each).removeprefix("of ").removeprefix("in "),
            each.id,
        )
        for each in bindings(client, arguments.tenant, arguments.project)
    ]
    listing.show(Terminal(), rows, nothing="there are no roles", headings=("MEMBER", "ROLE", "IN", "ID"))
    return 0


def run_give(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    wanted = _wanted(arguments, client)
    made = client.identity.create_role_binding(v1.CreateRoleBindingRequest(role_binding=wanted)).role_binding
    member = arguments.principal or f"group {arguments.group}"
    Terminal().line(f"{member} is {arguments.role} {place(client, made)} ({made.id})")
    return 0


def run_take(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Take the role away. Exit code 1 if the member does not have it there."""
    from wonder_sdk import v1

    wanted = _wanted(arguments, client)
    for each in bindings(client, arguments.tenant, arguments.project):
        # Fields that are not set are None in answers, and "" in requests.
        # Of a project, the list has its roles and those that hold everywhere.
        same_place = bool(each.project_id) == bool(arguments.project) and bool(each.server) == bool(
            wanted.server
        )
        member = each.principal_id or "", each.group or ""
        same_member = member == (wanted.principal_id or "", wanted.group or "")
        if same_place and same_member and each.role == wanted.role:
            client.identity.delete_role_binding(v1.DeleteRoleBindingRequest(role_binding_id=each.id))
            Terminal().line(f"{arguments.principal or arguments.group} is no longer {arguments.role} there")
            return 0
    Terminal().line("there is no such role: `wonder roles list` shows those there are")
    return 1


def _wanted(arguments: argparse.Namespace, client: sync.Client) -> v1.RoleBinding:
    from wonder_sdk import v1

    wanted = v1.RoleBinding(role=v1.Role[arguments.role.upper()])
    if arguments.group:
        wanted.group = arguments.group
    else:
        wanted.principal_id = principal_id(client, arguments.principal, arguments.tenant)
    if arguments.tenant:
        wanted.tenant_id = arguments.tenant
    if arguments.role == "admin" and not arguments.tenant:
        wanted.server = True
    elif arguments.project:
        wanted.project_id = arguments.project
    return wanted
