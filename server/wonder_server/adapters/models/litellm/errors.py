"""Faults for the exceptions that LiteLLM raises.

`fault_from_exception` imports LiteLLM, so only helper processes call it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import aiohttp

from wonder_server.adapters.models.common import provider_errors
from wonder_server.core.errors import Fault, Reason

_MAX_CAUSES = 16


def fault_of_options(failure: Exception, options: Mapping[str, object]) -> Fault | None:
    """Return the fault for an option that has the wrong type for LiteLLM; None for any other failure.

    LiteLLM reports its own TypeError as a lost connection, which another attempt or a fallback would hide.
    Only options that are no texts are suspected: the operator sets most as texts.
    """
    suspected = sorted(name for name, value in options.items() if not isinstance(value, str))
    root: BaseException = failure
    for _ in range(_MAX_CAUSES):
        root = root.__cause__ or root.__context__ or root
    is_about_types = isinstance(root, (TypeError, AttributeError)) or type(root).__name__ == "ValidationError"
    if not suspected or not is_about_types:
        return None
    return provider_errors.refused(
        f"LiteLLM refuses the type of an option of the provider; of these one must be a text: "
        f"{', '.join(suspected)}"
    )


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
        return provider_errors.refused("the server's LiteLLM lacks a package that the request needs")
    text = str(getattr(failure, "message", "") or failure)
    if unknown := provider_errors.no_such_provider(text, provider):
        return unknown
    status = getattr(failure, "status_code", None)
    if "Cannot connect to host" in text:  # LiteLLM reports it as a 500 of the provider.
        return provider_errors.unreachable(provider, url)
    if isinstance(status, int) and status >= 400:
        headers = getattr(failure, "litellm_response_headers", None) or {}
        return provider_errors.from_status(
            status, text, {str(name).lower(): str(value) for name, value in headers.items()}
        )
    return provider_errors.refused(provider_errors.plain_text(text))
