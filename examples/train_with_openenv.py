"""Train with TRL's GRPOTrainer on an OpenEnv server of this package: two steps on a CPU.

    reasoning-gym-environment openenv --port 8000 --group-size 4
    OPENENV=http://localhost:8000 MODEL=NAME_OR_FOLDER python examples/train_with_openenv.py

With `--group-size 4`, each seed gives one group. The model's chat template must support tools.
"""

import os
from typing import Any

from datasets import Dataset
from openenv import GenericEnvClient
from trl import GRPOConfig, GRPOTrainer

ASK = "Give your final answer between <answer> and </answer>. "


class Problem:
    """An episode of one problem; TRL would offer further methods to the model as tools."""

    def __init__(self) -> None:
        self.client = GenericEnvClient(base_url=os.environ["OPENENV"]).sync()

    def reset(self, seed: int, **_: Any) -> str:
        """Return the question of a seed, which TRL appends to the prompt."""
        return str(self.client.reset(seed=seed).observation["question"])


def rewards(
    environments: list[Problem], completions: list[Any], **_: Any
) -> list[float | None]:
    """Score a batch of completions, each in its own environment, whose episode ends."""
    texts = [completion[-1]["content"] for completion in completions]
    return [
        problem.client.step({"answer": text}).reward
        for problem, text in zip(environments, texts, strict=True)
    ]


def main() -> None:
    """Train for two steps."""
    prompt = [{"role": "user", "content": ASK}]
    rows = Dataset.from_list([{"prompt": prompt, "seed": seed} for seed in range(100)])
    options = GRPOConfig(
        max_steps=2, num_generations=4, max_completion_length=16, use_cpu=True
    )
    trainer = GRPOTrainer(
        os.environ["MODEL"], rewards, options, rows, environment_factory=Problem
    )
    trainer.train()


if __name__ == "__main__":
    main()
