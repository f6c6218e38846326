"""``make bench``: measure every number beside its floor in one run, as a table and as JSON.

make bench                          all benchmarks, some minutes
make bench ARGS=--quick             a rough measurement, about two minutes
make bench ARGS="--only streaming"  one benchmark
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import platform
import sqlite3
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import grpc
from measure import FULL, QUICK, Number

from wonder_server.core.json_types import JsonDict

NAMES = (
    *("streaming", "turns", "relay", "long", "models", "runs", "commits", "memory", "memory_writes", "shell"),
    *(
        "idle",
        "start",
        "active",
        "slow",
        "lists",
        "fair",
        "burst",
        "growth",
        "history",
        "shards",
        "approvals",
        "tools",
    ),
)

SHOWN = "bench/results/latest.json"
LATEST = Path(__file__).parents[1] / SHOWN


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="measure for a short time: about two minutes, rough numbers"
    )
    names_help = "run this benchmark only: " + ", ".join(NAMES)
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=names_help)
    parser.add_argument(
        "--json", type=Path, default=LATEST, metavar="FILE", help=f"write to FILE; default {SHOWN}"
    )
    given = parser.parse_args()
    effort = QUICK if given.quick else FULL
    # The comparison of shard counts starts many servers, so --quick omits it.
    names = given.only or [name for name in NAMES if not (given.quick and name == "shards")]

    report: JsonDict = {**_environment(), "quick": given.quick, "benchmarks": {}}
    missed = 0
    for name in names:
        began = time.perf_counter()
        numbers: list[Number] = asyncio.run(importlib.import_module(name).measure(effort))
        _show(name, numbers, time.perf_counter() - began)
        missed += sum(number.reached is False for number in numbers)
        report["benchmarks"][name] = [
            {**asdict(number), "ratio": number.ratio, "reached": number.reached} for number in numbers
        ]
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{missed} aim{'s' if missed != 1 else ''} missed. Written to {os.path.relpath(given.json)}.")
    return 0


def _environment() -> JsonDict:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "grpc": grpc.__version__,
        "sqlite": sqlite3.sqlite_version,
    }


def _show(name: str, numbers: list[Number], seconds: float) -> None:
    print(f"\n{name}  ({seconds:.0f} s)")
    print(f"  {'':46} {'here':>12} {'floor':>12} {'ratio':>7} {'aim':>7}")
    for number in numbers:
        value = f"{_figures(number.value)} {number.unit}".rstrip()
        floor = "" if number.floor is None else _figures(number.floor)
        ratio = "" if number.ratio is None else f"{number.ratio:.2f}"
        sign = "≤" if number.better == "less" or number.bounds_ratio else "≥"
        aim = "" if number.aim is None else f"{sign} {_figures(number.aim)}"
        mark = {None: "", True: "✓", False: "✗ missed"}[number.reached]
        line = f"  {number.name:46} {value:>12} {floor:>12} {ratio:>7} {aim:>7} {mark:8} {number.floor_is}"
        print(line.rstrip())
    sys.stdout.flush()


def _figures(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
