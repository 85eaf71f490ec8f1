"""Train a model with TRL's GRPOTrainer on problems and rewards of this package: 20 steps on a CPU.

    python examples/train_with_trl.py                                # a tiny untrained model
    python examples/train_with_trl.py --model NAME_OR_FOLDER --rate 1e-5

Demonstrations come first: without solved completions there is no signal. Then a stream asks
problems whose level follows the rewards.
"""

import argparse
import tempfile
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, set_seed
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.integrations.trl import (
    ReasoningGymReward,
    problem_dataset,
    stream_dataset,
)

SYSTEM_PROMPT = "Reply with <answer>...</answer>."
SIZE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    # About the root of 1 / hidden_size; 0.02 is for large models.
    "initializer_range": 0.08,
}

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument(
    "--model", help="a name or folder; by default a tiny untrained model"
)
parser.add_argument("--task", default="aiw")
parser.add_argument("--demonstrations", type=int, default=800)
parser.add_argument("--passes", type=int, default=8, help="over the demonstrations")
parser.add_argument("--steps", type=int, default=20, help="of GRPO")
parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of GRPO")
options = parser.parse_args()


def solved(row):
    """Return the row as a demonstration."""
    text = f"<answer>{row['oracle']}</answer>"
    return {
        "prompt": row["prompt"],
        "completion": [{"role": "assistant", "content": text}],
    }


set_seed(0)
with ReasoningGym() as gym, tempfile.TemporaryDirectory() as folder:
    common = {"output_dir": folder, "use_cpu": True, "bf16": False, "report_to": "none"}
    levels = next(task.levels for task in gym.tasks() if task.name == options.task)
    problems = [
        problem
        for level in range(levels)
        for problem in gym.problems(
            options.task, level=level, count=options.demonstrations // levels
        )
    ]
    demonstrated = problem_dataset(problems, system_prompt=SYSTEM_PROMPT)
    stream = gym.stream(
        [options.task], complexity_mode="curriculum", sampling="signal", group_size=8
    )
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model)
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    else:
        tokenizer = AutoTokenizer.from_pretrained(build_tokenizer(Path(folder)))
        model = AutoModelForCausalLM.from_config(
            LlamaConfig(vocab_size=len(tokenizer), **SIZE)
        )
    demonstrations = SFTConfig(
        num_train_epochs=options.passes,
        per_device_train_batch_size=32,
        learning_rate=2 * options.rate,
        **common,
    )
    examples = demonstrated.map(solved, remove_columns=demonstrated.column_names)
    SFTTrainer(
        model, demonstrations, train_dataset=examples, processing_class=tokenizer
    ).train()
    reinforcement = GRPOConfig(
        max_steps=options.steps,
        num_generations=8,
        per_device_train_batch_size=256,  # 32 problems
        max_completion_length=16,
        learning_rate=options.rate,
        lr_scheduler_type="constant",
        # Else TRL takes 1,000 problems in advance, and levels can't follow.
        shuffle_dataset=False,
        logging_steps=1,
        **common,
    )
    trainer = GRPOTrainer(
        model,
        ReasoningGymReward(gym),
        reinforcement,
        stream_dataset(stream, system_prompt=SYSTEM_PROMPT),
        processing_class=tokenizer,
    )
    trainer.train()
for step in trainer.state.log_history[:-1]:
    print(
        f"step {step['step']:3}  reward {step['reward']:.2f}  level {step['level']:.2f}"
    )
