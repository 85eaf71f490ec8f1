"""Training sees what the model wrote, whatever the chat template does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from reasoning_gym_environment.inference.finish_reasons import read_ending
from reasoning_gym_environment.inference.prompts import (
    IGNORE_INDEX,
    completions_from_texts,
    end_of_turn,
    join_reasoning,
    render_prompt,
)
from reasoning_gym_environment.records import Completion
from reasoning_gym_environment.util.values import replace_surrogates

MESSAGES = [
    {"role": "system", "content": "Think."},
    {"role": "user", "content": "2 + 2?"},
]
TEXT = "<think>\nTwo and two.\n</think>\n\n<answer>4</answer>"

DROPS_THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'].split('</think>')[-1].strip() }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""Like those of Qwen3 and R1: the prompt opens the thought, past thoughts are left out."""

HAS_NO_MARKS = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def load(tokenizer_folder: str, template: str) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def thoughtless(tokenizer_folder: str) -> Any:
    return load(tokenizer_folder, DROPS_THOUGHTS)


def complete(
    tokenizer: Any,
    text: str = TEXT,
    finish_reason: str = "stop",
    length_limit: int = 4096,
) -> tuple[str, list[int], Completion]:
    """The prompt, its tokens, and the completion of the text."""
    prompt = render_prompt(tokenizer, MESSAGES)
    prompt_tokens = tokenizer.encode(prompt, add_special_tokens=False)
    [completion] = completions_from_texts(
        tokenizer,
        prompt_tokens,
        [text],
        endings=[read_ending(finish_reason)],
        turn_end=end_of_turn(tokenizer),
        length_limit=length_limit,
        graded=str,
    )
    return prompt, prompt_tokens, completion


def test_texts_encoded_together_have_the_same_tokens_as_alone(tokenizer: Any) -> None:
    texts = ["", "a\ud800", TEXT, "日本 🎉", TEXT * 20]
    reasons = ["stop", "length", "length", "stop", "stop"]
    prompt = tokenizer.encode("2 + 2?", add_special_tokens=False)
    alone = [
        tokenizer.encode(replace_surrogates(t)[0], add_special_tokens=False)
        for t in texts
    ]
    turn_end = end_of_turn(tokenizer)
    made = completions_from_texts(
        tokenizer,
        prompt,
        texts,
        endings=[read_ending(reason) for reason in reasons],
        turn_end=turn_end,
        length_limit=4096,
        graded=str,
    )
    assert [completion.text for completion in made] == texts
    assert [completion.finish_reason for completion in made] == reasons
    assert [completion.tokens for completion in made] == [
        (*prompt, *tokens, *(turn_end if reason == "stop" else ()))
        for tokens, reason in zip(alone, reasons, strict=True)
    ]
    nothing = completions_from_texts(
        tokenizer,
        prompt,
        [],
        endings=[],
        turn_end=turn_end,
        length_limit=4096,
        graded=str,
    )
    assert nothing == []


def test_the_prompt_is_text_that_ends_where_the_assistant_begins(
    tokenizer: Any,
) -> None:
    assert render_prompt(tokenizer, MESSAGES) == (
        "<|im_start|>system\nThink.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_prompt_is_masked_and_the_completion_is_not(tokenizer: Any) -> None:
    _, prompt_tokens, completion = complete(tokenizer)
    size = len(prompt_tokens)
    assert IGNORE_INDEX == -100
    assert completion.masks[:size] == (IGNORE_INDEX,) * size
    assert completion.masks[size:] == completion.tokens[size:]
    assert len(completion.masks) == len(completion.tokens)
    assert completion.tokens[:size] == tuple(prompt_tokens)
    assert completion.logprobs is None


def test_a_completion_is_the_models_text_and_its_turn_end(
    tokenizer: Any, thoughtless: Any
) -> None:
    for each in (tokenizer, thoughtless):
        prompt, _, completion = complete(each)
        assert each.decode(list(completion.tokens)) == prompt + TEXT + "<|im_end|>"
        assert completion.text == TEXT
        assert not completion.truncated


def test_the_end_of_a_turn_is_the_templates_first_special_token_after_the_message(
    tokenizer: Any, thoughtless: Any
) -> None:
    expected = (tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    assert end_of_turn(tokenizer) == end_of_turn(thoughtless) == expected


def test_the_end_of_a_turn_includes_text_before_the_special_token(
    tokenizer_folder: str,
) -> None:
    tokenizer = load(
        tokenizer_folder, DROPS_THOUGHTS.replace("<|im_end|>", " .<|im_end|>")
    )
    assert tokenizer.decode(list(end_of_turn(tokenizer))) == " .<|im_end|>"


def test_a_template_without_special_tokens_ends_a_turn_with_end_of_sequence_if_there_is_one(
    tokenizer_folder: str,
) -> None:
    tokenizer = load(tokenizer_folder, HAS_NO_MARKS)
    assert end_of_turn(tokenizer) == (tokenizer.eos_token_id,)
    tokenizer.eos_token = None
    assert end_of_turn(tokenizer) == ()


@pytest.mark.parametrize(
    "reason", ["length", "content_filter", "repetition", "model_length"]
)
def test_a_completion_that_is_not_complete_has_no_end_of_turn(
    tokenizer: Any, reason: str
) -> None:
    prompt, _, completion = complete(tokenizer, finish_reason=reason)
    assert tokenizer.decode(list(completion.tokens)) == prompt + TEXT
    assert completion.truncated is (reason in ("length", "model_length"))
    assert completion.server_finish_reason == reason


def test_a_completion_beyond_the_length_limit_is_truncated(tokenizer: Any) -> None:
    _, prompt_tokens, whole = complete(tokenizer)
    for room in (0, 1, len(whole.tokens) - len(prompt_tokens) - 1):
        _, _, cut = complete(tokenizer, length_limit=len(prompt_tokens) + room)
        assert cut.tokens == whole.tokens[: len(prompt_tokens) + room]
        assert cut.truncated
        assert cut.completion_tokens == room
        assert cut.text == TEXT


def test_a_completion_at_the_length_limit_is_complete(tokenizer: Any) -> None:
    _, _, whole = complete(tokenizer)
    _, _, fitting = complete(tokenizer, length_limit=len(whole.tokens))
    assert fitting == whole


def test_an_empty_completion_is_only_the_end_of_turn(tokenizer: Any) -> None:
    _, prompt_tokens, completion = complete(tokenizer, text="")
    assert completion.tokens[len(prompt_tokens) :] == end_of_turn(tokenizer)


@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_survives_encoding(tokenizer: Any, text: str) -> None:
    [completion] = completions_from_texts(
        tokenizer,
        [1],
        [text],
        endings=[read_ending("length")],
        turn_end=[],
        length_limit=4096,
        graded=str,
    )
    assert tokenizer.decode(list(completion.tokens[1:])) == text


def test_a_thought_in_its_own_field_precedes_the_answer_unless_the_prompt_opened_it(
    tokenizer: Any, thoughtless: Any
) -> None:
    answer, prompt = "<answer>4</answer>", render_prompt(thoughtless, MESSAGES)
    assert prompt.endswith("<think>\n")
    assert join_reasoning(prompt, "hm", answer) == f"hm</think>{answer}"
    prompt = render_prompt(tokenizer, MESSAGES)
    assert join_reasoning(prompt, "hm", answer) == f"<think>hm</think>{answer}"
    for nothing in (None, ""):
        assert join_reasoning("<think>", nothing, "so: 4") == "so: 4"


def test_unpaired_surrogates_get_the_tokens_of_the_replacement_character(
    tokenizer: Any,
) -> None:
    broken = "so\ud800 <answer>4\udfff</answer>"
    _, _, completion = complete(tokenizer, broken)
    _, _, whole = complete(tokenizer, "so\ufffd <answer>4\ufffd</answer>")
    assert completion.text == broken
    assert completion.tokens == whole.tokens
    assert completion.masks == whole.masks
