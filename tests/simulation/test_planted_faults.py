"""The simulation finds each planted fault within few histories."""

from __future__ import annotations

import re

import pytest

from tests.simulation.history import HistoryError, simulate
from tests.simulation.planted import PLANTED, Planted
from tests.simulation.scenes import RANDOM, Scene

SEEDS = 400
"""Maximum number of histories, about 25 s of CPU."""


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    planted = PLANTED[fault]
    scene = RANDOM.only(planted.kinds) if planted.kinds else RANDOM
    for seed in range(SEEDS):
        found = _failure(seed, planted, scene)
        if re.search(planted.words, found.partition("Replay:")[0]):
            assert f"SIMULATION_SEED={seed}" in found
            assert _steps(_failure(seed, planted, scene)) == _steps(found), "the seed repeats the history"
            return
    raise AssertionError(f"{SEEDS} histories with {fault} ended well")


def _failure(seed: int, planted: Planted, scene: Scene) -> str:
    """Play a history; return the message of its failure, or "" if it ended well."""
    try:
        simulate(seed, planted.parts, scene)
    except HistoryError as found:
        return str(found)
    return ""


def _steps(message: str) -> str:
    """Return the message without the log, which may contain addresses of objects, and without random ids."""
    return re.sub(r"'incident_id': '\w+'", "", message.partition("The last log events")[0])
