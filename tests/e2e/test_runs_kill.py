"""kill -9 wherever a run persists, tells or does something: it ends as if nothing had happened.

A corpus of graphs runs, all at the same time, on servers of which each dies at the next of `HITS` failpoints.
Each server receives all requests again, with the same request ids. At the end, every run has the result that
an undisturbed server gives; each node's result was recorded once and seen once; what may be
done again was done at least once under one key, and what may not was never done twice.

The points are those at which the process, the disk or SQLite decides. `tests.simulation` has the same corpus
die at every dispatch, answer, timer, publication and request.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc import aio

from tests.depth import by_depth
from tests.e2e import corpus
from tests.e2e.client import Client, struct
from tests.e2e.corpus import CORPUS, Case
from tests.e2e.effects import Effects, counting
from tests.e2e.process import Server, serving
from tests.e2e.run_view import Outcome, RunView, outcome, runs
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import library_pb2, run_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

HITS = by_depth(4, 20)
"""Deaths at each point."""
LIVE = ("operations", "tokens", "forks", "executions", "gates", "works")


# --- one round of the corpus --------------------------------------------------------------------------


@dataclass
class Story:
    """One case under one name, repeated at server after server; its answers must never change."""

    case: Case
    name: str
    url: str
    view: RunView = field(default_factory=RunView)
    fork: RunView = field(default_factory=RunView)
    answers: dict[str, object] = field(default_factory=dict)

    async def tell(self, client: Client) -> None:
        """Start the run, resolve its gates and send its signals, and wait for its end."""
        request = pb.StartRunRequest(
            workflow_id=f"{corpus.LIBRARY}/{self.case.workflow}",
            input=struct(name=self.name, url=self.url),
            request_id=self.name,
        )
        request.context.project_id = corpus.PROJECT
        self.view.run_id = (await client.coordinator.StartRun(request)).run.id
        self._same("start", self.view.run_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.watch(client))
            for name in self.case.signals:
                group.create_task(self._signal(client, name))
            for node_id in self.case.gates:
                group.create_task(self._approve(client, node_id))
            if self.case.cancel:
                group.create_task(self._cancel(client))
        if self.case.fork:
            await self._fork(client)

    async def _signal(self, client: Client, name: str) -> None:
        signal = run_pb2.Signal(name=name, user_id="mia")
        signal.payload.number_value = 41
        request = pb.SignalRunRequest(
            run_id=self.view.run_id, signal=signal, request_id=f"{self.name}/{name}"
        )
        self._same(name, (await client.coordinator.SignalRun(request)).sequence)

    async def _approve(self, client: Client, node_id: str) -> None:
        await self.view.until(lambda: self.view.gate(node_id))
        gate = self.view.gate(node_id)
        assert gate is not None
        request = pb.ResolveGateRequest(
            gate_id=gate.id,
            decision=pb.GATE_DECISION_APPROVE,
            shown_hash=gate.shown_hash,
            answer=struct(text="edited"),
            user_id="mia",
            request_id=f"{self.name}/{node_id}",
        )
        resolved = (await client.coordinator.ResolveGate(request)).gate
        self._same(node_id, resolved.SerializeToString(deterministic=True))

    async def _cancel(self, client: Client) -> None:
        """Cancel the run once it waits at all places; its child run waits too, so that one surely exists."""
        waits = ("gate", "signal", "child", "hang")
        await self.view.until(lambda: {e.node_id for e in self.view.executions("node_started")} >= {*waits})
        while True:
            children = await runs(client, parent_run_id=self.view.run_id)
            if children and children[0].status != run_pb2.RUN_STATUS_RUNNING:
                break
            await asyncio.sleep(0.01)
        request_id = f"{self.name}/cancel"
        request = pb.CancelRunRequest(run_id=self.view.run_id, reason="Enough.", request_id=request_id)
        run = (await client.coordinator.CancelRun(request)).run
        assert run.error.message == "Enough."
        self._same("cancel", run.status)

    async def _fork(self, client: Client) -> None:
        request = pb.ForkRunRequest(
            run_id=self.view.run_id,
            before_node_execution=self.case.fork,
            request_id=f"{self.name}/fork",
        )
        self.fork.run_id = (await client.coordinator.ForkRun(request)).run.id
        self._same("fork", self.fork.run_id)
        await self.fork.watch(client)

    @property
    def run_ids(self) -> list[str]:
        return [view.run_id for view in (self.view, self.fork) if view.run_id]

    def _same(self, asked: str, answer: object) -> None:
        assert self.answers.setdefault(asked, answer) == answer, (
            f"{self.name}: {asked} was answered otherwise"
        )


async def tell_all(server: Server, stories: list[Story]) -> None:
    """Play all stories concurrently, at as many servers as it takes."""
    while True:
        lives = server.lives
        try:
            async with asyncio.timeout(60), server.client() as client, asyncio.TaskGroup() as group:
                for story in stories:
                    group.create_task(story.tell(client))
            return
        except* aio.AioRpcError as problems:
            _only_death(problems)
        await server.reborn(lives)


def _only_death(problems: BaseExceptionGroup[BaseException]) -> None:
    for problem in problems.exceptions:
        if isinstance(problem, BaseExceptionGroup):
            _only_death(problem)
        else:
            assert isinstance(problem, aio.AioRpcError)
            assert problem.code() is grpc.StatusCode.UNAVAILABLE, problem
            assert not _refused(problem), problem


def _refused(problem: aio.AioRpcError) -> bool:
    """Return True if a live server has answered that it is unavailable."""
    return any(key == "grpc-status-details-bin" for key, _ in problem.trailing_metadata() or ())


# --- what they share ----------------------------------------------------------------------------------


@dataclass
class Whole:
    """Results of the corpus at an undisturbed server, and a folder with its definitions, to copy."""

    folder: Path
    effects: Effects
    outcomes: dict[str, Outcome]
    children: dict[str, list[Outcome]]
    """By case, those of its child runs."""
    forks: dict[str, Outcome]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Whole]:
    folder = tmp_path_factory.mktemp("whole")
    async with counting() as effects:
        async with serving(folder / "data", environment={"WONDER_SHARD_COUNT": "2"}) as server:
            async with server.client() as client:
                await client.apply(corpus.LIBRARY, corpus.TASKS + "---" + corpus.WORKFLOWS)
                await client.agent("quiet", f"{corpus.LIBRARY}/quiet")
                allowed = library_pb2.NetworkPolicy(http_allow=[effects.address])
                project = library_pb2.Project(name=corpus.PROJECT, network=allowed)
                await client.library.CreateProject(library.CreateProjectRequest(project=project))
        shutil.copytree(folder / "data", folder / "fresh")
        stories = [Story(case, f"whole/{case.workflow}", effects.url) for case in CORPUS]
        async with serving(folder / "data") as server:
            await tell_all(server, stories)
            record = await recorded(server, stories)
        assert_nothing_is_live(folder / "data")
        outcomes = {story.case.workflow: outcome(story.view) for story in stories}
        reasons = {name: end.reason for name, end in outcomes.items() if end.reason}
        assert reasons == {"cancelled": "ERROR_REASON_CANCELLED"}
        children = {story.case.workflow: record[story.view.run_id] for story in stories}
        forks = {story.case.workflow: outcome(story.fork) for story in stories if story.case.fork}
        yield Whole(folder / "fresh", effects, outcomes, children, forks)


async def recorded(server: Server, stories: list[Story]) -> dict[str, list[Outcome]]:
    """The outcomes of the child runs, by who began them; the record says what was seen, and replays."""
    async with server.client() as client:
        found = await runs(client, include_children=True)
        views = {run.id: RunView(run.id) for run in found}
        limit = asyncio.Semaphore(16)

        async def look(run: run_pb2.Run) -> None:
            async with limit:
                await views[run.id].watch(client)
                replayed = await client.coordinator.ReplayRun(pb.ReplayRunRequest(run_id=run.id))
                assert replayed.identical, (run.workflow, replayed.first_difference)

        await asyncio.gather(*(look(run) for run in found))
    for story in stories:
        assert views[story.view.run_id].events == story.view.events
        if story.case.fork:
            assert views[story.fork.run_id].events == story.fork.events
    began = {run.id: run.parent.run_id for run in found if not run.workflow.startswith("wonder/std/")}
    top = [run_id for run_id, parent in began.items() if not parent]
    assert sorted(top) == sorted(run_id for story in stories for run_id in story.run_ids), (
        "each start is one run"
    )
    below: dict[str, list[Outcome]] = defaultdict(list)
    for run_id, parent in began.items():
        if parent:
            below[parent].append(outcome(views[run_id]))
    return below


def assert_nothing_is_live(data: Path) -> None:
    """Of runs that have all ended nothing stays in the working sets, and of turns nothing in the outbox."""
    for path in sorted((data / "shards").glob("*.db")):
        with closing(sqlite3.connect(path)) as connection:
            for table in LIVE:
                sql = f"SELECT actor, id FROM {table} WHERE live = 1"
                assert connection.execute(sql).fetchall() == [], table


def same(left: list[Outcome], right: list[Outcome]) -> bool:
    return len(left) == len(right) and all(left.count(each) == right.count(each) for each in left)


# --- the proof ----------------------------------------------------------------------------------------

ALL = tuple(case.workflow for case in CORPUS)
POINTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "in-commit": (20, ALL),
    "in-commit while effects are handed out": (6, ("effect_once",)),
    "committed": (20, ALL),
}
"""By point, its first word: the server dies at one of the first so many passages; the graphs that pass it."""

AT_ONCE = 12
"""Runs that are under way at the same time, at least."""


@pytest.mark.parametrize("where", POINTS)
async def test_runs_end_as_at_a_server_that_was_not_killed(data: Path, whole: Whole, where: str) -> None:
    most, names = POINTS[where]
    point = where.split()[0]
    dice = random.Random(where)
    # The first of a server's passages would be the same one again and again: there is no way past it.
    doom = " ".join(f"{point}:{dice.randint(1, most) if n % 2 else most}" for n in range(HITS))
    shutil.copytree(whole.folder, data)
    server = await Server(data, doom=doom).start()
    cases = [case for case in CORPUS if case.workflow in names]
    stories: list[Story] = []
    try:
        for number in range(10 * HITS):
            if server.deaths == HITS:
                break
            copies = -(-AT_ONCE // len(cases))
            batch = [
                Story(case, f"{where.replace(' ', '-')}/{number}/{copy}/{case.workflow}", whole.effects.url)
                for case in cases
                for copy in range(copies)
            ]
            stories += batch
            await tell_all(server, batch)
        assert server.deaths == HITS, f"died only {server.deaths} times at {point}"
        children = await recorded(server, stories)
    finally:
        code = await server.stop()
    assert code == 0 and not [line for line in server.log if line.get("level") == "error"]
    assert_nothing_is_live(data)
    for story in stories:
        assert_outcome(story, whole, children[story.view.run_id])


def assert_outcome(story: Story, whole: Whole, children: list[Outcome]) -> None:
    """Check that the outcome equals that of an undisturbed run."""
    found, name = outcome(story.view), story.case.workflow
    asked = whole.effects.of(f"/once/{story.name}/")
    assert all(count == 1 for count in asked.values()), asked
    if name == "effect_once" and found.reason == "ERROR_REASON_OUTCOME_UNKNOWN":
        assert found.status == "RUN_STATUS_FAILED"
        return
    assert found == whole.outcomes[name]
    if story.case.fork:
        assert outcome(story.fork) == whole.forks[name]
    assert same(children, whole.children[name]), children
    if name == "effect_once":
        assert len(asked) == 2
    if name == "effect_again":
        again = whole.effects.of(f"/again/{story.name}/")
        assert len(again) == 3 and all(again.values())
        assert all(len(whole.effects.keys[path]) == 1 for path in again)
