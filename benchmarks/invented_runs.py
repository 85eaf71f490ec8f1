"""Invent runs with one fault and healthy ones, and count what the figures of a run show of them.

Of a run with a fault: in which row of the table of all tasks, or of the table of tasks, the injured
measure or task stands. Of a healthy run: whether any row is marked. Seeds and the places of faults
are drawn anew with `--seed`.

    python benchmarks/invented_runs.py
    python benchmarks/invented_runs.py --seed 7 --faults 5 --healthy 20
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from reasoning_gym_environment.records import Recipe, Status
from reasoning_gym_environment.rollouts.figures import RunFigures
from reasoning_gym_environment.storage.rows import StoredGroup, StoredRollout

LIMIT = 1024
"""Tokens of a completion; a longer one is truncated."""

STEP = 0.6
"""Log-odds by which a level is harder than the one below."""

SICK = "t0"
"""The task of faults that one task has."""

ROWS_OF_ALL, ROWS_OF_TASKS = 3, 4
"""Within how many rows an injured measure or task should stand."""


@dataclass
class Policy:
    """How the policy answers one problem; a fault changes it.

    Attributes:
        log_odds: of a right answer.
        tokens: the median length of a completion.
        silent: the probability of no answer.
        unscored: the probability of no score.
        hack: whether it writes twelve tokens that the verifier takes for right.
    """

    log_odds: float
    tokens: float = 350.0
    silent: float = 0.02
    unscored: float = 0.0
    hack: bool = False


Fault = Callable[[Policy, float], None]
"""Changes a policy by how far the fault has come, from 0 to 1."""


@dataclass(frozen=True)
class Plan:
    """A run to invent.

    Attributes:
        learns: log-odds that the policy gains from the first group to the last.
        wanders: the standard deviation of a slow random walk of its log-odds.
        grows: by how often a completion is longer at the end.
        curriculum: whether levels follow what is solved.
        climbs: levels by which problems get harder until the end, whatever is solved.
        prefers: whether problems come rather from tasks of which half is solved.
        measure: that the fault injures; empty without one.
        task: whether the fault is of one task.
        gradual: the share of the run in which a fault comes; 0 for at once.
        ends: whether the fault is over after a tenth of the run.
    """

    tasks: int = 20
    groups: int = 1200
    attempts: int = 8
    learns: float = 0.8
    wanders: float = 0.0
    grows: float = 1.0
    curriculum: bool = False
    climbs: int = 0
    prefers: bool = False
    fault: Fault | None = None
    measure: str = ""
    task: bool = False
    gradual: float = 0.0
    ends: bool = False


class Ladder:
    """A task's level: it rises with what is solved and falls with what is not."""

    def __init__(self) -> None:
        self.level = 1
        self._recent: list[float] = []

    def learn(self, solved: float) -> None:
        self._recent = [*self._recent[-3:], solved]
        mean = sum(self._recent) / 4
        if len(self._recent) == 4 and (mean > 0.7 or (mean < 0.3 and self.level)):
            self.level += 1 if mean > 0.7 else -1
            self._recent = []


def invent(plan: Plan, seed: object) -> Iterator[StoredGroup]:
    """Yield the groups of a run, in their order."""
    rng = random.Random(f"{seed} {plan.measure}")
    names = [f"t{number}" for number in range(plan.tasks)]
    talents = {task: rng.gauss(0.2, 0.7) for task in names}
    ladders = {task: Ladder() for task in names}
    shares = dict.fromkeys(names, 0.5)
    begin = rng.uniform(0.3, 0.8)
    walk = 0.0
    for number in range(1, plan.groups + 1):
        weights = [shares[t] * (1 - shares[t]) + 0.05 for t in names]
        [task] = rng.choices(names, weights if plan.prefers else None)
        along = number / plan.groups
        walk += (
            rng.gauss(0, 4 * plan.wanders / math.sqrt(plan.groups))
            - 8 * walk / plan.groups
        )
        # Tasks climb one after another.
        level = 1 + int(plan.climbs * along + names.index(task) / plan.tasks)
        if plan.curriculum:
            level = ladders[task].level
        policy = Policy(
            log_odds=talents[task]
            + plan.learns * along
            + walk
            - STEP * (level - 1)
            + rng.gauss(0, 1),
            tokens=350
            * plan.grows**along
            * 1.1 ** (level - 1)
            * math.exp(rng.gauss(0, 0.2)),
        )
        if plan.fault is not None and (task == SICK or not plan.task):
            plan.fault(policy, how_far(plan, along, begin))
        rollouts = [rollout(policy, rng) for _ in range(plan.attempts)]
        solved = sum(each.solved for each in rollouts) / plan.attempts
        ladders[task].learn(solved)
        shares[task] += 0.2 * (solved - shares[task])
        recipe = Recipe(task=task, seed=2 * number, level=level)
        yield StoredGroup(rollouts=rollouts, recipe=recipe, oracle="1", number=number)


def how_far(plan: Plan, along: float, begin: float) -> float:
    """Return how far a fault has come, from 0 to 1."""
    if along < begin or (plan.ends and along > begin + 0.1):
        return 0.0
    return min(1.0, (along - begin) / plan.gradual) if plan.gradual else 1.0


def rollout(policy: Policy, rng: random.Random) -> StoredRollout:
    """Return one rollout."""
    tokens = (
        12
        if policy.hack
        else max(1, round(policy.tokens * rng.lognormvariate(0, 0.35)))
    )
    is_cut = tokens >= LIMIT
    is_silent = is_cut or rng.random() < policy.silent
    is_right = policy.hack or rng.random() < 1 / (1 + math.exp(-policy.log_odds))
    status = (
        Status.NO_ANSWER if is_silent else Status.SOLVED if is_right else Status.WRONG
    )
    if rng.random() < policy.unscored:
        status = Status.UNSCORED
    score = float(status is Status.SOLVED)
    return StoredRollout(
        conversation=[{"role": "assistant", "content": "…"}],
        score=score,
        answer=None if is_silent else "1",
        status=status,
        detail="",
        raw_score=None if status is Status.UNSCORED else score,
        raw_form_score=None,
        tagged_form_score=None,
        length_factor=1.0,
        finish_reason="length" if is_cut else "stop",
        tokens=100 + min(tokens, LIMIT),
        completion_tokens=min(tokens, LIMIT),
    )


def falls(points: float) -> Fault:
    """Lose so many points of a share of about a half."""

    def fault(policy: Policy, far: float) -> None:
        # A logistic curve, averaged over problems, is flatter than that of one problem.
        policy.log_odds -= far * points / 0.18

    return fault


def loses_format(policy: Policy, far: float) -> None:
    policy.silent += far * 0.4


def is_longer(policy: Policy, far: float) -> None:
    policy.tokens *= 1 + 0.8 * far


def is_truncated(policy: Policy, far: float) -> None:
    policy.tokens *= 1 + 3 * far


def hacks(policy: Policy, far: float) -> None:
    policy.hack = far > 0


def forgets(policy: Policy, far: float) -> None:
    policy.log_odds -= 6 * far


def is_out(policy: Policy, far: float) -> None:
    policy.unscored += 0.6 * far


def is_another_model(policy: Policy, far: float) -> None:
    policy.log_odds -= 1.2 * far
    policy.tokens *= 1 - 0.5 * far


def fault_plans() -> dict[str, Plan]:
    """Return the runs with a fault by their name."""
    plans: dict[str, Plan] = {}
    for points in (15, 20, 30):
        fall = Plan(fault=falls(points / 100), measure="solved")
        name = f"fall by {points} points"
        plans[name] = fall
        plans[f"{name}, levels climb"] = replace(fall, climbs=3)
        plans[f"{name}, curriculum"] = replace(fall, curriculum=True)
    faults = {
        "format": (loses_format, "missing"),
        "length": (is_longer, "length"),
        "truncation": (is_truncated, "truncated"),
        "hack": (hacks, "length"),
        "other model": (is_another_model, "solved"),
    }
    for name, (fault, measure) in faults.items():
        plans[name] = Plan(fault=fault, measure=measure)
        plans[f"{name}, curriculum"] = replace(plans[name], curriculum=True)
    for name in ("format", "length", "truncation"):
        plans[f"{name}, gradual"] = replace(plans[name], gradual=0.2)
    plans["fall by 30 points, gradual"] = replace(
        plans["fall by 30 points"], gradual=0.2
    )
    plans["unscored"] = Plan(fault=is_out, measure="unscored")
    for tasks, groups in ((5, 1200), (20, 1200), (105, 8400)):
        size = Plan(tasks=tasks, groups=groups, task=True)
        plans[f"one of {tasks} forgets"] = replace(
            size, fault=forgets, measure="solved"
        )
        plans[f"one of {tasks} has no format"] = replace(
            size, fault=loses_format, measure="missing"
        )
        plans[f"one of {tasks} hacks"] = replace(size, fault=hacks, measure="length")
    return plans


def past_plans() -> dict[str, Plan]:
    """Return the runs with a fault that is over by their name."""
    over = Plan(ends=True)
    faults = {
        "unscored": (is_out, "unscored"),
        "format": (loses_format, "missing"),
        "fall": (forgets, "solved"),
    }
    return {
        f"{name}, over": replace(over, fault=fault, measure=measure)
        for name, (fault, measure) in faults.items()
    }


def healthy_plans() -> dict[str, Plan]:
    """Return twelve kinds of healthy runs by their name."""
    return {
        "plateau": Plan(learns=0.0),
        "learns": Plan(),
        "learns fast": Plan(learns=2.5),
        "five tasks": Plan(tasks=5),
        "105 tasks": Plan(tasks=105),
        "curriculum": Plan(curriculum=True),
        "curriculum, plateau": Plan(curriculum=True, learns=0.0),
        "curriculum, 105 tasks": Plan(curriculum=True, tasks=105, groups=2400),
        "prefers tasks with signal": Plan(prefers=True, learns=1.5),
        "wanders": Plan(wanders=0.15),
        "grows longer": Plan(grows=1.25),
        "short": Plan(groups=90, attempts=4),
    }


def figures_of(plan: Plan, seed: object) -> RunFigures:
    """Return the figures of an invented run."""
    figures = RunFigures()
    for group in invent(plan, seed):
        figures.add(group, "")
    return figures


def place_of(plan: Plan, figures: RunFigures) -> int:
    """Return in which row, from 1, the injured measure or task stands."""
    if plan.task:
        names = [row.task for row in figures.task_figures()]
        return names.index(SICK) + 1
    names = [row.measure for row in figures.all_figures()]
    return names.index(plan.measure) + 1


def marked_in(figures: RunFigures) -> list[str]:
    """Return the names of the marked rows of both tables."""
    of_all = [row.measure for row in figures.all_figures() if row.marked]
    of_tasks = [row.task for row in figures.task_figures() if row.marked]
    return of_all + of_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=3, help="runs of each fault")
    parser.add_argument(
        "--healthy", type=int, default=20, help="runs of each healthy kind"
    )
    options = parser.parse_args()
    for name, plan in fault_plans().items():
        runs = [figures_of(plan, (options.seed, n)) for n in range(options.faults)]
        places = [place_of(plan, run) for run in runs]
        marked = sum(bool(marked_in(run)) for run in runs)
        allowed = ROWS_OF_TASKS if plan.task else ROWS_OF_ALL
        missed = "" if max(places, default=0) <= allowed else "  BELOW"
        print(
            f"{name}: rows {places}, marked {marked} of {len(runs)}{missed}", flush=True
        )
    for name, plan in {**past_plans(), **healthy_plans()}.items():
        runs = [figures_of(plan, (options.seed, n)) for n in range(options.healthy)]
        marks = Counter(mark for run in runs for mark in marked_in(run))
        marked = sum(bool(marked_in(run)) for run in runs)
        tasks = [row.beyond for run in runs for row in run.task_figures()]
        beyond = f"{sum(tasks) / len(tasks):.1%} of tasks beyond noise"
        print(
            f"{name}: marked {marked} of {len(runs)} {dict(marks)}, {beyond}",
            flush=True,
        )


if __name__ == "__main__":
    main()
