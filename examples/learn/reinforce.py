"""Reinforcement by Atropos's own example trainer: its API client, its batches, its GRPO loss."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from example_trainer.api import get_batch, register_trainer
from example_trainer.config import TrainingConfig
from example_trainer.data import pad_data_to_good_offset
from example_trainer.training import run_training_step
from model import Policy

GROUP_SIZE = 8
ROWS = 128
"""Rows of one batch: 16 groups."""

POLL_SECONDS = 0.2

Steps = Iterator[dict[str, float] | None]
"""The metrics of each step; None while no batch is available."""


def settings(api_url: str, folder: Path, *, steps: int, context: int) -> TrainingConfig:
    """Return the trainer's configuration."""
    return TrainingConfig(
        model_name="learner",
        lr=2e-4,
        training_steps=steps,
        warmup_steps=5,
        batch_size=ROWS,
        gradient_accumulation_steps=1,
        seq_len=context,
        optimizer="adamw",
        device="cpu",
        save_path=str(folder),
        checkpoint_interval=0,
        atropos_url=api_url,
    )


def train(policy: Policy, config: TrainingConfig) -> Steps:
    """Register, pull batches and train one step on each."""
    register_trainer(config)
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=config.lr, weight_decay=0.0
    )
    return make_steps(policy, optimizer, config)


def make_steps(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    *,
    start: int = 0,
) -> Steps:
    """Pull batches of a registered trainer, and train one step on each."""
    step = start
    while step < config.training_steps:
        data = get_batch(config.atropos_url)
        if data["batch"] is None:
            yield None
            time.sleep(POLL_SECONDS)
            continue
        *batches, logprobs = pad_data_to_good_offset(data, config.batch_size)
        with policy.lock:
            metrics = run_training_step(
                policy.model, optimizer, *batches, config, step, logprobs
            )
        step += 1
        yield metrics
