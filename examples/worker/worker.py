"""A worker that counts the words of a text. Needs a server: `wonder serve`, or `make serve`.

Stop it with Ctrl-C: it finishes its assignments first.
"""

import asyncio
import logging
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TypedDict

from wonder_sdk import ActionError, Worker, WorkerContext

worker = Worker(f"words-{os.getpid()}", max_concurrency=4)  # Connects to WONDER_SERVER.


@dataclass
class Text:
    text: str
    most: int = 3


class Words(TypedDict):
    total: int
    frequent: list[str]


@worker.action("count-words", idempotent=True)
async def count_words(given: Text, context: WorkerContext) -> Words:
    """Count the words of a text, and name the most frequent ones."""
    if not given.text.strip():
        raise ActionError("There is no text to count words in.")
    context.progress("reading", 0.0)
    # Run CPU-bound work in a thread, so that heartbeats continue.
    counted = await asyncio.to_thread(lambda: Counter(re.findall(r"\w+", given.text.lower())))
    frequent = sorted(counted, key=lambda word: (-counted[word], word))
    return {"total": counted.total(), "frequent": frequent[: given.most]}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    worker.run_forever()
