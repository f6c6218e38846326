"""A corpus of graphs, each of which does one thing that a crash could spoil, and what the tests do about it.

The input of every run is ``{name, url}``: a unique name, and the address of the counting server. No output
contains a time, a count or a place of execution, so that the same graph always gives the same output.
"""

from __future__ import annotations

from dataclasses import dataclass

LIBRARY = "e2e/corpus"
PROJECT = "corpus"

TASKS = """
name: note
task:
  steps:
    - {id: note, action: {kind: context}, output_mapping: {output.value: input.value}}
---
name: nap
description: Takes a while, and may be done again.
task:
  steps:
    - {id: nap, action: {kind: sleep, config: {duration_ms: 5}}}
    - {id: note, action: {kind: context}, output_mapping: {output.value: input.value}}
---
name: once
description: Must not be done twice.
task:
  steps:
    - id: post
      action: {kind: http, config: {method: POST}}
      input_mapping: {url: input.url, body: input.value}
      output_mapping: {output.value: result.status}
---
name: again
description: May be done again, under its key.
task:
  steps:
    - id: post
      action: {kind: http, config: {method: POST}, idempotent: true}
      input_mapping: {url: input.url, body: input.value}
      output_mapping: {output.value: result.status}
---
name: busy
description: Fails for want of infrastructure, and leaves trying again to its node.
task:
  steps:
    - id: get
      action: {kind: http, max_attempts: 1}
      input_mapping: {url: input.url}
      output_mapping: {output.value: result.status}
---
name: says
description: Says something into the record of its run.
task:
  steps:
    - id: say
      action: {kind: event, config: {name: said}}
      input_mapping: {payload: '{"value": input.value}'}
    - {id: nap, action: {kind: sleep, config: {duration_ms: 5}}}
    - {id: note, action: {kind: context}, output_mapping: {output.value: input.value}}
---
name: quiet
persona: {system_prompt: You are quiet., memory_extraction_workflow_id: none}
"""

WORKFLOWS = """
name: sequence
workflow:
  nodes:
    - {id: a, task_id: note, input_mapping: {value: '"a"'}, output_mapping: {state.all: result.value}}
    - {id: b, task_id: nap, input_mapping: {value: state.all + "b"},
       output_mapping: {state.all: result.value}}
    - {id: c, task_id: says, input_mapping: {value: state.all + "c"},
       output_mapping: {state.all: result.value}}
    - {id: d, task_id: note, input_mapping: {value: state.all + "d"},
       output_mapping: {output.all: result.value}}
  transitions:
    - {from_node_id: a, to_node_id: b}
    - {from_node_id: b, to_node_id: c}
    - {from_node_id: c, to_node_id: d}
---
name: diamond
workflow:
  nodes:
    - {id: split, task_id: note, fan_out: true, input_mapping: {value: '1'},
       output_mapping: {state.n: result.value}}
    - {id: left, task_id: nap, input_mapping: {value: state.n + 1}, output_mapping: {branch.n: result.value}}
    - {id: right, task_id: note, input_mapping: {value: state.n + 2},
       output_mapping: {branch.n: result.value}}
    - id: meet
      task_id: note
      fan_in: {merges: [{source: branch.n, target: output.sides, strategy: keyed_by_branch}]}
      input_mapping: {value: output.sides.left + output.sides.right}
      output_mapping: {output.sum: result.value}
  transitions:
    - {from_node_id: split, to_node_id: left}
    - {from_node_id: split, to_node_id: right}
    - {from_node_id: left, to_node_id: meet}
    - {from_node_id: right, to_node_id: meet}
---
name: two_of_three
workflow:
  nodes:
    - {id: ask, task_id: note, fan_out: true, input_mapping: {value: '1'}}
    - {id: anna, task_id: nap, input_mapping: {value: '"anna"'}, output_mapping: {branch.vote: result.value}}
    - {id: ben, task_id: note, input_mapping: {value: '"ben"'}, output_mapping: {branch.vote: result.value}}
    - {id: carl, wait: {duration_ms: 3600000}, output_mapping: {branch.vote: '"carl"'}}
    - id: decide
      task_id: note
      fan_in:
        {mode: m_of_n, count: 2, timeout_ms: 600000, merges: [{source: branch.vote, target: output.votes}]}
      input_mapping: {value: size(output.votes)}
      output_mapping: {output.count: result.value}
  transitions:
    - {from_node_id: ask, to_node_id: anna}
    - {from_node_id: ask, to_node_id: ben}
    - {from_node_id: ask, to_node_id: carl}
    - {from_node_id: anna, to_node_id: decide}
    - {from_node_id: ben, to_node_id: decide}
    - {from_node_id: carl, to_node_id: decide}
---
name: each
workflow:
  nodes:
    - {id: list, task_id: note, input_mapping: {value: '[1, 2, 3, 4, 5, 6]'},
       output_mapping: {state.n: result.value}}
    - {id: nap, task_id: nap, input_mapping: {value: item * 10}, output_mapping: {branch.n: result.value}}
    - {id: more, task_id: note, input_mapping: {value: branch.n + index},
       output_mapping: {branch.n: result.value}}
    - id: meet
      task_id: note
      fan_in: {merges: [{source: branch.n, target: state.n}]}
      input_mapping: {value: state.n}
      output_mapping: {output.n: result.value}
  transitions:
    - {from_node_id: list, to_node_id: nap, for_each: {items: state.n, max_concurrency: 2}}
    - {from_node_id: nap, to_node_id: more}
    - {from_node_id: more, to_node_id: meet}
---
name: each_of_each
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '0'}}
    - {id: outer, task_id: note, input_mapping: {value: item}, output_mapping: {branch.all: result.value}}
    - {id: inner, task_id: nap, input_mapping: {value: item + 1}, output_mapping: {branch.n: result.value}}
    - id: inner_meet
      task_id: note
      fan_in: {merges: [{source: branch.n, target: branch.all}]}
      input_mapping: {value: branch.all}
      output_mapping: {branch.all: result.value}
    - id: outer_meet
      task_id: note
      fan_in: {merges: [{source: branch.all, target: output.all, strategy: append}]}
      input_mapping: {value: output.all}
      output_mapping: {output.all: result.value}
  transitions:
    - {from_node_id: begin, to_node_id: outer, for_each: {items: '[[1, 2], [3], [4, 5, 6]]'}}
    - {from_node_id: outer, to_node_id: inner, for_each: {items: branch.all}}
    - {from_node_id: inner, to_node_id: inner_meet}
    - {from_node_id: inner_meet, to_node_id: outer_meet}
---
name: loop
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '"ho"'}, output_mapping: {state.text: result.value}}
    - {id: more, task_id: nap, input_mapping: {value: state.text + "ho"},
       output_mapping: {state.text: result.value}}
    - {id: give, task_id: note, input_mapping: {value: state.text},
       output_mapping: {output.text: result.value}}
  transitions:
    - {from_node_id: begin, to_node_id: more}
    - {from_node_id: more, to_node_id: more, loop_limit: 4}
    - {from_node_id: more, to_node_id: give, priority: 1}
---
name: children
workflow:
  timeout_ms: 600000
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '1'}}
    - {id: child, workflow_id: sequence, timeout_ms: 600000, output_mapping: {branch.all: result.all}}
    - id: meet
      workflow_id: diamond
      fan_in: {merges: [{source: branch.all, target: output.all}]}
      output_mapping: {output.sum: result.sum}
    # A child that waits for the time is on disk by itself.
    - {id: timed, workflow_id: timers, output_mapping: {output.received: result.received}}
  transitions:
    - {from_node_id: meet, to_node_id: timed}
    - {from_node_id: begin, to_node_id: child, for_each: {items: '[1, 2]'}}
    - {from_node_id: child, to_node_id: meet}
---
name: gate
workflow:
  nodes:
    - {id: draft, task_id: note, input_mapping: {value: '"draft"'},
       output_mapping: {state.text: result.value}}
    - id: agree
      human_gate:
        prompt: Shall we?
        answer_schema: {type: object, properties: {text: {type: string}}}
        expire_after_ms: 3600000
      input_mapping: {text: state.text}
      output_mapping:
        {state.text: result.input.text, output.decision: result.decision, output.by: result.user_id}
    - {id: publish, task_id: nap, input_mapping: {value: state.text},
       output_mapping: {output.text: result.value}}
  transitions:
    - {from_node_id: draft, to_node_id: agree}
    - {from_node_id: agree, to_node_id: publish, condition: output.decision == "approved"}
---
name: signal
workflow:
  nodes:
    - {id: order, task_id: nap, input_mapping: {value: '1'}}
    - {id: payment, wait: {signal: paid, duration_ms: 3600000}, output_mapping: {output.paid: result.payload}}
    - {id: ship, task_id: note, input_mapping: {value: output.paid + 1},
       output_mapping: {output.shipped: result.value}}
  transitions:
    - {from_node_id: order, to_node_id: payment}
    - {from_node_id: payment, to_node_id: ship}
---
name: timers
workflow:
  timeout_ms: 600000
  nodes:
    - {id: begin, task_id: note, fan_out: true, input_mapping: {value: '1'}}
    - {id: long, wait: {duration_ms: 60}, output_mapping: {branch.received: result.received}}
    - {id: short, wait: {signal: never, duration_ms: 25}, output_mapping: {branch.received: result.received}}
    - id: meet
      fan_in: {merges: [{source: branch.received, target: output.received, strategy: keyed_by_branch}]}
      wait: {duration_ms: 20}
      output_mapping: {output.last: result.received}
  transitions:
    - {from_node_id: begin, to_node_id: long}
    - {from_node_id: begin, to_node_id: short}
    - {from_node_id: long, to_node_id: meet}
    - {from_node_id: short, to_node_id: meet}
---
name: agent
workflow:
  nodes:
    - id: ask
      agent_id: quiet
      input_mapping: {question: '"say 3 words"'}
      output_mapping: {output.text: result.text}
    - {id: note, task_id: note, input_mapping: {value: size(output.text)},
       output_mapping: {output.size: result.value}}
  transitions: [{from_node_id: ask, to_node_id: note}]
---
name: effect_once
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '1'}}
    - id: first
      task_id: once
      input_mapping: {url: 'input.url + "/once/" + input.name + "/first"', value: '{"n": 1}'}
      output_mapping: {output.first: result.value}
    - id: second
      task_id: once
      input_mapping: {url: 'input.url + "/once/" + input.name + "/second"', value: '{"n": 2}'}
      output_mapping: {output.second: result.value}
  transitions:
    - {from_node_id: begin, to_node_id: first}
    - {from_node_id: first, to_node_id: second}
---
name: effect_again
workflow:
  nodes:
    - {id: begin, task_id: note, input_mapping: {value: '1'}}
    - id: post
      task_id: again
      input_mapping: {url: 'input.url + "/again/" + input.name + "/" + string(item)', value: '{"n": item}'}
      output_mapping: {branch.status: result.value}
    - id: meet
      task_id: note
      fan_in: {merges: [{source: branch.status, target: output.statuses}]}
      input_mapping: {value: size(output.statuses)}
      output_mapping: {output.count: result.value}
  transitions:
    - {from_node_id: begin, to_node_id: post, for_each: {items: '[1, 2, 3]'}}
    - {from_node_id: post, to_node_id: meet}
---
name: retries
workflow:
  nodes:
    - id: get
      task_id: busy
      retry: {max_attempts: 5, backoff_ms: 10}
      timeout_ms: 600000
      input_mapping: {url: 'input.url + "/busy/2/" + input.name'}
      output_mapping: {output.status: result.value}
    - {id: note, task_id: note, input_mapping: {value: output.status},
       output_mapping: {output.copy: result.value}}
  transitions: [{from_node_id: get, to_node_id: note}]
---
name: waits
workflow:
  nodes: [{id: wait, wait: {signal: never}}]
---
name: cancelled
description: Waits in every way, for ever.
workflow:
  nodes:
    - {id: begin, task_id: note, fan_out: true, input_mapping: {value: '1'}}
    - {id: gate, human_gate: {prompt: Wait for ever}, input_mapping: {}}
    - {id: signal, wait: {signal: never}}
    - {id: child, workflow_id: waits}
    - {id: each, task_id: note, input_mapping: {value: '1'}}
    - {id: hang, task_id: again, input_mapping: {url: 'input.url + "/hang/" + input.name', value: '1'}}
    - {id: never, task_id: note, fan_in: {}, input_mapping: {value: '1'}}
  transitions:
    - {from_node_id: begin, to_node_id: gate}
    - {from_node_id: begin, to_node_id: signal}
    - {from_node_id: begin, to_node_id: child}
    - {from_node_id: begin, to_node_id: each}
    - {from_node_id: each, to_node_id: hang, for_each: {items: '[1, 2, 3]', max_concurrency: 1}}
    - {from_node_id: hang, to_node_id: never}
"""


@dataclass(frozen=True)
class Case:
    """One graph, and the actions of its clients."""

    workflow: str
    gates: tuple[str, ...] = ()
    """Gates that the clients approve."""
    signals: tuple[str, ...] = ()
    """Signals that the clients send."""
    cancel: bool = False
    """True if the clients cancel the run once it waits in every way."""
    fork: int = 0
    """The node execution before which they fork it, when it has ended; 0: none."""


_PLAIN = (
    "diamond", "two_of_three", "each", "each_of_each", "loop", "children", "timers",
    "agent", "effect_once", "effect_again", "retries",
)  # fmt: skip
CORPUS = (
    *(Case(name) for name in _PLAIN),
    Case("sequence", fork=3),
    Case("cancelled", cancel=True),
    Case("gate", gates=("agree",)),
    Case("signal", signals=("paid",)),
)
