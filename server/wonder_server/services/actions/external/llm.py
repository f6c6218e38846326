"""``llm``: calls a language model with a request in the provider's format (feature H3).

The ``timeout_ms`` of the model profile limits each attempt; the model adapter has its own watchdogs. The
executor retries transient faults after 500 ms, 1 s and 2 s (feature I3), each time from the first model: the
fallbacks of the profile stand in at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from wonder_server.core.content.answer_images import AnswerImage, file_of, stand_ins_of, with_stand_ins
from wonder_server.core.content.parts import ContentPart, neutral_part
from wonder_server.core.conversation.context.output_requests import with_output_schema
from wonder_server.core.conversation.planning.hooks.side_models import is_worth_another
from wonder_server.core.conversation.planning.output_checks import read_answer
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import NO_USAGE, Meter, ModelResult, Usage, explained
from wonder_server.core.schema.output_schemas import check_output_schema
from wonder_server.core.token_estimates import json_tokens
from wonder_server.ports.files import store_images
from wonder_server.ports.model import Chunk, Finished, TextDelta, UsageUpdate
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.external.model_chain import candidates


async def _run(call: ActionCall) -> JsonDict:
    """Ask the models of the call in order, each after the provider of the one before was unavailable."""
    schema = _schema(call)
    asked = await candidates(call)
    for following, each in enumerate(asked, 1):
        profile, request = each.profile, each.request
        if schema:
            request = with_output_schema(request, profile, schema)
        try:
            finished = await _ask(call, profile, request)
        except WonderError as problem:
            if following == len(asked) or not is_worth_another(problem.fault):
                raise
            continue
        result = finished.result
        output = _output(schema, result) if schema else {}
        stored = await _stored(call, result.text, finished.images)
        return _as_json(result) | {"provider": profile.provider} | output | stored
    raise AssertionError("a call has a model")


async def _ask(call: ActionCall, profile: ModelProfile, request: JsonDict) -> Finished:
    """Return the answer of one model, with its cost. Raises BUDGET_EXHAUSTED if a budget does not allow the
    call."""
    await _check_price(call, profile)
    budgets = call.services.models.budgets
    if budgets is None:
        return await _ask_charged(call, profile, request)
    async with budgets.reserve_action(call.context, profile, json_tokens(request)) as fault:
        if fault is not None:
            raise WonderError(fault)
        return await _ask_charged(call, profile, request)


async def _ask_charged(call: ActionCall, profile: ModelProfile, request: JsonDict) -> Finished:
    usage_reporter = call.services.models.usage_reporter
    if usage_reporter is not None:
        await usage_reporter.report_start(call.context)
    try:
        async with asyncio.timeout(profile.timeout_ms / 1000) as deadline:
            finished = await _answer(call, profile, request)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise error(
            Reason.TIMEOUT, f"The model did not finish within {profile.timeout_ms} ms.", transient=True
        ) from None
    return replace(finished, result=await _report_cost(call, profile, finished.result))


def _schema(call: ActionCall) -> JsonDict:
    """Return the output schema of the input, empty without one. Raises FIELD_INVALID."""
    schema = dict(call.input.get("output_schema", {}))
    problem = check_output_schema(schema)
    if problem is not None:
        raise error(
            Reason.FIELD_INVALID, f"output_schema: {problem.message}.", field=f"output_schema.{problem.path}"
        )
    return schema


async def _check_price(call: ActionCall, profile: ModelProfile) -> None:
    """Raise COST_UNKNOWN if a cost budget limits the call and the operator refuses unknown prices."""
    budget, prices = call.context.budget, call.services.models.prices
    limited = call.context.cost_limited or (budget is not None and budget.max_cost_micros)
    if not limited or prices is None:
        return
    refusal = await prices.refusal(profile)
    if refusal is not None:
        raise WonderError(refusal)


async def _stored(call: ActionCall, text: str, images: Sequence[AnswerImage]) -> JsonDict:
    """Store the images of the answer in the project of the task. Return them as parts of messages, and the
    text with the reason for each that is not stored; nothing without images."""
    if not images:
        return {}
    context = call.context
    stored = await store_images(
        call.services.models.files, context.project_id, context.principal, context.key, images
    )
    stand_ins = stand_ins_of([file_of(image, part) for image, part in zip(images, stored, strict=True)])
    files = [neutral_part(part) for part in stored if isinstance(part, ContentPart)]
    return {"text": with_stand_ins(text, stand_ins), "files": files}


def _output(schema: JsonDict, result: ModelResult) -> JsonDict:
    """Return the checked answer. An invalid one is no failure: it has been paid for, and may be of use."""
    output = read_answer(schema, result)
    return {"output": output.value, "problems": list(output.problems)}


async def _report_cost(call: ActionCall, profile: ModelProfile, result: ModelResult) -> ModelResult:
    """Return ``result`` with its cost, and report its usage, if necessary without the cost."""
    prices, with_cost = call.services.models.prices, result
    try:
        if prices is not None:
            with_cost = await prices.with_cost(profile, result)
    finally:
        _report_usage(call, with_cost.usage)
    return with_cost


def _report_usage(call: ActionCall, usage: Usage) -> None:
    usage_reporter = call.services.models.usage_reporter
    if usage_reporter is not None:
        usage_reporter.report_usage(call.context, usage)


async def _answer(call: ActionCall, profile: ModelProfile, request: JsonDict) -> Finished:
    meter = Meter()
    try:
        async with call.services.models.files.filled(call.context.project_id, profile, request) as sent:
            return await _read(call, profile, sent, meter)
    except BaseException as problem:
        # The provider charges for the partial answer too.
        if isinstance(problem, WonderError | asyncio.CancelledError):
            meter.give_up(problem.fault if isinstance(problem, WonderError) else None)
        used = meter.estimate_usage(request)
        if used is None:
            _report_usage(call, NO_USAGE)
        else:
            await _report_cost(call, profile, ModelResult(text="", usage=used))
        if isinstance(problem, WonderError) and (named := explained(problem.fault)) is not problem.fault:
            raise WonderError(named) from None
        raise


async def _read(call: ActionCall, profile: ModelProfile, request: JsonDict, meter: Meter) -> Finished:
    meter.asked = True
    chunks = call.services.models.model.stream(profile, request)
    # Closing the stream closes the upstream request at once, after an error, a timeout or a cancel.
    async with aclosing(cast("AsyncGenerator[Chunk]", chunks)):
        async for chunk in chunks:
            if isinstance(chunk, TextDelta):
                meter.add_text(chunk.text)
            elif isinstance(chunk, UsageUpdate):
                meter.set_usage(chunk.usage, chunk.character_count)
            elif isinstance(chunk, Finished):
                return chunk
    raise error(Reason.MODEL_FAILED, "The model's answer ended without a final chunk.", transient=True)


def _as_json(result: ModelResult) -> JsonDict:
    return {
        "text": result.text,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "malformed": call.malformed}
            for call in result.tool_calls
        ],
        "usage": {
            "input_tokens": result.usage.input_tokens,
            "output_tokens": result.usage.output_tokens,
            "cached_input_tokens": result.usage.cached_input_tokens,
            "cache_write_input_tokens": result.usage.cache_write_input_tokens,
            "reasoning_tokens": result.usage.reasoning_tokens,
            "cost_micros": None if result.usage.estimated else result.usage.cost_micros,
        },
        "stop_reason": result.stop_reason,
        "model": result.model,
    }


LLM = ActionKind(
    name="llm",
    description="Calls a language model with a request in its provider's format.",
    input_schema={
        "type": "object",
        "properties": {
            "request": {"type": "object", "description": "Request in the format of the model profile."},
            "model_profile": {
                "type": "object",
                "description": "Fields of a model profile, `fallbacks` among them. Default: the operator's "
                "default model.",
            },
            "model_profile_id": {
                "type": "string",
                "description": "A saved model profile, library/name, in place of model_profile.",
            },
            "requests": {
                "type": "object",
                "description": "Requests by format, for profiles and fallbacks of other formats: "
                "openai_chat, openai_responses, anthropic_messages, gemini.",
                "additionalProperties": {"type": "object"},
            },
            "output_schema": {
                "type": "object",
                "description": "JSON Schema of the object that the answer must be. The server asks by the "
                "provider's own means where there is one.",
            },
        },
        "required": ["request"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "tool_calls": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "name": {"type": "string"},
                        "arguments": {
                            "type": ["object", "null"],
                            "description": "Null if the arguments from the model are not valid JSON.",
                        },
                        "malformed": {"type": "string", "description": "The invalid arguments."},
                    },
                },
            },
            "usage": {
                "type": "object",
                "properties": {
                    "input_tokens": {"type": ["integer", "null"]},
                    "output_tokens": {"type": ["integer", "null"]},
                    "cached_input_tokens": {
                        "type": ["integer", "null"],
                        "description": "Input tokens that the provider read from its cache.",
                    },
                    "cache_write_input_tokens": {
                        "type": ["integer", "null"],
                        "description": "Input tokens that the provider wrote to its cache.",
                    },
                    "reasoning_tokens": {
                        "type": ["integer", "null"],
                        "description": "Output tokens that are reasoning.",
                    },
                    "cost_micros": {
                        "type": ["integer", "null"],
                        "description": "Cost in millionths of a US dollar; null if the price is unknown.",
                    },
                },
            },
            "stop_reason": {"enum": ["end", "tool_calls", "length", "refusal", "other"]},
            "model": {"type": "string"},
            "provider": {"type": "string", "description": "Provider of the model that answered."},
            "files": {
                "type": "array",
                "description": "If the answer has images: those that are stored as files of the project, "
                "each {type, file_id, media_type, name, size_bytes}. A tool's result with them shows them to "
                "the model. `text` says in words why another is not stored.",
                "items": {"type": "object"},
            },
            "output": {
                "type": ["object", "null"],
                "description": "With output_schema: the answer, or null if it is not valid.",
            },
            "problems": {
                "type": "array",
                "items": {"type": "string"},
                "description": "With output_schema: why the answer is not valid.",
            },
        },
    },
    run=_run,
    min_backoff_ms=500,
    enforces_timeout=True,
)
