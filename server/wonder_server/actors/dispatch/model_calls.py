"""Calls of models: stream the answer to readers, and report it to the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from wonder_server.actors.directory import Directory
from wonder_server.actors.runtime.monotonic import monotonic_s
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import REASONING, Part, PartKind
from wonder_server.actors.usage.budget_enforcement import Budgets, PlannedCall
from wonder_server.actors.usage.spans import SpanRecorder
from wonder_server.actors.usage.work_counters import WorkCounters
from wonder_server.core.actor.commands import CallModel
from wonder_server.core.content.answer_images import (
    AnswerImage,
    answer_parts,
    file_of,
    stand_ins_of,
    with_stand_ins,
)
from wonder_server.core.content.parts import Parts
from wonder_server.core.conversation.model.inputs import (
    JITTER,
    BudgetNearlyExhausted,
    Failed,
    ModelAnswered,
    ModelUsageReported,
)
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.ids import random_hex
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import Meter, ModelResult
from wonder_server.core.request_formats import FALLBACK, FORMATS
from wonder_server.core.token_estimates import json_tokens
from wonder_server.ports.files import NoFiles, RequestFiles, store_images
from wonder_server.ports.model import ArgumentsDelta, Finished, Model, ReasoningDelta, TextDelta, UsageUpdate
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
        self.images: tuple[AnswerImage, ...] = ()
        self.parts: Parts = ()
        self.fault = _ENDED_EARLY
        """The fault of the call if there is no result."""
        self.asked_s = 0.0
        """The time of the call, on the event loop's clock."""
        self.first_chunk_s: float | None = None
        """Seconds from the call to its first chunk."""

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
        budgets: Budgets | None = None,
        files: RequestFiles | None = None,
    ) -> None:
        self._directory = directory
        self._model = model
        self._prices = prices
        self._streams = streams
        self._budgets = budgets or Budgets()
        self._files = files or NoFiles()
        self.counters: WorkCounters | None = None
        """Counts of ended calls, for metrics."""
        self.spans: SpanRecorder | None = None
        """Spans of ended calls, for traces."""
        self._stopping = False
        self._settling: set[asyncio.Task[None]] = set()
        """Tasks that report results within a budget."""

    def stop(self) -> None:
        """Report nothing for calls that are cancelled from now on: they are repeated after the restart."""
        self._stopping = True

    async def call(self, actor_id: str, command: CallModel) -> Callable[[], None]:
        """Call the model within the budgets above it. Return the callback that reports the result.

        Raises COST_UNKNOWN if a cost budget limits the call and the operator refuses unknown prices.
        """
        refusal = await self._prices.refusal(command.profile) if command.cost_limited else None
        if refusal is not None:
            raise WonderError(refusal)
        if not command.levels:
            answer = await self._call(actor_id, command)
            return lambda: self._directory.tell(actor_id, answer)
        planned = PlannedCall(
            levels=command.levels,
            profile=command.profile,
            request_tokens=json_tokens(command.request),
            is_last=command.is_last,
            finishes=True,
        )
        async with AsyncExitStack() as stack:
            limit = await stack.enter_async_context(self._budgets.reserve(planned))
            if limit is None:
                answer = await self._call(actor_id, command)
                reservation = stack.pop_all()
                return lambda: self._settle(self._report(actor_id, answer, reservation))
        if limit.enforced:
            raise WonderError(limit.fault)
        warning = BudgetNearlyExhausted(operation_id=command.operation_id, fault=limit.fault)
        return lambda: self._directory.tell(actor_id, warning)

    def _settle(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _report(
        self, actor_id: str, answer: ModelAnswered | Failed, reservation: AsyncExitStack
    ) -> None:
        """Report the result, and end the reservation once its usage is on disk.

        Otherwise a parallel turn's check, between the end of the call and its commit, would miss it.
        """
        async with reservation:
            with suppress(WonderError):  # The next dispatch repeats a call whose result is lost.
                await self._directory.ask(actor_id, answer)

    async def _call(self, actor_id: str, command: CallModel) -> ModelAnswered | Failed:
        """Call the model and return the result."""
        answer = _Answer()
        try:
            await self._receive(actor_id, command, answer)
        except WonderError as problem:
            answer.fault = problem.fault
            answer.meter.give_up(problem.fault)
        except asyncio.CancelledError:
            # The turn no longer needs the answer. The provider charges for what it sent.
            if not self._stopping:
                answer.meter.give_up()
                self._count(actor_id, command, answer, "cancelled")
                await self._report_partial_usage(actor_id, command, answer.meter)
            raise
        self._count(actor_id, command, answer, "completed" if answer.result is not None else "failed")
        if answer.result is None:
            await self._report_partial_usage(actor_id, command, answer.meter)
            return Failed(
                operation_id=command.operation_id,
                fault=answer.fault,
                partial_text=answer.text,
                jitter=_draw() if answer.fault.transient else None,
            )
        priced = await self._prices.with_cost(command.profile, answer.result)
        return ModelAnswered(
            operation_id=command.operation_id,
            result=priced,
            full_result=answer.untruncated,
            parts=answer.parts,
        )

    def _count(self, actor_id: str, command: CallModel, answer: _Answer, outcome: str) -> None:
        if self.counters is not None:
            self.counters.call_ended(command.profile.provider, outcome, answer.first_chunk_s)
        if self.spans is not None:
            fault = answer.fault if outcome == "failed" else None
            seconds = monotonic_s() - answer.asked_s if answer.meter.asked else 0.0
            self.spans.call_ended(actor_id, command, answer.result, fault, seconds)

    async def _receive(self, actor_id: str, command: CallModel, answer: _Answer) -> None:
        """Send the request with the contents of its files, and read the answer."""
        async with self._files.filled(command.project_id, command.profile, command.request) as request:
            await self._read(actor_id, command, request, answer)
        if answer.images and answer.result is not None:
            await self._store_images(actor_id, command, answer, answer.result)

    async def _store_images(
        self, actor_id: str, command: CallModel, answer: _Answer, result: ModelResult
    ) -> None:
        """Store the images of an answer, so that its record has references in their places.

        An image that cannot be stored is described in the text, with the reason.
        """
        images = answer.images
        stored = await store_images(
            self._files, command.project_id, command.principal, command.message_id, images
        )
        files = [file_of(image, part) for image, part in zip(images, stored, strict=True)]
        stand_ins = stand_ins_of(files)
        if stand_ins:
            piece = f"\n{stand_ins}" if result.text else stand_ins
            self._streams.append_text(actor_id, command.turn_id, command.message_id, piece)
        answer.result = _with_files(command.profile.format, result, stand_ins, files)
        if answer.untruncated is not None:
            answer.untruncated = _with_files(command.profile.format, answer.untruncated, stand_ins, files)
        answer.parts = answer_parts(answer.result.text, images, stored)
        answer.images = ()

    async def _read(self, actor_id: str, command: CallModel, request: JsonDict, answer: _Answer) -> None:
        """Read the model's chunks into ``answer`` and stream its text."""
        streams, message_id = self._streams, command.message_id
        streams.begin_message(actor_id, command.turn_id, message_id, command.dispatches)
        answer.meter.asked = True
        answer.asked_s = monotonic_s()
        chunks = self._model.stream(command.profile, request)
        try:
            async for chunk in chunks:
                if answer.first_chunk_s is None:
                    answer.first_chunk_s = monotonic_s() - answer.asked_s
                if isinstance(chunk, TextDelta):
                    answer.texts.append(chunk.text)
                    answer.meter.add_text(chunk.text)
                    streams.append_text(actor_id, command.turn_id, message_id, chunk.text)
                elif isinstance(chunk, UsageUpdate):
                    answer.meter.set_usage(chunk.usage, chunk.character_count)
                elif isinstance(chunk, ReasoningDelta):
                    if command.shows_reasoning:
                        streams.append_part(actor_id, command.turn_id, message_id, REASONING, chunk.text)
                elif isinstance(chunk, ArgumentsDelta):
                    part = Part(PartKind.ARGUMENTS, chunk.index, chunk.call_id, chunk.name)
                    streams.append_part(actor_id, command.turn_id, message_id, part, chunk.text)
                elif isinstance(chunk, Finished):
                    answer.result, answer.untruncated = chunk.result, chunk.untruncated
                    answer.images = chunk.images
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


def _draw() -> int:
    """Return the random number of `Failed.jitter`, from the platform's source of randomness."""
    return int(random_hex(4), 16) * (JITTER + 1) >> 32


def _with_files(
    format_name: str, result: ModelResult, stand_ins: str, files: Sequence[JsonDict]
) -> ModelResult:
    """Return an answer with references to its images, and with stand-ins for those that are not stored."""
    raw = FORMATS.get(format_name, FALLBACK).describe_images(result.raw, files)
    return replace(result, text=with_stand_ins(result.text, stand_ins), raw=raw)
