"""Prompts from questions, and token-level training data from completions.

Prompt and completion are encoded separately: templates may rewrite an assistant's message (some
drop its thought), but training must see what the model wrote.

OpenAI's harmony format (gpt-oss) has channels where other templates have think tags. Such a model
writes `<|channel|>analysis<|message|>thought<|end|><|start|>assistant<|channel|>final<|message|>
reply<|return|>`. Training sees exactly that; everything else sees think tags.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ConfigurationError, did_you_mean
from ..records import IGNORE_INDEX, Completion
from ..scoring.channels import join_reasoning
from ..scoring.extraction import AnswerFormat
from ..util.values import replace_surrogates
from .finish_reasons import LENGTH, STOP, Ending

if TYPE_CHECKING:  # options are read without what it needs
    from .dialects import TextSample

SYSTEM_PROMPTS = MappingProxyType(
    {
        "think": (
            "Work through the problem before you answer. Put your reasoning between <think> and "
            "</think>. After that, give your final answer once, between <answer> and </answer>. "
            "Write nothing inside the answer tags but the answer itself, in exactly the form the "
            "problem asks for. A reply with no answer, or with more than one, counts as wrong."
        ),
        "direct": (
            "Solve the problem. Give your final answer once, between <answer> and </answer>. "
            "Write nothing inside the answer tags but the answer itself, in exactly the form the "
            "problem asks for. A reply with no answer, or with more than one, counts as wrong."
        ),
    }
)
"""Built-in system prompts by name. `direct` suits models that think by themselves."""

BOXED_SYSTEM_PROMPTS = MappingProxyType(
    {
        "think": (
            "Work through the problem before you answer. Put your reasoning between <think> and "
            "</think>. After that, put your final answer in \\boxed{}. Write nothing in the box "
            "but the answer itself, in exactly the form the problem asks for. A reply with no box "
            "counts as wrong, and of several boxes the last one counts."
        ),
        "direct": (
            "Solve the problem. Put your final answer in \\boxed{}. Write nothing in the box "
            "but the answer itself, in exactly the form the problem asks for. A reply with no box "
            "counts as wrong, and of several boxes the last one counts."
        ),
    }
)
"""The same for the answer format `boxed`."""

_USER_TURN = "User:"

CHAT_TEMPLATES = MappingProxyType(
    {
        "plain": (
            "{{ bos_token }}{% for message in messages %}"
            "{% if message.role == 'assistant' %}Assistant: {{ message.content }}{{ eos_token }}"
            f"{{% elif message.role == 'user' %}}{_USER_TURN} {{{{ message.content }}}}"
            "{% else %}{{ message.content }}{% endif %}{{ '\n\n' }}{% endfor %}"
            "{% if add_generation_prompt %}Assistant:{% endif %}"
        )
    }
)
"""Built-in chat templates by name, for base models."""

STOP_STRINGS = MappingProxyType({"plain": (f"\n{_USER_TURN}",)})
"""What ends a completion, by built-in template: a base model may go on with the next turn."""

PROBE_QUESTION = "What is 2 + 2?"
"""What servers are asked before the first rollout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One question as the model sees it; `tokens` are those of `text`.

    Without a tokenizer there are only messages.
    """

    messages: list[dict[str, str]]
    text: str
    tokens: array[int]

    @property
    def bytes(self) -> int:
        """The memory that it takes, about."""
        return sum(
            map(sys.getsizeof, (self.tokens, self.text, self.messages[-1]["content"]))
        )


def built_in_prompts(answer_format: AnswerFormat) -> Mapping[str, str]:
    """Return the built-in system prompts by name; in `tags-or-boxed`, they ask for tags."""
    return BOXED_SYSTEM_PROMPTS if answer_format == "boxed" else SYSTEM_PROMPTS


def resolve_system_prompt(
    name_or_text: str, answer_format: AnswerFormat = "tags"
) -> str:
    """Return the built-in prompt of that name, or the text; raise ConfigurationError for a typo."""
    if not isinstance(name_or_text, str):
        raise ConfigurationError(f"system_prompt must be text, got {name_or_text!r}")
    if name_or_text in SYSTEM_PROMPTS:
        return built_in_prompts(answer_format)[name_or_text]
    is_word = len(name_or_text.split()) == 1
    if is_word and (
        hint := did_you_mean(name_or_text.lower(), SYSTEM_PROMPTS, otherwise="")
    ):
        raise ConfigurationError(
            f"system_prompt must be a built-in's name or a text, got {name_or_text!r}; {hint}"
        )
    return name_or_text


def build_messages(system_prompt: str, question: str) -> list[dict[str, str]]:
    """Return the chat messages that open one rollout; an empty system prompt adds none."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    eos_token_id: int | None
    all_special_ids: list[int]

    def get_vocab(self) -> Mapping[str, int]: ...

    def __call__(
        self, text: list[str], *, add_special_tokens: bool
    ) -> Mapping[str, Any]: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: bool,
    ) -> str: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> Any: ...


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Return the number up to which token ids go: with gaps in the vocabulary above its length."""
    return 1 + max(tokenizer.get_vocab().values())


def render_prompt(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> str:
    """Return the prompt as text, ready for the assistant's turn."""
    # tokenize=True returns another type in transformers 5 than before
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    return text


def with_variables(template: Any, variables: Mapping[str, Any]) -> Any:
    """Return a chat template, or several by name, that begins by setting variables.

    Example:
        >>> with_variables("{{ x }}", {"enable_thinking": False})
        '{% set enable_thinking = false %}{{ x }}'
    """
    if isinstance(template, dict):
        return {name: with_variables(one, variables) for name, one in template.items()}
    settings = []
    for name, value in variables.items():
        # JSON's escapes would make two surrogates of an emoji.
        written = "none" if value is None else json.dumps(value, ensure_ascii=False)
        settings.append(f"{{% set {name} = {written} %}}")
    return "".join(settings) + template


def end_of_turn(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the tokens that end a turn: the template's, or else the end-of-sequence token."""
    marker = "end of turn probe"
    conversation = [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": marker},
    ]
    text = tokenizer.apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=False
    )
    tail = tokenizer.encode(text.rpartition(marker)[2], add_special_tokens=False)
    special = next(
        (i for i, t in enumerate(tail) if t in tokenizer.all_special_ids), None
    )
    if special is not None:
        return tuple(tail[: special + 1])
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def completions_from_texts(
    tokenizer: Tokenizer,
    prompt_tokens: Sequence[int],
    texts: Sequence[str],
    *,
    endings: Sequence[Ending],
    turn_end: Sequence[int],
    length_limit: int,
    graded: Callable[[str], str],
) -> list[Completion]:
    """Return completions with tokens and masks, encoded together to use several cores.

    Args:
        texts: as the model wrote them. Unpaired surrogates get the tokens of U+FFFD.
        endings: one per text.
        turn_end: appended to a complete one; to others it would be a token that wasn't sampled.
        length_limit: tokens of prompt and completion. If encoding gives more, the completion is
            truncated.
        graded: returns a text as it is graded and stored, with the thought that the prompt opens.
    """
    if not texts:
        return []  # tokenizers refuse an empty batch
    whole = [replace_surrogates(text)[0] for text in texts]
    encoded = tokenizer(whole, add_special_tokens=False)["input_ids"]
    room = max(0, length_limit - len(prompt_tokens))
    max_tokens = room - max(1, len(turn_end))  # what the request allows
    completions = []
    for text, tokens, ending in zip(texts, encoded, endings, strict=True):
        reason = (ending.at_limit() if len(tokens) >= max_tokens else ending).reason
        with_end = [*tokens, *turn_end] if reason == STOP else tokens
        completions.append(
            Completion(
                text=graded(text),
                tokens=(*prompt_tokens, *with_end[:room]),
                masks=(IGNORE_INDEX,) * len(prompt_tokens) + tuple(with_end[:room]),
                logprobs=None,
                finish_reason=LENGTH if len(with_end) > room else reason,
                server_finish_reason=ending.word,
            )
        )
    return completions


def completions_without_tokens(
    prompt: Prompt, samples: Sequence[TextSample], *, graded: Callable[[str], str]
) -> list[Completion]:
    """Return completions with the server's token counts, or else with numbers of characters."""
    prompt_characters = sum(len(message["content"]) for message in prompt.messages)
    completions = []
    for sample in samples:
        text = join_reasoning(prompt.text, sample.reasoning, sample.content)
        completions.append(
            Completion(
                text=graded(text),
                tokens=(),
                masks=(),
                logprobs=None,
                finish_reason=sample.ending.reason,
                server_finish_reason=sample.ending.word,
                usage=sample.usage or (prompt_characters, len(text)),
            )
        )
    return completions


def completion_from_tokens(
    text: str,
    prompt_tokens: Sequence[int],
    tokens: Sequence[int],
    logprobs: Sequence[float],
    *,
    ending: Ending,
) -> Completion:
    """Return one completion with a server's own token ids, stop token included."""
    prompt = array("i", prompt_tokens)
    generated = array("i", tokens)
    return Completion(
        text=text,
        tokens=prompt + generated,
        masks=array("i", [IGNORE_INDEX]) * len(prompt) + generated,
        logprobs=array("d", [1.0]) * len(prompt) + array("d", logprobs),
        finish_reason=ending.reason,
        server_finish_reason=ending.word,
    )
