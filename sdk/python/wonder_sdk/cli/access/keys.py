"""``wonder keys``: API keys of principals."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import add_tenant, described, principal_id, principals, timespan
from wonder_sdk.cli.access.refusals import explained
from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync

_EXAMPLES = """\
examples:
  wonder keys list
      List all keys, with their limits and their last use.
  wonder keys create ann --label laptop --expires 90d
      Create a key. It is printed once: keep it. Use it as WONDER_TOKEN.
  wonder keys create shop-backend --scope 'conversations.*' --project shop
      Create a key that is limited to some permissions and projects.
  wonder keys rotate
      Replace the key of this call; the old one stays valid for a day.
  wonder keys rotate 3f9ac2... --grace 0
      Replace a key and end the old one at once.
  wonder keys revoke 3f9ac2...
      Revoke a key for good; --yes skips the confirmation.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "keys",
        help="Create, list, rotate and revoke API keys.",
        description="Manage the API keys of principals. A key is sent as a token: WONDER_TOKEN=wk_...",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listed = connection.add_verb(verbs, "list", "List keys, without their secrets.", explained(run_list))
    add_tenant(listed)
    listed.add_argument("principal", nargs="?", default="", metavar="PRINCIPAL", help="Only those of it.")
    create = connection.add_verb(verbs, "create", "Create a key and print it.", explained(run_create))
    add_tenant(create)
    create.add_argument("principal", metavar="PRINCIPAL", help="Name, kind:name or id of the principal.")
    create.add_argument("--label", default="", metavar="TEXT", help="Store a note, such as 'laptop'.")
    create.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="PERMISSION",
        help="Limit the key to this permission or pattern (conversations.*, *.read); may be repeated.",
    )
    create.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="Limit it to projects; may be repeated.",
    )
    create.add_argument("--expires", default="", metavar="TIME", help="Reject it after 90d, 12h or 30m.")
    rotate = connection.add_verb(verbs, "rotate", "Replace a key; print the new one.", explained(run_rotate))
    rotate.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="Id of the key; by default the caller's."
    )
    rotate.add_argument(
        "--grace", default="24h", metavar="TIME", help="Keep the old key valid for 24h (default), 7d, or 0."
    )
    revoke = connection.add_verb(verbs, "revoke", "Revoke a key for good.", run_revoke)
    revoke.add_argument("key", metavar="KEY", help="Id of the key.")
    deletion.add_yes(revoke)
    add_examples(verbs, _EXAMPLES)


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each key: id, principal, label, state, limits, last use."""
    from wonder_sdk import v1

    tenant = arguments.tenant
    owner = principal_id(client, arguments.principal, tenant) if arguments.principal else ""
    names = {each.id: described(each) for each in principals(client, tenant)}
    request = v1.ListKeysRequest(tenant=tenant, principal_id=owner, page_size=500)
    rows = []
    for page in listing.pages(client.identity.list_keys, request):
        for key in page.keys:
            limits = ", ".join([*key.scopes, *(f"in {each}" for each in key.project_ids)])
            state = "revoked" if key.revoke_time else ""
            if not state and key.expire_time:
                state = f"until {listing.local(key.expire_time)}"
            name = names.get(key.principal_id, key.principal_id)
            rows.append((key.id, name, key.label, state, limits, listing.local(key.last_use_time)))
    headings = ("KEY", "PRINCIPAL", "LABEL", "STATE", "LIMITED TO", "LAST USE")
    listing.show(Terminal(), rows, nothing="there are no keys", headings=headings)
    return 0


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Create a key. The key alone goes to stdout, so that a program can read it."""
    from wonder_sdk import v1

    wanted = v1.ApiKey(
        principal_id=principal_id(client, arguments.principal, arguments.tenant),
        label=arguments.label,
        scopes=arguments.scope,
        project_ids=arguments.project,
        expire_time=datetime.now(UTC) + timespan(arguments.expires) if arguments.expires else None,
    )
    made = client.identity.create_key(v1.CreateKeyRequest(key=wanted))
    _print_key(made.token, made.key.id if made.key else "")
    return 0


def run_rotate(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    request = v1.RotateKeyRequest(key_id=arguments.key, grace=timespan(arguments.grace))
    made = client.identity.rotate_key(request)
    _print_key(made.token, made.key.id if made.key else "")
    return 0


def run_revoke(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Revoke the key after confirmation; see `deletion.refusal`."""
    from wonder_sdk import v1

    if code := deletion.refusal(arguments, f"the key {arguments.key} for good"):
        return code
    client.identity.revoke_key(v1.RevokeKeyRequest(key_id=arguments.key))
    Terminal().line(f"key {arguments.key} revoked")
    return 0


def _print_key(token: str, key_id: str) -> None:
    print(token, flush=True)
    Terminal(sys.stderr).line(f"key {key_id}: keep it now, it is not shown again", "dim")
