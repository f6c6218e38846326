"""Records of merged branches: one for each merge, whatever ids clients choose."""

from __future__ import annotations

import pytest

from tests.actors.conversation.test_conversations import ConversationStage
from tests.actors.conversation.test_deletion import lifecycle_of
from tests.actors.kit import origin
from wonder_server.core.conversation.model.lifecycle_inputs import ReportMerge
from wonder_server.core.conversation.model.values import BranchMerge
from wonder_server.core.idempotency import Origin, content_key
from wonder_server.core.identity import SERVER
from wonder_server.ports.records import EventQuery

MERGE = BranchMerge(repository="repo", branch="work", target_branch="main", commit="c1", user_id="ann")


async def merges(stage: ConversationStage, conversation_id: str) -> int:
    events = await stage.conversations.events(EventQuery(actor=conversation_id, limit=100))
    return sum(event.emit.name == "branch.merged" for event in events)


@pytest.mark.parametrize("name, request_id", [("", "merged/repo/c1"), ("", "repo/c1"), ("merged", "repo/c1")])
async def test_the_id_of_a_client_does_not_hide_a_merge(name: str, request_id: str) -> None:
    stage = ConversationStage()
    lifecycle, conversation_id = lifecycle_of(stage), (await stage.create_conversation()).id
    await lifecycle.reopen(conversation_id, version=0, origin=origin(request_id, name))
    for _ in range(2):
        await lifecycle.record_merge(conversation_id, MERGE, SERVER)
    assert await merges(stage, conversation_id) == 1


async def test_a_merge_that_an_earlier_version_recorded_is_not_recorded_again() -> None:
    stage = ConversationStage()
    lifecycle, conversation_id = lifecycle_of(stage), (await stage.create_conversation()).id
    earlier = content_key(conversation_id, Origin(SERVER, "merged/repo/c1"), merge="c1")
    await stage.conversations.ask(conversation_id, ReportMerge(merge=MERGE), earlier)
    await lifecycle.record_merge(conversation_id, MERGE, SERVER)
    assert await merges(stage, conversation_id) == 1
