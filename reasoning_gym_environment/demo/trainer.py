"""A trainer that trains nothing: it registers, pulls batches and checks what they hold."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

_POLL_SECONDS = 0.2


class MalformedGroupError(ValueError):
    """A group that no trainer could use."""


def check_group(group: Mapping[str, Any], max_token_len: int) -> int:
    """Check that a group is well-formed.

    Args:
        group: as the API server hands it out; `tokens`, `masks` and, where present,
            `inference_logprobs` are rows x tokens, `scores` has one number for each row.
        max_token_len: a row must be shorter.

    Returns:
        The number of rows.

    Raises:
        MalformedGroupError: with the first thing that is wrong.
    """
    tokens, masks, scores = group["tokens"], group["masks"], group["scores"]
    logprobs = group.get("inference_logprobs") or masks
    if not len(tokens) == len(masks) == len(scores) == len(logprobs) > 0:
        raise MalformedGroupError(
            f"{len(tokens)} rows of tokens, {len(masks)} of masks, {len(scores)} scores, "
            f"{len(logprobs)} rows of logprobs"
        )
    if not all(math.isfinite(score) for score in scores):
        raise MalformedGroupError(f"scores {scores} are not all finite")
    for row in zip(tokens, masks, logprobs, strict=True):
        _check_row(*row, max_token_len=max_token_len)
    return len(tokens)


def _check_row(
    tokens: list[int], masks: list[int], logprobs: list[float], *, max_token_len: int
) -> None:
    if not len(tokens) == len(masks) == len(logprobs):
        raise MalformedGroupError(
            f"a row has {len(tokens)} tokens, {len(masks)} masks, {len(logprobs)} logprobs"
        )
    if len(tokens) >= max_token_len:
        raise MalformedGroupError(f"a row has {len(tokens)} tokens of {max_token_len}")
    if any(mask not in (-100, token) for token, mask in zip(tokens, masks, strict=True)):
        raise MalformedGroupError("a mask is neither -100 nor its token")


class Trainer:
    """Registers at the Atropos API server and pulls batches; `run` does both.

    Args:
        batch_size: rows of one batch.
        num_steps: batches to pull before `run` returns.
        save_checkpoint_interval: steps between the environments' checkpoints; 0 for none.

    Attributes:
        batches, groups, rows: what was pulled so far.
    """

    def __init__(
        self,
        api_url: str,
        *,
        batch_size: int,
        max_token_len: int,
        num_steps: int,
        checkpoint_dir: Path,
        save_checkpoint_interval: int = 0,
        starting_step: int = 0,
    ) -> None:
        self.batches = 0
        self.groups = 0
        self.rows = 0
        self._api_url = api_url
        self._registration = {
            "wandb_group": "demo",
            "wandb_project": "demo",
            "batch_size": batch_size,
            "max_token_len": max_token_len,
            "checkpoint_dir": str(checkpoint_dir),
            "save_checkpoint_interval": save_checkpoint_interval,
            "starting_step": starting_step,
            "num_steps": num_steps,
        }
        self._max_token_len = max_token_len
        self._num_steps = num_steps

    async def run(self) -> None:
        """Train for `num_steps`, or until cancelled. Raises MalformedGroupError."""
        async with aiohttp.ClientSession(self._api_url, raise_for_status=True) as session:
            async with session.post("/register", json=self._registration):
                pass
            while self.batches < self._num_steps:
                async with session.get("/batch") as response:
                    batch = (await response.json())["batch"]
                if batch is None:
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    self._train(batch)

    def _train(self, batch: list[dict[str, Any]]) -> None:
        self.rows += sum(check_group(group, self._max_token_len) for group in batch)
        self.groups += len(batch)
        self.batches += 1
