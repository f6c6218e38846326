"""Calls of models: stream the answer to readers, and report it to the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wonder_server.actors.directory import Directory
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.usage.budget_enforcement import AgentBudgets
from wonder_server.core.actor.commands import CallModel
from wonder_server.core.conversation.model.inputs import (
    BudgetNearlyExhausted,
    Failed,
    ModelAnswered,
    ModelUsageReported,
    TimerFired,
)
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.model import Meter, ModelResult
from wonder_server.ports.model import Finished, Model, TextDelta, UsageUpdate
from wonder_server.ports.prices import Prices

_ENDED_EARLY = Fault(
    reason=Reason.MODEL_UNAVAILABLE,
    message="The model's answer ended before it was complete.",
    transient=True,
)


class _Answer:
    """The parts of an answer that have arrived."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.meter = Meter()
        self.result: ModelResult | None = None
        self.untruncated: ModelResult | None = None
        self.fault = _ENDED_EARLY
        """The fault of the call if there is no result."""

    @property
    def text(self) -> str:
        return "".join(self.texts)


class ModelCalls:
    """Executes `CallModel` commands."""

    def __init__(
        self,
        *,
        directory: Directory,
        model: Model,
        prices: Prices,
        streams: StreamHub,
        budgets: AgentBudgets | None = None,
    ) -> None:
        self._directory = directory
        self._model = model
        self._prices = prices
        self._streams = streams
        self._budgets = budgets or AgentBudgets()
        self._answers: dict[str, _Answer] = {}
        """Incomplete answers, by operation id."""
        self._stopping = False

    def stop(self) -> None:
        """Report nothing for calls that are cancelled from now on: they are repeated after the restart."""
        self._stopping = True

    async def call(self, actor_id: str, command: CallModel) -> Callable[[], None]:
        """Call the model within the agent's budget. Return the callback that reports the result."""
        if command.budget is None:
            return await self._call(actor_id, command)
        async with self._budgets.reserve(command) as limit:
            if limit is None:
                return await self._call(actor_id, command)
        if limit.enforced:
            raise WonderError(limit.fault)
        warning = BudgetNearlyExhausted(operation_id=command.operation_id, fault=limit.fault)
        return lambda: self._directory.tell(actor_id, warning)

    def timer_input(self, operation_id: str, event: object) -> object:
        """Add the text of an incomplete answer to the input of its operation's timer."""
        answer = self._answers.get(operation_id)
        if answer is None or not answer.texts:
            return event
        return TimerFired(operation_id=operation_id, partial_text=answer.text)

    async def _call(self, actor_id: str, command: CallModel) -> Callable[[], None]:
        answer = self._answers[command.operation_id] = _Answer()
        try:
            await self._receive(actor_id, command, answer)
        except WonderError as problem:
            answer.fault = problem.fault
        except asyncio.CancelledError:
            # The turn no longer needs the answer. The provider charges for what it sent.
            if not self._stopping:
                await self._report_partial_usage(actor_id, command, answer.meter)
            raise
        finally:
            if self._answers.get(command.operation_id) is answer:
                del self._answers[command.operation_id]
        if answer.result is None:
            await self._report_partial_usage(actor_id, command, answer.meter)
            failed = Failed(operation_id=command.operation_id, fault=answer.fault, partial_text=answer.text)
            return lambda: self._directory.tell(actor_id, failed)
        priced = await self._prices.with_cost(command.profile, answer.result)
        answered = ModelAnswered(
            operation_id=command.operation_id, result=priced, full_result=answer.untruncated
        )
        return lambda: self._directory.tell(actor_id, answered)

    async def _receive(self, actor_id: str, command: CallModel, answer: _Answer) -> None:
        """Read the model's chunks into ``answer`` and stream its text."""
        streams, message_id = self._streams, command.message_id
        streams.begin_message(actor_id, command.turn_id, message_id, command.dispatches)
        chunks = self._model.stream(command.profile, command.request)
        try:
            async for chunk in chunks:
                if isinstance(chunk, TextDelta):
                    answer.texts.append(chunk.text)
                    answer.meter.add_text(chunk.text)
                    streams.append_text(actor_id, message_id, chunk.text)
                elif isinstance(chunk, UsageUpdate):
                    answer.meter.set_usage(chunk.usage, chunk.character_count)
                elif isinstance(chunk, Finished):
                    answer.result, answer.untruncated = chunk.result, chunk.untruncated
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    async def _report_partial_usage(self, actor_id: str, command: CallModel, meter: Meter) -> None:
        """Report the usage of an incomplete call. The conversation has counted the call itself already."""
        used = meter.estimate_usage(command.request)
        if used is None:
            return
        priced = await self._prices.with_cost(command.profile, ModelResult(text="", usage=used))
        usage_input = ModelUsageReported(turn_id=command.turn_id, run_id="", usage=priced.usage, calls=0)
        self._directory.tell(actor_id, usage_input)
