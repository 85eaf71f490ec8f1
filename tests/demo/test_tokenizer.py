from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.demo.server import TURN_END, build_tokenizer

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " 1 + 1?\n"},
]


@given(text=st.text() | st.sampled_from([" a ,b !", "x\r\n\x00é 日本 🎉", TURN_END]))
def test_every_text_comes_back_as_it_was(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_two_builds_are_the_same(tmp_path: Path) -> None:
    first, second = (build_tokenizer(tmp_path / name) for name in ("a", "b"))
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


def test_the_chat_template_is_chatml_whose_marks_are_single_tokens(
    tokenizer: Any,
) -> None:
    rendered = tokenizer.apply_chat_template(
        MESSAGES, tokenize=False, add_generation_prompt=True
    )
    assert rendered == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n 1 + 1?\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    for token in ("<|pad|>", "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer.encode(token)) == 1
    assert tokenizer.eos_token == TURN_END
