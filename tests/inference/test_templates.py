"""Prompt, mask and thought with the chat templates of reasoning models.

The files in `templates/` imitate the templates that come with the models.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.finish_reasons import read_ending
from reasoning_gym_environment.inference.prompts import (
    completions_from_texts,
    end_of_turn,
    render_prompt,
    with_variables,
)
from reasoning_gym_environment.inference.thoughts import (
    ThoughtFormat,
    require_known_markers,
    unknown_markers,
)
from reasoning_gym_environment.records import IGNORE_INDEX, Completion
from reasoning_gym_environment.scoring.channels import (
    join_reasoning,
    opened_thought,
    parse_markers,
    split_thought,
)
from reasoning_gym_environment.scoring.extraction import extract_answer

FOLDER = Path(__file__).parent / "templates"
BAR = "\N{FULLWIDTH VERTICAL LINE}"
THOUGHT = "\nIs it <answer>5</answer>? No.\n"
REPLY = "\n\n<answer>4</answer>"
CHATML = "<|im_start|>system\nThink.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"


@dataclass(frozen=True, kw_only=True)
class Template:
    """What a template makes of our messages, and what its model writes.

    Attributes:
        special: its special tokens; the last one ends a turn.
        tags: tokens that are not special, so that servers leave them in a text.
        prompt: of the system prompt "Think." and the question "2 + 2?".
        thinks: what its model writes around THOUGHT and before REPLY.
    """

    name: str
    special: tuple[str, ...]
    prompt: str
    thinks: tuple[str, str]
    tags: tuple[str, ...] = ("<think>", "</think>")

    @property
    def written(self) -> str:
        begin, end = self.thinks
        return f"{begin}{THOUGHT}{end}{REPLY}"


TEMPLATES = [
    Template(
        name="smollm2",
        special=("<|im_start|>", "<|im_end|>"),
        prompt=f"{CHATML}<|im_start|>assistant\n",
        thinks=("<think>", "</think>"),
        tags=(),
    ),
    Template(
        name="llama3",
        special=(
            "<|begin_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ),
        prompt=(
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nThink.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n2 + 2?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
        ),
        thinks=("<think>", "</think>"),
        tags=(),
    ),
    Template(
        name="qwen3",
        special=("<|im_start|>", "<|im_end|>"),
        prompt=f"{CHATML}<|im_start|>assistant\n",
        thinks=("<think>", "</think>"),
    ),
    Template(
        name="deepseek_r1",
        special=(
            f"<{BAR}begin▁of▁sentence{BAR}>",
            f"<{BAR}User{BAR}>",
            f"<{BAR}Assistant{BAR}>",
            f"<{BAR}end▁of▁sentence{BAR}>",
        ),
        prompt=(
            f"<{BAR}begin▁of▁sentence{BAR}>Think.<{BAR}User{BAR}>2 + 2?"
            f"<{BAR}Assistant{BAR}><think>\n"
        ),
        thinks=("", "</think>"),
    ),
    Template(
        name="gpt_oss",
        special=(
            "<|start|>",
            "<|message|>",
            "<|channel|>",
            "<|end|>",
            "<|call|>",
            "<|return|>",
        ),
        prompt=(
            "<|start|>system<|message|>You are a chat model.\n\nReasoning: medium\n\n"
            "# Valid channels: analysis, commentary, final.<|end|>"
            "<|start|>developer<|message|># Instructions\n\nThink.<|end|>"
            "<|start|>user<|message|>2 + 2?<|end|><|start|>assistant"
        ),
        thinks=(
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
        tags=(),
    ),
    Template(
        name="gemma4",
        special=(
            "<bos>",
            "<|channel>",
            "<channel|>",
            "<|think|>",
            "<|turn>",
            "<turn|>",
        ),
        prompt=(
            "<bos><|turn>system\n<|think|>Think.<turn|>\n<|turn>user\n2 + 2?<turn|>\n"
            "<|turn>model\n"
        ),
        thinks=("<|channel>thought", "<channel|>"),
        tags=(),
    ),
    Template(
        name="magistral",
        special=(
            "<s>",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[INST]",
            "[/INST]",
            "[THINK]",
            "[/THINK]",
            "</s>",
        ),
        prompt="<s>[SYSTEM_PROMPT]Think.[/SYSTEM_PROMPT][INST]2 + 2?[/INST]",
        thinks=("[THINK]", "[/THINK]"),
        tags=(),
    ),
    Template(
        name="seed_oss",
        special=("<seed:bos>", "<seed:think>", "</seed:think>", "<seed:eos>"),
        prompt=(
            "<seed:bos>system\nThink.<seed:eos><seed:bos>user\n2 + 2?<seed:eos>"
            "<seed:bos>assistant\n"
        ),
        thinks=("<seed:think>", "</seed:think>"),
        tags=(),
    ),
]

QUESTION = [{"role": "user", "content": "2 + 2?"}]

IN_FIELDS = ("smollm2", "llama3", "qwen3", "deepseek_r1", "gpt_oss")
"""Templates whose servers return thoughts in fields that are put back as the model wrote them."""


@dataclass
class Model:
    """A template with a tokenizer that knows its tokens."""

    template: Template
    tokenizer: Any

    @property
    def prompt(self) -> str:
        messages = [
            {"role": "system", "content": "Think."},
            {"role": "user", "content": "2 + 2?"},
        ]
        return render_prompt(self.tokenizer, messages)

    @property
    def prompt_tokens(self) -> list[int]:
        return self.encode(self.prompt)

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return tokens

    def complete(self, text: str, finish_reason: str = "stop") -> Completion:
        [completion] = completions_from_texts(
            self.tokenizer,
            self.prompt_tokens,
            [text],
            endings=[read_ending(finish_reason)],
            turn_end=end_of_turn(self.tokenizer),
            length_limit=4096,
            graded=self.graded,
        )
        return completion

    def graded(self, written: str) -> str:
        return ThoughtFormat(self.tokenizer).text(written, prompt=self.prompt)

    def decoded(self, written: str) -> str:
        """The graded text of the tokens of what the model wrote."""
        tokens = self.encode(written)
        return self.graded(ThoughtFormat(self.tokenizer).decode(tokens))

    def written(self, completion: Completion) -> str:
        """The text of the unmasked tokens."""
        return str(
            self.tokenizer.decode([m for m in completion.masks if m != IGNORE_INDEX])
        )


@pytest.fixture(params=TEMPLATES, ids=lambda template: template.name, scope="module")
def model(request: pytest.FixtureRequest, tokenizer_folder: str) -> Model:
    template: Template = request.param
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.add_special_tokens({"eos_token": template.special[-1]})
    tokenizer.add_special_tokens(
        {"additional_special_tokens": list(template.special[:-1])}
    )
    tokenizer.add_tokens(list(template.tags))
    tokenizer.chat_template = (FOLDER / f"{template.name}.jinja").read_text(
        encoding="utf-8"
    )
    return Model(template, tokenizer)


def test_the_prompt_is_what_the_template_makes_of_the_messages(model: Model) -> None:
    assert model.prompt == model.template.prompt
    assert model.tokenizer.decode(model.prompt_tokens) == model.template.prompt


def test_the_mask_covers_everything_but_the_completion_and_its_end_of_turn(
    model: Model,
) -> None:
    completion = model.complete(model.template.written)
    masked = [mask == IGNORE_INDEX for mask in completion.masks]
    assert masked == sorted(masked, reverse=True)
    assert list(completion.tokens[: masked.count(True)]) == model.prompt_tokens
    assert (
        model.written(completion) == model.template.written + model.template.special[-1]
    )


def test_a_thought_in_its_own_field_is_trained_on_as_the_model_wrote_it(
    model: Model,
) -> None:
    text = join_reasoning(model.prompt, THOUGHT, REPLY)
    assert split_thought(model.graded(text)) == (THOUGHT, REPLY)
    if model.template.name in IN_FIELDS:
        assert model.complete(text) == model.complete(model.template.written)


def test_a_truncated_thought_stays_open(model: Model) -> None:
    completion = model.complete(join_reasoning(model.prompt, THOUGHT, ""), "length")
    if model.template.name in IN_FIELDS:
        assert model.written(completion) == f"{model.template.thinks[0]}{THOUGHT}"
    assert split_thought(completion.text) == (THOUGHT, "")
    assert completion.truncated


def test_an_answer_counts_only_outside_a_thought_that_the_prompt_opened(
    model: Model,
) -> None:
    opens = model.template.name == "deepseek_r1"
    assert bool(opened_thought(model.prompt)) == opens
    text = opened_thought(model.prompt) + "I try <answer>4</answer> hmm"
    assert (extract_answer(text).answer is None) == opens


def test_a_reply_without_a_thought_is_trained_on_as_the_model_wrote_it(
    model: Model,
) -> None:
    completion = model.complete(
        join_reasoning(model.prompt, None, "<answer>4</answer>")
    )
    channel = "<|channel|>final<|message|>" if model.template.name == "gpt_oss" else ""
    assert (
        model.written(completion)
        == f"{channel}<answer>4</answer>{model.template.special[-1]}"
    )
    # An endpoint that hides its thoughts seems never to end the one that the prompt opens.
    opens = model.template.name == "deepseek_r1"
    assert (extract_answer(completion.text).answer is None) == opens


def test_the_text_of_a_servers_tokens_has_its_thought_marked(model: Model) -> None:
    text = model.decoded(model.template.written + model.template.special[-1])
    assert split_thought(text) == (THOUGHT, REPLY)
    assert extract_answer(text).answer == "4"
    assert text == model.complete(model.template.written).text


@pytest.mark.parametrize("written", ["maybe <answer>5</answer>, let me check", ""])
def test_a_draft_in_a_truncated_thought_is_no_answer(
    model: Model, written: str
) -> None:
    text = model.decoded(model.template.thinks[0] + written)
    assert extract_answer(text).answer is None
    assert split_thought(text) == (written, "")


def test_two_thoughts_leave_the_reply_between_and_after_them(model: Model) -> None:
    begin, end = model.template.thinks
    text = model.decoded(f"{begin}a{end}so {begin}b{end}<answer>4</answer>")
    if model.template.name == "gpt_oss":  # its second thought is a message of its own
        text = model.decoded(
            f"{begin}a<|end|><|start|>assistant{begin}b{end}<answer>4</answer>"
        )
    assert extract_answer(text).answer == "4"
    thought, rest = split_thought(text)
    if model.template.name != "deepseek_r1":  # whose prompt opens the one thought
        assert thought == "ab"
    assert "a" not in rest.replace("<answer>", "").replace("</answer>", "")


def test_a_reply_without_a_thought_counts_as_it_is(model: Model) -> None:
    channel = "<|channel|>final<|message|>" if model.template.name == "gpt_oss" else ""
    closing = "</think>" if model.template.name == "deepseek_r1" else ""
    text = model.decoded(f"{closing}{channel}<answer>4</answer>")
    assert extract_answer(text).answer == "4"


def test_the_markers_of_each_template_are_known(model: Model) -> None:
    assert unknown_markers(model.tokenizer, None) == []


def test_a_marker_in_no_row_refuses_the_start(tokenizer_folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|reasoning|>", "<|/reasoning|>"]}
    )
    tokenizer.chat_template = "{{ messages[0]['reasoning_content'] }}<ponder:think>"
    said = (
        r"has <\|reasoning\|> and <\|/reasoning\|> and <ponder:think>, which may mark"
    )
    with pytest.raises(ConfigurationError, match=said):
        require_known_markers(tokenizer, None, "mine")
    own = parse_markers("<|reasoning|> <|/reasoning|>")
    assert unknown_markers(tokenizer, own) == ["<ponder:think>"]
    tokenizer.chat_template = ""
    require_known_markers(tokenizer, own, "mine")
    thoughts = ThoughtFormat(tokenizer, own)
    tokens = tokenizer.encode(
        "<|reasoning|>is it <answer>5</answer>?<|/reasoning|><answer>4</answer>",
        add_special_tokens=False,
    )
    text = thoughts.text(thoughts.decode(tokens))
    assert text == "<think>is it <answer>5</answer>?</think><answer>4</answer>"
    opened = thoughts.text("5 <answer>5</answer>", prompt="… <|reasoning|>\n")
    assert extract_answer(opened).answer is None


@pytest.mark.parametrize("text", ["<a>", "<a> <b> <c>", "<a> <a>"])
def test_markers_of_ones_own_are_two_words(text: str) -> None:
    with pytest.raises(ValueError, match="must be what opens and what closes"):
        parse_markers(text)
    assert parse_markers(" ") is None


def test_variables_are_set_for_every_rendering(model: Model) -> None:
    before = model.tokenizer.chat_template
    try:
        model.tokenizer.chat_template = with_variables(
            "{% if enable_thinking %}{{ effort }}{% else %}no{% endif %}{{ é }}",
            {"enable_thinking": False, "effort": 'a "b" é', "é": None},
        )
        assert render_prompt(model.tokenizer, QUESTION) == "noNone"
        model.tokenizer.chat_template = with_variables(
            "{{ effort }}", {"effort": 'a "b" \u00e9'}
        )
        assert render_prompt(model.tokenizer, QUESTION) == 'a "b" \u00e9'
    finally:
        model.tokenizer.chat_template = before


def test_without_a_system_prompt_the_template_decides(model: Model) -> None:
    prompt = render_prompt(model.tokenizer, [{"role": "user", "content": "2 + 2?"}])
    assert ("You are" in prompt) == (model.template.name in ("smollm2", "gpt_oss"))
    assert prompt.endswith(model.template.prompt.partition("2 + 2?")[2])


def test_templates_that_drop_earlier_thoughts_leave_completions_unchanged(
    model: Model,
) -> None:
    earlier = [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": f"<think>{THOUGHT}</think>2"},
        {"role": "user", "content": "2 + 2?"},
    ]
    drops = model.template.name in ("qwen3", "deepseek_r1")
    assert (THOUGHT not in render_prompt(model.tokenizer, earlier)) == drops
    assert (
        model.tokenizer.decode(end_of_turn(model.tokenizer))
        == model.template.special[-1]
    )
