"""Faults for the exceptions that LiteLLM raises.

`fault_of` imports LiteLLM, so only helper processes call it.
"""

from __future__ import annotations

import json

import aiohttp

from wonder_server.adapters.models.common import provider_errors
from wonder_server.core.errors import Fault, Reason


def fault_from_exception(failure: Exception, provider: str, url: str = "") -> Fault:
    """Return the fault for an exception of LiteLLM or of its HTTP clients, raised by a call of ``url``."""
    from litellm import exceptions

    lost = provider_errors.connection_lost(provider, url)

    if isinstance(failure, json.JSONDecodeError):
        return provider_errors.UNREADABLE
    if isinstance(failure, (exceptions.Timeout, TimeoutError)):
        return Fault(
            reason=Reason.TIMEOUT, message="The model provider did not answer in time.", transient=True
        )
    if isinstance(failure, (exceptions.APIConnectionError, exceptions.MidStreamFallbackError)):
        return lost
    if isinstance(failure, (aiohttp.ClientError, OSError)):
        return lost
    if isinstance(failure, ImportError):
        return _refused("this server's LiteLLM lacks what the request needs")
    text = str(getattr(failure, "message", "") or failure)
    if unknown := provider_errors.no_such_provider(text, provider):
        return unknown
    status = getattr(failure, "status_code", None)
    if "Cannot connect to host" in text:  # Which LiteLLM reports as a 500 of the provider.
        return provider_errors.unreachable(provider, url)
    if isinstance(status, int) and status >= 400:
        headers = getattr(failure, "litellm_response_headers", None) or {}
        return provider_errors.from_status(
            status, text, {str(name).lower(): str(value) for name, value in headers.items()}
        )
    return _refused(provider_errors.plain_text(text))


def _refused(why: str) -> Fault:
    return Fault(
        reason=Reason.MODEL_FAILED,
        message=provider_errors.as_sentence(f"The model could not be called: {why}"),
        metadata={"kind": "refused"},
    )
