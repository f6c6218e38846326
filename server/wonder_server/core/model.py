"""Answers and faults of language models, in one shape for all request formats."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.token_estimates import BYTES_PER_TOKEN, json_tokens, text_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call of a model's answer.

    ``arguments`` is None if the model's text is no JSON object. ``malformed`` then holds the text, and the
    call is answered with INVALID_INPUT without running.
    """

    id: str
    name: str
    arguments: JsonDict | None
    malformed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of a call as the provider reported it; None for numbers that it did not report.

    ``cached_input_tokens`` (read from the provider's cache) and ``cache_write_input_tokens`` (written to it)
    are parts of ``input_tokens``, ``reasoning_tokens`` of ``output_tokens``.
    ``cost_micros`` is the cost by the price table in millionths of a US dollar; None if unknown.
    ``estimated``: the call ended before the provider reported all usage, or its cost is by the operator's
    fallback price, so a part is an estimate.
    ``hour_cache_write_tokens`` are those of ``cache_write_input_tokens`` that the provider keeps for an hour.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_micros: int | None = None
    estimated: bool = False
    cache_write_input_tokens: int | None = None
    hour_cache_write_tokens: int | None = None


NO_USAGE = Usage(cost_micros=0)
"""Usage of a call that the provider did not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """A complete answer of a model.

    ``raw`` is the assistant's message in the provider's format. The next request appends it, and the move
    records it. ``stop_reason`` is ``end``, ``tool_calls``, ``length``, ``refusal`` or ``other``.
    ``reasoning`` is the model's reasoning, if the format returns it; ``text`` does not include it.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw: JsonDict = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    stop_reason: str = "end"
    model: str = ""
    reasoning: str = ""


class Meter:
    """Usage of a call in progress, for calls that end without a complete answer."""

    __slots__ = ("_characters", "_texts", "_usage", "asked", "started")

    def __init__(self) -> None:
        self.asked = False
        self.started = False
        self._texts: list[str] = []
        self._characters = 0
        self._usage = Usage()

    def add_text(self, text: str) -> None:
        """Count a piece of the answer's text."""
        self.started = True
        self._texts.append(text)

    def set_usage(self, usage: Usage, characters: int) -> None:
        """Set the usage that the provider has reported so far.

        ``characters`` is the number of characters of the answer that are not text.
        """
        self.started = True
        self._usage, self._characters = usage, characters

    def give_up(self, fault: Fault | None = None) -> None:
        """Note the end of a call that its caller ended: by a timeout, the ``fault``, or by a cancellation.

        The provider may work on a request that it was asked, and charge for it.
        """
        if fault is None or fault.reason is Reason.TIMEOUT:
            self.started = self.started or self.asked

    def estimate_usage(self, request: JsonDict) -> Usage | None:
        """Return the usage of the call with ``request``: the reported numbers and an estimate of the rest.

        Returns None if no part of an answer has arrived and the caller did not give up: the provider did not
        do the work.
        """
        if not self.started:
            return None
        reported = self._usage
        output_tokens = text_tokens("".join(self._texts)) + -(-self._characters // BYTES_PER_TOKEN)
        return replace(
            reported,
            input_tokens=json_tokens(request) if reported.input_tokens is None else reported.input_tokens,
            output_tokens=max(reported.output_tokens or 0, output_tokens),
            estimated=True,
        )


# --- faults -----------------------------------------------------------------------------------------

ADDRESS = "address"
OWN_ADDRESS = "its own address"
"""The address of a provider for which the operator has set none, and whose client knows it."""


def from_provider(fault: Fault, provider: str, model: str, address: str) -> Fault:
    """Return the fault of a call with the provider that it was for; ``address`` is host and port.

    The names go into the metadata. `explained` adds them to the message, once a call has failed finally.
    """
    named = {"provider": provider, "model": model, ADDRESS: address or OWN_ADDRESS}
    return replace(fault, metadata={**fault.metadata, **named})


def explained(fault: Fault, profile: str = "") -> Fault:
    """Return the fault with a sentence that names its provider, and with ``profile``, the pinned model
    profile.

    A fault without an address stays the same: no provider was called, or an earlier version recorded it.
    """
    address = fault.metadata.get(ADDRESS)
    if not address:
        return fault
    provider, model = fault.metadata.get("provider", ""), fault.metadata.get("model", "")
    words = (
        f"provider {provider} at {address}, model {model}" if model else f"provider {provider} at {address}"
    )
    if profile:
        words = f"{words}, model profile {profile}"
    metadata = {**fault.metadata, **({"model_profile": profile} if profile else {})}
    return replace(fault, message=f"{fault.message} ({words[0].upper()}{words[1:]}.)", metadata=metadata)
