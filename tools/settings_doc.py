"""Writes docs/settings.md from the table in settings.py; ``--check`` only says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from wonder_server.settings import TABLE, Setting

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_INTRODUCTION = """\
# Settings

<!-- Written by tools/settings_doc.py from server/wonder_server/settings.py; `make gen` renews it. -->

A setting is looked for as a flag of `wonder serve`, then in the environment, then in the TOML file that
`--config` names (by its name: `listen = "127.0.0.1:50051"`), then its default holds. A key in the file that
is no setting, or a value that does not fit, stops the start with a message that names the key and where it
came from. Secrets have no flag, since other users of a machine can see arguments.

| setting | environment | default | value | what it does |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole document."""
    return _INTRODUCTION + "".join(_row(row) for row in TABLE)


def _row(row: Setting) -> str:
    default = f"`{row.default_text}`" if row.default_text else "none"
    value = "secret" if row.secret else row.kind.name
    return f"| `{row.name}` | `{row.env}` | {default} | {value} | {row.help} |\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` answer 1 if it is stale."""
    if "--check" not in arguments:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print("docs/settings.md is stale: run `make gen`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
