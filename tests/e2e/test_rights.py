"""Rights to act in the name of others and to delete, at the server of `test_callers`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.client import Client, struct
from tests.e2e.test_callers import House, asking, drained, house
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import executor_service_pb2 as tasks
from wonder.v1 import library_service_pb2 as library

__all__ = ["house"]

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_no_client_calls_an_agent_as_an_agent_or_a_run(house: House) -> None:
    await asking(house)
    for kind, caller in (
        ("agent", {"agent": {"agent_id": "", "turn_id": ""}}),
        ("workflow", {"workflow": {"run_id": house.run}}),
    ):
        call = pb.CallAgentRequest(agent_id="assistant", input={"string_value": "say 1 word"}, caller=caller)
        assert await rejected(house.bob.conversations.CallAgent(call)) == (
            "PERMISSION_DENIED",
            [f"caller.{kind}"],
        )
        assert (await house.proxy.conversations.CallAgent(call)).turn.caller.WhichOneof("caller") == kind


async def test_an_artifacts_history_names_who_wrote_it(house: House) -> None:
    def write(who: Client, author: str) -> Any:
        request = library.WriteArtifactRequest(
            project_id="default", path="signed.md", content=b"x" + author.encode(), author=author
        )
        return who.library.WriteArtifact(request)

    def merge(who: Client, author: str) -> Any:
        request = library.MergeArtifactsRequest(project_id="default", source_branch="own", author=author)
        return who.library.MergeArtifacts(request)

    assert (await write(house.bob, "bob")).artifact.revision.author == "bob"
    assert (await write(house.bob, "")).artifact.revision.author == "bob"
    assert await rejected(write(house.bob, "ann")) == ("PERMISSION_DENIED", ["author"])
    assert await rejected(merge(house.bob, "ann")) == ("PERMISSION_DENIED", ["author"])
    assert (await write(house.proxy, "ann")).artifact.revision.author == "ann"


async def test_a_merge_deletes_by_a_resolution_only_for_an_admin(house: House) -> None:
    request = library.MergeArtifactsRequest(project_id="default", source_branch="own")
    request.resolutions.add(path="signed.md", deletion=True)
    assert await rejected(house.bob.library.MergeArtifacts(request)) == ("PERMISSION_DENIED", ["resolutions"])


async def test_what_a_task_deletes_only_an_admin_has_deleted(house: House) -> None:
    await asking(house)
    write = library.WriteArtifactRequest(project_id="default", path="kept.md", content=b"kept")
    await house.ann.library.WriteArtifact(write)
    remove = library.WriteArtifactRequest(project_id="default", path="kept.md", deletion=True)
    assert await rejected(house.bob.library.WriteArtifact(remove)) == ("PERMISSION_DENIED", ["deletion"])

    forget = {"task_id": "team/forget", "input": struct(id=house.memory)}
    tidy = {"task_id": "team/tidy"}
    for fields in (forget, tidy):
        execute, stream = tasks.ExecuteTaskRequest(**fields), tasks.StreamTaskRequest(**fields)
        assert await rejected(house.bob.executor.ExecuteTask(execute)) == ("PERMISSION_DENIED", ["task_id"])
        assert await rejected(drained(house.bob.executor.StreamTask(stream))) == (
            "PERMISSION_DENIED",
            ["task_id"],
        )
    done = tasks.ExecuteTaskRequest(context={"agent_id": "assistant"}, **forget)
    assert not (await house.ann.executor.ExecuteTask(done)).result.HasField("error")
    assert not (await house.ann.executor.ExecuteTask(tasks.ExecuteTaskRequest(**tidy))).result.HasField(
        "error"
    )


async def test_work_is_anothers_only_by_right(house: House) -> None:
    """An agent's memories are its own to delete, so working as one needs `admin`; the rest needs `act_as`."""
    await asking(house)
    said = await house.ann.say(house.conv, "say 1 word")
    house.turn = said.turn.id
    for name, value in (
        ("agent_id", "assistant"),
        ("conversation_id", house.conv),
        ("turn_id", house.turn),
        ("run_id", house.run),
        ("branch", f"wonder/conv-{house.conv.removeprefix('conv_')}"),
        ("branch", f"wonder/run-{house.run.removeprefix('run_')}"),
    ):
        place = ("PERMISSION_DENIED", [f"context.{name}"])
        task = {"task_id": "team/note", "input": struct(said="x"), "context": {name: value}}
        assert await rejected(house.bob.executor.ExecuteTask(tasks.ExecuteTaskRequest(**task))) == place
        stream = house.bob.executor.StreamTask(tasks.StreamTaskRequest(**task))
        assert await rejected(drained(stream)) == place
        start = runs.StartRunRequest(workflow_id="team/asks", context={name: value})
        assert await rejected(house.bob.coordinator.StartRun(start)) == place
        assert (await house.proxy.coordinator.StartRun(start)).run.id
        done = await house.proxy.executor.ExecuteTask(tasks.ExecuteTaskRequest(**task))
        assert not done.result.HasField("error")
