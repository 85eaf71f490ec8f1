"""Replies of servers that aren't run here, in the shape that their source gives them."""

from typing import Any

import pytest
from asked_completions import ASK

from reasoning_gym_environment.inference.dialects import ChatTokens
from reasoning_gym_environment.inference.requests import ReplyError, Sampled, read


def sglang_chat(tokens: list[int], prompt: list[int]) -> dict[str, Any]:
    """A choice of SGLang 0.5.23: the prompt in each, and another name for the ids."""
    content = [{"token": "?", "logprob": -0.5, "top_logprobs": []} for _ in tokens]
    return {
        "message": {"role": "assistant", "content": "??"},
        "logprobs": {"content": content},
        "finish_reason": "stop",
        "prompt_token_ids": prompt,
        "response_token_ids": tokens,
    }


def test_sglangs_chat_completions_are_read_with_their_ids() -> None:
    reply = {"choices": [sglang_chat([1, 0], [5, 6, 7]), sglang_chat([2, 3, 0], [5, 6, 7])]}
    assert ChatTokens().gives_tokens(reply)
    assert read(ChatTokens(), reply, ASK) == [
        Sampled([1, 0], [-0.5, -0.5], "stop"),
        Sampled([2, 3, 0], [-0.5, -0.5, -0.5], "stop"),
    ]


def test_sglangs_prompt_must_be_ours_in_every_choice() -> None:
    reply = {"choices": [sglang_chat([1, 0], [5, 6, 7]), sglang_chat([1, 0], [5, 6])]}
    with pytest.raises(ReplyError, match="its prompt of 2 tokens isn't ours of 3, from token 2 on"):
        read(ChatTokens(), reply, ASK)


def test_a_chat_without_the_prompts_ids_can_not_be_read() -> None:
    choice = sglang_chat([1, 0], [5, 6, 7])
    del choice["prompt_token_ids"]
    with pytest.raises(ReplyError, match="can't be read"):
        read(ChatTokens(), {"choices": [choice]}, ASK)
