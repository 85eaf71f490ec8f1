"""Train a small model with and without the curriculum: arms of equal budget from equal weights.

    python research/learning.py FOLDER [--rollouts 24000] [--seeds 3] [--arms "default,curriculum"]

Needs `pip install '.[learn]'`. Each run adds its rows to FOLDER/results.csv. The same command goes
on with the missing runs and prints the table of all arms. The cold start is made once.

    python research/learning.py FOLDER --language-model SmolLM2

adds the rows of finished runs of `examples/train_a_language_model` in FOLDER/ARM-SEED instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "learn"))

import cold_start
import torch
from endpoint import Endpoint, served
from item_spread import Groups, by_quarter, signal_share, solved_share, spans
from learning_results import append_result, of_arms, plot, read_results, summary
from loop import Loop
from model import Policy, build_model, build_tokenizer
from results import values
from transformers import AutoTokenizer, LlamaForCausalLM

from reasoning_gym_environment.evaluation.estimators import share
from reasoning_gym_environment.evaluation.store import read_results as read_evaluation
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.util.values import group_by

TASKS = "aiw,family_relationships,letter_counting,syllogism"
CURRICULUM = {"complexity_mode": "curriculum"}
SIGNAL = {"sampling": "signal"}
ARMS: dict[str, dict[str, Any]] = {
    "default": {},
    "all levels": {"complexity_mode": "random"},
    "drawn": SIGNAL,
    "asked again": SIGNAL,
    "signal": SIGNAL,
    "curriculum": CURRICULUM,
    "curriculum + drawn": CURRICULUM | SIGNAL,
    "curriculum + asked again": CURRICULUM | SIGNAL,
    "curriculum + signal": CURRICULUM | SIGNAL,
}
"""Settings of the environment in training, by name. Sampling by signal has two parts: tasks and
levels are drawn by signal, and problems are asked again."""

_NOT_DRAWN, _NOT_AGAIN = (
    "problems.sampler.LEAST_ACCEPTANCE=1.0",
    "problems.sampler.FRESH_SHARE=1.0",
)
CONSTANTS: dict[str, Sequence[str]] = {
    "drawn": (_NOT_AGAIN,),
    "asked again": (_NOT_DRAWN,),
    "curriculum + drawn": (_NOT_AGAIN,),
    "curriculum + asked again": (_NOT_DRAWN,),
}
"""Constants of the environment that leave out parts, as `with_constants.py` takes them."""

DIFFICULTIES = "0,0.15,0.3"
"""Difficulties of held-out items, besides the library's default configuration."""

SNAPSHOTS = 5
"""Evaluations of one run at equal distances, after that of the cold start."""

WINDOW = 200
"""Groups over which shares of signal and levels are averaged."""

WITH_CONSTANTS = Path(__file__).with_name("with_constants.py")

NEVER = 10**9
"""More steps than any run has: the number of rollouts ends it."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings that all runs share.

    Attributes:
        rollouts: of one run, those that the environment filters included.
        items: held out of each task and difficulty.
        tasks: separated by commas.
        weights: the seed of the initial weights.
        demonstrations: of each task, at its two easiest levels; as many of the default
            configuration are seen by the tokenizer alone.
    """

    folder: Path
    rollouts: int
    tasks: str
    weights: int
    items: int
    demonstrations: int
    passes: int

    def loop(self, folder: Path, seed: int, constants: Sequence[str] = ()) -> Loop:
        return Loop(
            folder=folder,
            tokenizer=self.folder / "start" / "tokenizer",
            tasks=self.tasks,
            items=self.items,
            seed=seed,
            eval_difficulties=DIFFICULTIES,
            program=(str(WITH_CONSTANTS), *constants, "--"),
        )

    def policy(self, weights: Path) -> Policy:
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "start" / "tokenizer")
        return Policy(
            LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32), tokenizer
        )


async def start(experiment: Experiment) -> Path:
    """Train the initial weights of all runs once, and evaluate them."""
    folder = experiment.folder / "start"
    weights = folder / "weights"
    if (folder / "done").exists():
        return weights
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    loop = experiment.loop(folder, seed=0)
    messages = await loop.demonstrations(experiment.demonstrations, levels="0,1")
    seen = messages + await loop.demonstrations(experiment.demonstrations)
    tokenizer = build_tokenizer(
        [m["content"] for each in seen for m in each], loop.tokenizer
    )
    policy = Policy(build_model(len(tokenizer), seed=experiment.weights), tokenizer)
    examples = [cold_start.encode(each, tokenizer) for each in messages]
    cold_start.train(
        policy, examples, passes=experiment.passes, seed=experiment.weights
    )
    policy.model.save_pretrained(weights)
    async with served(policy) as endpoint:
        await loop.evaluate(endpoint.url, folder / "evaluation")
    (folder / "done").touch()
    return weights


async def run(
    experiment: Experiment, arm: str, seed: int, weights: Path
) -> dict[str, Any]:
    """Train one arm from the common weights, then evaluate its snapshots."""
    begin = time.monotonic()
    folder = experiment.folder / "runs" / f"{arm.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    loop = experiment.loop(folder, seed, CONSTANTS.get(arm, ()))
    policy = experiment.policy(weights)
    async with served(policy) as endpoint:
        taken = Snapshots(experiment, policy, endpoint, folder)
        await loop.reinforce(
            policy, endpoint.url, taken.goes_on, steps=NEVER, **ARMS[arm]
        )
    trained = time.monotonic() - begin
    curve = [{"rollouts": 0, **measured(experiment.folder / "start" / "evaluation")}]
    for rollouts in taken.rollouts:
        async with served(experiment.policy(folder / str(rollouts))) as endpoint:
            evaluation = folder / f"evaluation-{rollouts}"
            await loop.evaluate(endpoint.url, evaluation)
        curve.append({"rollouts": rollouts, **measured(evaluation)})
    return {
        "arm": arm,
        "seed": seed,
        "steps": taken.steps,
        "seconds_of_training": round(trained),
        **learned(curve, stored_groups(folder)),
    }


def stored_groups(folder: Path) -> Groups:
    return read_report_data(sorted((folder / "dumps").glob("*.jsonl"))).groups


def learned(curve: Sequence[dict[str, Any]], groups: Groups) -> dict[str, Any]:
    """Return the evaluations of a run, and what its groups show."""
    return {
        "curve": curve,
        "training": over_time(groups),
        "quarters": [
            one | two
            for one, two in zip(by_quarter(groups), asked_again(groups), strict=True)
        ],
        "spans": spans(groups[: len(groups) // 4]),
    }


def of_language_model(folder: Path, experiment: str) -> dict[str, Any]:
    """Return a finished run of `examples/train_a_language_model` in a folder ARM-SEED."""
    arm, _, seed = folder.name.rpartition("-")
    steps = [
        json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()
    ]
    seconds = sum(step["waited"] + step["trained"] + step["wrote"] for step in steps)
    groups = stored_groups(folder)
    rollouts = {0: 0, len(steps): sum(len(group.rollouts) for group in groups)}
    curve = [
        {"rollouts": used, **measured(folder / "evaluations" / f"step-{step}")}
        for step, used in rollouts.items()
    ]
    return {
        "arm": f"{experiment}: {arm}",
        "seed": int(seed),
        "steps": len(steps),
        "seconds_of_training": round(seconds),
        **learned(curve, groups),
    }


class Snapshots:
    """Saves the weights each time that a share of the budget is used, and ends at its end."""

    def __init__(
        self, experiment: Experiment, policy: Policy, endpoint: Endpoint, folder: Path
    ) -> None:
        self.rollouts: list[int] = []
        self.steps = 0
        self._policy, self._endpoint, self._folder = policy, endpoint, folder
        self._budget = experiment.rollouts

    def goes_on(self, metrics: dict[str, float] | None) -> bool:
        self.steps += metrics is not None
        used = self._endpoint.sampled
        if used >= self._budget * (len(self.rollouts) + 1) / SNAPSHOTS:
            self._policy.model.save_pretrained(self._folder / str(used))
            self.rollouts.append(used)
            print(f"  {used} rollouts, {self.steps} steps", flush=True)
        return used < self._budget


def measured(evaluation: Path) -> dict[str, Any]:
    """Return the solved shares by difficulty, and by task at each difficulty."""
    samples = read_evaluation(evaluation).samples
    by_difficulty = {
        "default" if difficulty is None else str(difficulty): own
        for difficulty, own in group_by(
            lambda sample: sample.difficulty, samples
        ).items()
    }
    return {
        "solved": {
            each: share(values(own)).value for each, own in by_difficulty.items()
        },
        "tasks": {
            each: {
                task: share(values(of)).value
                for task, of in group_by(lambda s: s.task, own).items()
            }
            for each, own in by_difficulty.items()
        },
    }


def over_time(groups: Groups) -> list[dict[str, Any]]:
    """By window of groups: shares of solved rollouts and of groups with signal, mean levels."""
    ends = range(WINDOW, len(groups) + WINDOW, WINDOW)
    return [
        {
            "rollouts": sum(len(group.rollouts) for group in groups[:end]),
            "solved": solved_share(groups[end - WINDOW : end]),
            "signal": signal_share(groups[end - WINDOW : end]),
            "levels": mean_levels(groups[end - WINDOW : end]),
        }
        for end in ends
    ]


def asked_again(groups: Groups) -> list[dict[str, float]]:
    """By quarter: the share of groups that ask a problem again, and how these and fresh ones do.

    Returns:
        Shares of groups with signal and of solved rollouts; `alike_solved` is that of fresh groups
        of the same tasks and levels, as often as these are asked again. What one kind of group
        lacks is left out.
    """
    seen: set[tuple[str, int]] = set()
    kinds: list[tuple[StoredGroup, bool]] = []
    for group in groups:
        key = (group.task, group.recipe.seed)
        kinds.append((group, key in seen))
        seen.add(key)
    cuts = [len(kinds) * quarter // 4 for quarter in range(5)]
    return [compare_kinds(kinds[begin:end]) for begin, end in pairwise(cuts)]


def compare_kinds(kinds: Sequence[tuple[StoredGroup, bool]]) -> dict[str, float]:
    """Compare groups that ask a problem again with fresh ones."""
    fresh, again = (
        [group for group, kind in kinds if kind is one] for one in (False, True)
    )
    found = {"again": len(again) / len(kinds), "fresh_signal": signal_share(fresh)}
    alike = group_by(lambda group: (group.task, group.recipe.level), fresh)
    both = [group for group in again if (group.task, group.recipe.level) in alike]
    if both:
        expected = [
            solved_share(alike[group.task, group.recipe.level]) for group in both
        ]
        found["again_signal"] = signal_share(again)
        found["again_solved"] = solved_share(both)
        found["alike_solved"] = statistics.mean(expected)
    return found


def mean_levels(groups: Groups) -> dict[str, float]:
    """Average the levels of each task; empty where none has levels."""
    by_task = group_by(
        lambda group: group.task, [g for g in groups if g.recipe.level is not None]
    )
    return {
        t: statistics.mean(g.recipe.level or 0 for g in own)
        for t, own in sorted(by_task.items())
    }


async def main(experiment: Experiment, arms: Sequence[str], seeds: int) -> None:
    """Make the runs that have no result yet, seed by seed, then print and draw the arms."""
    weights = await start(experiment)
    path = experiment.folder / "results.csv"
    done = (
        {(run["arm"], run["seed"]) for run in read_results(path)}
        if path.exists()
        else set()
    )
    for seed in range(1, seeds + 1):
        for arm in arms:
            if (arm, seed) not in done:
                print(f"{arm}, seed {seed}", flush=True)
                append_result(path, await run(experiment, arm, seed, weights))
    results = of_arms(read_results(path), arms)
    print(summary(results))
    plot(experiment.folder / "arms.svg", results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rollouts", type=int, default=24000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument(
        "--weights", type=int, default=0, help="the seed of the initial weights"
    )
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--demonstrations", type=int, default=150)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument(
        "--language-model", metavar="EXPERIMENT", help="measure its finished runs"
    )
    options = vars(parser.parse_args())
    if experiment := options.pop("language_model"):
        for folder in sorted(options["folder"].glob("*-*/")):
            result = of_language_model(folder, experiment)
            append_result(options["folder"] / "results.csv", result)
        sys.exit()
    # What was started ends as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(1)  # the other core is the environment's
    arms, seeds = options.pop("arms").split(","), options.pop("seeds")
    if unknown := set(arms) - set(ARMS):
        parser.error(
            f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}"
        )
    asyncio.run(main(Experiment(**options), arms, seeds))
