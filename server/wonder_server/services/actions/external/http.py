"""``http``: sends one request to an HTTP server that the project may reach (feature H3).

`core.definitions.network_policy` decides which addresses the project may reach. The action follows redirects
itself, so that each address is checked. The status of a response determines the outcome:

==============================  ====================================================================
status                          outcome
==============================  ====================================================================
below 400                       the result
429, 503                        not started: retried, after ``Retry-After`` if present
408, 425, 5xx but 501 and 505   the server's fault: retried if the request is repeatable, else
                                OUTCOME_UNKNOWN
any other                       the step fails; with ``fail_on_status`` false, the result
==============================  ====================================================================

With ``fail_on_status`` false every status is a result."""

from __future__ import annotations

import base64
import codecs
import re
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, urldefrag, urlencode, urljoin, urlsplit

import msgspec

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.task.action_effects import DEFAULT_METHOD
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.web import WebRequest, WebResponse
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.external.http_files import is_file, stored_body

DEFAULT_BYTES: Final = 1 << 20
MAX_BYTES: Final = 3 << 20
MAX_FILE_BYTES: Final = 20 << 20
"""Maximum size of a body with ``store_files``: it is no part of the result."""
DEFAULT_REDIRECTS: Final = 5
MAX_RETRY_AFTER_MS: Final = 3_600_000
BODY_HEAD: Final = 500
"""Maximum number of characters of a body in a fault."""

_METHODS: Final = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NOT_STARTED: Final = frozenset({429, 503})
_PERMANENT: Final = frozenset({501, 505})
_IDEMPOTENCY_KEY: Final = "Idempotency-Key"

_OWN_HEADERS: Final = re.compile(
    r"host|connection|keep-alive|upgrade|te|trailer|transfer-encoding|content-length|expect|accept-encoding"
    r"|proxy-.*",
    re.IGNORECASE,
)
"""Headers of the connection, which a definition cannot set."""

_HARMLESS: Final = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that are sent to another host after a redirect. Any other may contain a secret."""

_CHARSETS: Final = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso8859-2", "iso8859-15"),
        *("cp1250", "cp1251", "cp1252", "koi8-r", "gb18030", "gbk", "big5", "shift_jis", "euc_jp", "euc_kr"),
    )
)
"""Charsets for text. Others are rejected: some of Python's codecs take unbounded time."""


async def _run(call: ActionCall) -> JsonDict:
    policy = await call.services.network.policies.network_policy(call.context.project_id)
    request = _request(call)
    left = int(call.input.get("max_redirects", DEFAULT_REDIRECTS))
    follows = left > 0
    while True:
        response = await call.services.network.web.send(request, policy)
        location = response.headers.get("location", "")
        if not follows or response.status not in _REDIRECTS or not location:
            break
        if left == 0:
            raise error(
                Reason.TASK_FAILED,
                f"{_host(request.url)} redirects the request again, and max_redirects is reached.",
            )
        left -= 1
        request = _redirected(request, response.status, location)
    if call.input.get("fail_on_status", True):
        _check_status(call, request, response)
    result: JsonDict = {
        "status": response.status,
        "url": request.url,
        "headers": dict(response.headers),
    }
    if call.input.get("store_files", False) and is_file(response.headers, response.body):
        file = await stored_body(call, request.url, response.headers, response.body)
        return {**result, "body": None, "encoding": "file", "file": file}
    body, encoding = _body(response)
    return {**result, "body": body, "encoding": encoding}


# --- the request --------------------------------------------------------------------------------


def _request(call: ActionCall) -> WebRequest:
    given = call.input
    method = given.get("method", DEFAULT_METHOD)
    headers = dict(given.get("headers", {}))
    for name in headers:
        if _OWN_HEADERS.fullmatch(name):
            raise error(
                Reason.INPUT_INVALID, f"The server sets the header '{name}'. Remove it.", field="headers"
            )
    present = {name.lower() for name in headers}
    body = b""
    if given.get("body") is not None:
        body = _encoded(given["body"])
        if "content-type" not in present:
            is_text = isinstance(given["body"], str)
            headers["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    if method not in _SAFE and _IDEMPOTENCY_KEY.lower() not in present and given.get("idempotency_key", True):
        headers[_IDEMPOTENCY_KEY] = quote(call.context.key, safe="/:")
    return WebRequest(
        method=method,
        url=_with_query(given["url"], given.get("query", {})),
        headers=headers,
        body=body,
        repeatable=call.repeatable,
        max_bytes=_max_bytes(given),
    )


def _max_bytes(given: JsonObject) -> int:
    """Return the maximum size of the body. Raises INPUT_INVALID for one that no result holds."""
    store_files = given.get("store_files", False)
    max_bytes = int(given.get("max_response_bytes", MAX_FILE_BYTES if store_files else DEFAULT_BYTES))
    if max_bytes > MAX_BYTES and not store_files:
        raise error(
            Reason.INPUT_INVALID,
            f"max_response_bytes is at most {MAX_BYTES}; with store_files, at most {MAX_FILE_BYTES}.",
            field="max_response_bytes",
        )
    return max_bytes


def _encoded(body: JsonValue) -> bytes:
    """Return the bytes of a request's body. Raises INPUT_INVALID for text that is not valid Unicode."""
    try:
        return body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise error(
            Reason.INPUT_INVALID, "body is neither valid Unicode text nor a JSON value.", field="body"
        ) from None


def _with_query(url: str, query: JsonObject) -> str:
    """Return the URL with the pairs of ``query`` and without its fragment, which is never sent. Raises
    INPUT_INVALID."""
    pairs = [
        (name, _query_text(each))
        for name, value in query.items()
        for each in (value if isinstance(value, list) else [value])
    ]
    try:
        plain = urldefrag(url).url
    except ValueError:
        raise error(Reason.INPUT_INVALID, "url is not a valid URL.", field="url") from None
    if not pairs:
        return plain
    try:
        return f"{plain}{'&' if '?' in plain else '?'}{urlencode(pairs)}"
    except ValueError:
        raise error(Reason.INPUT_INVALID, "query is not valid Unicode text.", field="query") from None


def _query_text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _redirected(request: WebRequest, status: int, location: str) -> WebRequest:
    """Return the request that a redirect asks for. Raises TASK_FAILED if it would disclose a body or weaken
    encryption."""
    try:
        url = urldefrag(urljoin(request.url, location)).url
        before, after = urlsplit(request.url), urlsplit(url)
    except ValueError:
        raise error(
            Reason.TASK_FAILED,
            f"{_host(request.url)} redirects to an address that is not a valid URL.",
        ) from None
    if before.scheme.lower() == "https" and after.scheme.lower() != "https":
        raise error(
            Reason.TASK_FAILED,
            f"{_host(request.url)} redirects to {_host(url)} without https, which is not followed.",
        )
    elsewhere = (before.scheme, before.netloc.lower()) != (after.scheme, after.netloc.lower())
    method, body, headers = request.method, request.body, dict(request.headers)
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = {
            name: value
            for name, value in headers.items()
            if name.lower() not in ("content-type", _IDEMPOTENCY_KEY.lower())
        }
    if elsewhere:
        if method not in _SAFE:
            raise error(
                Reason.TASK_FAILED,
                f"{_host(request.url)} redirects a {method} request to {_host(url)}, which is not followed."
                " Set the action's url to that address.",
            )
        headers = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
    return replace(request, method=method, url=url, headers=headers, body=body)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2][:300] or "The server"


# --- the response ---------------------------------------------------------------------------------


def _check_status(call: ActionCall, request: WebRequest, response: WebResponse) -> None:
    """Raise the error of the status, if it has one."""
    status = response.status
    if status < 400:
        return
    message = f"{_host(request.url)} answered with status {status}."
    if status in _NOT_STARTED:
        after = _retry_after_ms(response.headers.get("retry-after", ""), call.services.clock.now_ms())
        raise NotStartedError(Reason.TASK_FAILED, message, retry_after_ms=after)
    transient = status in (408, 425) or (status >= 500 and status not in _PERMANENT)
    raise _status_error(message, response, transient)


def _status_error(message: str, response: WebResponse, transient: bool) -> WonderError:
    head = response.body[: 4 * BODY_HEAD].decode("utf-8", "replace")[:BODY_HEAD]
    return error(
        Reason.TASK_FAILED, message, transient=transient, status=str(response.status), body=head.strip()
    )


def _retry_after_ms(text: str, now_ms: int) -> int | None:
    """Return the milliseconds of a ``Retry-After`` header, which has seconds or a date; None if it is
    invalid."""
    if text.isascii() and text.isdecimal():
        return min(int(text[:9]) * 1000, MAX_RETRY_AFTER_MS)
    try:
        until = parsedate_to_datetime(text).timestamp() * 1000
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None
    return min(max(int(until) - now_ms, 0), MAX_RETRY_AFTER_MS)


def _body(response: WebResponse) -> tuple[JsonValue, str]:
    """Return the body and its encoding: ``json``, ``text``, ``base64``, or ``none`` for an empty body."""
    if not response.body:
        return None, "none"
    kind, _, parameters = response.headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return msgspec.json.decode(response.body), "json"
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # The body is not JSON despite its content type: return it as text.
    try:
        return response.body.decode(_charset(parameters)), "text"
    except (UnicodeDecodeError, LookupError):
        return base64.b64encode(response.body).decode(), "base64"


def _charset(parameters: str) -> str:
    found = re.search(r"charset\s*=\s*\"?([a-z0-9_.:-]{1,40})", parameters)
    if found is None:
        return "utf-8"
    name = codecs.lookup(found[1]).name
    if name not in _CHARSETS:
        raise LookupError(name)
    return name


_SCALAR: Final = {"type": ["string", "number", "boolean"]}

HTTP = ActionKind(
    name="http",
    description=(
        "Sends a request to an HTTP server and returns its status, headers and body. Reaches public addresses"
        " and those that the project's network policy allows. Repeated after an error if the action's"
        " settings fix an idempotent method, or if the action is declared idempotent."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "method": {"enum": list(_METHODS), "description": f"Default: {DEFAULT_METHOD}."},
            "url": {
                "type": "string",
                "minLength": 1,
                "maxLength": 8192,
                "description": "http:// or https://, without user and password.",
            },
            "query": {
                "type": "object",
                "maxProperties": 1000,
                "additionalProperties": {
                    "anyOf": [_SCALAR, {"type": "array", "items": _SCALAR, "maxItems": 1000}]
                },
                "description": "Parameters to add to the query. A list repeats its name.",
            },
            "headers": {
                "type": "object",
                "maxProperties": 100,
                "propertyNames": {"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$"},
                "additionalProperties": {
                    "type": "string",
                    "maxLength": 8192,
                    "pattern": "^[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$",
                },
            },
            "body": {"description": "A string is sent as text, any other value as JSON. Null sends no body."},
            "fail_on_status": {
                "type": "boolean",
                "description": "False to return every status as a result, without retries. Default: true.",
            },
            "max_redirects": {
                "type": "integer",
                "minimum": 0,
                "maximum": 20,
                "description": (
                    "Maximum number of redirects. 0 returns a redirect as the result."
                    f" Default: {DEFAULT_REDIRECTS}."
                ),
            },
            "max_response_bytes": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_FILE_BYTES,
                "description": (
                    f"A longer body fails the step. At most {MAX_BYTES} without store_files."
                    f" Default: {DEFAULT_BYTES}; with store_files, {MAX_FILE_BYTES}."
                ),
            },
            "store_files": {
                "type": "boolean",
                "description": (
                    "True to store a body that is no text as a file of the project: `file` is"
                    " {type, file_id, media_type, name, size_bytes}, and a tool's result shows it to the"
                    " model. Default: false."
                ),
            },
            "idempotency_key": {
                "type": "boolean",
                "description": (
                    "True to send the header Idempotency-Key, the same in every attempt, with requests other"
                    " than GET, HEAD and OPTIONS. Default: true."
                ),
            },
        },
        "required": ["url"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "status": {"type": "integer"},
            "url": {"type": "string", "description": "URL of the response, after redirects."},
            "headers": {"type": "object", "description": "Names in lower case."},
            "body": {
                "description": "JSON if the content type is JSON, else a string; null if empty or stored."
            },
            "encoding": {
                "enum": ["json", "text", "base64", "none", "file"],
                "description": "Encoding of body; base64 if it is not text, file with store_files.",
            },
            "file": {
                "type": "object",
                "description": "The stored body; {type: text, text} with the reason if it is not stored.",
            },
        },
    },
    run=_run,
)
