"""Does the curriculum pay for a model that really learns? Arms of equal budget from equal weights.

    python benchmarks/learning.py FOLDER [--rollouts 24000] [--seeds 3] [--arms "default,both"]

Needs `pip install '.[learn]'`. Each run's result is a JSON file in FOLDER/results; the same command
goes on with the runs that have none, and prints what there is. The cold start is made once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
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
from learning_plot import plot
from loop import Loop
from model import Policy, build_model, build_tokenizer
from results import solved
from transformers import AutoTokenizer, LlamaForCausalLM

from reasoning_gym_environment.evaluation.estimators import student_quantile
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.report.loading import read_material
from reasoning_gym_environment.report.sections import with_level
from reasoning_gym_environment.util.grouping import group_by

TASKS = "aiw,family_relationships,letter_counting,syllogism"
ARMS: dict[str, dict[str, Any]] = {
    "default": {},
    "all levels": {"complexity_mode": "random"},
    "all levels by signal": {"complexity_mode": "random", "sampling": "signal"},
    "curriculum": {"complexity_mode": "curriculum"},
    "both": {"complexity_mode": "curriculum", "sampling": "signal"},
    "both at 0.5": {
        "complexity_mode": "curriculum",
        "sampling": "signal",
        "curriculum_target_accuracy": 0.5,
    },
}
"""By name, the settings of the environment in training."""

DIFFICULTIES = "0,0.15,0.3"
"""Held-out items are of these, and of the library's default configuration."""

SNAPSHOTS = 5
"""Evaluations of one run, evenly over its rollouts; the one of the cold start comes before."""

WINDOW = 200
"""Groups over which shares of signal and levels are averaged."""

NEVER = 10**9
"""Steps that no run comes to: rollouts end it."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What all runs share.

    Attributes:
        rollouts: of one run, those that the environment filters included.
        items: held out of each task and difficulty.
        demonstrations: of each task, at its two easiest levels; as many of the default
            configuration are seen by the tokenizer alone.
    """

    folder: Path
    rollouts: int
    items: int
    demonstrations: int
    passes: int

    def loop(self, folder: Path, seed: int) -> Loop:
        return Loop(
            folder=folder,
            tokenizer=self.folder / "start" / "tokenizer",
            tasks=TASKS,
            items=self.items,
            seed=seed,
            eval_levels=DIFFICULTIES,
        )

    def policy(self, weights: Path) -> Policy:
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "start" / "tokenizer")
        return Policy(LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32), tokenizer)


async def start(experiment: Experiment) -> Path:
    """Make the weights that all runs begin with, once, and evaluate them."""
    folder = experiment.folder / "start"
    weights = folder / "weights"
    if (folder / "done").exists():
        return weights
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    loop = experiment.loop(folder, seed=0)
    messages = await loop.demonstrations(experiment.demonstrations, levels="0,1")
    seen = messages + await loop.demonstrations(experiment.demonstrations)
    tokenizer = build_tokenizer([m["content"] for each in seen for m in each], loop.tokenizer)
    policy = Policy(build_model(len(tokenizer), seed=0), tokenizer)
    examples = [cold_start.encode(each, tokenizer) for each in messages]
    cold_start.train(policy, examples, passes=experiment.passes, seed=0)
    policy.model.save_pretrained(weights)
    async with served(policy) as endpoint:
        await loop.evaluate(endpoint.url, folder / "evaluation")
    (folder / "done").touch()
    return weights


async def run(experiment: Experiment, arm: str, seed: int, weights: Path) -> dict[str, Any]:
    """Train one arm from the common weights, then evaluate its snapshots."""
    begin = time.monotonic()
    folder = experiment.folder / "runs" / f"{arm.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    loop, policy = experiment.loop(folder, seed), experiment.policy(weights)
    async with served(policy) as endpoint:
        taken = Snapshots(experiment, policy, endpoint, folder)
        await loop.reinforce(policy, endpoint.url, taken.goes_on, steps=NEVER, **ARMS[arm])
    trained = time.monotonic() - begin
    curve = [{"rollouts": 0, **measured(experiment.folder / "start" / "evaluation")}]
    for rollouts in taken.rollouts:
        async with served(experiment.policy(folder / str(rollouts))) as endpoint:
            evaluation = folder / f"evaluation-{rollouts}"
            await loop.evaluate(endpoint.url, evaluation)
        curve.append({"rollouts": rollouts, **measured(evaluation)})
    groups = read_material(sorted((folder / "dumps").glob("*.jsonl"))).groups
    return {
        "arm": arm,
        "seed": seed,
        "settings": ARMS[arm],
        "steps": taken.steps,
        "seconds_of_training": round(trained),
        "curve": curve,
        "training": over_time(groups),
        "quarters": by_quarter(groups),
        "spans": spans(groups[: len(groups) // 4]),
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
    """Solved shares with intervals, by difficulty and by task at each; None is the default."""
    by_difficulty = group_by(lambda s: s.difficulty, read_results(evaluation).samples)
    return {
        "solved": {str(each): solved(own)._asdict() for each, own in by_difficulty.items()},
        "tasks": {
            str(each): {t: solved(s).value for t, s in group_by(lambda s: s.task, own).items()}
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


def mean_levels(groups: Groups) -> dict[str, float]:
    """Average the levels of each task; empty where none has levels."""
    by_task = group_by(lambda group: group.task, with_level(groups))
    return {t: statistics.mean(g.recipe.level for g in own) for t, own in sorted(by_task.items())}


def held_out(point: dict[str, Any]) -> float:
    """The solved share of all held-out items, every difficulty counting alike."""
    return statistics.mean(each["value"] for each in point["solved"].values())


Curve = Sequence[tuple[float, float]]
"""Rollouts used and the held-out share solved then."""


def mean_curve(runs: Sequence[dict[str, Any]]) -> Curve:
    """Average the curves of an arm's seeds, whose evaluations come at nearly the same places."""
    at_one_place = zip(*(run["curve"] for run in runs), strict=True)
    return [
        (statistics.mean(p["rollouts"] for p in own), statistics.mean(held_out(p) for p in own))
        for own in at_one_place
    ]


def rollouts_until(curve: Curve, wanted: float) -> float:
    """Rollouts at which a curve first reaches a share; infinite if it never does.

    Between two evaluations it is taken to rise evenly.
    """
    if curve[0][1] >= wanted:
        return 0.0
    for (used, share), (later, more) in pairwise(curve):
        if more >= wanted:
            return used + (later - used) * (wanted - share) / (more - share)
    return math.inf


def spread(values: Sequence[float]) -> str:
    """Write a mean with half the width of its 95 % interval over seeds."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.3f} ± {student_quantile(len(values) - 1) * error:.3f}"


def summary(results: Sequence[dict[str, Any]]) -> str:
    """By arm: rollouts until half of the first arm's gain and all of it; shares at the end."""
    by_arm = group_by(lambda result: str(result["arm"]), results)
    first = mean_curve(next(iter(by_arm.values())))
    begin, end = first[0][1], first[-1][1]
    wanted = [(begin + end) / 2, end]
    difficulties = list(results[0]["curve"][0]["solved"])
    heads = [f"to {share:.3f}" for share in wanted] + ["at the end"]
    heads += ["default" if each == "None" else each for each in difficulties]
    lines = ["rollouts until a share of all held-out items is solved, and shares at the end"]
    lines += ["arm (runs)".ljust(26) + "".join(f"{head:>16}" for head in heads)]
    start = results[0]["curve"][0]["solved"]
    values = [begin, *(start[each]["value"] for each in difficulties)]
    lines += ["at the start".ljust(58) + "".join(f"{value:16.3f}" for value in values)]
    for arm, runs in by_arm.items():
        curve, ends = mean_curve(runs), [run["curve"][-1] for run in runs]
        cells = [f"{rollouts_until(curve, share):.0f}" for share in wanted]
        cells += [spread([held_out(end) for end in ends])]
        cells += [spread([end["solved"][each]["value"] for end in ends]) for each in difficulties]
        lines.append(f"{arm} ({len(runs)})".ljust(26) + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


async def main(experiment: Experiment, arms: Sequence[str], seeds: int) -> None:
    """Make the runs that have no result yet, seed by seed, and print what there is of the arms."""
    results = experiment.folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    weights = await start(experiment)
    for seed in range(1, seeds + 1):
        for arm in arms:
            path = results / f"{arm.replace(' ', '-')}-{seed}.json"
            if path.exists():
                continue
            print(f"{arm}, seed {seed}", flush=True)
            result = await run(experiment, arm, seed, weights)
            path.with_suffix(".partial").write_text(json.dumps(result, indent=1) + "\n")
            path.with_suffix(".partial").rename(path)
    found = [json.loads(path.read_text()) for path in results.glob("*.json")]
    made = [result for result in found if result["arm"] in arms]
    made.sort(key=lambda result: (result["arm"] != "default", result["arm"], result["seed"]))
    print(summary(made))
    plot(experiment.folder / "arms.svg", made, held_out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rollouts", type=int, default=24000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--demonstrations", type=int, default=150)
    parser.add_argument("--passes", type=int, default=3)
    options = vars(parser.parse_args())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started ends as well
    torch.set_num_threads(1)  # the other core is the environment's
    arms, seeds = options.pop("arms").split(","), options.pop("seeds")
    if unknown := set(arms) - set(ARMS):
        parser.error(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    asyncio.run(main(Experiment(**options), arms, seeds))
