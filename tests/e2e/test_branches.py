"""Work on code over gRPC, in a real server: branches of conversations, of called agents and of runs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_agent_nodes import conversation_of, ended, output
from tests.fakes.provider import Call, Provider, Script
from tests.paths import ROOT
from tests.rpc.rpc_kit import rejected
from tests.services.content.repositories_kit import UsersRepository, need_git
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2, library_pb2, run_pb2
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import library_service_pb2 as library

need_git()
pytestmark = pytest.mark.asyncio(loop_scope="session")

WORK = """
name: write
description: Writes a file.
task:
  steps:
    - id: write
      action: {kind: repo.write}
      input_mapping: {path: input.path, content: input.content}
      output_mapping: {output.etag: result.etag}
---
name: read
description: Reads a file.
task:
  steps:
    - id: read
      action: {kind: repo.read}
      input_mapping: {path: input.path}
      output_mapping: {output.content: result.content}
---
name: ship
description: Merges.
task:
  steps:
    - id: merge
      action: {kind: repo.merge}
      output_mapping: {output.commit: result.commit}
---
name: write_file
description: Writes a file of the repository.
tool:
  name: write_file
  description: Writes a file.
  input_schema:
    type: object
    properties: {path: {type: string}, content: {type: string}}
    required: [path, content]
  target_type: task
  target_id: write
---
name: write_and_read
workflow:
  nodes:
    - {id: write, task_id: write, input_mapping: {path: input.path, content: input.content}}
    - id: read
      task_id: read
      input_mapping: {path: input.path}
      output_mapping: {output.content: result.content}
  transitions: [{from_node_id: write, to_node_id: read}]
---
name: write_and_ship
workflow:
  nodes:
    - {id: write, task_id: write, input_mapping: {path: input.path, content: input.content}}
    - {id: ship, task_id: ship, output_mapping: {output.commit: result.commit}}
  transitions: [{from_node_id: write, to_node_id: ship}]
"""

_numbers = itertools.count(1)


class Team:
    """A project with a repository, and what its agents can do there."""

    def __init__(self, client: Client, origin: UsersRepository, project: str) -> None:
        self.client, self.origin, self.project = client, origin, project

    async def conv(self) -> str:
        return await self.client.open(project_id=self.project)

    async def task(self, task: str, conv: str = "", branch: str = "", **input: Any) -> Any:
        request = executor.ExecuteTaskRequest(task_id=f"e2e/code/{task}", input=struct(**input))
        request.context.project_id = self.project
        request.context.conversation_id = conv
        request.context.branch = branch
        return (await self.client.executor.ExecuteTask(request)).result

    async def write(self, conv: str, path: str, content: str) -> None:
        result = await self.task("write", conv, path=path, content=content)
        assert not result.HasField("error"), result.error

    async def read(self, conv: str, path: str) -> str:
        result = await self.task("read", conv, path=path)
        return str(dict(result.output)["content"])

    async def diff(self, conv: str, **fields: Any) -> pb.DiffBranchResponse:
        request = pb.DiffBranchRequest(conversation_id=conv, **fields)
        answer: pb.DiffBranchResponse = await self.client.conversations.DiffBranch(request)
        return answer

    async def merge(self, conv: str, **fields: Any) -> pb.MergeBranchResponse:
        request = pb.MergeBranchRequest(conversation_id=conv, **fields)
        answer: pb.MergeBranchResponse = await self.client.conversations.MergeBranch(request)
        return answer


async def team(client: Client, folder: Path) -> Team:
    """A team of its own."""
    origin = UsersRepository(folder / "users")
    project = library_pb2.Project(name=f"code{next(_numbers)}")
    project.repositories.add(name="code", url=str(origin.folder))
    made = (await client.library.CreateProject(library.CreateProjectRequest(project=project))).project
    await client.apply("e2e/code", WORK)
    return Team(client, origin, made.id)


async def test_two_conversations_one_merges_the_other_gets_its_conflict(
    client: Client, tmp_path: Path
) -> None:
    ours = await team(client, tmp_path)
    one, two = await ours.conv(), await ours.conv()
    assert not (await conversation_of(client, one)).branch
    await ours.write(one, "src", "one\nfirst\nthree\n")
    await ours.write(two, "src", "one\nsecond\nthree\n")
    await ours.write(two, "notes", "kept\n")
    assert (await conversation_of(client, one)).branch == f"wonder/conv-{one.removeprefix('conv_')}"

    shown = await ours.diff(one)
    (file,) = shown.files
    assert (file.path, file.change, file.additions) == ("src", pb.FILE_CHANGE_MODIFIED, 1)
    assert "-two\n+first\n" in file.patch
    merged = await ours.merge(one, expected_head_commit=shown.head_commit, user_id="ada", request_id="m")
    assert merged.merged and merged.commit == ours.origin.git("rev-parse", "main")
    assert ours.origin.git("log", "-1", "--format=%an") == "ada"
    again = await ours.merge(one, expected_head_commit=shown.head_commit, user_id="ada", request_id="m")
    assert again == merged
    (announced,) = [event for event in await client.events(one) if event.name == "branch.merged"]
    assert (announced.branch_merged.repository, announced.branch_merged.target_branch) == ("code", "main")
    assert announced.branch_merged.commit == merged.commit and announced.branch_merged.user_id == "ada"

    met = await ours.merge(two)
    (conflict,) = met.conflicts
    assert not met.merged and conflict.path == "src"
    assert (conflict.ours, conflict.theirs) == ("one\nfirst\nthree\n", "one\nsecond\nthree\n")
    assert await ours.read(two, "src") == "one\nsecond\nthree\n"
    assert await ours.read(two, "notes") == "kept\n"
    request = pb.MergeBranchRequest(conversation_id=two, remove_branch=True)
    request.resolutions.add(path="src", content=b"one\nboth\nthree\n")
    assert (await client.conversations.MergeBranch(request)).merged
    assert ours.origin.show("src") == "one\nboth\nthree" and ours.origin.show("notes") == "kept"
    assert not (await ours.diff(two)).files and not (await ours.diff(two)).head_commit


async def test_what_cannot_be_is_refused(client: Client, tmp_path: Path) -> None:
    ours = await team(client, tmp_path)
    conv = await ours.conv()
    stub = client.conversations
    assert (await rejected(stub.DiffBranch(pb.DiffBranchRequest()))) == ("FIELD_INVALID", ["conversation_id"])
    missing = pb.MergeBranchRequest(conversation_id="conv_0")
    assert (await rejected(stub.MergeBranch(missing)))[0] == "CONVERSATION_NOT_FOUND"
    assert (await rejected(ours.diff(conv, repository="none"))) == ("FIELD_INVALID", ["repository"])
    assert (await rejected(ours.diff(conv, base_branch="a..b"))) == ("FIELD_INVALID", ["base_branch"])
    assert (await rejected(ours.diff(conv, paths=["../x"]))) == ("FIELD_INVALID", ["paths[0]"])
    await ours.write(conv, "src", "x\n")
    assert (await rejected(ours.merge(conv, target_branch="none"))) == ("FIELD_INVALID", ["target_branch"])
    assert (await rejected(ours.merge(conv, user_id="u" * 600))) == ("FIELD_INVALID", ["user_id"])
    assert (await rejected(ours.merge(conv, expected_head_commit="abcdef"))) == (
        "FIELD_INVALID", ["expected_head_commit"],
    )  # fmt: skip
    assert (await rejected(ours.merge(conv, expected_head_commit="0" * 12)))[0] == "ETAG_MISMATCH"
    both = pb.DiffBranchRequest(conversation_id=conv, run_id="run_0")
    assert (await rejected(stub.DiffBranch(both))) == ("FIELD_INVALID", ["run_id"])
    assert (await rejected(stub.DiffBranch(pb.DiffBranchRequest(run_id="run_0"))))[0] == "RUN_NOT_FOUND"
    half = pb.MergeBranchRequest(conversation_id=conv)
    half.resolutions.add(path="src")
    assert (await rejected(stub.MergeBranch(half))) == ("FIELD_INVALID", ["resolutions[0].content"])
    elsewhere = await client.open()
    assert (await rejected(ours.diff(elsewhere)))[0] == "FIELD_INVALID"
    assert (await ours.task("ship", conv)).error.reason == errors_pb2.ERROR_REASON_PERMISSION_DENIED
    assert (await ours.task("read", path="src")).error.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
    gone = tmp_path / "gone"
    for url in ("relative", "--upload-pack=x", "ext::sh -c x", str(gone), f"file://{gone}", str(tmp_path)):
        project = library_pb2.Project(name=f"bad{next(_numbers)}")
        project.repositories.add(name="code", url=url)
        creating = client.library.CreateProject(library.CreateProjectRequest(project=project))
        assert (await rejected(creating)) == ("FIELD_INVALID", ["project.repositories[0].url"])


async def test_a_merge_runs_no_hook_of_the_repository(client: Client, tmp_path: Path) -> None:
    ours, mark = await team(client, tmp_path), tmp_path / "mark"
    ours.origin.git("config", "core.hooksPath", "hooks")
    (ours.origin.folder / "hooks").mkdir()
    for name in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction"):
        (ours.origin.folder / "hooks" / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (ours.origin.folder / "hooks" / name).chmod(0o755)
    conv = await ours.conv()
    await ours.write(conv, "src", "1\n")
    assert (await ours.merge(conv)).merged and not mark.exists()
    assert (ours.origin.folder / "src").read_text() == "1\n"
    project = library_pb2.Project(name=f"outside{next(_numbers)}")
    project.repositories.add(name="code", url=str(ROOT))
    creating = client.library.CreateProject(library.CreateProjectRequest(project=project))
    assert (await rejected(creating)) == ("FIELD_INVALID", ["project.repositories[0].url"])


async def test_a_conversation_is_where_its_agent_is_at_home(
    client: Client, provider: Provider, tmp_path: Path
) -> None:
    ours = await team(client, tmp_path)
    writes = Call(name="write_file", arguments=json.dumps({"path": "made", "content": "by the agent\n"}))
    scripts = [Script(calls=(writes,)), Script(text="Done.")]
    agent = await Scripted(client, provider, "openai").agent(
        *scripts, *scripts, tools=("e2e/code/write_file",)
    )
    found = (await client.library.GetAgent(library.GetAgentRequest(agent_id=agent))).agent
    home = library_pb2.Agent(id=found.id, project_ids=[ours.project], etag=found.etag)
    changing = library.UpdateAgentRequest(agent=home)
    changing.update_mask.paths.append("project_ids")
    await client.library.UpdateAgent(changing)

    # One that names no project; and one in a project that the agent does not belong to, as there may be.
    conv = await client.open(agent, external_ref=f"ticket of {agent}")
    default = (await client.library.GetProject(library.GetProjectRequest(project_id="default"))).project.id
    other = await client.open(agent, project_id=default)
    assert (await conversation_of(client, conv)).project_id == ours.project
    assert (await conversation_of(client, other)).project_id == default
    named = pb.GetConversationRequest(external_ref=f"ticket of {agent}")
    assert (await client.conversations.GetConversation(named)).conversation.id == conv
    for each in (conv, other):
        await client.turn(each, "Make it.")
        shown = await ours.diff(each)
        assert [file.path for file in shown.files] == ["made"]
        assert (await ours.merge(each, validate_only=True)).merged
    merged = await ours.merge(other, expected_head_commit=shown.head_commit[:12], remove_branch=True)
    assert merged.merged and not merged.nothing_to_merge
    assert ours.origin.show("made") == "by the agent"
    assert (await ours.merge(other)).nothing_to_merge


async def test_what_a_run_made_is_looked_at_and_merged_by_its_id(client: Client, tmp_path: Path) -> None:
    ours = await team(client, tmp_path)
    await client.apply(
        "e2e/code",
        """
name: just_write
workflow:
  nodes: [{id: write, task_id: write, input_mapping: {path: "'made'", content: "'by a run'"}}]
""",
    )
    request = runs.StartRunRequest(workflow_id="e2e/code/just_write")
    request.context.project_id = ours.project
    run = await ended(client, (await client.coordinator.StartRun(request)).run.id)
    assert run.status == run_pb2.RUN_STATUS_COMPLETED
    shown = await client.conversations.DiffBranch(pb.DiffBranchRequest(run_id=run.id))
    assert shown.branch == f"wonder/run-{run.id.removeprefix('run_')}"
    assert [file.path for file in shown.files] == ["made"]
    merging = pb.MergeBranchRequest(run_id=run.id, expected_head_commit=shown.head_commit, request_id="r")
    first = await client.conversations.MergeBranch(merging)
    assert first.merged and not first.nothing_to_merge
    assert await client.conversations.MergeBranch(merging) == first
    assert ours.origin.show("made") == "by a run"
    merging.ClearField("request_id")
    assert (await client.conversations.MergeBranch(merging)).nothing_to_merge


async def test_an_agent_called_by_a_workflow_works_on_the_conversations_branch(
    client: Client, provider: Provider, tmp_path: Path
) -> None:
    ours = await team(client, tmp_path)
    wanted = {"path": "by_agent", "content": "made by the one who was called\n"}
    writes = Call(name="write_file", arguments=json.dumps(wanted))
    agent = await Scripted(client, provider, "openai").agent(
        Script(calls=(writes,)), Script(text="Done."), tools=("e2e/code/write_file",)
    )
    await client.apply(
        "e2e/code",
        f"""
name: call_{agent}
workflow:
  nodes: [{{id: ask, agent_id: {agent}, input_mapping: {{question: input.question}}}}]
""",
    )
    conv = await ours.conv()
    await ours.write(conv, "before", "1\n")
    request = runs.StartRunRequest(workflow_id=f"e2e/code/call_{agent}", input=struct(question="Write it."))
    request.context.conversation_id = conv
    await output(client, (await client.coordinator.StartRun(request)).run.id)
    assert [file.path for file in (await ours.diff(conv)).files] == ["before", "by_agent"]
    assert await ours.read(conv, "by_agent") == "made by the one who was called\n"


async def test_a_fork_has_the_files_that_its_record_tells_of(client: Client, tmp_path: Path) -> None:
    ours = await team(client, tmp_path)
    request = runs.StartRunRequest(
        workflow_id="e2e/code/write_and_read", input=struct(path="made", content="by the first\n")
    )
    request.context.project_id = ours.project
    first = (await client.coordinator.StartRun(request)).run.id
    assert await output(client, first) == {"content": "by the first\n"}
    again = runs.ForkRunRequest(run_id=first, before_node_execution=2)
    forked = (await client.coordinator.ForkRun(again)).run.id
    assert await output(client, forked) == {"content": "by the first\n"}
    shown = await client.conversations.DiffBranch(pb.DiffBranchRequest(run_id=forked))
    assert shown.branch == f"wonder/run-{forked.removeprefix('run_')}"
    assert [file.path for file in shown.files] == ["made"]
    assert (await client.conversations.MergeBranch(pb.MergeBranchRequest(run_id=forked))).merged
    assert ours.origin.show("made") == "by the first"


async def test_a_workflow_that_says_so_merges(client: Client, tmp_path: Path) -> None:
    ours = await team(client, tmp_path)
    conv = await ours.conv()

    async def run(path: str, content: str, where: str = "", branch: str = "") -> run_pb2.Run:
        request = runs.StartRunRequest(
            workflow_id="e2e/code/write_and_ship", input=struct(path=path, content=content)
        )
        if where:
            request.context.conversation_id = where
        else:
            request.context.project_id = ours.project
            request.context.branch = branch
        return await ended(client, (await client.coordinator.StartRun(request)).run.id)

    assert (await run("src", "by a workflow\n", conv)).status == run_pb2.RUN_STATUS_COMPLETED
    assert ours.origin.show("src") == "by a workflow"
    assert (await run("other", "on a branch\n", branch="topic/one")).status == run_pb2.RUN_STATUS_COMPLETED
    assert (await run("third", "on its own\n")).status == run_pb2.RUN_STATUS_COMPLETED
    assert ours.origin.show("other") == "on a branch" and ours.origin.show("third") == "on its own"
    ours.origin.change("src", "changed by a user\n")
    failed = await run("src", "changed by a workflow\n", conv)
    assert failed.status == run_pb2.RUN_STATUS_FAILED
    assert "src" in failed.error.message
    assert ours.origin.show("src") == "changed by a user"
    assert await ours.read(conv, "src") == "changed by a workflow\n"


async def test_a_workflow_merges_when_it_completes(client: Client, tmp_path: Path) -> None:
    ours = await team(client, tmp_path)
    conv = await ours.conv()
    await client.apply(
        "e2e/code",
        """
name: both
workflow:
  merge_branch_on_completion: true
  nodes:
    - {id: begin, task_id: read, input_mapping: {path: "'readme'"}, fan_out: true}
    - {id: one, task_id: write, input_mapping: {path: "'one'", content: input.content}}
    - {id: two, task_id: write, input_mapping: {path: "'src'", content: input.content}}
  transitions: [{from_node_id: begin, to_node_id: one}, {from_node_id: begin, to_node_id: two}]
  output_mapping: {said: input.content}
---
name: around
workflow:
  nodes: [{id: inner, workflow_id: both, input_mapping: {content: input.content}}]
""",
    )

    async def run(workflow: str, content: str) -> run_pb2.Run:
        request = runs.StartRunRequest(workflow_id=f"e2e/code/{workflow}", input=struct(content=content))
        request.context.conversation_id = conv
        return await ended(client, (await client.coordinator.StartRun(request)).run.id)

    done = await run("both", "by both\n")
    assert done.status == run_pb2.RUN_STATUS_COMPLETED and dict(done.output)["said"] == "by both\n"
    assert ours.origin.show("one") == ours.origin.show("src") == "by both"
    assert (await run("around", "from inside\n")).status == run_pb2.RUN_STATUS_COMPLETED
    assert ours.origin.show("one") == "from inside"
    ours.origin.change("src", "by a user\n")
    failed = await run("both", "in conflict\n")
    assert failed.status == run_pb2.RUN_STATUS_FAILED
    assert failed.error.reason == errors_pb2.ERROR_REASON_MERGE_CONFLICT, failed.error
    assert ours.origin.show("one") == "from inside" and ours.origin.show("src") == "by a user"
    assert await ours.read(conv, "one") == "in conflict\n"
    assert (await ours.merge(conv, resolutions=[{"path": "src", "content": b"both\n"}])).merged


async def test_what_is_deleted_leaves_no_files(tmp_path: Path) -> None:
    data = tmp_path / "server"
    async with serving(data) as server, server.client() as client:
        ours = await team(client, tmp_path)
        one, two = await ours.conv(), await ours.conv()
        await ours.write(one, "src", "1\n")
        await ours.write(two, "src", "2\n")
        await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=one))
        assert [path.name for path in _worktrees(data)] == [f"{ours.project}-{two}"]
    async with serving(data) as server, server.client() as client:
        after = Team(client, ours.origin, ours.project)
        assert (await conversation_of(client, two)).branch
        assert [file.path for file in (await after.diff(two)).files] == ["src"]
        await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=two))
        await client.library.DeleteProject(library.DeleteProjectRequest(project_id=ours.project))
        assert _worktrees(data) == [] and list((data / "repositories").iterdir()) == []


def _worktrees(data: Path) -> list[Path]:
    return sorted(path for path in (data / "worktrees").iterdir() if not path.name.startswith("."))
