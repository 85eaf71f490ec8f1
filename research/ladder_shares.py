"""How much of each level does a small model solve that has learned all levels equally?

    python research/ladder_shares.py FOLDER [--passes 10] [--tasks gcd,lcm]

Trains the model of `examples/learn` on demonstrations of every level of the tasks whose questions
fit it, then asks other items of each level, greedily. Writes ladder-shares.csv into FOLDER, and
prints where a higher level is solved more often, beyond noise. Needs `pip install '.[learn]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "learn"))

import cold_start
import torch
from cold_start import Example
from distinct_items import made
from model import Policy, build_model, build_tokenizer

from reasoning_gym_environment.evaluation.estimators import Estimate, share
from reasoning_gym_environment.problems.seeds import evaluation_seed, training_seed
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import (
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.tasks.facts import solved_score
from reasoning_gym_environment.util.progress import with_progress

SEED = 0
DEMONSTRATIONS = 80
"""Of each level."""

HELD_OUT = 60
"""Items of each level."""

MOST_TOKENS = 120
"""Of a question and its answer: the model has 128 positions."""

MOST_CHARACTERS = 250
"""Mean length of the questions of a level that may fit."""

MOST_SECONDS = 0.05
"""Mean time to make an item of a level that is asked."""

SAMPLED_TOGETHER = 128

TABLE = Path(__file__).resolve().parents[1] / "docs" / "difficulty-levels.csv"

Level = tuple[str, int]
"""A task and its level."""


class Items(NamedTuple):
    """The items of a level: to learn from, and to ask."""

    learned: list[Problem]
    asked: list[Problem]


def short_levels(tasks: Sequence[str]) -> list[Level]:
    """Return the levels with short questions of tasks that have several."""
    found: defaultdict[str, list[Level]] = defaultdict(list)
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            is_short = float(row["characters"]) <= MOST_CHARACTERS
            is_quick = float(row["mean s"]) <= MOST_SECONDS
            if is_short and is_quick and (not tasks or row["task"] in tasks):
                found[row["task"]].append((row["task"], int(row["level"])))
    return [level for own in found.values() if len(own) > 1 for level in own]


async def draw(pool: TaskPool, levels: Sequence[Level]) -> dict[Level, Items]:
    """Draw the items of levels; those that can't be made are left out."""
    ladders = await pool.ladders()
    generate = skip_faulty(pool.generate, Counter())
    places = asyncio.Semaphore(default_processes())

    async def items(level: Level, seeds: Sequence[int]) -> list[Problem]:
        task, number = level
        parameters = ladders[task].levels[number]
        recipes = [
            Recipe(task=task, seed=seed, level=number, parameters=parameters)
            for seed in seeds
        ]
        return await made(generate, recipes)

    async def one(level: Level) -> Items:
        task, number = level
        learned = [
            training_seed(SEED, str(number), task, n) for n in range(DEMONSTRATIONS)
        ]
        asked = [evaluation_seed(SEED, task, n, number) for n in range(HELD_OUT)]
        async with places:
            return Items(await items(level, learned), await items(level, asked))

    drawn = await with_progress([one(level) for level in levels], "levels")
    return dict(zip(levels, drawn, strict=True))


def prompt(problem: Problem) -> dict[str, str]:
    return {"role": "user", "content": problem.question}


def answered(problem: Problem) -> dict[str, str]:
    return {"role": "assistant", "content": problem.oracle or ""}


def learn(items: Mapping[Level, Items], folder: Path, passes: int) -> Policy:
    """Train a new model on all that the levels have to learn from."""
    demonstrations = [
        [prompt(one), answered(one)]
        for own in items.values()
        for one in own.learned
        if one.oracle is not None
    ]
    texts = [message["content"] for pair in demonstrations for message in pair]
    tokenizer = build_tokenizer(texts, folder / "tokenizer")
    encoded = [cold_start.encode(pair, tokenizer) for pair in demonstrations]
    examples: list[Example] = [one for one in encoded if length(one) <= MOST_TOKENS]
    policy = Policy(build_model(len(tokenizer), SEED), tokenizer)
    print(f"{len(examples)} of {len(encoded)} demonstrations fit", flush=True)
    cold_start.train(policy, examples, passes=passes, seed=SEED)
    return policy


def length(example: Example) -> int:
    """Return the tokens of a question and its answer."""
    question, answer = example
    return len(question) + len(answer)


async def ask(pool: TaskPool, policy: Policy, problems: Sequence[Problem]) -> Estimate:
    """Return the share of problems that the greedy answers of the policy solve."""
    solved: list[list[float]] = []
    for begin in range(0, len(problems), SAMPLED_TOGETHER):
        some = problems[begin : begin + SAMPLED_TOGETHER]
        for problem, answer in zip(some, answers(policy, some), strict=True):
            [verdict] = await pool.verify(problem, [answer])
            right = (verdict.score or 0.0) >= solved_score(problem.recipe.task)
            solved.append([float(right)])
    return share(solved)


def answers(policy: Policy, problems: Sequence[Problem]) -> list[str]:
    """Return an answer to each problem; an empty one where question and answer do not fit."""
    encoded = [
        cold_start.encode([prompt(one), answered(one)], policy.tokenizer)
        for one in problems
    ]
    fitting = [n for n, one in enumerate(encoded) if length(one) <= MOST_TOKENS]
    texts = [""] * len(problems)
    if fitting:
        samples = policy.sample(
            [encoded[n][0] for n in fitting],
            max_tokens=max(len(encoded[n][1]) for n in fitting) + 1,
            temperature=0.0,
        )
        for n, sample in zip(fitting, samples, strict=True):
            texts[n] = policy.tokenizer.decode(sample.tokens, skip_special_tokens=True)
    return texts


def rising(shares: Mapping[Level, Estimate]) -> list[str]:
    """Return a line for each pair of a task's levels of which the higher is solved more often."""
    lines = []
    for (lower, easy), (higher, hard) in combinations(shares.items(), 2):
        if lower[0] == higher[0] and hard.low > easy.high:
            lines.append(
                f"{lower[0]}: level {higher[1]} {hard.value:.2f}, level {lower[1]} {easy.value:.2f}"
            )
    return lines


async def main(folder: Path, tasks: Sequence[str], passes: int) -> None:
    """Draw, learn, ask, and write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:
        items = await draw(pool, short_levels(tasks))
        policy = await asyncio.to_thread(learn, items, folder, passes)
        shares = {
            level: await ask(pool, policy, own.asked) for level, own in items.items()
        }
    with (folder / "ladder-shares.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("task", "level", "items", "solved", "low", "high"))
        for (task, level), solved in shares.items():
            numbers = (f"{x:.3f}" for x in (solved.value, solved.low, solved.high))
            writer.writerow((task, level, len(items[task, level].asked), *numbers))
    print("\n".join(rising(shares)) or "no higher level is solved more often")


if __name__ == "__main__":
    torch.manual_seed(SEED)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", default="", help="names, separated by commas")
    parser.add_argument("--passes", type=int, default=10, help="over demonstrations")
    options = parser.parse_args()
    names = [name for name in options.tasks.split(",") if name]
    asyncio.run(main(options.folder, names, options.passes))
