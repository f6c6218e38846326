"""Laws of generated tasks: both drivers agree, attempts are counted, each attempt starts fresh (H2)."""

from __future__ import annotations

import asyncio
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from tests.services.tasks.executor_kit import (
    CONTEXT,
    Pauses,
    executor,
    kind,
    step,
    task,
    unless_asked_to_wait,
    waiting,
)
from wonder_server.core.definitions.specs import OnFailure, PinnedTask, Retry, Step
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict
from wonder_server.services.tasks.executor import TaskOutcome

NAMES = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["1", "input.n", "state.a", "state.b + 1", "[state.a]", "output.a", "1 / input.n"])
CONDITIONS = st.sampled_from(["", "", "true", "false", "has(state.a)", "state.a > 1", "input.n"])
AT_TIMES = kind(waiting, run_inline=unless_asked_to_wait)
CHECKS = st.sampled_from(["true", "false", "has(state.a)", "input.n > 1"])


@st.composite
def steps(draw: st.DrawFn, number: int) -> Step:
    on_failure, condition = draw(st.sampled_from(OnFailure)), draw(CONDITIONS)
    if draw(st.integers(0, 5)) == 0:
        mapping = {"wait": draw(CHECKS)}
        return step(f"s{number}", condition=condition, on_failure=on_failure, input_mapping=mapping)
    if draw(st.booleans()):
        mapping = {"condition": draw(CHECKS)}
        return step(f"s{number}", "assert", condition=condition, on_failure=on_failure, input_mapping=mapping)
    targets = draw(st.lists(st.tuples(st.sampled_from(["state", "output"]), NAMES), max_size=2))
    return step(
        f"s{number}",
        "context",
        condition=condition,
        on_failure=on_failure,
        input_mapping={"v": draw(VALUES)},
        output_mapping={f"{root}.{name}": "result.v" for root, name in targets},
    )


@st.composite
def tasks(draw: st.DrawFn) -> PinnedTask:
    made = [draw(steps(number)) for number in range(draw(st.integers(0, 6)))]
    schema = draw(st.sampled_from([{}, {}, {"required": ["a"]}]))
    retry = Retry(max_attempts=draw(st.integers(1, 4)), backoff_ms=draw(st.sampled_from([0, 10])))
    return task(*made, output_schema=schema, retry=retry)


def executed(one: PinnedTask, input: JsonDict) -> tuple[TaskOutcome, list[int]]:
    pauses = Pauses()
    run = executor(AT_TIMES, pauses=pauses).execute(one, input, CONTEXT)
    return asyncio.run(run), pauses.taken


@given(tasks(), st.integers(0, 2))
def test_a_task_has_the_same_outcome_inline_and_in_the_event_loop(one: PinnedTask, n: int) -> None:
    outcome, pauses = executed(one, {"n": n})
    assert (outcome.output is None) != (outcome.fault is None)
    assert executed(one, {"n": n}) == (outcome, pauses), "the same again"

    at_once = executor(AT_TIMES).execute_inline(one, {"n": n}, CONTEXT)
    # It leaves a task that starts over or has to wait to the loop, and one for which this machine is slow.
    assert at_once is None or (at_once == replace(outcome, steps=()) and not pauses)

    attempts = [
        (attempt, list(traces)) for attempt, traces in groupby(outcome.steps, key=lambda each: each.attempt)
    ]
    assert [attempt for attempt, _ in attempts] == list(range(1, len(attempts) + 1))
    assert len(attempts) <= one.spec.retry.max_attempts
    assert pauses == [one.spec.retry.backoff_ms * 2**number for number in range(len(pauses))]
    if one.spec.steps:
        assert len(pauses) == len(attempts) - 1
    for _, traces in attempts:
        # From step 0 on, one after the other, and what fails without `continue` is the last.
        assert [each.position for each in traces] == list(range(len(traces)))
        halting = [
            each.position
            for each in traces
            if each.fault and one.spec.steps[each.position].on_failure is not OnFailure.CONTINUE
        ]
        assert halting in ([], [len(traces) - 1])
    if outcome.output is not None:
        assert len(attempts[-1][1] if attempts else []) == len(one.spec.steps)


@st.composite
def tasks_in_vain(draw: st.DrawFn) -> PinnedTask:
    """The task retries twice, whatever the outcomes of its steps, which use each other's values."""
    values = draw(
        st.lists(st.tuples(st.sampled_from(["1", "state.a", "state.b"]), NAMES), min_size=2, max_size=6)
    )
    made = [
        step(
            f"s{number}",
            "context",
            input_mapping={"v": source},
            output_mapping={f"state.{name}": "result.v"},
            on_failure=OnFailure.CONTINUE,
        )
        for number, (source, name) in enumerate(values)
    ]
    last = step("last", "assert", action={"config": {"condition": False}}, on_failure=OnFailure.RETRY)
    return task(*made, last, retry=Retry(max_attempts=3, backoff_ms=0))


@given(tasks_in_vain(), st.integers(0, 2))
def test_an_attempt_knows_nothing_of_the_ones_before(one: PinnedTask, n: int) -> None:
    outcome, _ = executed(one, {"n": n})
    ways: dict[int, list[tuple[str, str]]] = {}
    for each in outcome.steps:
        ways.setdefault(each.attempt, []).append((each.step_id, each.status))
    assert ways[1] == ways[2] == ways[3]
