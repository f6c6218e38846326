"""An MCP server that violates the protocol: ``python hostile_mcp_server.py START [FILE]`` uses stdio.

The name of a tool is its violation (`CALLS`); ``well`` is a correct tool. ``START`` is the violation at the
start (`STARTS`), or ``well``. The server writes the ids of its processes to FILE. It imports only the
standard library, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
"""A message of the protocol, as JSON."""

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: secret\n'
MIB = 1 << 20

FILE = sys.argv[2] if len(sys.argv) > 2 else ""


def note(pid: int) -> None:
    """Write a process id to FILE."""
    if FILE:
        with open(FILE, "a") as out:
            out.write(f"{pid}\n")


def write(line: str | bytes) -> None:
    """Write bytes to standard output."""
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: Message) -> None:
    """Write a message to standard output."""
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def text(said: str) -> Message:
    """Return a result."""
    return {"content": [{"type": "text", "text": said}], "isError": False}


def answer(request: Message, said: str = "fine") -> None:
    """Answer correctly."""
    send({"id": request["id"], "result": text(said)})


def raw(result: str) -> Callable[[Message], None]:
    """Return a tool with this JSON as its result."""
    return lambda request: write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{result}}}\n')


def raw_message(rest: str) -> Callable[[Message], None]:
    """Return a tool that answers with an id and these fields."""
    return lambda request: write(f'{{"jsonrpc":"2.0","id":{request["id"]},{rest}}}\n')


# --- calls --------------------------------------------------------------------------------------


def huge(size: int) -> Callable[[Message], None]:
    """Return a tool with a large answer."""

    def call(request: Message) -> None:
        write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"content":[{{"type":"text","text":"')
        for _ in range(size // MIB):
            write(b"x" * MIB)
        write('"}]}}\n')

    return call


def id_last(request: Message) -> None:
    """Send a large answer with its id at the end, as some servers write it."""
    write('{"result":{"content":[{"type":"text","text":"')
    for _ in range(8):
        write(b"x" * MIB)
    write(f'"}}]}},"jsonrpc":"2.0","id":{request["id"]}}}\n')


def endless(request: Message) -> None:
    """Write bytes without a line end."""
    while True:
        write(b"x" * MIB)


def flood(message: Message) -> Callable[[Message], None]:
    """Return a tool that repeats a message before its answer."""

    def call(request: Message) -> None:
        token = request["params"].get("_meta", {}).get("progressToken")
        line = json.dumps({"jsonrpc": "2.0", **message}).replace('"TOKEN"', json.dumps(token)) + "\n"
        for _ in range(200):
            write(line * 1000)
        answer(request)

    return call


def asks(method: str) -> Callable[[Message], None]:
    """Return a tool that sends a request to the client, and answers with the response."""

    def call(request: Message) -> None:
        send({"id": "theirs", "method": method, "params": {}})
        while (reply := json.loads(sys.stdin.readline())).get("id") != "theirs":
            pass
        answer(request, json.dumps(reply.get("error", reply.get("result"))))

    return call


def many_requests(request: Message) -> None:
    """Send requests without reading the responses, then answer."""
    for number in range(900):
        send({"id": number, "method": "sampling/createMessage", "params": {"x": "y" * 1000}})
    answer(request)


def noisy(request: Message) -> None:
    """Write stack traces, control characters, invalid UTF-8 and an endless line to standard error."""
    sys.stderr.buffer.write(b"\x1b[31mred\x00\xff\xfe \xe2\x80\xae\n")
    sys.stderr.write(TRACEBACK * 2000)
    sys.stderr.buffer.write(b"z" * MIB)
    sys.stderr.buffer.flush()
    answer(request)


def daemon(request: Message) -> None:
    """Start processes that ignore signals, in sessions of their own, with the server's pipes."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
        if os.fork() == 0:
            note(os.getpid())
            answer(request)
            while True:
                time.sleep(60)
        os._exit(0)


def leaves(partial: str) -> Callable[[Message], None]:
    """Return a tool that ends the process."""

    def call(request: Message) -> None:
        write(partial)
        sys.stderr.write(TRACEBACK)
        sys.stderr.flush()
        os._exit(3)

    return call


def unresponsive(request: Message) -> None:
    """Never read again, and never answer."""
    while True:
        time.sleep(60)


def wrong_ids(request: Message) -> None:
    """Answer other requests first, and answer twice."""
    for wrong in (request["id"] + 1000, -1, "x", None, str(request["id"]) + "0", 10**30, 1.5):
        send({"id": wrong, "result": text("wrong")})
    answer(request)
    answer(request, "again")


def junk_first(request: Message) -> None:
    """Write lines that are not messages, then answer."""
    write(TRACEBACK)
    answer(request)


def bad_progress(request: Message) -> None:
    """Report progress that no number can express, then answer."""
    params = f'{{"progressToken":{request["id"]},"progress":1{"0" * 400}}}'
    write(f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}\n')
    answer(request)


TOKENS = [b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"1e999", b"-0", b"NaN", b"\\ud800", b"\x00"]
TOKENS += [b"\n", b"\xff", b"\r\n", b'"id"', b'"method"', b'"error"', b'"result"', b'"params"', b"9" * 20]
TOKENS += [b'"_meta"', b'"resultType"', b'"content"', b'"type"', b'"progressToken"', b"true", b""]


def fuzz(request: Message) -> None:
    """Write mutated messages, by the ``seed`` of the arguments, then answer."""
    chance, about = random.Random(request["params"]["arguments"]["seed"]), request["id"]
    given = [
        {"id": about, "result": text("mutated")},
        {"id": about, "result": {**text("mutated"), "structuredContent": {"a": [1, {"b": None}]}}},
        {"id": about, "error": {"code": -1, "message": "mutated", "data": {}}},
        {"method": "notifications/progress", "params": {"progressToken": about, "progress": 1, "total": 2}},
        {"method": "notifications/cancelled", "params": {"requestId": about, "reason": "x"}},
        {"id": "theirs", "method": "elicitation/create", "params": {"message": "x", "requestedSchema": {}}},
    ]
    for _ in range(20):
        line = json.dumps({"jsonrpc": "2.0", **chance.choice(given)}).encode()
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(line))
            line = line[:at] + chance.choice(TOKENS) + line[at + chance.choice((0, 0, 1, 5, 20)) :]
        write(line + b"\n")
    answer(request)


CALLS: dict[str, Callable[[Message], None]] = {
    "well": answer,
    "huge": huge(40 * MIB),
    "fits": huge(3 * MIB),
    "fits_small": raw('{"content":[],"structuredContent":{"a":[' + "0," * (2 * MIB - 100) + "0]}}"),
    "id_last": id_last,
    "endless": endless,
    "log_flood": flood({"method": "notifications/message", "params": {"level": "error", "data": "x"}}),
    "progress_flood": flood(
        {"method": "notifications/progress", "params": {"progressToken": "TOKEN", "progress": 1}}
    ),
    "list_flood": flood({"method": "notifications/tools/list_changed"}),
    "request_flood": flood({"id": "a", "method": "sampling/createMessage", "params": {}}),
    "answer_flood": flood({"id": 10**6, "result": {}}),
    "blank_flood": lambda request: write(b"\n" * (4 * MIB)),
    "junk_flood": lambda request: write(b"{]\n" * MIB),
    "sampling": asks("sampling/createMessage"),
    "elicitation": asks("elicitation/create"),
    "roots": asks("roots/list"),
    "unknown_request": asks("\x1b[31m/rm"),
    "ping": asks("ping"),
    "many_requests": many_requests,
    "noisy": noisy,
    "daemon": daemon,
    "fuzz": fuzz,
    "exit": leaves(""),
    "partial": leaves('{"jsonrpc":"2.0","id":'),
    "deaf": unresponsive,
    "wrong_ids": wrong_ids,
    "junk_first": junk_first,
    "no_utf8": lambda request: write(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xff"}]}}\n' % request["id"]
    ),
    "deep": raw("[" * 100_000 + "]" * 100_000),
    "deeper_than_we_take": raw('{"content":[],"structuredContent":{"a":' + "[" * 150 + "]" * 150 + "}}"),
    "surrogate": raw(r'{"content":[{"type":"text","text":"\ud800"}]}'),
    "nan": raw('{"content":[],"structuredContent":{"a":NaN,"b":Infinity}}'),
    "big_number": raw('{"content":[],"structuredContent":{"a":1' + "0" * 5000 + "}}"),
    "no_result": raw_message('"nothing":1'),
    "number": raw("5"),
    "null": raw("null"),
    "empty": raw("{}"),
    "content_text": raw('{"content":"text"}'),
    "unknown_content": raw('{"content":[{"type":"nonsense","x":1}]}'),
    "wants_input": raw('{"resultType":"input_required","inputRequests":{}}'),
    "both": raw_message('"result":{"content":[]},"error":{"code":1,"message":"x"}'),
    "error_text": raw_message('"error":{"code":1,"message":5}'),
    "error": raw_message(f'"error":{{"code":-5,"message":{json.dumps(chr(27) + "[31m" + "no " * 1000)}}}'),
    "parse_error": raw_message('"error":{"code":-32700,"message":"1 validation error for JSONRPCRequest"}'),
    "closed_error": raw_message('"error":{"code":-32000,"message":"x"}'),
    "bad_progress": bad_progress,
}


# --- starts -------------------------------------------------------------------------------------


def begun(request: Message, **changed: Any) -> Message:
    """Return the result of ``initialize``."""
    version = request["params"]["protocolVersion"]
    about = {"name": "hostile\x1b[31m", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about, **changed}


def start(how: str, request: Message) -> None:
    """Answer ``initialize``."""
    result: Message = begun(request)
    if how == "refuses":
        return send({"id": request["id"], "error": {"code": 1, "message": TRACEBACK}})
    if how == "huge_start":
        return huge(40 * MIB)(request)
    if how == "wrong_version":
        result = begun(request, protocolVersion="1999-01-01")
    if how == "wrong_types":
        result = {"protocolVersion": [], "capabilities": 5}
    if how == "junk_start":
        write(TRACEBACK + "\x00\xff\n\n[]\n5\n")
    if how == "flood_start":
        for _ in range(100):
            write('{"jsonrpc":"2.0","method":"notifications/message"}\n' * 1000)
    return send({"id": request["id"], "result": result})


STARTS = {"well", "ends", "dies", "silent", "refuses", "huge_start", "wrong_version", "wrong_types"}
STARTS |= {"junk_start", "flood_start"}


def main() -> None:
    """Serve requests until the input ends."""
    how = sys.argv[1]
    note(os.getpid())
    if how == "ends":
        sys.exit(0)
    if how == "dies":
        sys.stderr.write(TRACEBACK)
        sys.exit(1)
    for line in sys.stdin:
        message = json.loads(line)
        if how == "silent" or "id" not in message or "method" not in message:
            continue
        if message["method"] == "initialize":
            start(how, message)
        elif message["method"] == "tools/call":
            CALLS[message["params"]["name"]](message)
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
