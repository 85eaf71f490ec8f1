"""Reinforcement by Atropos's own example trainer: its API client, its batches, its GRPO loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from example_trainer.api import register_trainer
from example_trainer.config import TrainingConfig
from example_trainer.data import get_data
from example_trainer.training import run_training_step
from model import CONTEXT, Policy

GROUP_SIZE = 8
ROWS = 128
"""Of one batch: 16 groups."""


def settings(api_url: str, folder: Path, *, steps: int) -> TrainingConfig:
    """What the trainer registers with, and how it trains."""
    return TrainingConfig(
        model_name="learner",
        lr=4e-4,
        training_steps=steps,
        warmup_steps=5,
        batch_size=ROWS,
        gradient_accumulation_steps=1,
        seq_len=CONTEXT,
        optimizer="adamw",
        device="cpu",
        save_path=str(folder),
        checkpoint_interval=0,
        atropos_url=api_url,
    )


def train(policy: Policy, config: TrainingConfig, report: Callable[[int, Any], None]) -> None:
    """Register, pull batches and make a step with each.

    Args:
        report: called after each step with its number and the trainer's metrics.
    """
    register_trainer(config)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=config.lr, weight_decay=0.0)
    step = 0
    while step < config.training_steps:
        pulled, _ = get_data(config.batch_size, config.seq_len, config.atropos_url)
        for tokens, labels, advantages, temperatures, logprobs in pulled:
            with policy.lock:
                metrics = run_training_step(
                    policy.model,
                    optimizer,
                    tokens,
                    labels,
                    advantages,
                    temperatures,
                    config,
                    step,
                    logprobs,
                )
            step += 1
            report(step, metrics)
