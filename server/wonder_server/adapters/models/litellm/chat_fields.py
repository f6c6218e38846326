"""The fields of a chat request that the server passes to LiteLLM. Pure.

LiteLLM takes the fields of a request and its own settings as arguments of one call. ``api_base``,
``api_key``, ``aws_*``, ``fallbacks``, ``mock_response`` and others determine the address and the key of a
request. LiteLLM passes unknown arguments to a provider's code, which may also read settings from them. So the
server passes only the fields listed here. Only the operator's `Endpoint` determines the address.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict, JsonObject

ARGUMENT_FIELDS: Final = frozenset(
    "audio frequency_penalty functions function_call logit_bias logprobs max_completion_tokens max_tokens"
    " messages modalities parallel_tool_calls prediction presence_penalty prompt_cache_key"
    " reasoning_effort response_format safety_identifier seed service_tier stop store temperature thinking"
    " tool_choice tools top_logprobs top_p user verbosity web_search_options".split()
)
"""Fields of the chat format that LiteLLM takes as arguments of the same name."""

BODY_FIELDS: Final = frozenset(
    "best_of chat_template_kwargs enable_thinking guided_choice guided_grammar guided_json guided_regex"
    " ignore_eos include_reasoning include_stop_str_in_output keep_alive length_penalty metadata min_p"
    " min_tokens mirostat mirostat_eta mirostat_tau num_ctx num_predict prompt_logprobs reasoning"
    " reasoning_format repeat_last_n repeat_penalty repetition_penalty safe_prompt skip_special_tokens"
    " stop_token_ids structured_outputs tfs_z think top_a top_k transforms typical_p".split()
)
"""Fields of single providers, such as sampling parameters. The body contains them unchanged."""

SERVER_FIELDS: Final = frozenset({"model", "stream", "stream_options", "n"})
"""Fields that the server sets."""


def check_fields(request: JsonObject) -> None:
    """Raise MODEL_FAILED for a field that is not in one of the three sets."""
    for name in request:
        if name not in ARGUMENT_FIELDS and name not in BODY_FIELDS and name not in SERVER_FIELDS:
            raise error(
                Reason.MODEL_FAILED,
                f"The parameter '{str(name)[:100]}' is not passed on to providers through LiteLLM: remove it"
                " from the model profile or the request.",
                field=f"parameters.{str(name)[:100]}",
                kind="refused",
            )


def to_arguments(request: JsonObject) -> JsonDict:
    """Return the request as arguments of LiteLLM's call. `BODY_FIELDS` become its ``extra_body``."""
    fields = {name: value for name, value in request.items() if name in ARGUMENT_FIELDS}
    others = {name: value for name, value in request.items() if name in BODY_FIELDS}
    return {**fields, "extra_body": others} if others else fields
