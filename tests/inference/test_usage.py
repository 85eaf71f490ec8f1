"""What replies say about their tokens, whatever else is in them."""

import json
from typing import Any

import pytest

from reasoning_gym_environment.inference.usage import read_usage

TOLD = {"prompt_tokens": 10, "completion_tokens": 30}


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (TOLD, (10, 30, None)),
        ({**TOLD, "total_tokens": 40}, (10, 30, None)),
        ({**TOLD, "completion_tokens_details": {"reasoning_tokens": 25}}, (10, 30, 25)),
        # OpenRouter has null where it doesn't know, SGLang has no details.
        (
            {**TOLD, "completion_tokens_details": {"reasoning_tokens": None}},
            (10, 30, None),
        ),
        (
            {**TOLD, "completion_tokens_details": None, "reasoning_tokens": 7},
            (10, 30, 7),
        ),
        # xAI's completion tokens are those of the reply alone.
        (
            {
                **TOLD,
                "total_tokens": 100,
                "completion_tokens_details": {"reasoning_tokens": 60},
            },
            (10, 90, 60),
        ),
        ({**TOLD, "total_tokens": 90}, (10, 80, None)),
        ({**TOLD, "total_tokens": "many", "cost": 0.1}, (10, 30, None)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (0, 0, None)),
    ],
)
def test_a_replys_usage_is_read(
    usage: dict[str, Any], counts: tuple[int, int, int | None]
) -> None:
    told = read_usage(json.dumps({"choices": None, "usage": usage}).encode())
    assert told is not None
    assert (
        told.prompt_tokens,
        told.completion_tokens,
        told.reasoning_tokens,
    ) == counts
    assert told.counted_by == "server"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON",
        b"[1]",
        b"{}",
        b'{"usage": null}',
        b'{"usage": {"prompt_tokens": 5}}',
        b'{"usage": {"prompt_tokens": -1, "completion_tokens": 5}}',
        b'{"usage": {"prompt_tokens": "5", "completion_tokens": 5}}',
        b'{"usage": "none"}',
    ],
)
def test_a_reply_without_both_counts_tells_nothing(body: bytes) -> None:
    assert read_usage(body) is None
