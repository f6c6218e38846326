"""The idempotency key of requests that change the catalog."""

from __future__ import annotations

from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import IdempotentRequest, idempotency_key
from wonder_server.services.catalog.transactions import IdempotencyKey


def catalog_key(request: IdempotentRequest) -> IdempotencyKey | None:
    """Return the request's idempotency key in the form that the catalog stores, or None without a request_id.

    The key has no effect with ``validate_only``: such a request stores nothing.
    """
    key = idempotency_key(request)
    # The catalog has always stored "caller/id", also for the empty caller of a server without tokens.
    return key and (key if current_principal.get() else IdempotencyKey(f"/{key.request_id}", key.fingerprint))
