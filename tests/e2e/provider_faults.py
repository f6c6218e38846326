"""Faults of a provider and the outcome of the turn for each: the table of `test_provider_faults`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.fakes.provider import Call, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import errors_pb2

COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED
CANCELLED = conversation.TURN_STATUS_CANCELLED
UNAVAILABLE, REFUSED = errors_pb2.ERROR_REASON_MODEL_UNAVAILABLE, errors_pb2.ERROR_REASON_MODEL_FAILED
TIMEOUT, STOPPED = errors_pb2.ERROR_REASON_TIMEOUT, errors_pb2.ERROR_REASON_CANCELLED

PATIENCE_MS = 1_500
"""For the first token, and between chunks, where a provider is silent."""
CALL_MS = 3_000
"""Timeout of a whole answer in these cases. Other cases have long timeouts, so that a busy machine does not
change their outcome."""
SAID = "one two three four"
HALF = "one two "
"""Text that arrives of an answer that stops half way; less if the connection was reset."""
GOOD = Script(text=SAID)
FACT = Call(name="remember", arguments='{"fact": "{word}"}')
"""``{word}`` is the turn's own, so that what was written by whom can be counted."""
TOOL = Script(calls=(FACT,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``scripts`` are what the provider does, request by request; the last is repeated.

    ``requests``: how many it gets. ``said``: the agent's messages in the record, ``half`` whether there may
    be one more, partial, with a part of `SAID`. ``written`` how often the tool ran, ``failures`` how often a
    call was refused. ``kind``: what the error says of it. ``waits_s``: at least as much lies between the
    requests. ``cancel``: the turn is cancelled when the last request has come. ``hasty``: the agent has
    little patience. ``litellm``: it comes to the same through LiteLLM.
    """

    name: str
    scripts: tuple[Script, ...]
    requests: int = 1
    status: int = COMPLETED
    reason: int = 0
    kind: str = ""
    said: tuple[str, ...] = ()
    half: bool = False
    written: int = 0
    failures: int = 0
    waits_s: tuple[float, ...] = ()
    cancel: bool = False
    hasty: bool = False
    litellm: bool = True
    weight: int = 1


def _cases() -> Iterator[Case]:
    yield Case(name="good", scripts=(GOOD,), said=(SAID,), weight=3)
    yield Case(name="tool", scripts=(TOOL, GOOD), requests=2, said=(SAID,), written=1)
    for name, script, reason, seconds, half in (
        ("silent", Script(stall="headers"), TIMEOUT, 1.5, False),
        ("silent-opened", Script(text=SAID, stall="first_token"), TIMEOUT, 1.5, False),
        ("stalls", Script(text=SAID, stall="chunks"), TIMEOUT, 1.5, True),
        ("endless", Script(text="word " * 500, delay_ms=300), TIMEOUT, 3.0, True),
        ("reset-at-once", Script(text=SAID, break_off="begin"), UNAVAILABLE, 0.0, False),
        ("reset", Script(text=SAID, break_off="abort"), UNAVAILABLE, 0.0, True),
        ("ends-early", Script(text=SAID, break_off="eof"), UNAVAILABLE, 0.0, True),
        ("bad-chunk", Script(text=SAID, malformed_chunk=True), UNAVAILABLE, 0.0, True),
        ("cut-in-a-call", Script(calls=(FACT,), break_off="call"), UNAVAILABLE, 0.0, False),
        ("nothing", Script(body=""), UNAVAILABLE, 0.0, False),
        ("429", Script(status=429), UNAVAILABLE, 0.0, False),
        ("500", Script(status=500), UNAVAILABLE, 0.0, False),
        ("503", Script(status=503), UNAVAILABLE, 0.0, False),
        ("error-event", Script(text=SAID, error_event=503), UNAVAILABLE, 0.0, True),
    ):
        yield from _thrice(name, script, reason, seconds, half=half)
    yield Case(
        name="429-says-when", scripts=(Script(status=429, retry_after="1.2"), GOOD), requests=2, said=(SAID,),
        waits_s=(1.2,), weight=3,
    )  # fmt: skip
    yield Case(
        name="429-says-when-thrice", scripts=(Script(status=429, retry_after="1.2"),), requests=3,
        status=FAILED, reason=UNAVAILABLE, waits_s=(1.2, 1.2),
    )  # fmt: skip
    yield Case(
        name="429-says-tomorrow", scripts=(Script(status=429, retry_after="86400"), GOOD),
        status=FAILED, reason=UNAVAILABLE,
    )  # fmt: skip
    for status, kind in ((401, "auth"), (403, "auth"), (404, "not_found"), (400, "refused")):
        yield Case(
            name=f"{status}", scripts=(Script(status=status), GOOD), status=FAILED, reason=REFUSED, kind=kind
        )
    yield Case(
        name="error-event-400", scripts=(Script(text=SAID, error_event=400), GOOD), status=FAILED,
        reason=REFUSED, kind="refused", half=True,
        litellm=False,  # which does not say what kind of error it was
    )  # fmt: skip
    wrong = Script(calls=(replace(FACT, arguments='{"wrong": "{word}"}'),))
    malformed = Script(calls=(replace(FACT, arguments='{"fact": "{word}'),))
    yield Case(
        name="bad-arguments", scripts=(malformed, wrong, TOOL, GOOD), requests=4, said=(SAID,),
        written=1, failures=2, weight=3,
    )  # fmt: skip
    yield Case(
        name="a-fault-after-a-tool", scripts=(TOOL, Script(status=500), GOOD), requests=3, said=(SAID,),
        written=1, weight=2,
    )  # fmt: skip
    yield Case(
        name="faults-after-a-tool", scripts=(TOOL, Script(status=503)), requests=4, status=FAILED,
        reason=UNAVAILABLE, written=1,
    )  # fmt: skip
    for name, script, half in (
        ("silent", Script(stall="headers"), False),
        ("silent-opened", Script(text=SAID, stall="first_token"), False),
        ("stalls", Script(text=SAID, stall="chunks"), True),
        ("429-says-when", Script(status=429, retry_after="60"), False),
    ):
        first = Script(status=500), script
        # Only the cancellation closes these connections.
        yield Case(
            name=f"{name}-cancelled", scripts=first, requests=2, status=CANCELLED, reason=STOPPED,
            half=half, cancel=True,
        )  # fmt: skip


def _thrice(name: str, script: Script, reason: int, seconds: float, *, half: bool) -> Iterator[Case]:
    """Once, after which all goes well; and as often as it is asked. An attempt lasts ``seconds``.

    Little patience is not for LiteLLM, whose helper is what is slow on a machine under load.
    """
    yield Case(
        name=f"{name}-once", scripts=(script, GOOD), requests=2, said=(SAID,),
        hasty=bool(seconds), weight=2, litellm=not seconds,
    )  # fmt: skip
    yield Case(
        name=f"{name}-thrice", scripts=(script,), requests=3, status=FAILED, reason=reason, half=half,
        hasty=bool(seconds), litellm=not seconds,
    )  # fmt: skip


CASES = tuple(_cases())
