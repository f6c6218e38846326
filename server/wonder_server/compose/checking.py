"""Check of a whole data folder: every store, every object, every git repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wonder_server.adapters.git.storage.command import GIT_ENVIRONMENT, Git, GitError, RunOptions
from wonder_server.adapters.sqlite.catalog.check import check_catalog
from wonder_server.adapters.sqlite.memory.check import check_memory
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.adapters.sqlite.shard.identity import COUNT_FILE
from wonder_server.adapters.sqlite.store_check import CheckResult
from wonder_server.core.errors import WonderError
from wonder_server.ports.blobs import is_key, key_of
from wonder_server.settings import inherited_environment

ProgressCallback = Callable[[str], None]

_FSCK_S: Final = 3600.0
"""Timeout of the check of one repository, in seconds."""

_MAX_BYTES: Final = 4 << 20


@dataclass(slots=True)
class Report:
    """Result of a check. ``problems`` has one line for each damaged or missing record."""

    records: int = 0
    unchecked: int = 0
    objects: int = 0
    repositories: int = 0
    problems: list[str] = field(default_factory=list)


def check_folder(data: Path, on_progress: ProgressCallback, *, objects_elsewhere: bool = False) -> Report:
    """Check a data folder that no server uses. Call ``on_progress`` with the name of each step.

    ``objects_elsewhere``: a bucket has the objects, so the check does not report those missing in the folder.
    """
    report = Report()
    references: dict[str, str] = {}
    agents: dict[str, str] = {}
    known: set[str] = set()
    for name, check in _stores(data):
        on_progress(f"{name} …")
        found = check()
        report.records += found.records
        report.unchecked += found.unchecked
        report.problems += found.problems
        references |= found.objects
        agents |= found.agents
        known |= found.known_agents
    for agent in sorted(agents.keys() - known):
        report.problems.append(f"catalog.db: the agent {agent} of {agents[agent]} is missing")
    on_progress("blobs …")
    _check_objects(data / "blobs", references, report, objects_elsewhere=objects_elsewhere)
    git = Git(inherited_environment(GIT_ENVIRONMENT))
    repositories = [
        path for name in ("artifacts", "repositories") for path in sorted((data / name).glob("[!.]*.git"))
    ]
    if repositories and (problem := git.probe()):
        report.problems.append(f"{len(repositories)} git repositories were not checked: {problem}.")
        return report
    for path in repositories:
        on_progress(f"{path.relative_to(data)} …")
        report.repositories += 1
        report.problems += [f"{path.relative_to(data)}: {line}" for line in _fsck(git, path)]
    return report


def _stores(data: Path) -> Iterator[tuple[str, Callable[[], CheckResult]]]:
    shards = sorted((data / "shards").glob("[0-9][0-9].db"))
    text = (data / "shards" / COUNT_FILE).read_text(encoding="ascii", errors="replace").strip()
    count = int(text) if text.isdigit() else 0
    if not count:
        unknown = CheckResult(problems=[f"shards/{COUNT_FILE}: {text!r} is not a number of files"])
        yield f"shards/{COUNT_FILE}", lambda: unknown
    elif len(shards) != count:
        missing_shards = CheckResult(problems=[f"shards: {len(shards)} of {count} files exist"])
        yield "shards", lambda: missing_shards
    for path in shards:
        yield f"shards/{path.name}", lambda path=path: check_shard(path, count)  # type: ignore[misc]
    for name, check in (("catalog.db", check_catalog), ("memory.db", check_memory)):
        if (data / name).exists():
            yield name, lambda name=name, check=check: check(data / name)  # type: ignore[misc]
        else:
            missing = CheckResult(problems=[f"{name}: the file is missing"])
            yield name, lambda missing=missing: missing  # type: ignore[misc]


def _check_objects(
    folder: Path, references: dict[str, str], report: Report, *, objects_elsewhere: bool
) -> None:
    present: set[str] = set()
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/*")):
        report.objects += 1
        present.add(path.name)
        try:
            intact = is_key(path.name) and key_of(path.read_bytes()) == path.name
        except OSError as problem:
            report.problems.append(f"blobs/{path.parent.name}/{path.name}: {problem.strerror}")
            continue
        if not intact:
            owner = references.get(path.name, "no known record")
            report.problems.append(
                f"blobs/{path.parent.name}/{path.name}: it is damaged; it belongs to {owner}"
            )
    if not objects_elsewhere:
        for key in sorted(references.keys() - present):
            report.problems.append(f"blobs/{key[:2]}/{key}: it is missing; it belongs to {references[key]}")


def _fsck(git: Git, path: Path) -> list[str]:
    """Return the problems that git finds in a repository, one line each."""
    arguments = ("fsck", "--full", "--no-dangling", "--no-progress")
    try:
        options = RunOptions(max_bytes=_MAX_BYTES, may_truncate=True, seconds=_FSCK_S)
        git.run(path, *arguments, options=options)
    except GitError as problem:
        found = [
            line.strip() for line in f"{problem.complaint}\n{problem.output}".splitlines() if line.strip()
        ]
        return found or [f"git fsck ended with {problem.code}"]
    except WonderError as problem:
        return [str(problem)]
    return []
