"""Definition files: reading with the position of each fault, and round trips."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import ROOT
from wonder_sdk import Violation, v1
from wonder_sdk._proto.google import protobuf
from wonder_sdk.definitions import definition_files as files
from wonder_server.core.definitions.document import parse_draft

STD = ROOT / "server" / "wonder_server" / "std"


def load_text(folder: Path, text: str, name: str = "some.yaml") -> files.Folder:
    (folder / name).write_text(text, encoding="utf-8")
    return files.load(folder)


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(files.DefinitionFilesError) as refusal:
        load_text(folder, text)
    return [each.removeprefix(f"{folder}/") for each in refusal.value.faults]


def test_the_standard_library_survives_a_round_trip(tmp_path: Path) -> None:
    read = files.load(STD)
    files.save(tmp_path, v1.Library(name="wonder/std", description="It comes along."), read.definitions)
    again = files.load(tmp_path)

    assert len(read.definitions) > 10
    assert (again.library, again.description) == ("wonder/std", "It comes along.")
    by_name = {each.name: each for each in read.definitions}
    assert {each.name: each for each in again.definitions} == by_name


def test_the_server_reads_what_the_sdk_writes() -> None:
    import yaml

    for definition in files.load(STD).definitions:
        draft = parse_draft(yaml.safe_load(files.dump(definition)))
        assert draft.name == definition.name


def test_enums_numbers_and_payloads_have_the_types_of_the_contract(tmp_path: Path) -> None:
    folder = load_text(
        tmp_path,
        """\
# a comment alone is no definition
---
kind: tool
id: def_01            # what the server sets is passed over
revision: 3
name: search
description: Finds things.
labels: {team: core}
tool:
  target_type: task
  target_id: do_search
  async: true
  input_schema: {type: object, properties: {limit: {type: integer, maximum: 5, default: 2.5}}}
  retry: {max_attempts: 3}
---
name: do_search
task:
  steps:
    - id: one
      action: {kind: memory.search, config: {limit: 5, on: true, none: null}}
      on_failure: ON_FAILURE_CONTINUE
""",
    )
    tool, task = folder.definitions

    assert tool.kind is v1.DefinitionKind.TOOL
    assert tool.labels == {"team": "core"}
    assert tool.tool is not None and tool.tool.target_type is v1.TargetType.TASK
    assert tool.tool.is_async and tool.tool.retry == v1.RetryPolicy(max_attempts=3)
    assert tool.tool.input_schema is not None
    assert tool.tool.input_schema.to_dict()["properties"]["limit"]["default"] == 2.5
    assert task.task is not None and task.task.steps[0].action is not None
    assert task.task.steps[0].on_failure is v1.OnFailure.CONTINUE
    config = task.task.steps[0].action.config
    assert config is not None and config.to_dict() == {"limit": 5, "on": True, "none": None}


def test_whole_numbers_from_the_wire_are_written_as_integers() -> None:
    spec = v1.ModelProfileSpec(
        provider="auto",
        parameters=protobuf.Struct.from_dict({"max_tokens": 400.0, "temperature": 0.5, "stop": ["a\nb"]}),
        max_attempts=2,
    )
    definition = v1.Definition(name="fast", model_profile=spec, content_hash="not for files", revision=7)
    received = v1.Definition.FromString(definition.SerializeToString())

    assert files.dump(received) == (
        "name: fast\n"
        "model_profile:\n"
        "  provider: auto\n"
        "  parameters:\n"
        "    max_tokens: 400\n"
        "    stop:\n"
        "      - |-\n"
        "        a\n"
        "        b\n"
        "    temperature: 0.5\n"
        "  max_attempts: 2\n"
    )


def test_a_field_that_is_set_to_its_zero_is_kept(tmp_path: Path) -> None:
    spec = v1.PersonaSpec(system_prompt="Hi.", recent_turns_limit=0)
    folder = load_text(tmp_path, files.dump(v1.Definition(name="short", persona=spec)))
    assert folder.definitions[0].persona == spec


QUOTE = "put a whole expression in quotes: condition: 'state.kind == \"a\" ? 1 : 2'"
KINDS = "persona, tool, workflow, task, action, model_profile"


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        (
            "name: a\ntool: {target_typ: task}\n",
            2,
            "tool.target_typ: the field does not exist; did you mean 'target_type'?",
        ),
        (
            "name: a\ntask:\n  steps:\n    - id: 5\n",
            4,
            "task.steps[0].id: must be text, not a whole number; put it in quotes",
        ),
        ("name: a\ntool:\n  async: maybe\n", 3, "tool.async: must be true or false, not text"),
        (
            "name: a\ntool:\n  target_type: human\n",
            3,
            "tool.target_type: must be one of: task, workflow, agent",
        ),
        ("name: a\ntask: [1]\n", 2, "task: must be a mapping, not a list"),
        ("name: a\ntask: {steps: {}}\n", 2, "task.steps: must be a list, not a mapping"),
        (
            "name: a\nagnt: {}\n",
            1,
            f"a definition has exactly one of {KINDS}; did you mean `agent:` in place of `agnt:`?",
        ),
        (
            "version: 1\nservices: {}\n",
            1,
            f"a definition has exactly one of {KINDS}; an agent has `agent:`, a project `project:`",
        ),
        ("name: a\ntask: {}\ntool: {}\n", 1, f"a definition has exactly one of {KINDS}"),
        (
            "kind: task\nname: a\nsteps: []\n",
            1,
            f"a definition has exactly one of {KINDS}; put its fields below `task:`",
        ),
        ("name: a\nkind: tool\ntask: {}\n", 2, "kind: is tool, but the document defines a task"),
        ("description: a\ntask: {}\n", 1, "a definition needs a name"),
        ("name: a\nname: b\ntask: {}\n", 2, "name: is repeated; remove one"),
        ("name: a\ntask: {}\n---\nname: a\ntask: {}\n", 4, "a is already defined at some.yaml:1"),
        (
            "name: a\naction: {kind: http, config: {when: 2026-01-01}}\n",
            2,
            "action.config.when: must not be a date; put it in quotes to make it text",
        ),
        (
            "name: a\naction: {kind: http, config: {big: 9007199254740993}}\n",
            2,
            "action.config.big: is beyond 2^53; put it in quotes to keep it as text",
        ),
        (
            "name: a\ntool: {max_result_bytes: 2147483648}\n",
            2,
            "tool.max_result_bytes: must be between -2147483648 and 2147483647, not 2147483648",
        ),
        (
            "name: a\naction: {kind: http, config: {n: .inf}}\n",
            2,
            "action.config.n: must be a finite number",
        ),
        (
            "name: a\ntask:\n  steps:\n    - {id: a, action_id: b, action: {kind: c}}\n",
            4,
            "task.steps[0].action: excludes action_id; remove one of them",
        ),
        ("name: a\nworklfow: {}\n", 2, "worklfow: the field does not exist; did you mean 'workflow'?"),
        (
            "name: a\nworkflow: {transitions: [{from: b}]}\n",
            2,
            "workflow.transitions[0].from: the field does not exist; did you mean 'from_node_id'?",
        ),
        (
            "name: a\nworkflow: {output_mapping: {x: {a: b}}}\n",
            2,
            "workflow.output_mapping.x: must be text, not a mapping; put the whole of an expression that"
            " begins with { in quotes",
        ),
        (
            "name: a\nworkflow:\n  output_mapping:\n    x: !state.y\n",
            4,
            "workflow.output_mapping.x: must be text, not a YAML tag; put the whole of an expression that"
            " begins with ! in quotes",
        ),
        (
            'name: a\nworkflow:\n  output_mapping:\n    x: "a" + state.b\n',
            4,
            f"expected <block end>, but found '<scalar>'; {QUOTE}",
        ),
        (
            "name: a\nworkflow:\n  output_mapping:\n    x: state.a ? 1 : 2\n",
            4,
            f"mapping values are not allowed here; {QUOTE}",
        ),
        ("name: [a\n", 2, "expected ',' or ']', but got '<stream end>'"),
        ("just text\n", 1, "must be a mapping, not text"),
    ],
)
def test_a_fault_has_a_position(tmp_path: Path, text: str, line: int, fault: str) -> None:
    found = [each.replace(f"{tmp_path}/", "") for each in faults_of(tmp_path, text)]
    assert found == [f"some.yaml:{line}: {fault}"]


def test_one_fault_of_a_document_hides_no_other(tmp_path: Path) -> None:
    text = """\
name: a
worklfow:
  nodes:
    - colour: red
      task_id: t
      workflow_id: w
      fan_in: {mode: most}
      input_mapping: {x: 5, y: [z]}
  timeout_ms: soon
---
name: b
task: {steps: [{id: 1, action_id: x}]}
"""
    found = {each.split(": ")[1]: each.split(": ", 2)[2] for each in faults_of(tmp_path, text)}
    assert set(found) == {
        "worklfow", "worklfow.nodes[0].colour", "worklfow.nodes[0].workflow_id",
        "worklfow.nodes[0].fan_in.mode", "worklfow.nodes[0].input_mapping.x",
        "worklfow.nodes[0].input_mapping.y", "worklfow.timeout_ms", "task.steps[0].id",
    }  # fmt: skip
    assert found["worklfow.nodes[0].workflow_id"] == "excludes task_id; remove one of them"


def test_readable_definitions_beside_faults_are_kept_for_the_server(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ntask: {steps: [{id: 1, acton_id: x}]}\n")
    with pytest.raises(files.DefinitionFilesError) as refusal:
        files.load(tmp_path)
    assert refusal.value.folder is not None
    (definition,) = refusal.value.folder.definitions
    assert definition.task is not None and definition.task.steps[0].action_id == "x"
    output = [
        Violation("definitions[0].task.steps[0].id", "An id is 1 to 64 letters."),
        Violation("definitions[0].task.steps[0].action_id", "There is no action 'x'."),
    ]
    assert refusal.value.explain(output) == [
        f"{tmp_path}/a.yaml:2: task.steps[0].action_id: There is no action 'x'."
    ]
    (tmp_path / "b.yaml").write_text("name: [")
    with pytest.raises(files.DefinitionFilesError) as refusal:
        files.load(tmp_path)
    assert refusal.value.folder is None


def test_every_file_with_a_fault_is_named(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yml").write_text("name: a\n")
    (tmp_path / "b.yaml").write_bytes(b"name: \xff\n")
    (tmp_path / ".hidden.yaml").write_text("name: [")
    with pytest.raises(files.DefinitionFilesError) as refusal:
        files.load(tmp_path)
    assert [Path(each.split(":")[0]).name for each in refusal.value.faults] == ["b.yaml", "a.yml"]


def test_a_library_file_needs_a_name(tmp_path: Path) -> None:
    (tmp_path / "library.yaml").write_text("description: nameless\n")
    with pytest.raises(files.DefinitionFilesError, match="needs a name"):
        files.load(tmp_path)


def test_faults_of_the_server_are_shown_with_file_and_line(tmp_path: Path) -> None:
    folder = load_text(
        tmp_path,
        """\
name: a
task: {}
---
name: b
task:
  steps:
    - id: one
      output_mapping:
        output.text: x
""",
    )
    lines = folder.explain(
        [
            Violation("definitions[1].task.steps[0].output_mapping.output.text", "unknown name `x`"),
            Violation("definitions[1].task.steps[3].id", "there is no such step"),
            Violation("library", "library: odd name"),
            Violation("definitions[0]", "definitions[0]: unused"),
        ]
    )
    assert lines == [
        f"{tmp_path}/some.yaml:1: unused",
        f"{tmp_path}/some.yaml:7: task.steps[3].id: there is no such step",
        f"{tmp_path}/some.yaml:9: task.steps[0].output_mapping.output.text: unknown name `x`",
        "library: odd name",
    ]


def test_a_definition_named_library_does_not_overwrite_the_library_file(tmp_path: Path) -> None:
    definition = v1.Definition(name="library", persona=v1.PersonaSpec(system_prompt="Hush."))
    files.save(tmp_path, v1.Library(name="acme"), [definition])
    again = files.load(tmp_path)
    assert (again.library, [each.name for each in again.definitions]) == ("acme", ["library"])


def test_agents_and_projects_are_read_beside_definitions(tmp_path: Path) -> None:
    folder = load_text(
        tmp_path,
        """\
name: shop
kind: project
project: {description: The shop., network: {http_allow: [127.0.0.1]}}
---
name: clerk
description: Sells.
agent: {persona_id: helper, project_ids: [shop], metadata: {a: 1}, budget: {max_tokens: 5}}
---
name: helper
persona: {system_prompt: You help.}
---
name: own
agent:
  persona: {system_prompt: You are your own.}
---
name: bare
project:
""",
    )
    assert [each.name for each in folder.definitions] == ["helper"]
    clerk, own = folder.agents
    assert (clerk.name, clerk.description, clerk.persona_id) == ("clerk", "Sells.", "helper")
    assert clerk.project_ids == ["shop"] and clerk.budget is not None and clerk.budget.max_tokens == 5
    assert own.persona is not None and own.persona.system_prompt == "You are your own."
    shop, bare = folder.projects
    assert (shop.description, bare.name) == ("The shop.", "bare")
    found = [
        Violation(field="agents[0].persona_id", description="It is missing."),
        Violation(field="projects[0].network.http_allow[0]", description="It is wrong."),
        Violation(field="agents[9].name", description="Odd."),
    ]
    assert [line.removeprefix(f"{tmp_path}/") for line in folder.explain(found)] == [
        "some.yaml:3: network.http_allow[0]: It is wrong.",
        "some.yaml:7: persona_id: It is missing.",
        "agents[9].name: Odd.",
    ]


def test_faults_of_agents_and_projects_have_their_place(tmp_path: Path) -> None:
    faults = faults_of(
        tmp_path,
        """\
name: clerk
kind: project
agent: {persona_id: 5, colour: red}
---
agent: {persona_id: helper}
---
name: clerk
agent: 5
---
name: both
agent: {persona_id: a}
project: {}
""",
    )
    text = "\n".join(faults)
    assert "some.yaml:2: kind: is project, but the document defines the agent" in text
    assert "some.yaml:3: persona_id" in text and "colour" in text
    assert "some.yaml:5: the agent needs a name" in text
    assert "some.yaml:8: agent: must be a mapping" in text
    assert "some.yaml:7: name: clerk is already defined" in text or "clerk is already defined" in text
