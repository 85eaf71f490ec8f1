"""TRL trains on our dataset with our reward function."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from injected import advantages, injected_scores
from integration_programs import (
    ATROPOS,
    OWN_TASKS,
    UNMAKABLE,
    environment,
    loaded,
    page_program,
    run_python,
    shown_output,
)
from page_blocks import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.processes]

BY_HEART = f"""
import sys
from collections import Counter
from pathlib import Path

import torch
from pyarrow import parquet
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.integrations.trl import ReasoningGymReward, problem_dataset

torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(build_tokenizer(Path("tokenizer")))
# Special tokens, which TRL leaves out of its texts: with them, the draft is no answer.
tokenizer.add_special_tokens({{"additional_special_tokens": ["[THINK]", "[/THINK]"]}})
size = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size))
with ReasoningGym(processes=1) as gym:
    [problem] = gym.problems("gcd", level=0)
    dataset = problem_dataset([problem], system_prompt="Answer.")
    dataset = dataset.add_item({{**dataset[0], "recipe": {UNMAKABLE!r}}})

    prompt = tokenizer.apply_chat_template(
        dataset[0]["prompt"], tokenize=False, add_generation_prompt=True
    )
    thought = "[THINK]<answer>0</answer>[/THINK]"
    text = f"{{prompt}}{{thought}}<answer>{{problem.oracle}}</answer><|im_end|>"
    tokens = tokenizer(text, return_tensors="pt").input_ids
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.tensor(9.0)
    while loss > 0.01:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    options = GRPOConfig(
        "out",
        max_steps=2,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=32,
        logging_steps=1,
        log_completions=True,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = GRPOTrainer(
        model,
        ReasoningGymReward(gym, tokenizer),
        options,
        dataset,
        processing_class=tokenizer,
    )
    trainer.train()
rows = parquet.read_table("out/completions").to_pylist()
earned = Counter((row["status"], row["ReasoningGymReward"], row["advantage"]) for row in rows)
print([[status, reward, advantage, count] for (status, reward, advantage), count in earned.items()])
"""


LEVELS = f"""
import torch
from pathlib import Path

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.integrations.trl import ReasoningGymReward, stream_dataset

torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(build_tokenizer(Path("tokenizer")))
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
with ReasoningGym(processes=1, task_modules=[{OWN_TASKS!r}]) as gym:
    stream = gym.stream(["running_total"], complexity_mode="curriculum", group_size=4)
    options = GRPOConfig(
        "out",
        max_steps=20,
        num_generations=4,
        per_device_train_batch_size=32,
        max_completion_length=2,
        logging_steps=1,
        shuffle_dataset=False,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = GRPOTrainer(
        LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size)),
        ReasoningGymReward(gym),
        options,
        stream_dataset(stream, system_prompt="direct"),
        processing_class=tokenizer,
    )
    trainer.train()
    account = stream.sampling()
levels = [step["level"] for step in trainer.state.log_history[:-1]]
print([levels[0], levels[-1], account["sampling/incomplete_groups"]])
"""


INJECTED = """
import itertools
from collections.abc import Iterable
from pathlib import Path

import torch
from pyarrow import parquet
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from reasoning_gym_environment import ReasoningGym, Score, Status
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.integrations.trl import ReasoningGymReward, problem_dataset

torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(build_tokenizer(Path("tokenizer")))
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
GROUPS = {groups!r}


class Failing(ReasoningGym):
    def score_many(self, pairs: Iterable, **_: object) -> list[Score]:
        scores = [score for group in GROUPS for score in group]
        return [
            Score(score=score, status=Status.UNSCORED if score is None else Status.WRONG)
            for _, score in zip(pairs, scores, strict=True)
        ]


with Failing(processes=1) as gym:
    problems = gym.problems("gcd", level=0, count=len(GROUPS))
    options = GRPOConfig(
        "out",
        max_steps=1,
        num_generations=len(GROUPS[0]),
        per_device_train_batch_size=len(GROUPS) * len(GROUPS[0]),
        max_completion_length=2,
        log_completions=True,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    GRPOTrainer(
        LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size)),
        ReasoningGymReward(gym),
        options,
        problem_dataset(problems),
        processing_class=tokenizer,
    ).train()
rows = parquet.read_table("out/completions").to_pylist()
print([row["advantage"] for row in rows])
"""


def test_a_failure_of_ours_trains_neither_its_row_nor_its_groups_others(
    tmp_path: Path,
) -> None:
    groups = injected_scores()
    trained = ast.literal_eval(run_python(INJECTED.format(groups=groups), tmp_path))
    expected = [value for group in groups for value in advantages(group)]
    assert trained == pytest.approx(expected, abs=1e-3)  # TRL adds 1e-4 to deviations


@pytest.mark.parametrize("group_size", ["group_size=4", "group_size=None"])
def test_levels_fall_while_nothing_is_solved(group_size: str, tmp_path: Path) -> None:
    program = LEVELS.replace("group_size=4", group_size)
    first, last, incomplete = ast.literal_eval(run_python(program, tmp_path))
    assert first > last == 0.0
    assert incomplete == 0.0


def test_a_group_size_other_than_trls_ends_the_training(tmp_path: Path) -> None:
    program = LEVELS.replace("group_size=4", "group_size=8")
    with pytest.raises(AssertionError, match=r"is 8, but .* 4 completions"):
        run_python(program, tmp_path)


def test_the_page_program_trains_a_model(tmp_path: Path) -> None:
    assert run_python(page_program("TRL"), tmp_path) == shown_output("TRL")


def test_right_answers_are_rewarded_and_unscored_ones_have_no_advantage(
    tmp_path: Path,
) -> None:
    printed = run_python(BY_HEART, tmp_path).replace("nan", "None")
    earned = ast.literal_eval(printed)
    assert sum(
        count
        for status, reward, _, count in earned
        if (status, reward) == ("solved", 1.0)
    )
    unscored = [row for row in earned if row[0] == "unscored"]
    assert sum(row[3] for row in unscored) == 8
    assert all(row[1:3] == [None, 0.0] for row in unscored)


def test_the_example_starts_with_rewards_above_zero_and_prints_each_step(
    tmp_path: Path,
) -> None:
    program = ROOT / "examples" / "train_with_trl.py"
    done = subprocess.run(
        [sys.executable, str(program), "--steps", "2"],
        cwd=tmp_path,
        env={**environment(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    steps = re.findall(
        r"^step +(\d)  reward (\d\.\d\d)  level \d\.\d\d$", done.stdout, re.MULTILINE
    )
    assert [int(step) for step, _ in steps] == [1, 2]
    assert all(0.1 < float(reward) < 0.9 for _, reward in steps)


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    assert not loaded("reasoning_gym_environment.integrations.trl", tmp_path) & ATROPOS
