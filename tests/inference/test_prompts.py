"""The built-in prompts ask for what the extraction accepts."""

import pytest

from reasoning_gym_environment.inference.prompts import (
    SYSTEM_PROMPTS,
    build_messages,
    resolve_system_prompt,
)


@pytest.mark.parametrize("name", SYSTEM_PROMPTS)
def test_a_built_in_prompt_is_chosen_by_its_name(name: str) -> None:
    assert resolve_system_prompt(name) == SYSTEM_PROMPTS[name]


@pytest.mark.parametrize("text", ["Be brief.", "Ponder", ""])
def test_any_other_text_is_the_prompt_itself(text: str) -> None:
    assert resolve_system_prompt(text) == text


@pytest.mark.parametrize("prompt", SYSTEM_PROMPTS.values())
def test_every_built_in_prompt_names_the_answer_tags(prompt: str) -> None:
    assert "<answer> and </answer>" in prompt


def test_only_the_thinking_prompt_names_the_think_tags() -> None:
    assert "<think> and </think>" in SYSTEM_PROMPTS["think"]
    assert "think>" not in SYSTEM_PROMPTS["direct"]


def test_a_rollout_opens_with_the_system_prompt_and_the_question() -> None:
    assert build_messages("Be brief.", "2 + 2?") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
    ]


def test_an_empty_system_prompt_sends_no_system_message() -> None:
    assert build_messages("", "2 + 2?") == [{"role": "user", "content": "2 + 2?"}]
