"""Faults for errors of model providers. Pure.

Feature I1: errors that may not recur are ``transient``, and the server retries them. Messages contain text of
providers: it is shortened, class names are removed and keys are redacted.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.network_address import host_port_of
from wonder_server.core.suggestions import did_you_mean

_MAX_TEXT_LENGTH = 300
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|AIza)[-_]?[A-Za-z0-9_\-*]{12,}|(?<=[Bb]earer )[^\s\"',]+"
    r"|(?<=[?&]key=)[^\s\"'&]+"
)
_CLASS_NAMES = re.compile(
    r"\A(?:\s*(?:[A-Za-z_]\w*\.)*[A-Za-z]\w*(?:Error|Exception|Exceeded)\s*(?::|-|$)\s*)+"
)
_CONTEXT_LENGTH = re.compile(
    r"context.{0,3}length|context window|prompt is too long|too many tokens|maximum context|context size"
    r"|exceeds? the maximum number of tokens|exceeds? (?:the )?context limit|input is too long"
    r"|reduce the length of the messages",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance is too low", re.IGNORECASE
)

_NO_KEY = re.compile(
    r"missing credentials|missing \w+ api key|api_key client option must be set", re.IGNORECASE
)
_BAD_KEY = re.compile(r"API_KEY_INVALID|API key (?:not valid|expired)", re.IGNORECASE)
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@'\"]+(?=@)")
_MAX_CAUSES = 10
_MAX_RETRY_AFTER_MS = 24 * 60 * 60 * 1000
_NO_PROVIDER = "LLM Provider NOT provided"


def from_status(status: int, text: str, headers: Mapping[str, str]) -> Fault:
    """Return the fault for an HTTP error response; ``text`` is its body or LiteLLM's message about it."""
    detail = plain_text(text)
    if _NO_KEY.search(text):  # LiteLLM reports it as a 500 of the provider.
        return missing_key(
            "The model provider cannot be called without a key, and the server has none for it."
        )
    # Gemini reports a quota per minute in the same words, but adds a delay.
    delay = _RETRY_DELAY.search(text)
    if _QUOTA.search(text) and not delay:
        return _failed("quota", "The model provider says that the account's quota is used up", detail)
    pause = _bounded_ms(float(delay[1]) * 1000) if delay else retry_after_ms(headers)
    if status == 429:
        return unavailable(f"The model provider is busy (429){_clause(detail)}.", retry_after_ms=pause)
    if status in (408, 409, 425) or status >= 500:
        return unavailable(
            f"The model provider cannot answer now ({status}){_clause(detail)}.", retry_after_ms=pause
        )
    if status == 413 or _CONTEXT_LENGTH.search(text):
        return _failed("context_length", "The request is longer than the model's context", detail)
    if status in (401, 403) or _BAD_KEY.search(text):
        return _failed("auth", f"The model provider refused the key ({status})", detail)
    if status == 404:
        return _failed("not_found", "The model provider does not know this model or address (404)", detail)
    if status < 400:
        return _failed("refused", f"The model provider answered with {status} instead of a stream", detail)
    return _failed("refused", f"The model provider refused the request ({status})", detail)


def unavailable(message: str, *, retry_after_ms: int | None = None) -> Fault:
    """Return a transient MODEL_UNAVAILABLE."""
    return Fault(
        reason=Reason.MODEL_UNAVAILABLE, message=message, transient=True, retry_after_ms=retry_after_ms
    )


def missing_key(message: str) -> Fault:
    """Return a MODEL_FAILED for a key that is missing or not valid."""
    return Fault(reason=Reason.MODEL_FAILED, message=message, metadata={"kind": "auth"})


def refused(why: str) -> Fault:
    """Return a MODEL_FAILED for a call that cannot be sent; ``why`` is a clause."""
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=as_sentence(f"The model could not be called: {why}"),
        metadata={"kind": "refused"},
    )


def no_such_provider(text: str, provider: str) -> Fault | None:
    """Return the fault for a provider that LiteLLM does not know, if ``text`` says so."""
    if _NO_PROVIDER not in text:
        return None
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"LiteLLM knows no model provider `{provider}`: write its format in [[providers]] as"
        " litellm/NAME.",
        metadata={"kind": "not_found"},
    )


def unknown_provider(provider: str, known: Collection[str]) -> Fault:
    """Return a MODEL_FAILED for a provider that is not in the operator's list."""
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=f"This server has no model provider '{provider}'{did_you_mean(provider, known)}. It has"
        f" {', '.join(sorted(known))}.",
        metadata={"kind": "not_found"},
    )


def as_sentence(text: str) -> str:
    """Return ``text`` with one full stop at its end, or with its own ``!``, ``?`` or ``…``."""
    text = text.rstrip().rstrip(".")
    return text if text.endswith(("!", "?", "…")) else f"{text}."


def stream_timeout(what: str, after_ms: int) -> Fault:
    """Return a transient TIMEOUT; ``what`` is a clause such as ``sent nothing more``."""
    return Fault(reason=Reason.TIMEOUT, message=f"The model {what} within {after_ms} ms.", transient=True)


STREAM_CUT_OFF = unavailable("The model's answer broke off before it was finished.")
UNREADABLE = unavailable("The model provider sent something that cannot be read.")
UNREACHABLE = "unreachable"
"""The ``kind`` of faults for failed connections to a provider."""


def unreachable(provider: str, url: str = "", why: str = "") -> Fault:
    """Return a transient MODEL_UNAVAILABLE for a connection that could not be opened.

    The message contains only host and port of ``url``, the provider's address.
    """
    return _connection_fault(f"{_provider_with_host(provider, url)} cannot be reached", why)


def connection_lost(provider: str, url: str = "", why: str = "") -> Fault:
    """Return a transient MODEL_UNAVAILABLE for a connection that broke."""
    return _connection_fault(f"The connection to {_provider_with_host(provider, url)} was lost", why)


def connection_problem(failure: BaseException) -> str:
    """Return why a connection failed, such as ``connection refused``; empty if the exception has no cause."""
    seen = 0
    found: BaseException | None = failure
    while found is not None and seen < _MAX_CAUSES:
        if isinstance(found, WonderError):  # The dialer raises it; its cause may be known.
            cause, detail = found.__cause__, found.fault.message.rstrip(".")
            return (connection_problem(cause) if cause else "") or detail[:1].lower() + detail[1:]
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"its TLS certificate is not accepted ({found.verify_message.rstrip('.')})"
        if isinstance(found, ssl.SSLError):
            return "TLS failed; is its address an https address?"
        if isinstance(found, TimeoutError):
            return "the connection timed out"
        if isinstance(found, OSError) and (found.errno or 0) > 0:
            return os.strerror(found.errno or 0).lower()
        found = getattr(found, "os_error", None) or found.__cause__ or found.__context__
        seen += 1
    return ""


def redacted(fault: Fault, secrets: Collection[str]) -> Fault:
    """Return the fault with ``secrets``, and texts that look like keys, replaced by ``***``."""
    message = fault.message
    for secret in secrets:
        if secret:
            message = message.replace(secret, "***")
    return replace(fault, message=_KEYS.sub("***", _CREDENTIALS.sub("***", message)))


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """Return the pause that the provider asks for, from headers with names in lower case; a day at most.

    A date is compared with the response's own ``date``, so that the clocks of provider and server need not
    agree. Without that header the result is None.
    """
    if (milliseconds := headers.get("retry-after-ms", "")).isdecimal():
        return _bounded_ms(float(milliseconds[:20]))
    value = headers.get("retry-after", "").strip()
    try:
        return _bounded_ms(float(value) * 1000)
    except (ValueError, OverflowError):
        pass
    try:
        until = parsedate_to_datetime(value)
        since = parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return _bounded_ms((_with_timezone(until) - _with_timezone(since)).total_seconds() * 1000)


def plain_text(text: str) -> str:
    """Return the provider's message in an error text: that of its JSON, without class names."""
    start = text.find("{")
    if start >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(text[start:])
        except (ValueError, RecursionError):
            found = None
        detail = found.get("error", found) if isinstance(found, dict) else None
        message = detail.get("message") if isinstance(detail, dict) else detail
        if isinstance(message, str):
            text = message
    text = " ".join(_CLASS_NAMES.sub("", text).split())
    return text if len(text) <= _MAX_TEXT_LENGTH else text[:_MAX_TEXT_LENGTH] + "…"


def _failed(kind: str, summary: str, detail: str) -> Fault:
    return Fault(reason=Reason.MODEL_FAILED, message=f"{summary}{_clause(detail)}.", metadata={"kind": kind})


def _connection_fault(summary: str, why: str) -> Fault:
    fault = unavailable(f"{summary}{_clause(why)}.")
    return replace(fault, metadata={"kind": UNREACHABLE})


def _provider_with_host(provider: str, url: str) -> str:
    try:
        return f"{provider} ({host_port_of(url)})"
    except ValueError:
        return provider


def _bounded_ms(milliseconds: float) -> int:
    """Return the duration within 0 and a day. Raises OverflowError or ValueError for infinity and NaN."""
    return max(0, min(_MAX_RETRY_AFTER_MS, round(milliseconds)))


def _clause(detail: str) -> str:
    return f": {detail.rstrip('.')}" if detail else ""


def _with_timezone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
