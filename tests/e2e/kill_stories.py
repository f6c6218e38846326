"""Turns during which tests kill a server: every tool invocation mode, slow hooks, a summarized history. Each
case names its agent and the texts that the agent receives."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, View
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"
LIBRARY = f"""
name: note
description: Notes.
tool: {{target_type: task, target_id: write_note, input_schema: {TEXT}}}
---
name: write_note
task:
  steps:
    - id: write
      action: {{kind: memory.write}}
      input_mapping: {{content: input.text}}
---
name: note_behind
description: Notes in the background.
tool: {{target_type: task, target_id: write_note_slowly, async: true, input_schema: {TEXT}}}
---
name: write_note_slowly
task:
  steps:
    - {{id: nap, action: {{kind: sleep, config: {{duration_ms: 60}}}}}}
    - id: write
      action: {{kind: memory.write}}
      input_mapping: {{content: input.text}}
---
name: note_after
description: Notes, and takes its time.
tool: {{target_type: workflow, target_id: nap_and_note, input_schema: {TEXT}}}
---
name: note_later
description: Notes, after a while.
tool: {{target_type: workflow, target_id: nap_and_note, async: true, input_schema: {TEXT}}}
---
name: nap_and_note
workflow:
  nodes:
    - {{id: nap, wait: {{duration_ms: 60}}}}
    - {{id: write, task_id: write_note, input_mapping: {{text: input.text}}}}
  transitions: [{{from_node_id: nap, to_node_id: write}}]
---
name: colleague
description: Asks a colleague.
tool: {{target_type: agent, target_id: colleague, input_schema: {TEXT}}}
---
name: colleague_later
description: Asks a colleague, who answers later.
tool: {{target_type: agent, target_id: colleague, async: true, input_schema: {TEXT}}}
---
name: join
description: Has a colleague join.
tool: {{target_type: agent, target_id: colleague, invocation_mode: loop_in, input_schema: {TEXT}}}
---
name: refused
description: Never works.
tool: {{target_type: task, target_id: refuse, async: true, input_schema: {TEXT}}}
---
name: refuse
task:
  steps:
    - id: refuse
      action: {{kind: assert, config: {{condition: false}}}}
      input_mapping: {{message: '"No."'}}
---
name: slow
model_profile: {{provider: offline, model: offline, parameters: {{token_delay_ms: 8}}}}
---
name: worker
persona:
  system_prompt: You work.
  model_profile_id: slow
  memory_extraction_workflow_id: none
---
name: host
persona:
  system_prompt: You have tools.
  memory_extraction_workflow_id: none
  tool_ids: [note, note_behind, note_after, note_later, colleague, colleague_later, join, refused]
---
name: assemble_slowly
workflow:
  nodes:
    - {{id: nap, wait: {{duration_ms: 40}}}}
    - id: write
      task_id: wonder/std/write_request
      input_mapping:
        system: input.persona.system_prompt
        messages: '[{{"role": "user", "content": input.user_message}}]'
        tools: '[]'
        model_profile: input.model_profile
      output_mapping: {{output.request: result.request}}
  transitions: [{{from_node_id: nap, to_node_id: write}}]
---
name: extract_slowly
workflow:
  nodes:
    - {{id: nap, wait: {{duration_ms: 40}}}}
    - id: write
      task_id: extract_both_ways
      input_mapping: {{text: input.user_message}}
      output_mapping: {{output.memory_operations: result.memory_operations}}
  transitions: [{{from_node_id: nap, to_node_id: write}}]
---
name: extract_both_ways
task:
  steps:
    - id: write
      action: {{kind: memory.write}}
      input_mapping: {{content: 'input.text + ", by an action"'}}
    - id: return
      action: {{kind: context}}
      output_mapping:
        output.memory_operations: '[{{"op": "write", "content": input.text + ", returned"}}]'
---
name: thorough
persona:
  system_prompt: You take your time.
  context_assembly_workflow_id: assemble_slowly
  memory_extraction_workflow_id: extract_slowly
---
name: narrow
model_profile: {{provider: offline, model: offline, context_window_tokens: 1000}}
---
name: forgetful
persona:
  system_prompt: You sum up.
  model_profile_id: narrow
  memory_extraction_workflow_id: none
  context_window: {{strategy: summarize, keep_recent_messages: 2}}
---
name: sliding
persona:
  system_prompt: You forget.
  model_profile_id: narrow
  memory_extraction_workflow_id: none
  context_window: {{keep_recent_messages: 2}}
"""
AGENTS = {"host": "host", "colleague": "worker", "thorough": "thorough", "forgetful": "forgetful",
          "sliding": "sliding"}  # fmt: skip
LONG = "say 250 words"
_IDS = re.compile(r"\b[a-z]+_[0-9A-Z]{26}\b")


@dataclass(frozen=True)
class Case:
    """One story: the texts sent to ``agent``, one turn each; ``names`` are events that it must contain."""

    texts: tuple[str, ...]
    agent: str = "host"
    names: tuple[str, ...] = ()
    loose: bool = False
    """True if the model may receive some results in one request or in several, with different answers."""

    @property
    def steps(self) -> int:
        """Steps that are on disk before the next begins: the conversation is opened, and of each turn the
        message is answered, and its end is seen."""
        return 1 + 2 * len(self.texts)


CASES = {
    "task": Case(("use the tool note with tea",)),
    "workflow": Case(("use the tool note_after with tea",)),
    "delegate": Case(("use the tool note with tea\nuse the tool colleague with say 4 words",)),
    "task in the background": Case(("use the tool note_behind with tea",)),
    "workflow in the background": Case(("use the tool note_later with tea",)),
    "agent in the background": Case(("use the tool colleague_later with say 4 words",)),
    "failure in the background": Case(("use the tool refused with tea",), names=("tool.failed",)),
    "loop in": Case(("use the tool join with say 4 words",)),
    "all at once": Case(
        ("use the tool note with tea\nuse the tool note_later with milk\nuse the tool note_behind with rum\n"
         "use the tool colleague with say 3 words\nuse the tool colleague_later with say 4 words",),
        loose=True,
    ),
    "hooks": Case(("tea",), agent="thorough", names=("memory_extraction.completed",)),
    "summary": Case((LONG, LONG, "say 3 words"), agent="forgetful", names=("context.reduced",)),
    "window": Case((LONG, LONG, "say 3 words"), agent="sliding", names=("context.reduced",)),
}  # fmt: skip


async def prepare(client: Client) -> None:
    """Create the agents in a new folder."""
    await client.apply("e2e/kill", LIBRARY)
    for name, persona in AGENTS.items():
        await client.agent(name, f"e2e/kill/{persona}")


def plain(text: str) -> str:
    """Return the text with its ids replaced."""
    return _IDS.sub("ID", text)


@dataclass
class CaseStory:
    """A story that plays one case. ``record`` is the record at its end."""

    case: Case
    view: View = field(default_factory=View)
    record: dict[str, Any] = field(default_factory=dict)

    async def __call__(self, client: Client, view: View) -> None:
        conv = await client.open(self.case.agent, request_id="open")
        for number, text in enumerate(self.case.texts):
            said = await client.say(conv, text, f"say {number}")
            await client.settled(conv, said.turn.id, view)
        record = await client.events(conv)
        assert [(e.sequence, e.name) for e in record] == list(enumerate(view.names, 1))
        turns = (await client.conversations.ListTurns(pb.ListTurnsRequest())).turns
        assert not any(turn.operations for turn in turns)
        moves = [
            move
            for turn in turns
            if turn.conversation_id == conv
            for move in await client.moves(turn.id, conv)
        ]
        results = [result for move in moves for result in move.tool_results]
        called = [call for move in moves for call in move.tool_calls]
        # The server executed and reported each call once.
        assert len(called) == len(results) == view.names.count("tool.dispatched")
        assert len(results) == view.names.count("tool.completed") + view.names.count("tool.failed")
        found = await conversation_of(client, conv)
        self.record = {
            "turns": sorted((t.status, t.caller.WhichOneof("caller"), t.output.string_value) for t in turns),
            "results": sorted(
                plain(json.dumps(MessageToDict(r.result), sort_keys=True)) for r in results if r.success
            ),
            "failures": [r.error.code for r in results if not r.success],
            "memories": sorted(await client.memories(self.case.agent)),
            "people": [p.agent.name for p in found.participants],
            "left out": [
                (e.context_reduced.messages_left_out, e.context_reduced.summarized)
                for e in record
                if e.name == "context.reduced"
            ],
            "events": sorted(view.names),
            "said": sorted(plain(m.content) for m in await client.messages(conv)),
            "calls of models": found.usage.model_calls,
        }
        if self.case.loose:
            for name in ("turns", "events", "said", "calls of models"):
                del self.record[name]


async def conversation_of(client: Client, conversation_id: str) -> conversation.Conversation:
    """Return the conversation as it is now."""
    request = pb.GetConversationRequest(conversation_id=conversation_id)
    return (await client.conversations.GetConversation(request)).conversation
