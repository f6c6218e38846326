"""Number of shards: one-step runs and turns, 64 at once, with 1, 2 and 4 shards.

More files commit in parallel, but each commit then has fewer writes. The floor is one shard.
"""

from __future__ import annotations

from measure import Effort, Number
from runs import runs
from turns import turns

AT_ONCE = 64


async def measure(effort: Effort) -> list[Number]:
    numbers: list[Number] = []
    for name, work in (("runs", runs), ("turns", turns)):
        one = None
        for shards in (1, 2, 4):
            done, commits = await work(AT_ONCE, effort.rounds, shards)
            one = one or done
            at = f"{shards} shard{'s' if shards > 1 else ''}"
            numbers += [
                Number(name=f"{name} per second, {at}", value=done.per_second, unit="/s",
                       floor=one.per_second, floor_is="one shard", better="more"),
                Number(name=f"server CPU per {name[:-1]}, {at}", value=done.cpu_ms, unit="ms",
                       floor=one.cpu_ms, floor_is="one shard"),
                Number(name=f"commits per {name[:-1]}, {at}", value=commits, unit=""),
            ]  # fmt: skip
    return numbers
