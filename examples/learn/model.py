"""A small Llama with random weights, its tokenizer and its sampling."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()  # of every file that is read or written

CONTEXT = 64
"""Tokens of prompt and completion, unless a run has longer questions."""

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(texts: Sequence[str], folder: Path) -> Any:
    """Train a small byte-level tokenizer with single digits, and save it for the environment.

    A token may be half a sentence, so the common text of a task's questions takes few tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        show_progress=False,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    fast.add_tokens(["<answer>", "</answer>"])
    fast.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def build_model(vocabulary: int, seed: int, context: int = CONTEXT) -> LlamaForCausalLM:
    """Return a Llama of half a million random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        # Prompts of a batch are padded to the longest.
        max_position_embeddings=2 * context,
        tie_word_embeddings=True,
        # About the root of 1 / hidden_size; 0.02 is meant for large models.
        initializer_range=0.08,
    )
    return LlamaForCausalLM(config)


class Sample(NamedTuple):
    """A completion's token ids, end of turn included, with their logprobs.

    Attributes:
        best: logprob of the most probable token at each position.
    """

    tokens: list[int]
    logprobs: list[float]
    best: list[float]


class Policy:
    """The weights under training, with a lock between sampling and updates.

    Attributes:
        context: tokens of prompt and completion.
    """

    def __init__(
        self, model: LlamaForCausalLM, tokenizer: Any, context: int = CONTEXT
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.context = context
        self.lock = threading.Lock()

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
    ) -> list[Sample]:
        """Sample one completion of each prompt.

        Logprobs are those at this temperature, of all tokens whatever `top_p` leaves out.
        """
        longest = max(map(len, prompts))
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        ids = torch.tensor(
            [[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        )
        greedy = temperature == 0
        with self.lock, torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=(ids != pad).long(),
                max_new_tokens=max_tokens,
                do_sample=not greedy,
                temperature=None if greedy else temperature,
                top_k=None,
                top_p=None if greedy else top_p,
                eos_token_id=end,
                pad_token_id=pad,
                return_dict_in_generate=True,
                output_logits=True,
            )
        tokens = out.sequences[:, longest:]
        logits = torch.stack(out.logits, dim=1).float() / (temperature or 1.0)
        logprobs = torch.log_softmax(logits, dim=-1)
        drawn = logprobs.gather(-1, tokens[..., None])[..., 0]
        best = logprobs.max(dim=-1).values
        return [
            Sample(*(each[: _length(row, end)] for each in (row, own, most)))
            for row, own, most in zip(
                tokens.tolist(), drawn.tolist(), best.tolist(), strict=True
            )
        ]


def _length(tokens: list[int], end: int) -> int:
    """Return the number of tokens, up to and including the end of turn."""
    return tokens.index(end) + 1 if end in tokens else len(tokens)
