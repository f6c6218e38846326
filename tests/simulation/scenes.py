"""Scenes: the choice of the faults of a history, and of what its clients do."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.clients import Client
from tests.simulation.cluster import Cluster, Weather
from tests.simulation.disk import DiskFaults
from tests.simulation.outside import OutsideFaults
from tests.simulation.placement import SharedCluster
from tests.simulation.stories.budgets import Spender
from tests.simulation.stories.calls import MODES, CallingService
from tests.simulation.stories.conversations import REDUCED, TEXTS, Heir, Namesake, Talker
from tests.simulation.stories.runs import CASES, Hurried, Runner
from tests.simulation.stories.story import Story, Task
from tests.simulation.stories.streams import Streamer
from wonder_server.actors.runtime.limits import LoopLimits

NewClient = Callable[[str], Client]
NewStories = Callable[[random.Random, NewClient, str], list[Story]]
"""Makes the stories of one kind. The text is the beginning of the names of its clients."""


def _talks(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    agent = dice.choice(("host", "host", "thorough", "colleague"))
    texts = [dice.choice(TEXTS) for _ in range(dice.randint(1, 3))]
    return [Talker(new_client(name), agent, texts, meddles=dice.random() < 0.5)]


def _fills_window(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    agent = dice.choice(("forgetful", "sliding"))
    return [Talker(new_client(name), agent, REDUCED, meddles=False, in_order=True)]


def _runs(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    return [Runner(new_client(name), dice.choice(CASES))]


def _works(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    return [Runner(new_client(name), next(case for case in CASES if case.workflow == "worked"))]


def _hurries(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    return [Hurried(new_client(name))]


def _shares_name(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    return [Namesake(new_client(f"{name}-{side}"), "reference") for side in "ab"]


def _inherits_name(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    return [Heir(new_client(f"{name}-{side}"), "inheritance") for side in "abc"[: dice.randint(2, 3)]]


def _spends(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    limits = dice.choice(("agent", "agent", "conversation"))
    return [Spender(new_client(f"{name}-{side}"), limits) for side in "ab"[: dice.randint(1, 2)]]


def _calls(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    return [CallingService(new_client(name), dice.choice(MODES))]


def _streams(dice: random.Random, new_client: NewClient, name: str) -> list[Story]:
    texts = tuple(dice.choice(TEXTS) for _ in range(dice.randint(1, 2)))
    return [Streamer(new_client(name), dice.choice(("host", "colleague")), texts)]


KINDS: Final[Mapping[str, tuple[float, NewStories]]] = {
    "talk": (0.38, _talks),
    "window": (0.03, _fills_window),
    "run": (0.34, _runs),
    "worker": (0.03, _works),
    "gate": (0.03, _hurries),
    "budget": (0.04, _spends),
    "name": (0.06, _shares_name),
    "heir": (0.03, _inherits_name),
    "call": (0.05, _calls),
    "stream": (0.05, _streams),
}
"""By kind of story: its share, and its stories."""


@dataclass(frozen=True)
class Scene:
    """The choice of the faults and of the clients. ``kinds`` are the kinds of stories to choose from."""

    weather: Callable[[random.Random], Weather]
    kinds: Mapping[str, tuple[float, NewStories]]
    cluster: type[Cluster] = Cluster

    def stories(self, dice: random.Random, new_client: NewClient) -> list[Story]:
        """Return what one to three clients do, or as many as one kind needs."""
        shares = [share for share, _ in self.kinds.values()]
        count = dice.randint(1, 3) if len(self.kinds) > 1 else 1
        chosen = dice.choices([*self.kinds.values()], shares, k=count)
        return [
            story
            for number, (_, new) in enumerate(chosen)
            for story in new(dice, new_client, f"client-{number}")
        ]

    def only(self, kinds: Collection[str]) -> Scene:
        """Return the scene with stories of these kinds only."""
        return replace(self, kinds={kind: self.kinds[kind] for kind in kinds})


def calm_scene(task: Task) -> Scene:
    """Return the scene of one piece of work without faults."""

    def stories(_: random.Random, new_client: NewClient, name: str) -> list[Story]:
        if task.agent:
            return [Talker(new_client(name), task.agent, task.texts, meddles=False, in_order=True)]
        if task.texts[0] in MODES:
            return [CallingService(new_client(name), task.texts[0])]
        case = next(case for case in CASES if (case.workflow,) == task.texts)
        return [Runner(new_client(name), case)]

    return Scene(lambda _: Weather(lives=0), {"task": (1, stories)})


def _weather(dice: random.Random) -> Weather:
    """Choose the faults of a history. Each kind is absent from most histories, so that each is seen alone."""

    def at_times(chance: float, value: float) -> float:
        return value if dice.random() < chance else 0.0

    disk = DiskFaults(
        write_fails=at_times(0.3, 0.1),
        read_fails=at_times(0.2, 0.05),
        dies_before_write=at_times(0.3, 0.1),
        dies_after_write=at_times(0.3, 0.1),
        max_delay_s=dice.choice((0.0, 0.001, 0.02)),
    )
    limits = LoopLimits(
        idle_actors=dice.choice((0, 1, 100)),
        time_slice_s=dice.choice((-1.0, 0.005, 60.0)),
        flush_after_s=dice.choice((0.0, 0.02, 0.2)),
        reload_after_s=dice.choice((0.05, 1.0)),
    )
    return Weather(
        lives=dice.choice((0, 1, 1, 2, 3)),
        disk=disk,
        outside=OutsideFaults(
            model_fails=at_times(0.1, 0.02), dies_at_request=at_times(0.3, 0.1), max_delay_s=0.02
        ),
        max_callbacks=int(at_times(0.5, dice.choice((100, 400, 1500)))),
        dies_at_point=at_times(0.3, 0.03),
        overlaps=at_times(0.3, 0.5),
        stops=at_times(0.3, 0.5),
        max_life_s=dice.choice((0.05, 0.3, 1.0)),
        loses_answer=at_times(0.3, 0.1),
        hangs_up=at_times(0.3, 0.1),
        max_delay_s=dice.choice((0.0, 0.01)),
        expire_after_ms=int(at_times(0.4, dice.choice((50, 300, 60_000)))),
        clock_error_ms=int(at_times(0.1, 5_000)),
        limits=limits,
    )


RANDOM: Final = Scene(_weather, KINDS)
"""One node after another, each with the faults of the seed."""

SHARED: Final = Scene(_weather, KINDS, SharedCluster)
"""The same with two nodes that share the shards."""
