"""Write docs/settings.md from the table of settings; with ``--check`` only report whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from wonder_server.settings import TABLE, Group, Setting

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_INTRODUCTION = """\
# Settings

<!-- Written by tools/settings_doc.py from server/wonder_server/settings/table.py; `make gen` renews it. -->

Set a value with a flag of `wonder serve`, an environment variable, or a key of the TOML file that
`--config` names:

```
wonder serve --listen 127.0.0.1:50052
WONDER_LISTEN=127.0.0.1:50052 wonder serve
```

A flag goes before a variable, a variable before the file, the file before the default. The flag of a setting
is its name with `-` for `_`. Secrets have no flag, since other users of a machine can see arguments. An
unknown key in the file, or a value of the wrong kind, prevents the start; the message names the key and its
source. An unknown variable `WONDER_…` is logged.
"""

_HEADER = """
| setting | environment | default | value | content |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the whole document."""
    return _INTRODUCTION + "".join(map(_section, Group))


def _section(group: Group) -> str:
    rows = "".join(_row(row) for row in TABLE if row.group is group)
    return f"\n## {group.value}\n{_HEADER}{rows}"


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
