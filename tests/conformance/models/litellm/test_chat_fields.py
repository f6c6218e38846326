"""Only the listed fields of a request reach LiteLLM."""

from __future__ import annotations

import pytest

from wonder_server.adapters.models.litellm.chat_fields import (
    ARGUMENT_FIELDS,
    BODY_FIELDS,
    check_fields,
    to_arguments,
)
from wonder_server.core.errors import Reason, WonderError


@pytest.mark.parametrize(
    "name",
    "api_base base_url api_key api_version extra_headers extra_body headers aws_region_name aws_role_name"
    " aws_bedrock_runtime_endpoint vertex_project azure_ad_token custom_llm_provider mock_response model_list"
    " fallbacks client timeout logger_fn callbacks organization".split(),
)
def test_nothing_that_says_where_a_request_goes_passes(name: str) -> None:
    with pytest.raises(WonderError) as caught:
        check_fields({"messages": [], name: "x"})
    assert (caught.value.fault.reason, caught.value.fault.field) == (
        Reason.MODEL_FAILED,
        f"parameters.{name}",
    )
    assert to_arguments({"messages": [], name: "x"}) == {"messages": []}


def test_sampling_of_providers_own_goes_into_the_body() -> None:
    request = {"messages": [], "temperature": 1, "top_k": 5, "num_ctx": 4096, "model": "m", "stream": True}
    check_fields(request)
    assert to_arguments(request) == {
        "messages": [],
        "temperature": 1,
        "extra_body": {"top_k": 5, "num_ctx": 4096},
    }


def test_no_field_is_both() -> None:
    assert not ARGUMENT_FIELDS & BODY_FIELDS
