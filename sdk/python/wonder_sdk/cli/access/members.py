"""``wonder project members``: who has which role in a project."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import (
    ROLES,
    NotAName,
    add_tenant,
    bindings,
    described,
    member_of,
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
  wonder project members list shop
      List who has a role in a project, there or everywhere.
  wonder project members add shop ann member
      Let ann talk, run and remember in a project.
  wonder project members add shop --group engineers developer
      Give a role in a project to a group of an issuer of tokens.
  wonder project members remove shop ann
      Take all roles of ann in a project away; --role takes one.
"""


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``members``, with verbs of its own, to those of a project."""
    parser = verbs.add_parser(
        "members",
        help="List, add and remove members of a project.",
        description="Manage the roles of principals and groups in a project.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    own = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, text, command in (
        ("list", "List the members.", run_list),
        ("add", "Give a member a role in the project.", run_add),
        ("remove", "Take roles in the project away.", run_remove),
    ):
        verb = connection.add_verb(own, name, text, explained(command))
        verb.add_argument("project", metavar="PROJECT", help="Name or id of the project.")
        add_tenant(verb)
        if name != "list":
            verb.add_argument(
                "principal",
                nargs="?",
                default="",
                metavar="PRINCIPAL",
                help="Name, kind:name or id; or --group.",
            )
            verb.add_argument("--group", default="", metavar="NAME", help="A group instead of a principal.")
    own.choices["add"].add_argument("role", choices=_ROLES, help="The role.")
    own.choices["remove"].add_argument("--role", choices=_ROLES, help="Only this role (default: all).")
    add_examples(own, _EXAMPLES)


# An administrator is one of a tenant or of the server: see `wonder roles`.
_ROLES = tuple(each for each in ROLES if each != "admin")


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each role: member, role, whether it holds in the project or everywhere."""
    names = {each.id: described(each) for each in principals(client, arguments.tenant)}
    rows = [
        (member_of(each, names), word(each.role), _where(each))
        for each in bindings(client, arguments.tenant, arguments.project)
    ]
    listing.show(Terminal(), rows, nothing="the project has no members", headings=("MEMBER", "ROLE", "HOLDS"))
    return 0


def run_add(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Give the role. Exit code 1 if the principal does not exist."""
    from wonder_sdk import v1

    wanted = v1.RoleBinding(
        role=v1.Role[arguments.role.upper()], project_id=arguments.project, tenant_id=arguments.tenant
    )
    group, principal = _member(arguments, client)
    if group:
        wanted.group = group
    else:
        wanted.principal_id = principal
    made = client.identity.create_role_binding(v1.CreateRoleBindingRequest(role_binding=wanted)).role_binding
    Terminal().line(f"{_named(arguments)} is {arguments.role} in {arguments.project} ({made.id})")
    return 0


def run_remove(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Take the roles away. Exit code 1 if the member has none there; roles that hold everywhere stay."""
    from wonder_sdk import v1

    wanted = _member(arguments, client)
    held = [
        each
        for each in bindings(client, arguments.tenant, arguments.project)
        if (each.group or "", each.principal_id or "") == wanted and arguments.role in (None, word(each.role))
    ]
    here = [each for each in held if each.project_id]
    for each in here:
        client.identity.delete_role_binding(v1.DeleteRoleBindingRequest(role_binding_id=each.id))
        Terminal().line(f"{_named(arguments)} is no longer {word(each.role)} in {arguments.project}")
    for each in held:
        if not each.project_id:
            kept = f"{_named(arguments)} is {word(each.role)} {_where(each)}"
            Terminal().line(f"{kept}: `wonder roles take` takes that away")
    if not here:
        Terminal().line(f"{_named(arguments)} has no such role in {arguments.project}")
    return 0 if here else 1


def _where(binding: v1.RoleBinding) -> str:
    if binding.project_id:
        return "here"
    return "on the server" if binding.server else "everywhere"


def _member(arguments: argparse.Namespace, client: sync.Client) -> tuple[str, str]:
    """Return the group and the principal's id, one of them empty."""
    if bool(arguments.group) == bool(arguments.principal):
        raise NotAName("name a PRINCIPAL or a --group, one of the two")
    if arguments.group:
        return arguments.group, ""
    return "", principal_id(client, arguments.principal, arguments.tenant)


def _named(arguments: argparse.Namespace) -> str:
    return arguments.principal or f"group {arguments.group}"
