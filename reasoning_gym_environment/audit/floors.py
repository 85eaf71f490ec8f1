"""Measures what a task pays without reasoning: for constants, and for copies of the question.

The best of hundreds of strategies is partly the luckiest. So it is chosen on some items and
measured on others, which nobody has looked at before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..errors import GenerationError
from ..evaluation.estimators import share
from ..problems.seeds import evaluation_recipes
from ..records import SOLVED_SCORE, Problem
from ..sandbox.pool import TaskPool
from ..tasks.chance_floors import Floor, Floors
from ..tasks.facts import EXECUTES_ANSWERS, SLOW_ON_WRONG_ANSWERS
from .probes import EMPTY, JUNK, constants_for
from .strategies import OWN_WORK, strategies

_SEED = 2
_CHOOSING_SHARE = 3
"""For so many items that are measured, everything is tried on one other, to choose from."""

_FEWER = dict.fromkeys(EXECUTES_ANSWERS, 8) | dict.fromkeys(SLOW_ON_WRONG_ANSWERS, 15)
"""Task to the divisor of the items to choose on: each answer has its own process, or is late."""

_SLOW = {"futoshiki": 2, "intermediate_integration": 3, "knight_swap": 3}
"""Task to the divisor of all its items: some take seconds to make or to score."""

Answers = Mapping[str, str]
"""Answers to one item: of constants by themselves, of strategies by their labels."""


async def find_floors(pool: TaskPool, task: str, items: int) -> Floors:
    """Search the constant and the strategy that solve most of a task's default items.

    Args:
        items: that are measured; what is measured is chosen on a third as many others.
    """
    items = math.ceil(items / _SLOW.get(task, 1))
    choosing = math.ceil(items / _CHOOSING_SHARE / _FEWER.get(task, 1))
    problems = await _problems(pool, task, choosing + items)
    first, others = problems[:choosing], problems[choosing:]
    constants = constants_to_try(
        [problem.oracle for problem in first if problem.oracle is not None]
    )
    tried = [await _scores(pool, one, constants, _copies(one)) for one in first]
    constant, strategy = map(best, zip(*tried, strict=True)) if tried else ("", "")
    measured = [
        await _scores(pool, one, {constant: constant}, _only(strategy, _copies(one)))
        for one in others
    ]
    return Floors(
        chance=floor(constant, [scores for scores, _ in measured]),
        no_reasoning=floor(strategy, [scores for _, scores in measured]),
    )


def _copies(problem: Problem) -> Answers:
    """Answer without reasoning, but for what is the task itself: adding, where it asks for sums."""
    own_work = OWN_WORK.get(problem.recipe.task, ())
    answers = strategies(problem.question)
    return {label: text for label, text in answers.items() if not label.startswith(own_work)}


def _only(label: str, answers: Answers) -> Answers:
    return {label: answers[label]} if label in answers else {}


async def _problems(pool: TaskPool, task: str, count: int) -> list[Problem]:
    """Make problems, others for those that can't be made: the audit tells of these elsewhere."""
    problems: list[Problem] = []
    for recipe in evaluation_recipes(_SEED, [task], 2 * count):
        if len(problems) == count:
            break
        try:
            problems.append(await pool.generate(recipe))
        except GenerationError:
            continue
    return problems


def constants_to_try(oracles: Sequence[str]) -> Answers:
    """Choose the constants to try, but for blank ones: no answer is found there."""
    texts = [*EMPTY, *JUNK, *constants_for(oracles)]
    return {text: text for text in texts if text.strip()}


async def _scores(pool: TaskPool, problem: Problem, *tries: Answers) -> list[dict[str, float]]:
    """Score several sets of answers at once."""
    verdicts = await pool.verify(problem, [text for own in tries for text in own.values()])
    scores = iter(verdict.score or 0.0 for verdict in verdicts)
    return [{label: next(scores) for label in own} for own in tries]


def best(scores: Sequence[Mapping[str, float]]) -> str:
    """Choose the label that solves most items, the one with the higher score among equals.

    Args:
        scores: by label, one mapping an item; a label that is missing scores 0 there.

    Example:
        >>> best([{"a": 0.4, "b": 1.0}, {"a": 0.4, "b": 0.0}, {"a": 0.4}])
        'b'
    """
    totals: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for item in scores:
        for label, score in item.items():
            solved, total = totals[label]
            totals[label] = (solved + (score >= SOLVED_SCORE), total + score)
    return max(totals, key=totals.__getitem__, default="")


def floor(label: str, scores: Sequence[Mapping[str, float]]) -> Floor:
    """Estimate the share of items that a label solves, with its interval.

    Args:
        scores: as of `best`; without an item nothing is known.
    """
    if not scores:
        return Floor(label=label, items=0, solved=0.0, low=0.0, high=1.0)
    estimate = share([[float(item.get(label, 0.0) >= SOLVED_SCORE)] for item in scores])
    return Floor(
        label=label, items=len(scores), solved=estimate.value, low=estimate.low, high=estimate.high
    )
