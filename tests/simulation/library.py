"""The library of the simulation: agents with every kind of tool and hook, and workflows that wait."""

from __future__ import annotations

from typing import Final

TEXT: Final = "{type: object, properties: {text: {type: string}}, required: [text]}"
AGENTS: Final = f"""
name: slow
model_profile: {{provider: offline, model: offline, parameters: {{token_delay_ms: 5}}}}
---
name: write_request
task:
  steps:
    - id: write
      action: {{kind: context}}
      output_mapping:
        output.request: >-
          {{"model": "offline", "messages": [{{"role": "user", "content": input.user_message}}],
           "tools": input.tools.map(t, {{"type": "function", "function":
             {{"name": t.name, "description": t.description, "parameters": t.input_schema}}}})}}
---
name: assembly
workflow:
  nodes:
    - id: write
      task_id: write_request
      input_mapping: {{user_message: input.user_message, tools: input.tool_definitions}}
      output_mapping: {{output.request: result.request}}
---
name: slow_assembly
workflow:
  nodes:
    - {{id: nap, wait: {{duration_ms: 40}}}}
    - id: write
      task_id: write_request
      input_mapping: {{user_message: input.user_message, tools: input.tool_definitions}}
      output_mapping: {{output.request: result.request}}
  transitions: [{{from_node_id: nap, to_node_id: write}}]
---
name: keep_facts
task:
  steps:
    - id: facts
      action: {{kind: context}}
      output_mapping:
        output.memory_operations: '[{{"op": "write", "type": "fact", "content": input.user_message}}]'
---
name: extraction
workflow:
  nodes:
    - id: keep
      task_id: keep_facts
      input_mapping: {{user_message: input.user_message}}
      output_mapping: {{output.memory_operations: result.memory_operations}}
---
name: post
task:
  steps:
    - id: post
      action: {{kind: http, config: {{method: POST}}}}
      input_mapping: {{url: '"http://world/once/" + input.text', body: input.text}}
      output_mapping: {{output.text: input.text}}
---
name: put
task:
  steps:
    - id: put
      action: {{kind: http, config: {{method: PUT}}}}
      input_mapping: {{url: '"http://world/again/" + input.text', body: input.text}}
      output_mapping: {{output.text: input.text}}
---
name: refuse
task:
  steps:
    - {{id: refuse, action: {{kind: assert, config: {{condition: false, message: No.}}}}}}
---
name: paint
task:
  steps:
    - id: paint
      action: {{kind: worker, config: {{name: paint}}}}
      input_mapping: {{input: '{{"url": input.url}}'}}
      output_mapping: {{output.text: result.text}}
---
name: polish
task:
  steps:
    - id: polish
      action: {{kind: worker, config: {{name: polish}}, idempotent: true, max_attempts: 5}}
      input_mapping: {{input: '{{"url": input.url}}'}}
      output_mapping: {{output.text: result.text}}
---
name: put_slowly
task:
  steps:
    - {{id: nap, action: {{kind: sleep, config: {{duration_ms: 800}}}}}}
    - id: put
      action: {{kind: http, config: {{method: PUT}}}}
      input_mapping: {{url: '"http://world/again/" + input.text', body: input.text}}
      output_mapping: {{output.text: input.text}}
---
name: far
description: Waits for days, and opens a gate without an answer.
workflow:
  nodes:
    - {{id: first, task_id: pass_on, fan_out: true}}
    - {{id: days, wait: {{duration_ms: 172800000}}, output_mapping: {{branch.end: '"days"'}}}}
    - id: gate
      human_gate: {{prompt: Agree., expire_after_ms: 86400000, on_expire: reject}}
      input_mapping: {{}}
      output_mapping: {{branch.end: result.decision}}
    - id: last
      task_id: pass_on
      fan_in: {{merges: [{{source: branch.end, target: output.ends, strategy: keyed_by_branch}}]}}
  transitions:
    - {{from_node_id: first, to_node_id: days}}
    - {{from_node_id: first, to_node_id: gate}}
    - {{from_node_id: days, to_node_id: last}}
    - {{from_node_id: gate, to_node_id: last}}
---
name: pass_on
task: {{steps: [{{id: pass_on, action: {{kind: context}}}}]}}
---
name: hurried
description: A gate that expires soon.
workflow:
  nodes:
    - id: gate
      human_gate:
        prompt: Agree now.
        answer_schema: {{type: object, properties: {{text: {{type: string}}}}}}
        expire_after_ms: 300
        on_expire: reject
      input_mapping: {{}}
      output_mapping: {{output.decision: result.decision, output.by: result.user_id}}
---
name: worked
workflow:
  nodes:
    - id: paint
      task_id: paint
      input_mapping: {{url: 'input.url + "/once/" + input.name + "/paint"'}}
      output_mapping: {{output.paint: result.text}}
    - id: polish
      task_id: polish
      input_mapping: {{url: 'input.url + "/again/" + input.name + "/" + string(item)'}}
      output_mapping: {{branch.text: result.text}}
    - id: meet
      fan_in: {{merges: [{{source: branch.text, target: output.polished}}]}}
      wait: {{duration_ms: 10}}
  transitions:
    - {{from_node_id: paint, to_node_id: polish, for_each: {{items: '[1, 2, 3]'}}}}
    - {{from_node_id: polish, to_node_id: meet}}
---
name: nap_and_put
workflow:
  nodes:
    - {{id: nap, wait: {{duration_ms: 400}}}}
    - id: put
      task_id: put
      input_mapping: {{text: input.text}}
      output_mapping: {{output.text: result.text}}
  transitions: [{{from_node_id: nap, to_node_id: put}}]
---
name: once
description: Sends a request that must not be repeated.
tool: {{target_type: task, target_id: post, input_schema: {TEXT}}}
---
name: again
description: Sends a request that may be repeated.
tool: {{target_type: task, target_id: put, input_schema: {TEXT}}}
---
name: note
description: Writes a memory.
tool: {{target_type: task, target_id: write_note, input_schema: {TEXT}}}
---
name: write_note
task:
  steps:
    - id: write
      action: {{kind: memory.write}}
      input_mapping: {{content: input.text}}
      output_mapping: {{output.text: input.text}}
---
name: later
description: Sends a request in the background.
tool: {{target_type: task, target_id: put, async: true, input_schema: {TEXT}}}
---
name: slow_later
description: Sends a request in the background, after a while.
tool: {{target_type: task, target_id: put_slowly, async: true, input_schema: {TEXT}}}
---
name: flow_later
description: Waits in the background, then sends a request.
tool: {{target_type: workflow, target_id: nap_and_put, async: true, input_schema: {TEXT}}}
---
name: colleague_later
description: Asks a colleague, who answers later.
tool: {{target_type: agent, target_id: colleague, async: true, input_schema: {TEXT}}}
---
name: refused_later
description: Fails in the background.
tool: {{target_type: task, target_id: refuse, async: true, input_schema: {TEXT}}}
---
name: flow
description: Waits, then sends a request.
tool: {{target_type: workflow, target_id: nap_and_put, input_schema: {TEXT}}}
---
name: refused
description: Fails.
tool: {{target_type: task, target_id: refuse, input_schema: {TEXT}}}
---
name: colleague
description: Asks a colleague.
tool: {{target_type: agent, target_id: colleague, input_schema: {TEXT}}}
---
name: join
description: Has a colleague join.
tool: {{target_type: agent, target_id: colleague, invocation_mode: loop_in, input_schema: {TEXT}}}
---
name: plain
persona:
  system_prompt: Plain.
  model_profile_id: slow
  context_assembly_workflow_id: assembly
  memory_extraction_workflow_id: none
---
name: host
persona:
  system_prompt: Host.
  model_profile_id: slow
  context_assembly_workflow_id: assembly
  memory_extraction_workflow_id: extraction
  tool_ids: [note, once, again, later, slow_later, flow, flow_later, refused, refused_later, colleague,
    colleague_later, join]
---
name: thorough
persona:
  system_prompt: Thorough.
  model_profile_id: slow
  context_assembly_workflow_id: slow_assembly
  memory_extraction_workflow_id: extraction
  tool_ids: [once, again]
---
name: narrow
model_profile: {{provider: offline, model: offline, format: openai_chat, context_window_tokens: 500}}
---
name: forgetful
persona:
  system_prompt: Sums up.
  model_profile_id: narrow
  memory_extraction_workflow_id: none
  context_window: {{strategy: summarize, keep_recent_messages: 2}}
---
name: sliding
persona:
  system_prompt: Forgets.
  model_profile_id: narrow
  memory_extraction_workflow_id: none
  context_window: {{keep_recent_messages: 2}}
"""
