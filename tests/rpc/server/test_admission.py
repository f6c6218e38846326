"""Call slots: shares of callers, slots reserved for unary calls, and rate-limited log lines of refusals."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.e2e.callers import TOKENS, tokens_file
from tests.rpc.rpc_kit import rejected, serving, token_principal
from tests.views import ForAll
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import conversation_service_pb2_grpc as stubs
from wonder_server.core.errors import Reason, WonderError
from wonder_server.rpc.conversation.parts import ConversationParts
from wonder_server.rpc.conversation.servicer import ConversationServicer
from wonder_server.rpc.server.admission import ActiveCall, Admission, CallLimits
from wonder_server.rpc.server.authentication import TokensFile
from wonder_server.rpc.server.rejection_log import RejectionLog
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.settings import Settings, SettingsError


async def enter(admission: Admission, name: str = "", *, is_stream: bool = False) -> ActiveCall:
    token = current_principal.set(token_principal(name))
    try:
        return admission.admit(is_stream=is_stream)
    finally:
        current_principal.reset(token)


async def is_full(admission: Admission, name: str = "", *, is_stream: bool = False) -> str:
    with pytest.raises(WonderError) as problem:
        await enter(admission, name, is_stream=is_stream)
    assert problem.value.fault.reason is Reason.LIMIT_EXCEEDED
    return problem.value.fault.message


async def test_one_caller_never_takes_the_slot_of_another() -> None:
    admission = Admission(CallLimits(total=4, streams=4, per_caller=2))
    visits = [await enter(admission, "ann") for _ in range(2)]
    assert "2 calls of 'ann'" in await is_full(admission, "ann")
    for _ in range(2):
        await enter(admission, "bob")
    assert "serves 4 calls." in await is_full(admission, "carl")
    admission.release(visits[0])
    assert "2 calls of 'bob'" in await is_full(admission, "bob") and admission.active_calls == 3
    await enter(admission, "ann")


async def test_streams_leave_a_slot_for_other_calls() -> None:
    admission = Admission(CallLimits(total=4, streams=3, per_caller=4))
    streams = [await enter(admission, is_stream=True) for _ in range(3)]
    assert "3 streams" in await is_full(admission, is_stream=True)
    await enter(admission)
    admission.release(streams[0])
    await enter(admission, is_stream=True)


async def test_without_caller_names_no_share_is_reserved() -> None:
    admission = Admission(CallLimits(total=4, streams=4, per_caller=1))
    for _ in range(4):
        await enter(admission)
    assert admission.active_calls == 4


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({}, CallLimits(total=10_000, streams=9_000, per_caller=5_000)),
        ({"max_concurrent_rpcs": 1}, CallLimits(total=1, streams=1, per_caller=1)),
        ({"max_streams": 7, "max_caller_rpcs": 5}, CallLimits(total=10_000, streams=7, per_caller=5)),
        (
            {"max_concurrent_rpcs": 3, "max_streams": 7, "max_caller_rpcs": 5},
            CallLimits(total=3, streams=3, per_caller=3),
        ),
    ],
)
def test_shares_follow_from_the_settings(settings: dict[str, int], places: CallLimits) -> None:
    assert CallLimits.from_settings(Settings(**settings)) == places  # type: ignore[arg-type]


# --- the log ----------------------------------------------------------------------------------------


class Later:
    """A timer that runs its callbacks when the test calls ``second``."""

    def __init__(self) -> None:
        self._acts: list[Callable[[], None]] = []

    def __call__(self, _seconds: float, act: Callable[[], None]) -> None:
        self._acts.append(act)

    def second(self) -> None:
        acts, self._acts = self._acts, []
        for act in acts:
            act()


def lines(logs: list[Any]) -> list[tuple[str, str, int]]:
    return [(line["reason"], line["rpc"], line["calls"]) for line in logs if line["event"] == "rpc_rejected"]


def test_a_read_of_something_that_does_not_exist_is_no_warning() -> None:
    refusals = RejectionLog(Later())
    with capture_logs() as logs:
        refusals.record(Reason.LIBRARY_NOT_FOUND, is_read=True, rpc="GetLibrary")
        refusals.record(Reason.LIBRARY_NOT_FOUND, rpc="UpdateLibrary")
        refusals.record(Reason.FIELD_INVALID, is_read=True, rpc="GetLibrary")
    assert [(line["rpc"], line["log_level"]) for line in logs] == [
        ("GetLibrary", "info"), ("UpdateLibrary", "warning"), ("GetLibrary", "warning"),
    ]  # fmt: skip


def test_refusals_are_one_line_a_second_and_reason() -> None:
    later = Later()
    refusals = RejectionLog(later)
    with capture_logs() as logs:
        for number in range(1_000):
            refusals.record(Reason.FIELD_INVALID, rpc=f"a{number}")
            refusals.record(Reason.LIMIT_EXCEEDED, rpc="b")
        first = [("FIELD_INVALID", "a0", 1), ("LIMIT_EXCEEDED", "b", 1)]
        assert lines(logs) == first
        later.second()
        assert lines(logs) == [*first, ("FIELD_INVALID", "a999", 999), ("LIMIT_EXCEEDED", "b", 999)]
        refusals.record(Reason.FIELD_INVALID, rpc="c")
        assert len(lines(logs)) == 4
        later.second()
        assert lines(logs)[4:] == [("FIELD_INVALID", "c", 1)]
        # After a second without any, the next is said at once again.
        later.second()
        refusals.record(Reason.FIELD_INVALID, rpc="d")
        assert lines(logs)[5:] == [("FIELD_INVALID", "d", 1)]
        refusals.record(Reason.FIELD_INVALID, rpc="e")
        refusals.flush()
        assert lines(logs)[6:] == [("FIELD_INVALID", "e", 1)]


async def test_a_flood_of_bad_calls_logs_few_lines() -> None:
    with capture_logs() as logs:
        async with serving({}, max_request_bytes=65_536) as channel:
            stub = stubs.ConversationServiceStub(channel)  # type: ignore[no-untyped-call]
            too_long = pb.GetTurnRequest(turn_id="x" * 70_000)
            calls = [stub.GetTurn(too_long) for _ in range(50)]
            for call in calls:
                await rejected(call)
    found = lines(logs)
    assert sum(calls for _, _, calls in found) == 50 and len(found) < 50
    assert found[0][2] == 1


# --- streams that say nothing -----------------------------------------------------------------------


async def test_a_stream_that_never_attaches_ends_and_releases_its_slot() -> None:
    nothing: Any = SimpleNamespace(lookup=SimpleNamespace(records=None))
    parts = ForAll(ConversationParts(*[nothing] * 7))
    servicer = ConversationServicer(parts, nothing, attach_timeout_s=0.01)
    servicers = {"wonder.v1.ConversationService": servicer}
    async with serving(servicers, max_concurrent_rpcs=1) as channel:
        stub = stubs.ConversationServiceStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(3):
            assert await rejected(stub.Converse().read()) == ("NOT_ATTACHED", ["attach"])


# --- the tokens file --------------------------------------------------------------------------------


def test_a_tokens_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    file = TokensFile(tokens_file(tmp_path, "ann"), interval_s=0)
    first = file.current()
    assert file.current() is first and len(first) == 1
    tokens_file(tmp_path, "ann", "bob")
    assert len(file.current()) == 2
    with capture_logs() as logs:
        for bad in ("short x\n", ""):
            (tmp_path / "tokens").write_text(bad)
            assert len(file.current()) == len(file.current()) == 2
        (tmp_path / "tokens").unlink()
        assert len(file.current()) == len(file.current()) == 2
    assert [line["event"] for line in logs] == ["tokens_file_rejected"] * 3
    tokens_file(tmp_path, "bob")
    assert len(file.current()) == 1


def test_a_tokens_file_is_checked_once_a_second(tmp_path: Path) -> None:
    file = TokensFile(tokens_file(tmp_path, "ann"), interval_s=1e9)
    first = file.current()
    tokens_file(tmp_path, "ann", "bob")
    assert file.current() is first


def test_a_tokens_file_must_be_valid_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        TokensFile(tmp_path / "missing")


def test_a_tokens_file_that_becomes_a_pipe_blocks_no_call(tmp_path: Path) -> None:
    file = TokensFile(path := tokens_file(tmp_path, "ann"), interval_s=0)
    path.unlink()
    os.mkfifo(path)
    # Without a writer, opening it would wait for ever; with one that is silent, reading would.
    assert file.current().find(TOKENS["ann"]).name == "ann"  # type: ignore[union-attr]
    with pytest.raises(SettingsError, match="cannot be read: it is not a plain file"):
        TokensFile(path)


def test_a_change_in_place_is_detected_with_equal_size_and_time(tmp_path: Path) -> None:
    path = tokens_file(tmp_path, "ann")
    before = path.stat()
    file = TokensFile(path, interval_s=0)
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_text(f"{TOKENS['ann']} eve\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_size == before.st_size
    assert file.current().find(TOKENS["ann"]).name == "eve"  # type: ignore[union-attr]
