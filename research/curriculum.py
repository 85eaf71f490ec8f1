"""Compare the curriculum and sampling by signal with other rules, on simulated learners.

    python research/curriculum.py [--seeds 5] [--plot research/curriculum.svg] [--read-ladders]

The heights of the ladders come from ladder_heights.json; `--read-ladders` only writes that file,
from the installed library. research/curriculum.md has the figures and the assumptions about
learners.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

from curriculum_rules import RLVE, AdaRFT, FastWeightedUpDown, Kesten, WeightedUpDown
from simulation import Group, Rule, Setting, simulate

from reasoning_gym_environment.demo.policy import Learner
from reasoning_gym_environment.problems.levels import (
    Curriculum,
    DefaultLevels,
    LevelPolicy,
    RandomLevels,
)
from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.records import Ladder
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

HEIGHTS = Path(__file__).with_name("ladder_heights.json")
LEARNERS = ("fixed", "rising", "jump")
IN_FLIGHT = 64


class Oracle(LevelPolicy):
    """A rule that knows where a constant learner solves the target share."""

    def __init__(
        self, ladders: Mapping[str, Ladder], learner: Learner, target: float
    ) -> None:
        super().__init__(ladders)
        self._places = {
            task: self._place(
                [
                    learner.solved_share(task, level, len(ladder))
                    for level in range(len(ladder))
                ],
                target,
            )
            for task, ladder in ladders.items()
        }

    @staticmethod
    def _place(shares: Sequence[float], target: float) -> float:
        for level, (share, harder) in enumerate(pairwise(shares)):
            if harder < target:
                return level + max(0.0, (share - target) / (share - harder))
        return len(shares) - 1.0

    def level(self, task: str, uniform: float) -> int:
        place = self._places[task]
        return int(place) + (uniform < place % 1)


MODES: dict[str, tuple[Rule, bool]] = {
    "unset": (lambda ladders, learner: DefaultLevels(), False),
    "unset, signal": (lambda ladders, learner: DefaultLevels(), True),
    "random": (lambda ladders, learner: RandomLevels(ladders), False),
    "random, signal": (lambda ladders, learner: RandomLevels(ladders), True),
    "curriculum": (lambda ladders, learner: Curriculum(ladders), False),
    "curriculum, signal": (lambda ladders, learner: Curriculum(ladders), True),
}

RULES: dict[str, Rule] = {
    "ours": lambda ladders, learner: Curriculum(ladders),
    "weighted up-down, gain 0.3": lambda ladders, learner: WeightedUpDown(ladders),
    "weighted up-down, gain 0.6": lambda ladders, learner: FastWeightedUpDown(ladders),
    "Kesten": lambda ladders, learner: Kesten(ladders),
    "AdaRFT": lambda ladders, learner: AdaRFT(ladders),
    "RLVE": lambda ladders, learner: RLVE(ladders),
}


def later(groups: Sequence[Group]) -> Sequence[Group]:
    """Take the second half of a run."""
    return groups[len(groups) // 2 :]


def signal(groups: Sequence[Group]) -> float:
    """Measure the share of groups with signal in the second half."""
    return statistics.mean(group.mixed for group in later(groups))


def held(groups: Sequence[Group]) -> float:
    """Measure the solved share in the second half, of tasks whose ladder holds the target."""
    return statistics.mean(group.solved / 8 for group in later(groups) if group.inside)


def off_at_30(groups: Sequence[Group], target: float = 0.7) -> float:
    """Measure the distance from the target after 30 groups of a task; median over tasks."""
    return statistics.median(
        abs(group.share - target)
        for group in groups
        if group.number == 29 and group.inside
    )


def off_first(groups: Sequence[Group]) -> float:
    """Measure the mean distance from the target over the first 20 groups of each task."""
    return statistics.mean(
        abs(group.share - 0.7) for group in groups if group.number < 20 and group.inside
    )


def off_later(groups: Sequence[Group]) -> float:
    """Measure the mean distance from the target in the second half."""
    return statistics.mean(
        abs(group.share - 0.7) for group in later(groups) if group.inside
    )


def travel(groups: Sequence[Group]) -> float:
    """Measure the levels moved per group in the second half: noise, if skills are constant."""
    last: dict[str, float] = {}
    steps = []
    for group in later(groups):
        steps.append(abs(group.level - last.get(group.task, group.level)))
        last[group.task] = group.level
    return statistics.mean(steps)


def spread(values: Sequence[float]) -> str:
    """Write the mean and the standard deviation over the seeds."""
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def header(*cells: str) -> None:
    print()
    row(*cells)
    row(*["---"] * len(cells))


def compare_modes(heights: Mapping[str, int], seeds: Iterable[int]) -> None:
    """Compare the share of groups with signal in every mode."""
    header("learner", *MODES)
    for learner in LEARNERS:
        setting = Setting(learner=learner, in_flight=IN_FLIGHT)
        cells = [
            spread(
                [
                    signal(
                        simulate(rule, replace(setting, by_signal=on), heights, seed)
                    )
                    for seed in seeds
                ]
            )
            for rule, on in MODES.values()
        ]
        row(learner, *cells)


def compare_rules(heights: Mapping[str, int], seeds: Iterable[int]) -> None:
    """Compare how near each rule comes to the target, and how much it moves."""
    measures = (off_first, off_at_30, off_later, travel, signal)
    settings = {
        learner: Setting(learner=learner, in_flight=IN_FLIGHT) for learner in LEARNERS
    } | {
        "fixed, steep, alike": Setting(in_flight=IN_FLIGHT, width=1.0, item_spread=0.5)
    }
    header("learner", "rule", *(m.__name__ for m in measures))
    for learner, setting in settings.items():
        for name, rule in RULES.items():
            runs = [simulate(rule, setting, heights, seed) for seed in seeds]
            cells = [spread([measure(run) for run in runs]) for measure in measures]
            row(learner, name, *cells)


def early_signal(groups: Sequence[Group]) -> float:
    """Measure the share of groups with signal in the first half."""
    return statistics.mean(group.mixed for group in groups[: len(groups) // 2])


def compare_replicas(heights: Mapping[str, int], seeds: Iterable[int]) -> None:
    """Measure what it costs that each of several replicas learns from its own groups alone."""
    measures = (off_first, off_at_30, off_later, early_signal, signal)
    header("learner", "replicas", *(m.__name__ for m in measures))
    for learner, replicas in product(LEARNERS, (1, 2, 4, 8, 16)):
        setting = Setting(
            learner=learner, in_flight=IN_FLIGHT, replicas=replicas, by_signal=True
        )
        runs = [simulate(RULES["ours"], setting, heights, seed) for seed in seeds]
        cells = [spread([measure(run) for run in runs]) for measure in measures]
        row(learner, str(replicas), *cells)


def vary_assumptions(heights: Mapping[str, int], seeds: Iterable[int]) -> None:
    """Try other learners and targets; and what a rule that knows the learner would reach."""
    header(
        "steps, item spread, target",
        "unset",
        "random, signal",
        "curriculum",
        "curriculum, signal",
        "knowing the learner, signal",
        "solved: curriculum",
        "solved: with signal",
        "off at 30: with signal",
    )
    plain = Setting(in_flight=IN_FLIGHT)
    for setting in (
        plain,
        *(replace(plain, width=width) for width in (0.25, 1.0)),
        *(replace(plain, item_spread=item_spread) for item_spread in (0.5, 5.0)),
        replace(plain, item_spread=0.5, width=1.0),
        replace(plain, target=0.5),
    ):
        row(*_assumption_row(setting, heights, seeds))


def _assumption_row(
    setting: Setting, heights: Mapping[str, int], seeds: Iterable[int]
) -> list[str]:
    target = setting.target

    def runs(rule: Rule, *, by_signal: bool) -> list[list[Group]]:
        chosen = replace(setting, by_signal=by_signal)
        return [simulate(rule, chosen, heights, seed) for seed in seeds]

    unset = runs(lambda ladders, learner: DefaultLevels(), by_signal=False)
    anywhere = runs(lambda ladders, learner: RandomLevels(ladders), by_signal=True)
    plain = runs(lambda ladders, learner: Curriculum(ladders, target), by_signal=False)
    chosen = runs(lambda ladders, learner: Curriculum(ladders, target), by_signal=True)
    best = runs(
        lambda ladders, learner: Oracle(ladders, learner, target), by_signal=True
    )
    return [
        f"{1.5 * setting.width:g} to {3 * setting.width:g}, {setting.item_spread:g}, {target:g}",
        *(
            spread([signal(run) for run in group])
            for group in (unset, anywhere, plain, chosen, best)
        ),
        *(spread([held(run) for run in group]) for group in (plain, chosen)),
        spread([off_at_30(run, target) for run in chosen]),
    ]


def one_task(seeds: Iterable[int]) -> None:
    """Simulate one task alone, so that everything in flight is its own."""
    header(
        "height",
        "in flight",
        "off after 30 groups",
        "after 30 and those in flight",
        "later",
    )
    for height in (4, 10):
        for in_flight in (0, 8, 64, 128):
            setting = Setting(in_flight=in_flight, groups_per_task=400)
            runs = [
                simulate(RULES["ours"], setting, {"only": height}, seed)
                for seed in range(8 * len(list(seeds)))
            ]
            inside = [run for run in runs if run[0].inside]
            cells = [
                statistics.median(abs(run[number].share - 0.7) for run in inside)
                for number in (29, 29 + in_flight)
            ]
            cells.append(statistics.mean(off_later(run) for run in inside))
            row(str(height), str(in_flight), *(f"{cell:.3f}" for cell in cells))


def measure_cost(heights: Mapping[str, int]) -> None:
    """Time the choice of the next recipe, at the start and after a million draws with results."""
    ladders: dict[str, Ladder] = {
        task: ({},) * height for task, height in heights.items()
    }
    header("sampling", "draws before", "µs a draw: mean", "99th percentile", "longest")
    for name, by_signal in (("uniform", False), ("signal", True)):
        sampler = Sampler(
            dict.fromkeys(heights, 1.0),
            run_seed=1,
            replica="0",
            levels=Curriculum(ladders),
            by_signal=by_signal,
        )
        times: list[float] = []
        for draw in range(1_005_000):
            begin = time.perf_counter()
            recipe = sampler.next_recipe()
            times.append(1e6 * (time.perf_counter() - begin))
            sampler.report_result(recipe, solved=draw % 9, scored=8)
        for first in (0, 100_000, 1_000_000):
            ordered = sorted(times[first : first + 5000])
            row(
                name,
                f"{first:,}",
                f"{statistics.mean(ordered):.0f}",
                f"{ordered[int(0.99 * len(ordered))]:.0f}",
                f"{ordered[-1]:.0f}",
            )


def read_ladders() -> dict[str, int]:
    """Read the heights of the installed library's ladders."""

    async def heights() -> dict[str, int]:
        async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
            ladders = await pool.ladders()
        return {task: len(ladder.levels) for task, ladder in ladders.items()}

    return asyncio.run(heights())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--read-ladders", action="store_true")
    options = parser.parse_args()
    if options.read_ladders:
        HEIGHTS.write_text(
            json.dumps(read_ladders(), indent=1) + "\n", encoding="utf-8"
        )
        return
    heights: dict[str, int] = json.loads(HEIGHTS.read_text(encoding="utf-8"))
    if options.plot:
        from curriculum_plot import plot  # matplotlib is needed for nothing else

        plot(options.plot, heights, MODES)
        return
    seeds = range(1, options.seeds + 1)
    compare_modes(heights, seeds)
    compare_rules(heights, seeds)
    vary_assumptions(heights, seeds)
    one_task(seeds)
    measure_cost(heights)
    compare_replicas(heights, seeds)


if __name__ == "__main__":
    main()
