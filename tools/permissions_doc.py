"""Write the table of permissions in docs/security.md from the contract and the roles; with ``--check`` only
report whether it is current."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from wonder_server.core.access.permissions import EXTRA, PERMISSIONS_OF, Role
from wonder_server.rpc.server.authorization import permission_of
from wonder_server.rpc.server.server import contract_services

PAGE = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN = "<!-- permissions: written by tools/permissions_doc.py; `make gen` renews it -->\n"
FOOTNOTE = (
    "A principal of the kind `service` also has `act_as` where it is a member or developer: a backend "
    "signs in its own users ([operating.md](operating.md#users-keys-and-roles)).\n"
)
END = "<!-- end of permissions -->\n"


def table() -> str:
    """Return the table: a permission, its use, and a column for each role."""
    methods: defaultdict[str, list[str]] = defaultdict(list)
    for service in contract_services():
        for method in service.methods:
            methods[permission_of(method)].append(f"`{method.name}`")
    uses = {permission: ", ".join(names) for permission, names in methods.items()} | dict(EXTRA)
    uses["server.reflect"] = "server reflection, as `grpcurl` uses it"
    head = f"| permission | needed to | {' | '.join(Role)} |\n|---|---|{'---|' * len(Role)}\n"
    rows = "".join(_row(permission, uses[permission]) for permission in sorted(uses))
    return f"{head}{rows}\n{FOOTNOTE}"


def _row(permission: str, use: str) -> str:
    marks = " | ".join("✓" if permission in PERMISSIONS_OF[role] else " " for role in Role)
    return f"| `{permission}` | {use} | {marks} |\n"


def page(text: str) -> str:
    """Return the document with a current table."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> int:
    """Write the table, or with ``--check`` answer 1 if it is stale."""
    text = PAGE.read_text(encoding="utf-8")
    if text == page(text):
        return 0
    if "--check" in arguments:
        print("The permissions in docs/security.md are stale: run `make gen`", file=sys.stderr)
        return 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
