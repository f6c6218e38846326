"""Folders of earlier builds open, go on, and replay.

`tests/golden/record_folder.py` recorded them. Their servers were killed in the middle of a turn.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, struct
from tests.e2e.journals import assert_replays
from tests.e2e.process import serving
from tests.e2e.test_lost_stores import wonder
from tests.paths import ROOT
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import memory_service_pb2 as memory
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDERS = sorted((ROOT / "tests" / "golden" / "folders").glob("*.tar.xz"))


@pytest.mark.parametrize("packed", FOLDERS, ids=[path.name.split(".")[0] for path in FOLDERS])
async def test_a_folder_of_an_earlier_build_goes_on_and_replays(packed: Path, data: Path) -> None:
    with tarfile.open(packed) as archive:
        # The argument `filter` came with Python 3.11.4; the attribute is ignored by earlier versions.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(data)
    async with serving(data) as server, server.client() as client:
        await the_turn_that_was_cut_ends(client)
        await a_conversation_goes_on(client)
        await the_archived_conversation_comes_back(client)
        await runs_that_wait_go_on(client)
    assert await assert_replays(data) > 10
    code, said = await wonder("check", str(data), "--quiet")
    assert code == 0, said


async def named(client: Client, external_ref: str) -> conversation.Conversation:
    request = pb.GetConversationRequest(external_ref=external_ref)
    return (await client.conversations.GetConversation(request)).conversation


async def the_turn_that_was_cut_ends(client: Client) -> None:
    conv = (await named(client, "cut")).id
    (turn,) = (await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))).turns
    await client.settled(conv, turn.id)
    assert [m.content for m in await client.messages(conv)] == [
        "say 40 words",
        " ".join(f"word{number}" for number in range(1, 41)),
    ]


async def a_conversation_goes_on(client: Client) -> None:
    found = await named(client, "open")
    before = await client.messages(found.id)
    assert before[0].content == "remember that I like tea" and found.turn_count == 2
    assert await client.open(external_ref="open", request_id="open") == found.id, "the request is known"
    search = memory.SearchMemoriesRequest(agent_id="assistant", query="Who likes bones?")
    hits = (await client.memory.SearchMemories(search)).hits
    assert "My dog is called Rex and likes bones." in [hit.memory.content for hit in hits]
    turn, view = await client.turn(found.id, "say 3 words")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and turn.ordinal == 3
    assert [event.sequence for event in view.events] == list(range(1, len(view.events) + 1))
    after = await client.messages(found.id)
    assert after[: len(before)] == before and after[-1].content == "word1 word2 word3"


async def the_archived_conversation_comes_back(client: Client) -> None:
    found = await named(client, "away")
    assert found.HasField("archive_time")
    assert [m.content for m in await client.messages(found.id)] == ["say 3 words", "word1 word2 word3"]
    assert not (await named(client, "away")).HasField("archive_time")


async def runs_that_wait_go_on(client: Client) -> None:
    coordinator = client.coordinator
    # The ids of the requests that started them are known.
    starts = {
        name: runs.StartRunRequest(workflow_id=f"old/{name}", input=struct(), request_id=name, wait_ms=1)
        for name in ("fan", "gate", "signal")
    }
    found = {name: (await coordinator.StartRun(start)).run for name, start in starts.items()}
    assert found["fan"].status == run_pb2.RUN_STATUS_COMPLETED
    assert MessageToDict(found["fan"].output) == {"n": [10, 20, 30]}
    (gate,) = (await coordinator.ListGates(runs.ListGatesRequest(run_id=found["gate"].id))).gates
    answer = runs.ResolveGateRequest(
        gate_id=gate.id,
        decision=runs.GATE_DECISION_APPROVE,
        shown_hash=gate.shown_hash,
        answer=struct(text="edited"),
        user_id="mia",
    )
    await coordinator.ResolveGate(answer)
    signal = {"name": "paid", "payload": {"number_value": 7}}
    await coordinator.SignalRun(runs.SignalRunRequest(run_id=found["signal"].id, signal=signal))
    for start in starts.values():
        start.wait_ms = 30_000
    ended = {name: (await coordinator.StartRun(start)).run for name, start in starts.items()}
    assert {run.status for run in ended.values()} == {run_pb2.RUN_STATUS_COMPLETED}
    assert MessageToDict(ended["gate"].output) == {"text": "edited", "decision": "approved"}
    assert MessageToDict(ended["signal"].output) == {"paid": 7}
    for run in ended.values():
        assert (await coordinator.ReplayRun(runs.ReplayRunRequest(run_id=run.id))).identical
