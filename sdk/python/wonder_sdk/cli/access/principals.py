"""``wonder principals``: users, services, workers and nodes that may call the server."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import KINDS, add_tenant, described, principal_id, principals, word
from wonder_sdk.cli.access.refusals import explained
from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder principals list
      List the principals.
  wonder principals create user ann
      Create a user. Then give a role and a key: wonder roles give ann member; wonder keys create ann
  wonder principals create service shop-backend
      Create a service: a backend that acts for its own users.
  wonder principals disable ann
      Reject the calls of a principal, and end its streams and the work that it started.
  wonder principals enable ann
      Serve its calls again.
  wonder principals delete ann
      Delete a principal with its keys and roles; --yes skips the confirmation. Its name is not used again.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "principals",
        help="Create, list, disable and delete users, services and workers.",
        description="Manage the principals that may call the server. Keys and roles are theirs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add_tenant(connection.add_verb(verbs, "list", "List the principals.", run_list))
    create = connection.add_verb(verbs, "create", "Create a principal.", run_create)
    add_tenant(create)
    create.add_argument("kind", choices=KINDS, help="Kind of the principal.")
    create.add_argument("name", help="Name, unique in its kind.")
    create.add_argument("--display-name", default="", metavar="TEXT", help="Store a name for people.")
    create.add_argument(
        "--external-id", default="", metavar="ID", help="Store its name at an issuer: 'ISSUER SUBJECT'."
    )
    _verb(verbs, "disable", "Reject the calls of a principal.", explained(run_disable))
    _verb(verbs, "enable", "Serve the calls of a disabled principal again.", explained(run_enable))
    delete = _verb(verbs, "delete", "Delete a principal, its keys and its roles.", explained(run_delete))
    deletion.add_yes(delete)
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each principal: kind and name, id, name for people, state."""
    rows = (
        (described(each), each.id, each.display_name, "disabled" if each.disabled else "")
        for each in principals(client, arguments.tenant)
    )
    listing.show(Terminal(), rows, nothing="there are no principals", headings=("NAME", "ID", "", ""))
    return 0


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    kind = v1.PrincipalKind[arguments.kind.upper()]
    wanted = v1.StoredPrincipal(
        kind=kind,
        tenant_id=arguments.tenant,
        name=arguments.name,
        display_name=arguments.display_name,
        external_id=arguments.external_id,
    )
    made = client.identity.create_principal(v1.CreatePrincipalRequest(principal=wanted)).principal
    Terminal().line(f"{word(made.kind)} {made.name} created ({made.id})")
    return 0


def run_disable(arguments: argparse.Namespace, client: sync.Client) -> int:
    return _set_disabled(arguments, client, disabled=True)


def run_enable(arguments: argparse.Namespace, client: sync.Client) -> int:
    return _set_disabled(arguments, client, disabled=False)


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete the principal after confirmation; see `deletion.refusal`."""
    from wonder_sdk import v1

    found = _get(client, arguments)
    if code := deletion.refusal(arguments, f"{described(found)}, its keys and its roles"):
        return code
    client.identity.delete_principal(v1.DeletePrincipalRequest(principal_id=found.id, etag=found.etag))
    Terminal().line(f"{described(found)} deleted")
    return 0


def _set_disabled(arguments: argparse.Namespace, client: sync.Client, *, disabled: bool) -> int:
    from wonder_sdk import v1
    from wonder_sdk._proto.google import protobuf

    found = _get(client, arguments)
    change = v1.StoredPrincipal(id=found.id, etag=found.etag, disabled=disabled)
    mask = protobuf.FieldMask(paths=["disabled"])
    client.identity.update_principal(v1.UpdatePrincipalRequest(principal=change, update_mask=mask))
    Terminal().line(f"{described(found)} {'disabled' if disabled else 'enabled'}")
    return 0


def _get(client: sync.Client, arguments: argparse.Namespace) -> v1.StoredPrincipal:
    from wonder_sdk import v1

    found_id = principal_id(client, arguments.principal, arguments.tenant)
    request = v1.GetPrincipalRequest(principal_id=found_id)
    found: v1.StoredPrincipal = client.identity.get_principal(request).principal
    return found


def _add_principal(verb: argparse.ArgumentParser) -> None:
    add_tenant(verb)
    verb.add_argument("principal", metavar="PRINCIPAL", help="Name, kind:name or id of the principal.")


_verb = partial(connection.add_verb, arguments=_add_principal)
