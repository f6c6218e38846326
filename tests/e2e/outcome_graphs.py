"""Graphs whose runs fail or are interrupted. The input of those that send requests contains ``url``."""

from __future__ import annotations

DEFINITIONS = """
name: note
task:
  steps:
    - {id: note, action: {kind: context}, output_mapping: {output.value: input.value}}
---
name: get
task:
  steps:
    - id: get
      action: {kind: http, max_attempts: 1}
      input_mapping: {url: input.url}
      output_mapping: {output.status: result.status}
---
name: hasty_action
task:
  steps:
    - id: get
      action: {kind: http, max_attempts: 1, timeout_ms: 100}
      input_mapping: {url: input.url}
---
name: hasty_task
task:
  steps:
    - id: get
      action: {kind: http, max_attempts: 1, timeout_ms: 60000}
      input_mapping: {url: input.url}
  retry: {timeout_ms: 100}
---
name: post
task:
  steps:
    - id: post
      action: {kind: http, max_attempts: 3, config: {method: POST}}
      input_mapping: {url: input.url}
---
name: nap
task:
  steps:
    - {id: nap, action: {kind: sleep, config: {duration_ms: 20}}}
    - {id: note, action: {kind: context}, output_mapping: {output.value: input.value}}
---
name: fails
task:
  steps:
    - id: check
      action: {kind: assert, config: {condition: false, message: This cannot be.}}
---
name: slow_model
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 50}}
---
name: slow_speaker
persona: {system_prompt: x, model_profile_id: slow_model, memory_extraction_workflow_id: none}
---
name: action_hangs
workflow: {nodes: [{id: hang, task_id: hasty_action}]}
---
name: task_hangs
workflow: {nodes: [{id: hang, task_id: hasty_task}]}
---
name: node_hangs
workflow: {nodes: [{id: hang, task_id: get, timeout_ms: 100}]}
---
name: post_hangs
workflow: {nodes: [{id: hang, task_id: post, timeout_ms: 100}]}
---
name: run_hangs
workflow: {timeout_ms: 100, nodes: [{id: hang, task_id: get}]}
---
name: child_hangs
workflow: {nodes: [{id: child, workflow_id: signal, timeout_ms: 100}]}
---
name: child_fails
workflow: {nodes: [{id: child, workflow_id: failing}]}
---
name: failing
workflow: {nodes: [{id: check, task_id: fails}]}
---
name: signal
workflow: {nodes: [{id: wait, wait: {signal: go}, output_mapping: {output.got: result.payload}}]}
---
name: gate
workflow: {nodes: [{id: ask, human_gate: {prompt: "Shall we?"}, input_mapping: {n: '1'}}]}
---
name: child
workflow: {nodes: [{id: child, workflow_id: signal}]}
---
name: agent
workflow:
  nodes: [{id: ask, agent_id: snail, input_mapping: {question: '"say 500 words"'}}]
---
name: task
workflow: {nodes: [{id: hang, task_id: get}]}
---
name: backoff
workflow:
  nodes: [{id: busy, task_id: get, retry: {max_attempts: 9, backoff_ms: 3600000},
           input_mapping: {url: 'input.base + "/busy/99/" + input.name'}}]
---
name: limits
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '1'}}
    - {id: hang, task_id: get}
    - {id: meet, task_id: note, fan_in: {}, input_mapping: {value: '1'}}
  transitions:
    - {from_node_id: begin, to_node_id: hang, for_each: {items: '[1, 2, 3, 4]', max_concurrency: 2}}
    - {from_node_id: hang, to_node_id: meet}
---
name: two_gates
workflow:
  nodes:
    - {id: begin, task_id: note, fan_out: true, input_mapping: {value: '1'}}
    - {id: left, human_gate: {prompt: "Left?"}, input_mapping: {n: '1'},
       output_mapping: {branch.by: result.user_id}}
    - {id: right, human_gate: {prompt: "Right?"}, input_mapping: {n: '2'},
       output_mapping: {branch.by: result.user_id}}
    - id: meet
      task_id: note
      fan_in: {merges: [{source: branch.by, target: output.by, strategy: keyed_by_branch}]}
      input_mapping: {value: '1'}
  transitions:
    - {from_node_id: begin, to_node_id: left}
    - {from_node_id: begin, to_node_id: right}
    - {from_node_id: left, to_node_id: meet}
    - {from_node_id: right, to_node_id: meet}
---
name: two_waits
workflow:
  nodes:
    - {id: first, wait: {signal: go}, output_mapping: {output.first: result.payload}}
    - {id: second, wait: {signal: go}, output_mapping: {output.second: result.payload}}
  transitions: [{from_node_id: first, to_node_id: second}]
---
name: pause
workflow:
  nodes:
    - {id: wait, wait: {duration_ms: 2000}, output_mapping: {output.received: result.received}}
---
name: each
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '[1, 2, 3]'}, output_mapping: {state.n: result.value}}
    - {id: nap, task_id: nap, input_mapping: {value: item * input.by},
       output_mapping: {branch.n: result.value}}
    - id: meet
      task_id: note
      fan_in: {merges: [{source: branch.n, target: state.all}]}
      input_mapping: {value: state.all}
      output_mapping: {output.all: result.value, output.word: 'get(state, "word", "none")'}
    - {id: check, task_id: fails}
  transitions:
    - {from_node_id: begin, to_node_id: nap, for_each: {items: state.n}}
    - {from_node_id: nap, to_node_id: meet}
    - {from_node_id: meet, to_node_id: check, condition: input.by > 100}
---
name: watched
workflow:
  nodes:
    - {id: begin, wait: {signal: go}}
    - {id: nap, task_id: nap, input_mapping: {value: '1'}, output_mapping: {output.value: result.value}}
  transitions: [{from_node_id: begin, to_node_id: nap}]
"""

EXPIRING = """
name: expires_{policy}
workflow:
  nodes:
    - id: ask
      human_gate: {{prompt: "Shall we?", expire_after_ms: 50, on_expire: {policy}}}
      input_mapping: {{n: '1'}}
      output_mapping: {{output.decision: result.decision, output.by: result.user_id}}
"""

LATE = """
name: late_{policy}
workflow:
  nodes:
    - {{id: begin, task_id: note, fan_out: true, input_mapping: {{value: '1'}}}}
    - {{id: quick, task_id: note, input_mapping: {{value: '"quick"'}},
       output_mapping: {{branch.n: result.value}}}}
    - {{id: never, wait: {{signal: go}}, output_mapping: {{branch.n: '"never"'}}}}
    - id: meet
      task_id: note
      fan_in: {{timeout_ms: 50, on_timeout: {policy}, merges: [{{source: branch.n, target: output.n}}]}}
      input_mapping: {{value: '1'}}
  transitions:
    - {{from_node_id: begin, to_node_id: quick}}
    - {{from_node_id: begin, to_node_id: never}}
    - {{from_node_id: quick, to_node_id: meet}}
    - {{from_node_id: never, to_node_id: meet}}
"""
