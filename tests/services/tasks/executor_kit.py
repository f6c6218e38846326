"""Helpers of executor tests: short tasks, scripted actions, and an executor without services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn

from tests.views import ForAll
from wonder_server.core.definitions.specs import (
    Action,
    ModelProfile,
    Pin,
    PinnedTask,
    Step,
    Task,
)
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ActionKind,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.actions.contract.kind import InlineNotPossibleError
from wonder_server.services.tasks.executor import Executor

CONTEXT = ExecutionContext(agent_id="agt_1", key="op_1/node")


class Clock:
    """A clock that does not advance."""

    def now_ms(self) -> int:
        return 1_000


class Nothing:
    """A service that fails on every use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Pauses:
    """A sleep that returns at once and records its durations in milliseconds."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(round(seconds * 1000))


SERVICES = Services(
    models=ModelAccess(model=Nothing(), default_profile=ModelProfile(provider="offline")),
    memory=Nothing(),
    history=Nothing(),
    network=NetworkAccess(web=Nothing(), mcp=Nothing(), policies=Nothing()),
    clock=Clock(),
)


def kind(run: Callable[[ActionCall], Awaitable[object]], *, name: str = "test", **fields: Any) -> ActionKind:
    plain = ActionKind(name=name, description="", input_schema={}, output_schema={}, run=run)
    return replace(plain, **fields)


def executor(*kinds: ActionKind, pauses: Pauses | None = None) -> Executor:
    known = {**ACTIONS, **{each.name: each for each in kinds}}
    return Executor(ForAll(SERVICES), SERVICES.clock, kinds=known, sleep=pauses or Pauses())


def task(*steps: Step, **fields: Any) -> PinnedTask:
    pin = Pin(definition_id="def_1", library="demo", name="t", revision=1)
    return PinnedTask(pin=pin, spec=Task(steps=steps, **fields))


def step(id: str = "one", kind: str = "test", **fields: Any) -> Step:
    """Return a step of one action. The definition declares the tests' own kinds idempotent."""
    idempotent = None if kind in ACTIONS else True
    action = Action(kind=kind, **{"idempotent": idempotent, **fields.pop("action", {})})
    return Step(id=id, action=action, **fields)


class Scripted:
    """An action that raises given faults, one for each attempt, and then succeeds."""

    def __init__(self, *faults: WonderError) -> None:
        self._faults = list(faults)
        self.calls: list[ActionCall] = []

    async def __call__(self, call: ActionCall) -> JsonDict:
        self.calls.append(call)
        if self._faults:
            raise self._faults.pop(0)
        return {"n": len(self.calls)}


def busy(**fields: Any) -> WonderError:
    return error(Reason.MODEL_UNAVAILABLE, "busy", transient=True, **fields)


def wrong() -> WonderError:
    return error(Reason.ASSERTION_FAILED, "wrong")


async def hang(call: ActionCall) -> None:
    await asyncio.Event().wait()


def unless_asked_to_wait(call: ActionCall) -> JsonDict:
    if call.input.get("wait"):
        raise InlineNotPossibleError
    return {"by": "quick"}


async def waiting(call: ActionCall) -> JsonDict:
    await asyncio.sleep(0)
    return {"by": call.context.key}
