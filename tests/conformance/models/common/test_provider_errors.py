"""Faults for error responses of providers."""

from __future__ import annotations

import pytest

from wonder_server.adapters.models.common import provider_errors
from wonder_server.core.errors import Reason


def test_a_used_up_quota_is_not_tried_again_though_its_status_is_429() -> None:
    fault = provider_errors.from_status(429, '{"error": {"message": "You exceeded your current quota"}}', {})

    assert (fault.reason, fault.transient, fault.metadata) == (Reason.MODEL_FAILED, False, {"kind": "quota"})


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after-ms": "120", "retry-after": "7"}, 120),
        (
            {"retry-after": "Sun, 22 Nov 2026 00:01:00 GMT", "date": "Sun, 22 Nov 2026 00:00:30 GMT"},
            30_000,
        ),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], expected: int | None) -> None:
    assert provider_errors.retry_after_ms(headers) == expected


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("litellm.RateLimitError: RateLimitError: OpenAIException - slow down", "slow down"),
        (
            'litellm.InternalServerError: AnthropicException - {"error": {"message": "oh no"}}. Handle',
            "oh no",
        ),
        ('{"error": "just text"}', "just text"),
        ("plain words", "plain words"),
        ("a {broken json", "a {broken json"),
        ("", ""),
    ],
)
def test_only_the_providers_own_sentence_is_kept(text: str, plain: str) -> None:
    assert provider_errors.plain_text(text) == plain


def test_long_texts_are_shortened() -> None:
    assert len(provider_errors.plain_text("x" * 10_000)) < 400


def test_keys_are_redacted_known_or_not() -> None:
    fault = provider_errors.from_status(
        401, "bad hunter2-is-my-key, sk-abcdefghijklmnop, Bearer tok123, https://x/?key=AAA&y=1", {}
    )

    message = provider_errors.redacted(fault, ("hunter2-is-my-key", "")).message

    for secret in ("hunter2", "abcdefghijklmnop", "tok123", "AAA"):
        assert secret not in message
