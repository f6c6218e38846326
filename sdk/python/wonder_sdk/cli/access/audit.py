"""``wonder audit``: changes of principals, keys and roles."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import add_tenant, timespan, word
from wonder_sdk.cli.access.refusals import explained
from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder audit --since 7d
      Show what was changed in the last seven days, and by whom.
  wonder audit --principal user:ann --json
      One JSON object a line, for another program.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="Show who changed principals, keys and roles.",
        description="Show the audit, newest first.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_tenant(parser)
    parser.add_argument("--since", default="", metavar="TIME", help="Only of the last 7d, 12h or 30m.")
    parser.add_argument("--principal", default="", metavar="NAME", help="Only by this caller: user:ann.")
    parser.add_argument("--method", default="", metavar="NAME", help="Only this method, such as CreateKey.")
    parser.add_argument("--resource", default="", metavar="ID", help="Only changes of this resource.")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="Show at most N (default 100).")
    parser.add_argument("--json", action="store_true", help="Print one JSON object a line.")
    connection.connect(parser, explained(run))


def run(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    request = v1.ListAuditEntriesRequest(
        tenant=arguments.tenant,
        principal=arguments.principal,
        method=arguments.method,
        resource=arguments.resource,
        start_time=_before(arguments.since),
        page_size=max(1, min(arguments.limit, 500)),
    )
    found: list[v1.AuditEntry] = []
    for page in listing.pages(client.identity.list_audit_entries, request):
        found.extend(page.entries)
        if len(found) >= arguments.limit:
            break
    found = found[: arguments.limit]
    if arguments.json:
        for each in found:
            print(json.dumps(each.to_dict(), ensure_ascii=False))
        return 0
    listing.show(Terminal(), map(_row, found), nothing="there are no entries")
    return 0


def _row(entry: v1.AuditEntry) -> tuple[str, ...]:
    caller = f"{word(entry.principal.kind)}:{entry.principal.subject}".rstrip(":") if entry.principal else ""
    details = ", ".join(f"{name}={value}" for name, value in entry.details.items() if value)
    return listing.local(entry.time), caller, entry.method, entry.resource, details


def _before(since: str) -> datetime | None:
    return datetime.now(UTC) - timespan(since) if since else None
