"""Trains a model that a stock vLLM serves: the trainer alone, beside servers of your own.

    python examples/train_a_language_model/trainer.py --model Qwen/Qwen3-8B --layers 8 ...

It takes the options of atroposlib's `python -m example_trainer.grpo`. Weights go another way: they
are written to the folder `served` in `--save-path`, and vLLM, which serves it, reads them again.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "learn"))

import reinforce
import torch
from engine import reload
from example_trainer.cli import config_from_args, create_full_parser
from example_trainer.config import TrainingConfig
from example_trainer.training import log_metrics, setup_wandb
from learner import Learner, register


def train(config: TrainingConfig, layers: int) -> None:
    """Train the remaining steps, from the last checkpoint if there is one."""
    folder = Path(config.save_path)
    checkpoint = folder / "trainer.pt"
    folder.mkdir(parents=True, exist_ok=True)
    learner = Learner(config.model_name, layers=layers)
    learner.model.to(config.device).train()
    learner.model.gradient_checkpointing_enable({"use_reentrant": False})
    if checkpoint.exists():
        learner.resume(checkpoint)
    hand_on(learner, config)
    use_wandb = setup_wandb(config)
    register(config, learner.step)
    device = torch.device(config.device).type
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        steps = reinforce.make_steps(
            learner, learner.optimizer, config, start=learner.step
        )
        for metrics in steps:
            if metrics is None:
                continue
            learner.step += 1
            hand_on(learner, config)
            if learner.step % config.checkpoint_interval == 0:
                learner.checkpoint(checkpoint)
            log_metrics(metrics, learner.step, use_wandb)


def hand_on(learner: Learner, config: TrainingConfig) -> None:
    """Write the weights in bfloat16, half of what they take here, and have vLLM read them."""
    weights = {
        name: w.to(torch.bfloat16) for name, w in learner.model.state_dict().items()
    }
    served = Path(config.save_path) / "served"
    learner.model.save_pretrained(served, state_dict=weights)
    learner.tokenizer.save_pretrained(served)
    # A downloaded model in several files leaves it, and vLLM would look for these.
    (served / "model.safetensors.index.json").unlink(missing_ok=True)
    reload(f"http://localhost:{config.vllm_port}")


if __name__ == "__main__":
    parser = create_full_parser()
    parser.add_argument(
        "--layers", type=int, default=8, help="trained, counted from the last"
    )
    options = parser.parse_args()
    train(config_from_args(options), options.layers)
