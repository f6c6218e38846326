"""``wonder tenants``: organisations on the server, each with its own projects, libraries and principals."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder tenants create acme --description 'The shop of Acme'
      Create a tenant, with a project default and an agent assistant of its own.
  wonder tenants list
      List the tenants that you administer.
  wonder tenants describe acme 'The shops of Acme'
      Change the description of a tenant.
  wonder principals create user chief --tenant acme
  wonder roles give chief admin --tenant acme
  wonder keys create chief --tenant acme
      Create an administrator of a tenant, with a key.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "tenants",
        help="Create and list tenants.",
        description="Manage tenants. What belongs to one does not exist for the callers of another.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    connection.add_verb(verbs, "list", "List the tenants.", run_list)
    create = connection.add_verb(verbs, "create", "Create a tenant.", run_create)
    create.add_argument("name", help="Name of the tenant.")
    create.add_argument("--description", default="", metavar="TEXT", help="Store a description for people.")
    describe = connection.add_verb(verbs, "describe", "Change the description of a tenant.", run_describe)
    describe.add_argument("tenant", metavar="TENANT", help="Name or id of the tenant.")
    describe.add_argument("description", metavar="TEXT", help="The new description.")
    add_examples(verbs, _EXAMPLES)


def run_list(_arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each tenant: name, id, description."""
    from wonder_sdk import v1

    pages = listing.pages(client.identity.list_tenants, v1.ListTenantsRequest(page_size=500))
    rows = [(each.name, each.id, each.description) for page in pages for each in page.tenants]
    listing.show(Terminal(), rows, nothing="there are no tenants", headings=("NAME", "ID", "DESCRIPTION"))
    return 0


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    wanted = v1.Tenant(name=arguments.name, description=arguments.description)
    made = client.identity.create_tenant(v1.CreateTenantRequest(tenant=wanted)).tenant
    Terminal().line(f"tenant {made.name} created ({made.id})")
    return 0


def run_describe(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    change = v1.Tenant(id=arguments.tenant, description=arguments.description)
    client.identity.update_tenant(v1.UpdateTenantRequest(tenant=change))
    Terminal().line(f"tenant {arguments.tenant} described")
    return 0
