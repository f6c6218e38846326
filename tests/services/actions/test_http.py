"""The action ``http``: requests, redirects and responses (feature H3)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.views import ForAll
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import Action, ModelProfile, Pin, PinnedTask, Step, Task
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.schema.schemas import validate
from wonder_server.core.task.outcome_errors import NotStartedError
from wonder_server.ports.web import WebRequest, WebResponse
from wonder_server.services.actions import (
    ACTIONS,
    ActionCall,
    ExecutionContext,
    ModelAccess,
    NetworkAccess,
    Services,
)
from wonder_server.services.tasks.executor import Executor, TaskOutcome

CONTEXT = ExecutionContext(project_id="proj_1", key="op_1/node")
POLICY = NetworkPolicy(http_allow=("ci.internal",))
URL = "https://api.example.com/v1"


class Nothing:
    """A service that ``http`` does not use: it fails on every use."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(name)


class Clock:
    def now_ms(self) -> int:
        return 1_767_225_600_000  # 2026-01-01T00:00:00Z


class Policies:
    async def network_policy(self, project_id: str) -> NetworkPolicy:
        if project_id != "proj_1":
            raise error(Reason.PROJECT_NOT_FOUND, f"There is no project '{project_id}'.")
        return POLICY


Answer = WebResponse | WonderError


class ScriptedWeb:
    """An HTTP client that returns given answers in order, and repeats the last."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.sent: list[WebRequest] = []

    async def send(self, request: WebRequest, policy: NetworkPolicy) -> WebResponse:
        assert policy is POLICY
        self.sent.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, WonderError):
            raise answer
        return answer

    async def close(self) -> None: ...


def answered(status: int = 200, body: bytes = b"", **headers: str) -> WebResponse:
    return WebResponse(
        status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=body
    )


def services(web: ScriptedWeb) -> Services:
    return Services(
        models=ModelAccess(model=Nothing(), default_profile=ModelProfile(provider="offline")),
        memory=Nothing(),
        history=Nothing(),
        network=NetworkAccess(web=web, mcp=Nothing(), policies=Policies()),
        clock=Clock(),
    )


async def run(web: ScriptedWeb, **input: JsonValue) -> JsonValue:
    given = {"url": URL, **input}
    assert validate(ACTIONS["http"].input_schema, given) == []
    call = ActionCall(input=given, context=CONTEXT, services=services(web))
    result = await ACTIONS["http"].run(call)
    assert validate(ACTIONS["http"].output_schema, result) == []
    return result


async def fault(web: ScriptedWeb, **input: JsonValue) -> Fault:
    with pytest.raises(WonderError) as caught:
        await run(web, **input)
    return caught.value.fault


async def executed(
    web: ScriptedWeb,
    mapping: dict[str, str] | None = None,
    idempotent: bool | None = None,
    **config: JsonValue,
) -> tuple[TaskOutcome, list[int]]:
    """Execute the action as a step of a task. Return the outcome and the pauses between attempts in
    milliseconds."""
    pauses: list[int] = []

    async def sleep(seconds: float) -> None:
        pauses.append(round(seconds * 1000))

    action = Action(kind="http", config={"url": URL, **config}, idempotent=idempotent)
    step = Step(
        id="ask", action=action, input_mapping=mapping or {}, output_mapping={"output.got": "result.status"}
    )
    pin = Pin(definition_id="def_1", library="demo", name="t", revision=1)
    task = PinnedTask(pin=pin, spec=Task(steps=(step,)))
    outcome = await Executor(ForAll(services(web)), services(web).clock, sleep=sleep).execute(
        task, {}, CONTEXT
    )
    return outcome, pauses


# --- the request --------------------------------------------------------------------------------


async def test_the_default_request_is_a_get_without_a_body() -> None:
    web = ScriptedWeb(answered())
    await run(web)
    assert web.sent == [WebRequest(method="GET", url=URL, headers={}, body=b"", max_bytes=1 << 20)]


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}', "application/json"),
        ([], "[]", "application/json"),
        (0, "0", "application/json"),
        (False, "false", "application/json"),
        ("a=1", "a=1", "text/plain; charset=utf-8"),
        ("", "", "text/plain; charset=utf-8"),
    ],
)
async def test_a_text_is_sent_as_it_is_and_the_rest_as_json(body: JsonValue, sent: str, kind: str) -> None:
    web = ScriptedWeb(answered())
    await run(web, method="PUT", body=body)
    assert (web.sent[0].body.decode(), web.sent[0].headers["Content-Type"]) == (sent, kind)


async def test_a_content_type_that_is_given_stays() -> None:
    web = ScriptedWeb(answered())
    await run(web, method="POST", body="a=1", headers={"content-type": "application/x-www-form-urlencoded"})
    assert web.sent[0].headers["content-type"] == "application/x-www-form-urlencoded"
    assert "Content-Type" not in web.sent[0].headers


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://a.b/x", "https://a.b/x?q=a%26b&n=2&f=0.5&on=true&t=1&t=two"),
        ("https://a.b/x?y=1#part", "https://a.b/x?y=1&q=a%26b&n=2&f=0.5&on=true&t=1&t=two"),
    ],
)
async def test_a_query_is_added_to_the_url(url: str, sent: str) -> None:
    web = ScriptedWeb(answered())
    await run(web, url=url, query={"q": "a&b", "n": 2.0, "f": 0.5, "on": True, "t": [1, "two"]})
    assert web.sent[0].url == sent


async def test_a_request_that_changes_something_carries_the_steps_key() -> None:
    for method, carries in {"GET": False, "HEAD": False, "POST": True, "PATCH": True, "DELETE": True}.items():
        web = ScriptedWeb(answered())
        await run(web, method=method)
        assert (web.sent[0].headers.get("Idempotency-Key") == "op_1/node") is carries


async def test_the_key_can_be_left_out_or_given() -> None:
    web = ScriptedWeb(answered())
    await run(web, method="POST", idempotency_key=False)
    assert web.sent[0].headers == {}
    await run(web, method="POST", headers={"idempotency-key": "mine"})
    assert web.sent[1].headers == {"idempotency-key": "mine"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": ""},
        {"url": "https://a.b/" + "x" * 9000},
        {"url": 7},
        {"method": "TRACE"},
        {"method": "get"},
        {"headers": {"a b": "c"}},
        {"headers": {"a": "b\r\nc: d"}},
        {"headers": {"a": 1}},
        {"query": {"a": {"b": 1}}},
        {"query": "a=1"},
        {"max_redirects": -1},
        {"max_response_bytes": 0},
        {"max_response_bytes": 1 << 30},
        {"proxy": "http://proxy"},
    ],
)
def test_an_input_that_is_no_request_does_not_fit_the_schema(wrong: JsonDict) -> None:
    assert validate(ACTIONS["http"].input_schema, {"url": URL, **wrong})
    assert validate(ACTIONS["http"].input_schema, {})


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "Connection", "Proxy-Authorization", "TE", "Expect"],
)
async def test_headers_that_the_connection_is_made_of_cannot_be_set(name: str) -> None:
    refused = await fault(ScriptedWeb(answered()), headers={name: "x"})
    assert (refused.reason, refused.field) == (Reason.INPUT_INVALID, "headers")


async def test_a_deleted_project_allows_no_request() -> None:
    call = ActionCall(
        input={"url": URL}, context=ExecutionContext(project_id="proj_2"), services=services(ScriptedWeb())
    )
    with pytest.raises(WonderError) as caught:
        await ACTIONS["http"].run(call)
    assert caught.value.fault.reason is Reason.PROJECT_NOT_FOUND


# --- the answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "body", "encoding"),
    [
        (answered(body=b'{"a": 1}', content_type="application/json"), {"a": 1}, "json"),
        (answered(body=b"[1]", content_type="application/problem+json; charset=utf-8"), [1], "json"),
        (answered(body=b"null", content_type="application/json"), None, "json"),
        (answered(body=b"{oops", content_type="application/json"), "{oops", "text"),
        (answered(body=b"[" * 100_000, content_type="application/json"), "[" * 100_000, "text"),
        (answered(body=b'{"a": 1}', content_type="text/plain"), '{"a": 1}', "text"),
        (answered(body="ü".encode()), "ü", "text"),
        (answered(body="ü".encode("latin-1"), content_type='text/plain; charset="ISO-8859-1"'), "ü", "text"),
        (answered(body=b"\xff\xfe\x00"), base64.b64encode(b"\xff\xfe\x00").decode(), "base64"),
        (answered(body=b"a", content_type="text/plain; charset=idna"), "YQ==", "base64"),
        (answered(body=b"a", content_type="text/plain; charset=nonsense"), "YQ==", "base64"),
        (answered(status=204), None, "none"),
    ],
)
async def test_a_body_is_json_if_the_answer_says_so_else_text_if_it_is_text(
    response: WebResponse, body: JsonValue, encoding: str
) -> None:
    result = await run(ScriptedWeb(response))
    assert (result["body"], result["encoding"]) == (body, encoding)


async def test_the_result_says_status_headers_and_where_it_came_from() -> None:
    result = await run(ScriptedWeb(answered(201, location="/v1/7")))
    assert (result["status"], result["headers"], result["url"]) == (201, {"location": "/v1/7"}, URL)


async def test_a_status_that_is_no_success_is_a_fault_with_the_head_of_the_body() -> None:
    refused = await fault(ScriptedWeb(answered(404, b"no such thing " * 1000)), url=URL + "?token=secret")
    assert (refused.reason, refused.transient) == (Reason.TASK_FAILED, False)
    assert refused.message == "api.example.com answered with status 404."
    assert refused.metadata["status"] == "404"
    assert refused.metadata["body"].startswith("no such thing") and len(refused.metadata["body"]) <= 500
    assert "secret" not in repr(refused)


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_every_status_can_be_a_result(status: int) -> None:
    outcome, pauses = await executed(ScriptedWeb(answered(status)), fail_on_status=False)
    assert (outcome.output, pauses) == ({"got": status}, [])


# --- what is tried again ------------------------------------------------------------------------


BROKEN = error(Reason.TASK_FAILED, "The connection broke.", transient=True)
UNREACHED = NotStartedError(Reason.TASK_FAILED, "The connection was refused.")


@pytest.mark.parametrize(
    ("method", "idempotent", "answer", "tries", "reason"),
    [
        ("GET", None, answered(500), 2, None),
        ("PUT", None, answered(502), 2, None),
        ("GET", None, BROKEN, 2, None),
        ("POST", None, answered(500), 1, Reason.OUTCOME_UNKNOWN),
        ("POST", None, answered(504), 1, Reason.OUTCOME_UNKNOWN),
        ("POST", None, BROKEN, 1, Reason.OUTCOME_UNKNOWN),
        ("POST", True, answered(500), 2, None),
        ("POST", True, BROKEN, 2, None),
        ("GET", False, BROKEN, 1, Reason.OUTCOME_UNKNOWN),
        ("POST", None, UNREACHED, 2, None),
        ("POST", None, answered(429), 2, None),
        ("POST", None, answered(503), 2, None),
        ("POST", None, answered(501), 1, Reason.TASK_FAILED),
        ("POST", None, answered(409), 1, Reason.TASK_FAILED),
    ],
)
async def test_a_failed_request_is_retried_if_it_is_repeatable_or_was_not_started(
    method: str, idempotent: bool | None, answer: Answer, tries: int, reason: Reason | None
) -> None:
    web = ScriptedWeb(answer, answered())
    outcome, _ = await executed(web, idempotent=idempotent, method=method)
    assert len(web.sent) == outcome.steps[0].tries == tries
    assert (outcome.fault.reason if outcome.fault else None) is reason
    assert len({request.headers.get("Idempotency-Key") for request in web.sent}) == 1
    may_repeat = method in ("GET", "PUT") if idempotent is None else idempotent
    assert {request.repeatable for request in web.sent} == {may_repeat}


async def test_a_mapped_method_makes_the_action_not_repeatable() -> None:
    web = ScriptedWeb(BROKEN, answered())
    outcome, _ = await executed(web, mapping={"method": "'GET'"})
    assert outcome.fault is not None and outcome.fault.reason is Reason.OUTCOME_UNKNOWN


@pytest.mark.parametrize(
    ("after", "pause"),
    [
        ("7", 7_000),
        ("0", 100),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9_000),
        ("Thu, 01 Jan 2020 00:00:00 GMT", 100),
        ("soon", 100),
        ("-5", 100),
        ("", 100),
    ],
)
async def test_a_retry_waits_for_the_retry_after_header(after: str, pause: int) -> None:
    outcome, pauses = await executed(ScriptedWeb(answered(429, retry_after=after), answered()))
    assert (outcome.output, pauses) == ({"got": 200}, [pause])


# --- redirects ----------------------------------------------------------------------------------


def moved(location: str, status: int = 302) -> WebResponse:
    return answered(status, location=location)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/v2", "https://api.example.com/v2"),
        ("v2?a=1#b", "https://api.example.com/v2?a=1"),
        ("https://other.example.com/x", "https://other.example.com/x"),
        ("//other.example.com/x", "https://other.example.com/x"),
    ],
)
async def test_a_redirect_is_followed_and_checked_like_the_first_request(location: str, url: str) -> None:
    web = ScriptedWeb(moved(location), answered())
    result = await run(web)
    assert [request.url for request in web.sent] == [URL, url]
    assert result["url"] == url


async def test_a_redirect_to_what_the_policy_refuses_is_refused() -> None:
    denied = error(Reason.PERMISSION_DENIED, "Not there.")
    assert (await fault(ScriptedWeb(moved("https://inside/"), denied))).reason is Reason.PERMISSION_DENIED


HEADERS = {"Authorization": "Bearer s", "X-Api-Key": "s", "Cookie": "s", "Accept": "text/plain"}


async def test_another_host_sees_no_secret() -> None:
    for location, kept in {
        "/v2": HEADERS,
        "https://other.example.com/": {"Accept": "text/plain"},
        "https://api.example.com:8443/": {"Accept": "text/plain"},
        "https://api.example.com.evil.com/": {"Accept": "text/plain"},
        "https://api.example.com@evil.com/": {"Accept": "text/plain"},
    }.items():
        web = ScriptedWeb(moved(location), answered())
        await run(web, headers=HEADERS)
        assert web.sent[1].headers == kept, location


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("PUT", 303, "GET"),
        ("HEAD", 303, "HEAD"),
        ("PUT", 302, "PUT"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
    ],
)
async def test_a_redirect_changes_the_method_by_its_status(method: str, status: int, then: str) -> None:
    web = ScriptedWeb(moved("/v2", status), answered())
    await run(web, method=method, body={"a": 1})
    second = web.sent[1]
    assert second.method == then
    if then == "GET":
        assert (second.body, second.headers) == (b"", {})
    else:
        assert json.loads(second.body) == {"a": 1}


async def test_a_change_is_not_sent_on_to_another_host() -> None:
    refused = await fault(ScriptedWeb(moved("https://other.example.com/", 307)), method="POST", body="x")
    assert refused.reason is Reason.TASK_FAILED
    assert "other.example.com" in refused.message


async def test_no_redirect_leaves_https() -> None:
    refused = await fault(ScriptedWeb(moved("http://api.example.com/v1")))
    assert refused.reason is Reason.TASK_FAILED


async def test_redirects_beyond_the_maximum_are_an_error() -> None:
    web = ScriptedWeb(moved(URL))
    assert (await fault(web, max_redirects=3)).reason is Reason.TASK_FAILED
    assert len(web.sent) == 4


@pytest.mark.parametrize(
    "input", [{"max_redirects": 0}, {}], ids=["redirects are not wanted", "there is no location"]
)
async def test_a_redirect_that_is_not_followed_is_the_result(input: JsonDict) -> None:
    answer: Callable[[], WebResponse] = lambda: moved("/v2") if input else answered(302)  # noqa: E731
    web = ScriptedWeb(answer())
    assert (await run(web, **input))["status"] == 302
    assert len(web.sent) == 1
