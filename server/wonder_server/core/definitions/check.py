"""Validation of definitions when they are saved (feature A6).

`check_spec` returns every fault of one definition, each with its path. It never raises, reads only the given
`ReferenceResolver`, and uses no storage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from wonder_server.core.content.parts import FILE, IMAGE, TEXT
from wonder_server.core.definitions.check_gates import check_approval
from wonder_server.core.definitions.check_rules import MAX_ATTEMPTS, MAX_TIMEOUT_MS, ExpressionScope, Rules
from wonder_server.core.definitions.check_sources import check_sources
from wonder_server.core.definitions.check_workflow import CONTEXT, INVOCATION_MODES, check_workflow
from wonder_server.core.definitions.fault_list import join
from wonder_server.core.definitions.parse import canonical, to_json
from wonder_server.core.definitions.pinning import MAX_FALLBACKS
from wonder_server.core.definitions.reference_check import ReferenceResolver, check_references
from wonder_server.core.definitions.specs import (
    Action,
    ModelFallback,
    ModelProfile,
    Persona,
    RetentionAction,
    Spec,
    Step,
    Task,
    Tool,
    Workflow,
)
from wonder_server.core.errors import Fault
from wonder_server.core.request_formats import FORMATS, PROVIDERS, default_format
from wonder_server.core.request_formats.anthropic_messages import PROPERTY
from wonder_server.core.request_formats.parts import NOT_AT_ROOT
from wonder_server.core.schema import payloads
from wonder_server.core.schema.schemas import validate
from wonder_server.core.suggestions import did_you_mean

MAX_SPEC_BYTES = 1 << 20
MAX_STEPS = 100
MAX_TOOLS = 128
MAX_TOOL_CALLS = 10_000
MAX_INSTRUCTIONS = 100
MAX_RECENT_TURNS = 200
MAX_RETENTION_RULES = 20
MAX_RULE_TYPES = 100
MAX_MEMORY_TYPE = 128
MAX_AGE_MS = 100 * 365 * 24 * 3600 * 1000

TARGET_TYPES = ("task", "workflow", "agent")
MAX_DELEGATION_DEPTH = 32
PROVIDERS_WITHOUT_MODEL = ("auto", "offline")
FORBIDDEN_PARAMETERS = frozenset(
    "api_base base_url api_key api_version azure_ad_token custom_llm_provider deployment_id extra_body"
    " extra_headers fallbacks headers mock_response mock_timeout model_list organization proxies ssl_verify"
    " stream timeout".split()
)
FORBIDDEN_BEGINNINGS = ("aws_", "azure_", "litellm_", "s3_", "vertex_", "watsonx_")
"""The operator chooses the endpoint and the key of requests, the platform whether they stream."""

MIN_RESULT_BYTES = 1024
"""Minimum of a tool's ``max_result_bytes``: most of an excerpt is not its notice."""

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?\Z")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")


def check_spec(spec: Spec, library: str, resolver: ReferenceResolver) -> tuple[Fault, ...]:
    """Return every fault of ``spec`` as a definition of ``library``; empty if it is valid."""
    check = _Check(library, resolver)
    if len(canonical(to_json(spec))) > MAX_SPEC_BYTES:
        check.refuse("", f"The definition is larger than {MAX_SPEC_BYTES} bytes.")
        return check.found()
    match spec:
        case Persona():
            check.persona(spec)
        case Tool():
            check.tool(spec)
        case ModelProfile():
            check.model_profile(spec)
        case Action():
            check.action(spec, "")
        case Task():
            check.task(spec)
        case Workflow():
            check_workflow(spec, check)
    check_references(spec, library, resolver, check)
    return check.found()


class _Check(Rules):
    """Checks of one definition, one method for each kind."""

    def __init__(self, library: str, resolver: ReferenceResolver) -> None:
        super().__init__()
        self._library = library
        self._resolver = resolver

    def persona(self, persona: Persona) -> None:
        self.text("system_prompt", persona.system_prompt)
        self.count("instructions", persona.instructions, MAX_INSTRUCTIONS)
        for index, instruction in enumerate(persona.instructions):
            self.text(f"instructions[{index}]", instruction)
        self.number("recent_turns_limit", persona.recent_turns_limit, 0, MAX_RECENT_TURNS)
        self.tools(persona)
        limits = persona.constraints
        self.number("constraints.max_moves_per_turn", limits.max_moves_per_turn, 0, 1_000)
        for name in ("max_tool_calls_per_answer", "max_tool_calls_per_turn"):
            self.number(f"constraints.{name}", getattr(limits, name), 0, MAX_TOOL_CALLS)
        for name in ("max_tokens_per_turn", "max_cost_micros_per_turn"):
            self.number(f"constraints.{name}", getattr(limits, name), 0, 2**53)
        self.number("constraints.max_turn_ms", limits.max_turn_ms, 0, MAX_TIMEOUT_MS)
        depth = limits.max_delegation_depth
        self.number("constraints.max_delegation_depth", depth, 0, MAX_DELEGATION_DEPTH)
        window = persona.context_window
        if not 0 < window.threshold <= 1:
            self.refuse("context_window.threshold", "The threshold must be above 0 and at most 1.")
        self.number("context_window.keep_recent_messages", window.keep_recent_messages, 0, MAX_RECENT_TURNS)
        for index, kind in enumerate(limits.allowed_actions):
            self.allowed_action(f"constraints.allowed_actions[{index}]", kind)
        self.retention(persona)
        check_sources(persona.tool_sources, self)
        self.output_schema("output_schema", persona.output_schema)

    def retention(self, persona: Persona) -> None:
        self.count("retention", persona.retention, MAX_RETENTION_RULES)
        for index, rule in enumerate(persona.retention):
            path = f"retention[{index}]"
            self.count(f"{path}.types", rule.types, MAX_RULE_TYPES)
            for at, name in enumerate(rule.types):
                if not 1 <= len(name) <= MAX_MEMORY_TYPE:
                    self.refuse(f"{path}.types[{at}]", f"A type has 1 to {MAX_MEMORY_TYPE} characters.")
            keeps = rule.action is RetentionAction.KEEP
            self.number(f"{path}.older_than_ms", rule.older_than_ms, 0 if keeps else 1, MAX_AGE_MS)
            if rule.consolidation_workflow_id and rule.action is not RetentionAction.CONSOLIDATE:
                self.refuse(
                    f"{path}.consolidation_workflow_id", "Only a rule that consolidates has a workflow."
                )

    def tools(self, persona: Persona) -> None:
        self.count("tool_ids", persona.tool_ids, MAX_TOOLS)
        seen: dict[str, str] = {}
        format_name = self.format_of(persona)
        for index, reference in enumerate(persona.tool_ids):
            found = self._resolver.find(reference, self._library)
            if found is None or not isinstance(found.spec, Tool):
                continue  # `check_references` reports it.
            name = found.spec.name
            self.tool_of_format(f"tool_ids[{index}]", found.spec, format_name)
            if name in seen:
                self.refuse(
                    f"tool_ids[{index}]",
                    f"The tools '{seen[name]}' and '{reference}' have the same name, '{name}': "
                    "the model could not tell them apart.",
                )
            seen.setdefault(name, reference)

    def tool(self, tool: Tool) -> None:
        if not _TOOL_NAME.match(tool.name):
            self.refuse(
                "name", "A tool's name is 1 to 64 letters, digits, '_' or '-'. Providers accept no other."
            )
        self.text("description", tool.description)
        self.schema("input_schema", tool.input_schema)
        if tool.input_schema.get("type", "object") != "object":
            self.refuse(
                "input_schema.type", "A model calls a tool with an object: the type must be 'object'."
            )
        self.tool_root(tool.input_schema)
        self.tool_target(tool)
        self.inputs("input_mapping", tool.input_mapping, ExpressionScope(("input",)))
        check_approval(tool.approval, tool.approval_gate, "", self)
        self.retry("retry", tool.retry)
        if tool.max_result_bytes:
            self.number("max_result_bytes", tool.max_result_bytes, MIN_RESULT_BYTES, payloads.MAX_BYTES)
        if tool.output_schema and tool.target_type != "agent":
            self.refuse(
                "output_schema",
                "Only a tool that calls an agent has an output_schema. Set it in the task or workflow.",
            )
        self.output_schema("output_schema", tool.output_schema)

    def tool_root(self, schema: Mapping[str, object]) -> None:
        """Refuse keywords and names that are valid JSON Schema but that providers reject."""
        for keyword in NOT_AT_ROOT:
            if keyword in schema:
                self.refuse(
                    join("input_schema", keyword),
                    f"Providers do not accept '{keyword}' at the root of a tool's schema. Name the fields "
                    "under 'properties', and move the rest into one of them.",
                )
        properties = schema.get("properties")
        for name in properties if isinstance(properties, Mapping) else ():
            if not PROPERTY.fullmatch(name):
                self.refuse(
                    join("input_schema.properties", name[:80]),
                    "A tool's field has 1 to 64 letters, digits, '_', '.' or '-'. Providers accept no other.",
                )

    def tool_of_format(self, path: str, tool: Tool, format_name: str) -> None:
        """Refuse a tool that the request format of the persona's model does not accept."""
        request_format = FORMATS.get(format_name)
        if request_format is None:
            return
        title, limit = request_format.provider_title, request_format.max_description
        # Gemini's is the only pattern that rejects some of the names that `tool` accepts.
        if not request_format.tool_name.fullmatch(tool.name):
            self.refuse(
                path,
                f"{title} takes no tool named '{tool.name}': its name must begin with a letter or '_'. "
                "Rename the tool, or choose a model of another format.",
            )
        if limit and len(tool.description) > limit:
            self.refuse(
                path,
                f"{title} takes descriptions of tools up to {limit:,} characters; that of '{tool.name}' has "
                f"{len(tool.description):,}. Shorten it, or choose a model of another provider.",
            )

    def format_of(self, persona: Persona) -> str:
        """Return the request format of the persona's model if its provider has known limits, else an empty
        string.

        The result is also empty if the operator chooses the model.
        """
        found = (
            self._resolver.find(persona.model_profile_id, self._library) if persona.model_profile_id else None
        )
        if found is None or not isinstance(found.spec, ModelProfile):
            return ""
        provider = found.spec.provider
        return found.spec.format or default_format(provider) if provider in PROVIDERS else ""

    def tool_target(self, tool: Tool) -> None:
        if not tool.target_id:
            self.refuse(
                "target_id", "target_id is empty. Name the task, workflow or agent that the tool calls."
            )
        self.choice("target_type", tool.target_type, TARGET_TYPES)
        self.choice("invocation_mode", tool.invocation_mode, INVOCATION_MODES)
        if tool.invocation_mode == "loop_in" and tool.target_type != "agent":
            self.refuse("invocation_mode", "Only an agent can be looped in.")
        elif tool.invocation_mode == "loop_in" and tool.is_async:
            self.refuse(
                "async", "A looped-in agent joins immediately. Leave 'async' out, or delegate to the agent."
            )

    def provider(self, path: str, provider: str, *, automatic: bool = True) -> None:
        """Refuse a provider that this server does not have; ``auto`` too unless ``automatic``."""
        known = self._resolver.providers
        if not _PROVIDER.match(provider) or (provider == "auto" and not automatic):
            self.refuse(path, "Name a provider: 'auto', 'offline', 'openai', 'anthropic', 'gemini', …")
        elif known and provider not in {"auto", *known}:
            self.refuse(
                path,
                f"This server has no model provider '{provider}'{did_you_mean(provider, known)}. It has"
                f" {', '.join(sorted(known))}; its operator can add more.",
            )

    def model_profile(self, profile: ModelProfile) -> None:
        self.provider("provider", profile.provider)
        if not profile.model and profile.provider not in PROVIDERS_WITHOUT_MODEL:
            self.refuse("model", f"Name the model of '{profile.provider}' to use.")
        self.choice("format", profile.format, ("", *FORMATS))
        for name in profile.parameters:
            if name in FORBIDDEN_PARAMETERS or name.startswith(FORBIDDEN_BEGINNINGS):
                self.refuse(join("parameters", name), f"'{name}' is set by the server, not by a definition.")
        for name in ("timeout_ms", "first_token_timeout_ms", "chunk_timeout_ms"):
            self.number(name, getattr(profile, name), 1, MAX_TIMEOUT_MS)
        self.number("max_attempts", profile.max_attempts, 1, MAX_ATTEMPTS)
        self.number("context_window_tokens", profile.context_window_tokens, 0, 100_000_000)
        for index, part in enumerate(profile.accepts):
            self.choice(f"accepts[{index}]", part, (TEXT, IMAGE, FILE))
        self.count("fallbacks", profile.fallbacks, MAX_FALLBACKS)
        for index, fallback in enumerate(profile.fallbacks):
            self.fallback(f"fallbacks[{index}]", fallback, profile)

    def fallback(self, path: str, fallback: ModelFallback, profile: ModelProfile) -> None:
        """Refuse a fallback that is neither a profile nor a provider's model, or the model of its profile."""
        given = (bool(fallback.model_profile_id), bool(fallback.provider), bool(fallback.model))
        if given not in ((True, False, False), (False, True, True)):
            self.refuse(path, "A fallback is a model_profile_id, or a provider with a model.")
        elif fallback.provider:
            self.provider(f"{path}.provider", fallback.provider, automatic=False)
            if (fallback.provider, fallback.model) == (profile.provider, profile.model):
                self.refuse(path, "The fallback is the model of the profile itself.")

    def action(self, action: Action, path: str) -> None:
        if not self.action_kind(join(path, "kind"), action.kind):
            return
        self.number(join(path, "timeout_ms"), action.timeout_ms, 1, MAX_TIMEOUT_MS)
        self.number(join(path, "max_attempts"), action.max_attempts, 1, MAX_ATTEMPTS)
        self.number(join(path, "backoff_ms"), action.backoff_ms, 0, MAX_TIMEOUT_MS)
        self.known_inputs(join(path, "config"), action, action.config)
        self.config(join(path, "config"), action)

    def task(self, task: Task) -> None:
        self.schema("input_schema", task.input_schema)
        self.schema("output_schema", task.output_schema)
        self.retry("retry", task.retry)
        self.count("steps", task.steps, MAX_STEPS, least=1)
        self.unique("steps", [step.id for step in task.steps])
        for index, step in enumerate(task.steps):
            self.step(step, f"steps[{index}]")

    def step(self, step: Step, path: str) -> None:
        if (step.action is None) == (step.action_id == ""):
            self.refuse(f"{path}.action", "A step runs one action: set either action_id or action.")
        if step.action is not None:
            self.action(step.action, f"{path}.action")
        scope = ExpressionScope(CONTEXT, f"step '{step.id}'")
        self.condition(f"{path}.condition", step.condition, scope)
        self.inputs(f"{path}.input_mapping", step.input_mapping, scope)
        self.outputs(f"{path}.output_mapping", step.output_mapping, scope.after())
        self.action_inputs(step, path)

    def action_inputs(self, step: Step, path: str) -> None:
        """Refuse inputs that the step's action does not have, and missing required inputs."""
        action = step.action
        if step.action_id:
            found = self._resolver.find(step.action_id, self._library)
            action = found.spec if found is not None and isinstance(found.spec, Action) else None
        if action is None or action.kind not in self._resolver.actions:
            return
        self.known_inputs(f"{path}.input_mapping", action, step.input_mapping)
        for name in self._resolver.actions[action.kind].get("required", ()):
            if name not in step.input_mapping and name not in action.config:
                self.refuse(
                    f"{path}.input_mapping", f"'{action.kind}' needs '{name}': map it, or set it in config."
                )
        if action.kind == "sleep":
            self.sleep(step, action, path)

    def sleep(self, step: Step, action: Action, path: str) -> None:
        """Refuse a constant duration that exceeds the action's timeout. The action itself refuses computed
        ones."""
        source = step.input_mapping.get("duration_ms", "")
        duration = action.config.get("duration_ms")
        if source:
            duration = float(source) if _NUMBER.match(source.strip()) else None
        if isinstance(duration, int | float) and duration >= action.timeout_ms:
            self.refuse(
                f"{path}.input_mapping.duration_ms" if source else f"{path}.action",
                f"duration_ms is {duration:.15g}, and the action times out after {action.timeout_ms} ms:"
                " raise its timeout_ms, or let the workflow wait.",
            )

    def known_inputs(self, path: str, action: Action, names: Collection[str]) -> None:
        schema = self._resolver.actions[action.kind]
        known = schema.get("properties")
        if not isinstance(known, Mapping) or schema.get("additionalProperties") is not False:
            return
        for name in sorted(set(names) - set(known)):
            names_known = ", ".join(sorted(known)) or "nothing"
            self.refuse(join(path, name), f"'{action.kind}' takes no '{name}'; it takes: {names_known}.")

    def config(self, path: str, action: Action) -> None:
        """Refuse settings that do not match the kind's schema. Inputs that a step adds are only known when it
        runs."""
        schema = self._resolver.actions[action.kind]
        for name, value in action.config.items():
            if name in schema.get("properties", {}):
                part = {key: schema[key] for key in ("$defs", "properties") if key in schema}
                for sentence in validate(part, {name: value}):
                    self.refuse(join(path, name), sentence)

    def action_kind(self, path: str, kind: str) -> bool:
        if kind in self._resolver.actions:
            return True
        known = f"there are: {', '.join(sorted(self._resolver.actions))}."
        meant = did_you_mean(kind, self._resolver.actions)
        self.refuse(path, f"There is no action kind '{kind}'{meant}; {known}")
        return False

    def allowed_action(self, path: str, pattern: str) -> None:
        """Refuse an unknown kind or family of kinds, such as ``memory.*``."""
        family = pattern.removesuffix("*")
        if family == pattern or not any(kind.startswith(family) for kind in self._resolver.actions):
            self.action_kind(path, pattern)
