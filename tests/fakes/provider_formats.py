"""The errors and streams of a scripted provider in each format.

Parallel tool calls arrive in uneven pieces, and interleaved if the format allows it: an accumulator must keep
them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from aiohttp import web

from wonder_server.core.json_types import JsonDict, JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call. ``arguments`` is sent unchanged, so it may be malformed."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The answer to one request.

    - ``thought`` is thinking before the text.
    - ``stall`` stops sending: ``headers`` (nothing is sent), ``first_token`` (after the head), ``thought``
      (after half of the thinking), ``chunks`` (after half of the text) or ``call`` (after half of the tool
      calls).
    - ``break_off`` resets the connection: ``begin`` (before any byte), ``abort`` (after half of the text),
      ``call`` (after half of the tool calls) or ``end`` (after the last event). ``eof`` ends the body after
      half of the text.
    - ``error_event`` is the status of an error in the stream, after half of the text.
    - ``echo`` answers with the last user text.
    - ``delay_ms`` precedes each piece of text, arguments and thinking.
    - ``comments`` adds comments between events and ends lines with CR LF.
    - ``body``, of ``content_type``, is sent instead of a stream.
    - ``images`` are images in base64 after the text, and ``caption`` is a text after them.
    - ``late_end_ms`` is the delay between the last event and the end of the body.
    - ``scale`` multiplies every count of tokens in the answer.
    """

    text: str = ""
    echo: bool = False
    calls: tuple[Call, ...] = ()
    stop: str = ""
    stall: str = ""
    break_off: str = ""
    malformed_chunk: bool = False
    delay_ms: int = 0
    status: int = 200
    error: str = "scripted error"
    error_code: str = ""
    retry_after: str = ""
    thought: str = ""
    error_event: int = 0
    comments: bool = False
    body: str | None = None
    content_type: str = "text/event-stream"
    location: str = ""
    late_end_ms: int = 0
    images: tuple[str, ...] = ()
    caption: str = ""
    scale: int = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """The tokens of one answer, as the provider counts them. ``input`` includes ``cached`` and ``written``,
    ``output`` includes ``reasoning``."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0


def billed(script: Script, *, writes: bool) -> Counts:
    """Return the tokens of the whole answer. ``writes``: the format counts input written to a cache."""
    one = (11, 7, 5, 4 if writes else 0, 3)
    return Counts(*[count * script.scale for count in one])


def _scaled(value: JsonDict, script: Script) -> JsonDict:
    """Return the counts of an answer, multiplied by its scale."""
    return {
        name: _scaled(each, script)
        if isinstance(each, dict)
        else each * script.scale
        if isinstance(each, int)
        else each
        for name, each in value.items()
    }


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event. ``text``: it contains a piece of the answer. ``call``: a piece of arguments.
    ``thought``: a piece of thinking."""

    data: bytes
    text: bool = False
    call: bool = False
    thought: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """One format of a provider.

    - ``refuse`` makes the answer to a script whose status is not 200.
    - ``events`` makes a complete stream.
    - ``fail`` makes the error of the script's ``error_event``.
    """

    name: str
    refuse: Callable[[Script], web.Response]
    events: Callable[[Script, str], list[Frame]]
    fail: Callable[[Script], Frame]


def _thoughts(script: Script) -> list[str]:
    return _pieces(script.thought) if script.thought else []


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if last else word + " " for word, last in zip(words, _marks(len(words)), strict=True)]


def _marks(count: int) -> list[bool]:
    return [position == count - 1 for position in range(count)]


def _split(text: str) -> list[str]:
    """Return arguments in uneven pieces, as providers send them."""
    return [text[start : start + 5] for start in range(0, len(text), 5)]


# --- OpenAI ------------------------------------------------------------------------------------

_OPENAI_STOPS = {"refusal": "content_filter"}


def _openai_error(script: Script) -> web.Response:
    detail = {"message": script.error, "type": "scripted", "code": script.error_code or None}
    return web.json_response({"error": detail}, status=script.status, headers=_retry_after(script))


def _openai_events(script: Script, model: str) -> list[Frame]:
    frames = [_openai_frame(model, {"role": "assistant", "content": ""})]
    frames += [
        replace(_openai_frame(model, {"reasoning_content": piece}), thought=True)
        for piece in _thoughts(script)
    ]
    if script.text:
        frames += [_openai_frame(model, {"content": piece}, text=True) for piece in _pieces(script.text)]
    for index, data in enumerate(script.images):
        url = {"url": f"data:image/png;base64,{data}"}
        frames.append(
            _openai_frame(model, {"images": [{"type": "image_url", "image_url": url, "index": index}]})
        )
    if script.caption:
        frames.append(_openai_frame(model, {"content": script.caption}, text=True))
    openings = [
        {"index": index, "id": f"call_{index}", "type": "function",
         "function": {"name": call.name, "arguments": ""}}
        for index, call in enumerate(script.calls)
    ]  # fmt: skip
    # Parallel calls arrive interleaved; an accumulator must keep them apart.
    frames += [_openai_frame(model, {"tool_calls": [opening]}) for opening in openings]
    splits = [_split(call.arguments) for call in script.calls]
    for position in range(max((len(split) for split in splits), default=0)):
        for index, split in enumerate(splits):
            if position < len(split):
                delta = {"index": index, "function": {"arguments": split[position]}}
                frames.append(_openai_frame(model, {"tool_calls": [delta]}, call=True))
    stop = _OPENAI_STOPS.get(script.stop, script.stop) or ("tool_calls" if script.calls else "stop")
    frames.append(_openai_frame(model, {}, finish=stop))
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    frames.append(_sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                        "model": model, "choices": [], "usage": _scaled(usage, script)}))  # fmt: skip
    frames.append(Frame(b"data: [DONE]\n\n"))
    return frames


def _openai_failure(script: Script) -> Frame:
    return _sse({"error": {"message": script.error, "type": "scripted", "code": script.error_event}})


def _openai_frame(
    model: str, delta: JsonDict, *, text: bool = False, call: bool = False, finish: str | None = None
) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    return _sse({**chunk, "choices": [choice]}, text=text, call=call)


def _sse(payload: JsonDict, *, event: str = "", text: bool = False, call: bool = False) -> Frame:
    head = f"event: {event}\n" if event else ""
    return Frame(f"{head}data: {json.dumps(payload)}\n\n".encode(), text, call)


def _retry_after(script: Script) -> dict[str, str]:
    return {"retry-after": script.retry_after} if script.retry_after else {}


# --- Anthropic ---------------------------------------------------------------------------------

_ANTHROPIC_STOPS = {"length": "max_tokens"}
_ANTHROPIC_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
                     404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip


def _anthropic_error(script: Script) -> web.Response:
    kind = _ANTHROPIC_ERRORS.get(script.status, "api_error")
    body = {"type": "error", "error": {"type": kind, "message": script.error}}
    return web.json_response(body, status=script.status, headers=_retry_after(script))


def _anthropic_events(script: Script, model: str) -> list[Frame]:
    usage = {
        "input_tokens": 2,
        "cache_creation_input_tokens": 4,
        "cache_read_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 1,
        "service_tier": "standard",
    }
    message: JsonDict = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _scaled(usage, script),
    }
    frames = [_event("message_start", message=message), _event("ping")]
    index = 0
    if script.thought:
        block: JsonDict = {"type": "thinking", "thinking": "", "signature": ""}
        frames += _anthropic_block(index, block, "thinking_delta", "thinking", _thoughts(script))
        index += 1
    if script.text:
        frames += _anthropic_block(
            index, {"type": "text", "text": ""}, "text_delta", "text", _pieces(script.text)
        )
        index += 1
    for number, call in enumerate(script.calls):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": {}}
        pieces = ["", *_split(call.arguments)]
        frames += _anthropic_block(index, block, "input_json_delta", "partial_json", pieces)
        index += 1
    stop = _ANTHROPIC_STOPS.get(script.stop, script.stop) or ("tool_use" if script.calls else "end_turn")
    delta = {"stop_reason": stop, "stop_sequence": None}
    used = {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}}
    frames += [
        _event("message_delta", delta=delta, usage=_scaled(used, script)),
        _event("message_stop"),
    ]
    return frames


def _anthropic_failure(script: Script) -> Frame:
    kind = _ANTHROPIC_ERRORS.get(script.error_event, "api_error")
    return _event("error", error={"type": kind, "message": script.error})


def _anthropic_block(index: int, block: JsonDict, kind: str, key: str, pieces: list[str]) -> list[Frame]:
    deltas = [
        replace(
            _event(
                "content_block_delta",
                text=kind == "text_delta",
                call=kind == "input_json_delta",
                index=index,
                delta={"type": kind, key: piece},
            ),
            thought=kind == "thinking_delta",
        )
        for piece in pieces
    ]
    start = _event("content_block_start", index=index, content_block=block)
    return [start, *deltas, _event("content_block_stop", index=index)]


def _event(kind: str, *, text: bool = False, call: bool = False, **fields: JsonValue) -> Frame:
    return _sse({"type": kind, **fields}, event=kind, text=text, call=call)


# --- OpenAI responses --------------------------------------------------------------------------

_RESPONSES_ERRORS = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


def _responses_events(script: Script, model: str) -> list[Frame]:
    response: JsonDict = {"id": "resp_1", "object": "response", "model": model, "status": "in_progress"}
    frames = [
        _event("response.created", response=response),
        _event("response.in_progress", response=response),
    ]
    output: list[JsonDict] = []
    if script.thought:
        frames += _reasoning_item(script, output)
    if script.text:
        frames += _message_item(script, output)
    for number, data in enumerate(script.images):
        frames += _image_item(number, data, output)
    if script.caption:
        frames += _message_item(replace(script, text=script.caption), output)
    frames += _call_items(script, output)
    usage = {
        "input_tokens": 11,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    cut = script.stop == "length"
    reason = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cut else {}
    whole = {**response, "status": "completed", **reason, "output": output, "usage": _scaled(usage, script)}
    return [*frames, _event(f"response.{whole['status']}", response=whole)]


def _reasoning_item(script: Script, output: list[JsonDict]) -> list[Frame]:
    empty = {"type": "reasoning", "id": "rs_1", "summary": []}
    item = {**empty, "summary": [{"type": "summary_text", "text": script.thought}]}
    place: JsonDict = {"item_id": "rs_1", "output_index": 0}
    frames = [_event("response.output_item.added", output_index=0, item=empty)]
    frames += [
        replace(
            _event("response.reasoning_summary_text.delta", **place, summary_index=0, delta=piece),
            thought=True,
        )
        for piece in _thoughts(script)
    ]
    output.append(item)
    return [*frames, _event("response.output_item.done", output_index=0, item=item)]


def _image_item(number: int, data: str, output: list[JsonDict]) -> list[Frame]:
    index = len(output)
    empty: JsonDict = {"type": "image_generation_call", "id": f"ig_{number}", "status": "generating"}
    item = {**empty, "status": "completed", "output_format": "png", "result": data}
    output.append(item)
    return [
        _event("response.output_item.added", output_index=index, item=empty),
        _event("response.output_item.done", output_index=index, item=item),
    ]


def _message_item(script: Script, output: list[JsonDict]) -> list[Frame]:
    index = len(output)
    refused = script.stop == "refusal"
    kind, key = ("refusal", "refusal") if refused else ("output_text", "text")
    part = {"type": kind, key: script.text, **({} if refused else {"annotations": []})}
    empty: JsonDict = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    item = {**empty, "status": "completed", "content": [part]}
    place: JsonDict = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    frames = [_event("response.output_item.added", output_index=index, item=empty)]
    frames.append(_event("response.content_part.added", **place, part={**part, key: ""}))
    frames += [
        _event(f"response.{kind}.delta", text=True, **place, delta=piece) for piece in _pieces(script.text)
    ]
    frames.append(_sse({"type": f"response.{kind}.done", **place, key: script.text}))
    frames.append(_event("response.content_part.done", **place, part=part))
    output.append(item)
    return [*frames, _event("response.output_item.done", output_index=index, item=item)]


def _call_items(script: Script, output: list[JsonDict]) -> list[Frame]:
    items: list[JsonDict] = [
        {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call.name,
         "arguments": "", "status": "in_progress"}
        for number, call in enumerate(script.calls)
    ]  # fmt: skip
    first = len(output)
    frames = [
        _event("response.output_item.added", output_index=first + number, item=item)
        for number, item in enumerate(items)
    ]
    pieces = [_split(call.arguments) for call in script.calls]
    for position in range(max(map(len, pieces), default=0)):
        for number, split in enumerate(pieces):
            for piece in split[position : position + 1]:
                place: JsonDict = {"item_id": f"fc_{number}", "output_index": first + number}
                frames.append(
                    _event("response.function_call_arguments.delta", call=True, **place, delta=piece)
                )
    for number, (item, call) in enumerate(zip(items, script.calls, strict=True)):
        item = {**item, "arguments": call.arguments, "status": "completed"}
        output.append(item)
        frames.append(_event("response.output_item.done", output_index=first + number, item=item))
    return frames


def _responses_failure(script: Script) -> Frame:
    code = _RESPONSES_ERRORS.get(script.error_event, "server_error")
    problem = {"code": code, "message": script.error}
    return _event("response.failed", response={"id": "resp_1", "status": "failed", "error": problem})


# --- Gemini ------------------------------------------------------------------------------------

_GEMINI_STOPS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}


def _gemini_error(script: Script) -> web.Response:
    problem = {"code": script.status, "message": script.error, "status": script.error_code or "SCRIPTED"}
    return web.json_response({"error": problem}, status=script.status, headers=_retry_after(script))


def _gemini_events(script: Script, model: str) -> list[Frame]:
    frames = [
        replace(_gemini_frame(model, {"text": piece, "thought": True}), thought=True)
        for piece in _thoughts(script)
    ]
    if script.text:
        frames += [_gemini_frame(model, {"text": piece}, text=True) for piece in _pieces(script.text)]
    frames += [
        _gemini_frame(
            model, {"inlineData": {"mimeType": "image/png", "data": data}, "thoughtSignature": f"s{number}"}
        )
        for number, data in enumerate(script.images)
    ]
    if script.caption:
        frames.append(_gemini_frame(model, {"text": script.caption}, text=True))
    frames += [_gemini_frame(model, {"functionCall": _gemini_call(call)}, call=True) for call in script.calls]
    usage = {
        "promptTokenCount": 11,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 5,
        "totalTokenCount": 18,
    }
    stop = _GEMINI_STOPS.get(script.stop, "STOP")
    return [*frames, _gemini_frame(model, {"text": ""}, finishReason=stop, usage=_scaled(usage, script))]


def _gemini_call(call: Call) -> JsonDict:
    """Return arguments as the object of this format. Invalid JSON stands for an incomplete call."""
    if not call.arguments:
        return {"name": call.name}
    try:
        return {"name": call.name, "args": json.loads(call.arguments)}
    except ValueError:
        return {"name": call.name, "willContinue": True}


def _gemini_frame(
    model: str,
    part: JsonDict,
    *,
    text: bool = False,
    call: bool = False,
    usage: JsonDict | None = None,
    **fields: JsonValue,
) -> Frame:
    candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, **fields}
    counts = {"usageMetadata": usage} if usage else {}
    return _sse({"candidates": [candidate], "modelVersion": model, **counts}, text=text, call=call)


def _gemini_failure(script: Script) -> Frame:
    return _sse({"error": {"code": script.error_event, "message": script.error, "status": "SCRIPTED"}})


OPENAI_CHAT = Format("openai_chat", _openai_error, _openai_events, _openai_failure)
ANTHROPIC_MESSAGES = Format("anthropic_messages", _anthropic_error, _anthropic_events, _anthropic_failure)
OPENAI_RESPONSES = Format("openai_responses", _openai_error, _responses_events, _responses_failure)
GEMINI = Format("gemini", _gemini_error, _gemini_events, _gemini_failure)
