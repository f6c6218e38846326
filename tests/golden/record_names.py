"""Add the stored names that are missing to ``stored_names.json``: ``python -m tests.golden.record_names``.

It removes and changes none. One line for each class keeps the differences small.
"""

from __future__ import annotations

import json

from tests.golden.test_stored_names import FILE, PLANNERS, stored_names
from wonder_server.core.json_types import JsonDict


def merged(recorded: JsonDict, current: JsonDict) -> JsonDict:
    """Return the recorded names with those of ``current`` that they lack, at their end."""
    names = {key: merged(within, current.get(key, {})) for key, within in recorded.items()}
    return names | {key: within for key, within in current.items() if key not in recorded}


def text_of(names: JsonDict) -> str:
    """Return the text of the file: one line for each class."""
    planners = []
    for planner, groups in names.items():
        written = []
        for group, classes in groups.items():
            lines = ",\n".join(f"   {json.dumps(tag)}: {json.dumps(classes[tag])}" for tag in sorted(classes))
            written.append(f"  {json.dumps(group)}: {{\n{lines}\n  }}")
        planners.append(f" {json.dumps(planner)}: {{\n" + ",\n".join(written) + "\n }")
    return "{\n" + ",\n".join(planners) + "\n}\n"


def main() -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    current = {str(planner.kind): stored_names(planner) for planner in PLANNERS}
    FILE.write_text(text_of(merged(recorded, current)), encoding="utf-8")


if __name__ == "__main__":
    main()
