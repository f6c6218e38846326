"""QMSum (real meetings, with questions and the turns that answer them) in the form `make bench-memory` reads.

python tools/qmsum.py val.jsonl test.jsonl > qmsum.jsonl

A turn is a message, a meeting an agent. The data is not part of this repository: it comes from the public
repository Yale-LILY/QMSum, under the MIT licence.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def converted(meeting: dict[str, Any], name: str) -> dict[str, Any]:
    """One meeting as one agent; questions whose spans are empty or out of range lose them."""
    turns = meeting["meeting_transcripts"]
    questions = []
    for asked in meeting["specific_query_list"]:
        spans = ((int(first), int(last)) for first, last in asked["relevant_text_span"])
        places = sorted(
            {place for first, last in spans for place in range(first, last + 1) if place < len(turns)}
        )
        questions.append({"query": asked["query"], "evidence": [str(place) for place in places]})
    return {
        "agent": name,
        "messages": [
            {"id": str(place), "conversation": name, "ordinal": place + 1, **turn}
            for place, turn in enumerate(turns)
        ],
        "questions": questions,
    }


def main() -> int:
    for path in map(Path, sys.argv[1:]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            print(json.dumps(converted(json.loads(line), f"{path.stem}-{number}"), ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
