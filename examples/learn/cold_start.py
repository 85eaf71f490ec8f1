"""The cold start: next-token training on demonstrations."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from model import Policy

BATCH = 32
LEARNING_RATE = 3e-3
WARM_UP = 30
"""Steps in which the learning rate rises to its maximum; then it falls to a tenth."""

SAY_EVERY = 10.0
"""Seconds between two lines on the screen."""

Example = tuple[list[int], list[int]]
"""Token ids of a prompt, and of the completion that ends the turn."""


def encode(messages: Sequence[dict[str, str]], tokenizer: Any) -> Example:
    """Encode a demonstration as the environment does: prompt and answer separately."""
    *prompt, answer = messages
    text = tokenizer.apply_chat_template(
        prompt, tokenize=False, add_generation_prompt=True
    )
    return (
        tokenizer.encode(text, add_special_tokens=False),
        tokenizer.encode(
            answer["content"] + tokenizer.eos_token, add_special_tokens=False
        ),
    )


def train(
    policy: Policy,
    examples: Sequence[Example],
    *,
    passes: int,
    seed: int,
    learning_rate: float = LEARNING_RATE,
    size: int = BATCH,
) -> None:
    """Train on every example `passes` times, and print the progress.

    Args:
        size: examples in a batch.
    """
    said = time.monotonic()
    steps = passes * -(-len(examples) // size)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=learning_rate)
    policy.model.train()
    for step, batch in enumerate(
        batches(examples, passes=passes, seed=seed, size=size)
    ):
        share = min(1.0, (step + 1) / WARM_UP, 1.1 - step / steps)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * share
        loss = policy.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            print(
                f"         step {step} of {steps}, loss {loss.item():.3f}", flush=True
            )
    policy.model.eval()


def batches(
    examples: Sequence[Example], *, passes: int, seed: int, size: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches of examples of similar length; only answers have a loss."""
    shuffle = random.Random(seed)
    for _ in range(passes):
        order = sorted(
            examples, key=lambda example: (_length(example) // 8, shuffle.random())
        )
        chunks = [order[begin : begin + size] for begin in range(0, len(order), size)]
        shuffle.shuffle(chunks)
        for chunk in chunks:
            longest = max(map(_length, chunk))
            rows = [
                (p + c, [-100] * len(p) + c, longest - len(p + c)) for p, c in chunk
            ]
            yield {
                "input_ids": torch.tensor([ids + [0] * room for ids, _, room in rows]),
                "labels": torch.tensor(
                    [labels + [-100] * room for _, labels, room in rows]
                ),
            }


def _length(example: Example) -> int:
    return len(example[0]) + len(example[1])
