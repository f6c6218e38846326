"""Names of spans and attributes, by the GenAI conventions of OpenTelemetry 1.36, and only here."""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.36.0"

CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"

AGENT_ID: Final = "gen_ai.agent.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OPERATION: Final = "gen_ai.operation.name"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_NAME: Final = "gen_ai.tool.name"

ATTEMPTS: Final = "wonder.attempts"
COST_MICROS: Final = "wonder.cost_micros"
FIRST_CHUNK_MS: Final = "wonder.first_chunk_ms"
HOOK: Final = "wonder.hook"
NODE_ID: Final = "wonder.node.id"
PROJECT_ID: Final = "wonder.project.id"
RUN_ID: Final = "wonder.run.id"
TARGET: Final = "wonder.target"
TURN_ID: Final = "wonder.turn.id"
WORKFLOW: Final = "wonder.workflow"
