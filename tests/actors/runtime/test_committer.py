"""The committer alone: which batches one commit holds, and who learns of its end."""

from __future__ import annotations

from tests.actors.kit import LIMITS, FakeClock, TestJournal, run_ready_tasks
from tests.actors.toy import TOY, Note, Noted, ToyRun, ToyState
from wonder_server.actors.runtime.actor import Actor, Batch
from wonder_server.actors.runtime.commits import CommitsInFlight, OwnedJournal
from wonder_server.actors.runtime.committer import CommitPorts, Committer
from wonder_server.actors.runtime.recovery import Recovery
from wonder_server.actors.runtime.scheduler import Scheduler
from wonder_server.actors.runtime.timers import Timers
from wonder_server.core.actor.commands import Command, Parent
from wonder_server.core.errors import Fault
from wonder_server.ports.journal import Entry, Event


class CommitterStage:
    """A committer on a test's journal. No actor plans anything."""

    def __init__(self) -> None:
        self.journal = TestJournal()
        self.in_flight = CommitsInFlight()
        self.stale = 0
        self.published: list[tuple[str, int]] = []
        self.completed: list[str] = []
        self._discarded: list[str] = []
        self.scheduler = Scheduler((TOY,), LIMITS, home_of=lambda _: self, is_throttled=lambda: False)
        self.recovery = Recovery(
            self.scheduler,
            Timers(FakeClock(), lambda *_: None),
            dispatch=self._dispatch,
            report_failure=self._report_failure,
            on_discarded=self._discarded.append,
            reload_after_s=0.0,
        )
        self.committer = Committer(
            self.scheduler,
            self.recovery,
            CommitPorts(
                journal=OwnedJournal(self.journal, 0),
                in_flight=self.in_flight,
                publish=self._publish,
                on_committed=self._on_committed,
                on_stale=self._on_stale,
            ),
            retry_after_s=0.0,
        )

    def work(self, actor: Actor) -> None:
        actor.scheduled = False

    def submit_if_due(self, actor: Actor) -> None:
        self.committer.submit_if_due(actor)

    def on_flush_due(self, actor: Actor, batch: Batch) -> bool:
        return True

    def _on_stale(self) -> None:
        self.stale += 1

    def _dispatch(self, actor_id: str, command: Command) -> None:
        """Execute nothing."""

    def _report_failure(self, actor_id: str, operation_id: str, fault: Fault) -> None:
        """Report nothing."""

    def _publish(self, actor_id: str, events: list[Event]) -> None:
        self.published.append((actor_id, len(events)))

    def _on_committed(self, actor: Actor, batch: Batch) -> None:
        self.completed.append(actor.id)

    def actor(self, actor_id: str, parent_id: str = "", *, due: bool = True) -> Actor:
        """Create an actor with a batch of one entry."""
        actor = self.scheduler.get_or_create(actor_id)
        parent = Parent(actor_id=parent_id, operation_id="op") if parent_id else None
        actor.state = ToyState(ToyRun(id=actor_id, steps=(), parent=parent))
        self.add_entry(actor, due=due)
        return actor

    def add_entry(self, actor: Actor, *, due: bool = True) -> None:
        """Open a batch with one entry."""
        batch = actor.open_batch()
        actor.entry_head += 1
        batch.commit.entries.append(Entry(actor.entry_head, 1, Note(text="x"), (Noted(text="x"),)))
        batch.due = due


async def test_a_batch_that_is_not_due_is_not_submitted() -> None:
    stage = CommitterStage()
    stage.committer.submit_if_due(stage.actor("run_a0", due=False))
    await run_ready_tasks()
    assert stage.journal.transactions == []


async def test_a_commit_publishes_its_events_and_completes_its_batch() -> None:
    stage = CommitterStage()
    actor = stage.actor("run_a0")
    stage.committer.submit_if_due(actor)
    await run_ready_tasks()
    assert actor.committed and stage.completed == ["run_a0"] and stage.published == [("run_a0", 1)]


async def test_an_actor_has_one_commit_in_flight() -> None:
    stage = CommitterStage()
    stage.journal.hold()
    actor = stage.actor("run_a0")
    stage.committer.submit_if_due(actor)
    stage.add_entry(actor)
    stage.committer.submit_if_due(actor)
    assert (stage.journal.held, stage.in_flight.count) == (1, 1)
    stage.journal.release()
    await run_ready_tasks()
    stage.committer.submit_if_due(actor)
    await run_ready_tasks()
    assert stage.completed == ["run_a0", "run_a0"] and stage.in_flight.count == 0


async def test_the_first_commit_of_a_child_holds_its_ancestors_first() -> None:
    stage = CommitterStage()
    stage.actor("run_a0", due=False)
    stage.actor("run_b0", "run_a0", due=False)
    stage.committer.submit_if_due(stage.actor("run_c0", "run_b0"))
    await run_ready_tasks()
    (transaction,) = stage.journal.transactions
    assert [commit.actor_id for commit in transaction] == ["run_a0", "run_b0", "run_c0"]


async def test_a_failed_commit_resets_its_actors() -> None:
    stage = CommitterStage()
    stage.journal.fails = True
    stage.committer.submit_if_due(stage.actor("run_a0"))
    await run_ready_tasks()
    assert stage.completed == [] and stage.published == []
    assert stage.recovery.is_pending("run_a0")
