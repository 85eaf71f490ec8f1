"""Other rules for a task's level, to compare the curriculum's with."""

from __future__ import annotations

import math
from collections.abc import Mapping

from reasoning_gym_environment.problems.levels import LevelPolicy, level_at
from reasoning_gym_environment.records import Ladder

TARGET = 0.7


class Steps(LevelPolicy):
    """A position per task that every result moves by some step; results from elsewhere don't.

    Steps are in levels of a ladder of four; on other ladders they are scaled to its height.
    """

    def __init__(self, ladders: Mapping[str, Ladder]) -> None:
        super().__init__(ladders)
        self.positions = {task: top / 2 for task, top in self._tops.items()}

    def level(self, task: str, uniform: float) -> int:
        return level_at(self.positions[task], uniform)

    def counts(self, task: str, level: int | None) -> bool:
        position = self.positions[task]
        return level in (math.floor(position), math.ceil(position))

    def step(self, task: str, surplus: float) -> float:
        raise NotImplementedError

    def report_result(
        self, task: str, level: int | None, *, solved: int, scored: int
    ) -> str | None:
        if not self.counts(task, level):
            return None
        top = self._tops[task]
        before = self.positions[task]
        step = self.step(task, solved / scored - TARGET) * top / 3
        after = min(max(0.0, before + step), float(top))
        self.positions[task] = after
        return f"{task}: level {before:.2f} -> {after:.2f} of {top}"


class WeightedUpDown(Steps):
    """Kaernbach's weighted up-down staircase, each answer a trial.

    An answer moves up by s * (1 - target) or down by s * target, so a group of n moves by
    s * n * (share - target): the same as Robbins and Monro with a constant gain.
    """

    gain = 0.3

    def step(self, task: str, surplus: float) -> float:
        return self.gain * surplus


class FastWeightedUpDown(WeightedUpDown):
    """The weighted up-down staircase with twice the gain."""

    gain = 0.6


class Kesten(Steps):
    """Kesten's accelerated stochastic approximation: the gain falls at each change of side."""

    def __init__(self, ladders: Mapping[str, Ladder]) -> None:
        super().__init__(ladders)
        self._last = dict.fromkeys(ladders, 0.0)
        self._changes = dict.fromkeys(ladders, 0)

    def step(self, task: str, surplus: float) -> float:
        self._changes[task] += surplus * self._last[task] < 0
        self._last[task] = surplus
        return 1.2 / min(8, 1 + self._changes[task]) * surplus


class AdaRFT(Steps):
    """AdaRFT's update of the target difficulty, step * tanh(2 * (reward - target)).

    As published, every result moves it, wherever it comes from.
    """

    def counts(self, task: str, level: int | None) -> bool:
        return True

    def step(self, task: str, surplus: float) -> float:
        return 0.2 * math.tanh(2 * surplus)


class RLVE(LevelPolicy):
    """RLVE's window of levels that moves up when the highest one is solved.

    LevelPolicy are drawn from the four up to the highest reached; when nine in ten of 64 answers
    at the highest are right, the next one opens. It never goes down.
    """

    def __init__(self, ladders: Mapping[str, Ladder]) -> None:
        super().__init__(ladders)
        self._highest = dict.fromkeys(ladders, 0)
        self._answers = {task: [0, 0] for task in ladders}

    def level(self, task: str, uniform: float) -> int:
        highest = self._highest[task]
        lowest = max(0, highest - 3)
        return lowest + int(uniform * (highest - lowest + 1))

    def report_result(
        self, task: str, level: int | None, *, solved: int, scored: int
    ) -> str | None:
        if level != self._highest[task]:
            return None
        answers = self._answers[task]
        answers[0] += solved
        answers[1] += scored
        if answers[1] >= 64:
            passed = answers[0] >= 0.9 * answers[1]
            self._highest[task] = min(self._highest[task] + passed, self._tops[task])
            self._answers[task] = [0, 0]
        return None
