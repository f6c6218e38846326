"""The fields of a chat request that may reach LiteLLM. Pure.

LiteLLM's call takes the request's fields and its own settings as arguments of one kind: ``api_base``,
``api_key``, ``aws_*``, ``fallbacks``, ``mock_response`` and others decide where a request goes and with whose
key. What it does not know it hands to a provider's code, which may read settings from it too. So only the
fields named here pass. Where requests go is the operator's word (`Endpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wonder_server.core.errors import Reason, error

ARGUMENT_FIELDS: Final = frozenset(
    "audio frequency_penalty functions function_call logit_bias logprobs max_completion_tokens max_tokens"
    " messages modalities parallel_tool_calls prediction presence_penalty prompt_cache_key"
    " reasoning_effort response_format safety_identifier seed service_tier stop store temperature thinking"
    " tool_choice tools top_logprobs top_p user verbosity web_search_options".split()
)
"""What the chat format knows and LiteLLM takes as an argument of the same name."""

BODY_FIELDS: Final = frozenset(
    "best_of chat_template_kwargs enable_thinking guided_choice guided_grammar guided_json guided_regex"
    " ignore_eos include_reasoning include_stop_str_in_output keep_alive length_penalty metadata min_p"
    " min_tokens mirostat mirostat_eta mirostat_tau num_ctx num_predict prompt_logprobs reasoning"
    " reasoning_format repeat_last_n repeat_penalty repetition_penalty safe_prompt skip_special_tokens"
    " stop_token_ids structured_outputs tfs_z think top_a top_k transforms typical_p".split()
)
"""Of providers' own: sampling and the like. They go into the body as they are."""

SERVER_FIELDS: Final = frozenset({"model", "stream", "stream_options", "n"})
"""What the server sets."""


def check_fields(request: Mapping[str, Any]) -> None:
    """MODEL_FAILED for a field that does not pass."""
    for name in request:
        if name not in ARGUMENT_FIELDS and name not in BODY_FIELDS and name not in SERVER_FIELDS:
            raise error(
                Reason.MODEL_FAILED,
                f"The parameter '{str(name)[:100]}' is not passed on to providers through LiteLLM: remove it"
                " from the model profile or the request.",
                field=f"parameters.{str(name)[:100]}",
                kind="refused",
            )


def to_arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as arguments for LiteLLM; what it has no argument for goes into the body."""
    fields = {name: value for name, value in request.items() if name in ARGUMENT_FIELDS}
    others = {name: value for name, value in request.items() if name in BODY_FIELDS}
    return {**fields, "extra_body": others} if others else fields
