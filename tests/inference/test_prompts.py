"""The built-in prompts ask for what the extraction accepts."""

import tracemalloc
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.prompts import (
    SYSTEM_PROMPTS,
    build_messages,
    resolve_system_prompt,
)


def test_a_built_in_prompt_is_chosen_by_its_name_and_other_text_is_the_prompt() -> None:
    for name, prompt in SYSTEM_PROMPTS.items():
        assert resolve_system_prompt(name) == prompt
        assert "<answer> and </answer>" in prompt
    for text in ("Be brief.", "Ponder", ""):
        assert resolve_system_prompt(text) == text


@pytest.mark.parametrize("value", [5, None, ["think"]])
def test_a_system_prompt_that_is_no_text_is_quoted(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="system_prompt must be text, got "):
        resolve_system_prompt(value)


def test_only_the_thinking_prompt_names_the_think_tags() -> None:
    assert "<think> and </think>" in SYSTEM_PROMPTS["think"]
    assert "think>" not in SYSTEM_PROMPTS["direct"]


def test_a_rollout_opens_with_the_question_after_any_system_prompt() -> None:
    question = {"role": "user", "content": "2 + 2?"}
    system = {"role": "system", "content": "Be brief."}
    assert build_messages("Be brief.", "2 + 2?") == [system, question]
    assert build_messages("", "2 + 2?") == [question]


class Characters:
    """A tokenizer with a token for each character."""

    eos_token_id = 0
    all_special_ids = (0,)
    added_tokens_decoder: Mapping[int, Any] = {}

    def __len__(self) -> int:
        return 2**21

    def __call__(
        self, text: list[str], *, add_special_tokens: bool
    ) -> Mapping[str, Any]:
        return {
            "input_ids": [self.encode(one, add_special_tokens=False) for one in text]
        }

    def get_vocab(self) -> dict[str, int]:
        return {"\U0010ffff": 0x10FFFF}

    def encode(self, text: str, *, add_special_tokens: bool) -> Sequence[int]:
        return array("i", text.encode("utf-32-le"))

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: bool,
    ) -> str:
        return "".join(map(chr, token_ids))

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> str:
        return "".join(message["content"] for message in conversation) + "\0"


def test_prompts_are_kept_up_to_a_number_of_bytes() -> None:
    client = InferenceClient([], Characters(), system_prompt="")
    tracemalloc.start()
    try:
        for number in range(60):
            client.prompt(f"{number}" + "日" * 100_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2**23 < kept < 1.1 * 2**24
    newest = client.prompt("59" + "日" * 100_000)
    assert newest is client.prompt("59" + "日" * 100_000)
    assert list(newest.tokens[:3]) == [ord("5"), ord("9"), ord("日")]
