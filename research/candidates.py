"""Replay stored runs: what would choosing among fresh candidates before the rollout bring?

    python research/candidates.py RUN/dumps/*.jsonl

Takes four fresh groups in a row as the candidates for one, and picks the one that a model thinks
likeliest to have signal. Only the picked group is revealed to the model, as in a run. The model is
a logistic regression, updated after every group, over the task and its level, and within each task
over the question: its length, its numbers and their size, and its words, hashed. Prints the share
with signal of the picked groups, of all candidates, and of the best choice that hindsight allows.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from item_spread import signal_share

from reasoning_gym_environment.problems.seeds import redrawn_seed
from reasoning_gym_environment.problems.stream import ProblemStream
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Problem, Recipe, Signal, recipe_key
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.storage.rows import StoredGroup

CANDIDATES = 4
BUCKETS = 256
"""Of hashed words, by task."""

PRIOR_PRECISION = 1.0
FORGETTING = 0.998
"""By which older evidence counts less after a group: the policy learns."""


class OnlineLogistic:
    """A Bayesian logistic regression with a diagonal Gaussian posterior, one step for a result."""

    def __init__(self) -> None:
        self._weights: dict[str, tuple[float, float]] = {}

    def probability(self, features: dict[str, float]) -> float:
        """Return the probability of signal, shrunk by its uncertainty (MacKay 1992)."""
        known = [(value, *self._of(name)) for name, value in features.items()]
        score = sum(value * mean for value, mean, _ in known)
        variance = sum(value**2 / precision for value, _, precision in known)
        return 1 / (1 + math.exp(-score / math.sqrt(1 + math.pi * variance / 8)))

    def learn(self, features: dict[str, float], signal: bool) -> None:
        score = sum(value * self._of(name)[0] for name, value in features.items())
        share = 1 / (1 + math.exp(-score))
        for name, value in features.items():
            mean, precision = self._of(name)
            precision = max(PRIOR_PRECISION, FORGETTING * precision)
            precision += share * (1 - share) * value**2
            self._weights[name] = (mean + (signal - share) * value / precision, precision)

    def _of(self, name: str) -> tuple[float, float]:
        return self._weights.get(name, (0.0, PRIOR_PRECISION))


class Scales:
    """Running means and deviations of features, by name."""

    def __init__(self) -> None:
        self._sums: dict[str, npt.NDArray[np.float64]] = {}

    def standardized(self, values: dict[str, float]) -> dict[str, float]:
        scaled = {}
        for name, value in values.items():
            sums = self._sums.setdefault(name, np.array([1.0, 0.0, 1.0]))
            sums += (1.0, value, value**2)
            mean = sums[1] / sums[0]
            deviation = math.sqrt(max(sums[2] / sums[0] - mean**2, 1e-6))
            scaled[name] = (value - mean) / deviation
        return scaled


def measures(task: str, question: str) -> dict[str, float]:
    """Return what a question tells before any rollout, by task."""
    numbers = [float(text) for text in re.findall(r"\d{1,9}", question)] or [0.0]
    told = {
        "length": math.log(len(question)),
        "words": math.log1p(len(question.split())),
        "lines": float(question.count("\n")),
        "numbers": float(len(numbers)),
        "largest": math.log1p(max(numbers)),
        "different words": len(set(question.split())) / len(question.split()),
    }
    return {f"{task} {name}": value for name, value in told.items()}


def words(task: str, question: str) -> dict[str, float]:
    """Return the words of a question as hashed features of unit length, by task."""
    buckets = {zlib.crc32(word.encode()) % BUCKETS for word in question.split()}
    return {f"{task} word {bucket}": len(buckets) ** -0.5 for bucket in sorted(buckets)}


def features(task: str, level: int | None, question: str, scales: Scales) -> dict[str, float]:
    """Return the features of a question for the model."""
    return {
        "any": 1.0,
        task: 1.0,
        f"{task} level {level}": 1.0,
        **scales.standardized(measures(task, question)),
        **words(task, question),
    }


def replay(groups: Sequence[StoredGroup]) -> tuple[list[StoredGroup], list[float]]:
    """Return the picked groups, and the shares with signal that hindsight could have reached."""
    model, scales = OnlineLogistic(), Scales()
    picked, possible = [], []
    for begin in range(0, len(groups) - CANDIDATES + 1, CANDIDATES):
        among = groups[begin : begin + CANDIDATES]
        told = [
            features(group.task, group.recipe.level, group.prompt[-1]["content"], scales)
            for group in among
        ]
        chances = [model.probability(each) for each in told]
        best = chances.index(max(chances))
        model.learn(told[best], among[best].signal is Signal.MIXED)
        picked.append(among[best])
        possible.append(float(any(group.signal is Signal.MIXED for group in among)))
    return picked, possible


def choose_among(count: int) -> None:
    """Let the environment of this process choose each fresh problem among `count` candidates."""
    model, scales = OnlineLogistic(), Scales()
    asked: dict[str, dict[str, float]] = {}
    make, record = ProblemStream.make, TrainingProblems.record

    async def choose(stream: ProblemStream, recipe: Recipe) -> Problem | None:
        if stream._sampler.is_asked_again(recipe):
            return await make(stream, recipe)
        recipes = [recipe]
        while len(recipes) < count:
            recipes.append(replace(recipe, seed=redrawn_seed(recipes[-1].seed)))
        made = await asyncio.gather(*(make(stream, each) for each in recipes))
        problems = [problem for problem in made if problem is not None]
        if not problems:
            return None
        told = [features(recipe.task, recipe.level, each.question, scales) for each in problems]
        chances = [model.probability(each) for each in told]
        best = chances.index(max(chances))
        asked[recipe_key(problems[best].recipe)] = told[best]
        return problems[best]

    def learn(problems: TrainingProblems, recipe: Recipe, *, solved: int, scored: int) -> None:
        told = asked.pop(recipe_key(recipe), None)
        if told is not None and scored:
            model.learn(told, 0 < solved < scored)
        record(problems, recipe, solved=solved, scored=scored)

    ProblemStream.make = choose  # type: ignore[method-assign]  # an arm of an ablation
    TrainingProblems.record = learn  # type: ignore[method-assign]  # as above


def fresh_only(groups: Iterable[StoredGroup]) -> list[StoredGroup]:
    """Leave out groups whose problem was asked before."""
    first: dict[tuple[str, int], StoredGroup] = {}
    for group in groups:
        first.setdefault((group.task, group.recipe.seed), group)
    return list(first.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+")
    groups = fresh_only(read_report_data(parser.parse_args().dumps).groups)
    picked, possible = replay(groups)
    half = len(picked) // 2
    print(f"{len(groups)} fresh groups, {CANDIDATES} candidates each")
    print(
        f"with signal: {signal_share(groups):.3f} of all, {signal_share(picked):.3f} of the picked"
    )
    print(f"second half: {signal_share(groups[len(groups) // 2 :]):.3f}, ", end="")
    print(f"{signal_share(picked[half:]):.3f}; with hindsight {np.mean(possible):.3f}")
