"""Random histories of clients and nodes that die: every guarantee holds in each.

``SIMULATION_SEED=7`` runs the history of that seed alone, as the message of a failure says.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.depth import by_depth
from tests.paths import ROOT
from tests.simulation.history import how_to_replay, simulate, undisturbed
from tests.simulation.outcomes import TurnRecord
from tests.simulation.scenes import RANDOM, SHARED, Scene, calm_scene
from tests.simulation.stories.conversations import REDUCED
from tests.simulation.stories.runs import CASES
from tests.simulation.stories.story import Task

CHOSEN = os.environ.pop("SIMULATION_SEED", "")
PER_TEST = 125
TESTS = by_depth(8, 320)
"""1,000 histories, about 65 s of CPU; 40,000 in a deep run."""

STARTS = [int(CHOSEN)] if CHOSEN else [number * PER_TEST for number in range(TESTS)]


@pytest.mark.parametrize("first", STARTS)
def test_every_guarantee_holds_in_every_history(first: int) -> None:
    for seed in range(first, first + (1 if CHOSEN else PER_TEST)):
        simulate(seed)


@pytest.mark.parametrize("first", STARTS[: by_depth(2, 80)])
def test_nothing_is_lost_or_done_twice_when_shards_move(first: int) -> None:
    """Two nodes share a store, and a placement moves shards between them."""
    for seed in range(first, first + (1 if CHOSEN else PER_TEST)):
        simulate(seed, scene=SHARED)


@pytest.mark.parametrize("scene", [RANDOM.only(["stream"]), SHARED.only(["stream"])], ids=["one", "shared"])
def test_a_client_that_streams_its_turn_gets_it_whole(scene: Scene) -> None:
    for seed in range(int(CHOSEN or 0), int(CHOSEN) + 1 if CHOSEN else by_depth(60, 2_000)):
        simulate(seed, scene=scene)


@pytest.mark.parametrize("scene", [RANDOM, SHARED], ids=["one", "shared"])
@pytest.mark.parametrize(("kind", "first"), [("heir", 0), ("call", 20_000)])
def test_a_name_and_a_called_conversation_outlive_an_expiry(kind: str, first: int, scene: Scene) -> None:
    """A reference passes from an expired conversation to one other at most, and a service gets its answer
    though the conversation of the call was archived before it could read the turn (seed 20,012)."""
    start = int(CHOSEN or first)
    for seed in range(start, start + (1 if CHOSEN else by_depth(25, 2_000))):
        simulate(seed, scene=scene.only([kind]))


def test_an_undisturbed_history_does_what_its_stories_are_about() -> None:
    for agent in ("forgetful", "sliding"):
        record = undisturbed(Task(agent, REDUCED))
        assert isinstance(record, TurnRecord) and record.names["context.reduced"] == 1, agent
    for case in CASES:
        outcomes = undisturbed(Task("", (case.workflow,)))
        assert isinstance(outcomes, list)
        assert outcomes[0].status == ("cancelled" if case.cancel else "completed"), case


def test_a_late_result_has_its_context_assembled_again() -> None:
    late = Task("host", ("use the tool slow_later with {marker}",))
    assert simulate(0, scene=calm_scene(late)).late_assemblies == 1


def test_the_same_seed_gives_the_same_history() -> None:
    histories = {seed: simulate(seed) for seed in range(1_000, 1_010)}
    assert {seed: simulate(seed) for seed in histories} == histories
    assert len({history.digest for history in histories.values()}) == len(histories)


def test_the_command_in_a_failure_plays_that_history_alone() -> None:
    said = how_to_replay(1_003, SHARED)
    command = re.fullmatch(r" *Replay: SIMULATION_SEED=(\d+) make test ARGS='(.*)'", said)
    assert command is not None
    environment = {**os.environ, "SIMULATION_SEED": command[1], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *shlex.split(command[2])],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "[1003] PASSED" in done.stdout and "1 passed" in done.stdout


def test_a_failure_of_a_restricted_scene_names_its_kinds() -> None:
    said = how_to_replay(7, SHARED.only(["call", "name"]))
    assert "simulate(7, scene=SHARED.only(['call', 'name']))" in said


def test_a_history_does_not_depend_on_the_order_of_sets() -> None:
    """Another process has another hash of each text, and other addresses."""
    program = (
        "from tests.simulation.history import simulate\n"
        "print([simulate(seed).digest for seed in range(1_000, 1_010)])"
    )

    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    assert digests("1") == digests("2") == f"{[simulate(seed).digest for seed in range(1_000, 1_010)]}\n"
