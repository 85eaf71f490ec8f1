"""The split: the question itself decides whether evaluation or training asks it.

A fixed quarter of all questions is evaluation's, by a hash of what identifies them, so that known
copies of a question go with it. All problems are drawn through `SplitProblems`: training and
evaluation share no question, whatever the seeds, levels and processes, and nothing has to be known
or passed for it. Levels with too few questions aren't split: both sides ask all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

from ..errors import GenerationError, GenerationTimeoutError, NoQuestionsLeftError
from ..records import Problem, Recipe, recipe_key
from ..sandbox.pool import Generate, TaskPool
from ..tasks.facts import FEW_QUESTIONS, has_few_questions
from ..util.concurrency import gather_or_cancel
from ..util.log_throttle import THROTTLE, throttled
from .identity import identity_of, problem_identity
from .seeds import hash_bits, redrawn_seed, training_seed
from .stream import MAX_SKIPPED, give_up_on_hangs, skip_faulty

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

Split = Literal["train", "eval"]

SPLIT_RULE = "question"
"""What decides the side of a question. Stored beside results, where "seed" is the rule before: the
seed of an item decided, and one question could be on both sides."""

EVALUATION_BITS = 2
"""Evaluation has one question of 2**2. With an eighth, a quarter or a half, an evaluation item
takes 8, 4 or 2 draws on average, and a training problem 1.14, 1.33 or 2. Of the 41 questions of the
smallest level that is split, evaluation has 7, 11 or 25: a quarter leaves it a set, and training
most."""

LEAST_QUESTIONS = 40
"""Different questions from which on a level is split: evaluation's quarter then has about ten."""

COUNTED_DRAWS = 200
"""Draws in which LEAST_QUESTIONS must differ."""

PUBLISHED = Path(__file__).with_name("published_questions.txt")
"""Hashes of the questions that others have published as a suite, also of those that our suite of
the same name leaves out. `research/make_suites.py` writes them."""


def belongs_to_evaluation(identity: str) -> bool:
    """Return whether evaluation asks the question with this identity; otherwise training does."""
    return hash_bits(EVALUATION_BITS, "split", identity) == 0


def published_hash(identity: str) -> str:
    """Return a question's line in the list of published ones."""
    return f"{hash_bits(40, 'published', identity):010x}"


@cache
def _published_hashes() -> frozenset[str]:
    return frozenset(PUBLISHED.read_text(encoding="ascii").split())


def is_published(identity: str) -> bool:
    """Return whether a suite that others have published asks this, so that training doesn't."""
    return published_hash(identity) in _published_hashes()


def may_be_asked(problem: Problem, split: Split) -> bool:
    """Return whether a side may ask a problem of a level that is split."""
    identity = problem_identity(problem)
    if split == "eval":
        return belongs_to_evaluation(identity)
    return not belongs_to_evaluation(identity) and not is_published(identity)


class ReservedQuestions:
    """Questions of a user's own that a stream leaves out, with their known copies.

    Args:
        texts: questions; of tasks that disguise their answers, also answers.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = frozenset(texts)
        self._of_task = cache(self._identities)

    def _identities(self, task: str) -> frozenset[str]:
        return self._texts | {identity_of(task, text, None) for text in self._texts}

    def includes(self, problem: Problem) -> bool:
        """Return whether a problem asks one of them."""
        if not self._texts:
            return False
        asked = {problem.question, problem_identity(problem)}
        return not asked.isdisjoint(self._of_task(problem.recipe.task))


NOTHING_RESERVED = ReservedQuestions()


class SmallLevels:
    """Tells levels with fewer than LEAST_QUESTIONS different questions, which aren't split.

    The library's levels are known. Those of other parameters and of users' own tasks are counted
    when they are first asked for, in draws that are always the same.
    """

    def __init__(self, generate: Generate) -> None:
        self._generate = skip_faulty(generate, Counter())
        self._counting: dict[str, asyncio.Task[bool]] = {}

    async def includes(self, recipe: Recipe) -> bool:
        """Return whether the level of a recipe is small."""
        known = has_few_questions(recipe)
        if known is not None:
            return known
        key = level_key(recipe)
        if key not in self._counting:
            counting = asyncio.create_task(self._count(recipe))
            counting.add_done_callback(lambda done: self._forget_failure(key, done))
            self._counting[key] = counting
        return await asyncio.shield(self._counting[key])

    def _forget_failure(self, key: str, counting: asyncio.Task[bool]) -> None:
        if counting.cancelled() or counting.exception():
            del self._counting[key]

    async def _count(self, recipe: Recipe) -> bool:
        """Draw until enough questions differ; return whether they never do."""
        generate = give_up_on_hangs(self._generate)
        identities: set[str] = set()

        async def draw(index: int) -> None:
            seed = training_seed(0, "", recipe.task, index)
            try:
                problem = await generate(replace(recipe, seed=seed))
            except GenerationError:  # an item more or less does not matter
                return
            identities.add(problem_identity(problem))

        for drawn in range(0, COUNTED_DRAWS, LEAST_QUESTIONS):
            batch = range(drawn, drawn + LEAST_QUESTIONS)
            await gather_or_cancel(map(draw, batch))
            if len(identities) >= LEAST_QUESTIONS:
                return False
        logger.info(
            "%s has only %d questions: training and evaluation both ask them",
            level_name(recipe),
            len(identities),
        )
        return True


def level_name(recipe: Recipe) -> str:
    """Return what a recipe's level is called in messages."""
    return recipe.task if recipe.level is None else f"{recipe.task} {recipe.level}"


def level_key(recipe: Recipe) -> str:
    """Return what is equal for recipes with one set of questions, however they were asked for."""
    return recipe_key(replace(recipe, seed=0, level=None))


def known_small_levels(tasks: Collection[str]) -> list[str]:
    """Return the names of the library's levels that aren't split, of these tasks."""
    return [
        level_name(Recipe(task=task, seed=0, level=level))
        for task, levels in FEW_QUESTIONS.items()
        if task in tasks
        for level in levels
    ]


class SplitProblems:
    """Makes problems on the side that their recipes are drawn for: evaluation's or training's.

    A question of the other side is drawn again, with a seed that depends on the one before alone,
    so that a set is the same whatever its size, and a stream whatever was made at the same time.
    A level of which MAX_SKIPPED items in a row, of whichever problems, may not be asked has no
    question left: no more items of it are made.

    Args:
        generate_fixed: makes items of evaluation sets and suites, which are not to be replaced and
            may take longer; by default `generate`.
        counts: counts redrawn items: `sampling/other_split`, those that are reserved as
            `sampling/evaluation_questions_redrawn`, and faulty ones (see `skip_faulty`).
        skip_faulty_items: whether to draw again where an item is known to be faulty.
    """

    def __init__(
        self,
        generate: Generate,
        counts: Counter[str],
        *,
        skip_faulty_items: bool,
        generate_fixed: Generate | None = None,
    ) -> None:
        self._as_it_is = generate_fixed or generate
        self._generate: dict[Split, Generate] = {
            "train": skip_faulty(generate, counts, skip=skip_faulty_items),
            "eval": skip_faulty(self._as_it_is, counts, skip=skip_faulty_items),
        }
        self._counts = counts
        self._small_levels = SmallLevels(generate)
        # How many items in a row may not be asked, by level; of each stream while it lasts.
        self._refused = WeakKeyDictionary[
            ReservedQuestions, Counter[tuple[Split, str]]
        ]()

    @classmethod
    def of_pool(
        cls, pool: TaskPool, counts: Counter[str], *, skip_faulty_items: bool
    ) -> SplitProblems:
        """Return what makes problems in the pool's processes."""
        return cls(
            pool.generate,
            counts,
            skip_faulty_items=skip_faulty_items,
            generate_fixed=pool.generate_fixed,
        )

    async def make(
        self,
        recipe: Recipe,
        *,
        split: Split | None = None,
        reserved: ReservedQuestions = NOTHING_RESERVED,
    ) -> Problem:
        """Make the problem of a recipe, or of the first redrawn one that may be asked.

        Args:
            split: None is the one that the recipe's seed was drawn for.

        Raises:
            NoQuestionsLeftError: the level has no question left that may be asked.
            GenerationError: an item can't be made.
        """
        split = split or ("eval" if recipe.is_evaluation else "train")
        refused = self._refused.setdefault(reserved, Counter())
        level = (split, level_key(recipe))
        drawn = recipe
        while refused[level] < MAX_SKIPPED:
            try:
                problem = await self._generate[split](drawn)
            except GenerationTimeoutError:
                raise
            except GenerationError:
                # A redrawn item that can't be made is one of many: only the first one's error
                # tells something. Errors are as reproducible as items, but not timeouts.
                if drawn is recipe:
                    raise
                refused[level] += 1
                drawn = replace(drawn, seed=redrawn_seed(drawn.seed))
                continue
            is_reserved = reserved.includes(problem)
            if not is_reserved and await self._is_asked(problem, split):
                del refused[level]  # or levels of any parameters would fill the memory
                if split == "train":
                    return problem
                is_small = await self._small_levels.includes(recipe)
                return replace(problem, also_trained_on=is_small)
            name = "evaluation_questions_redrawn" if is_reserved else "other_split"
            self._counts[f"sampling/{name}"] += 1
            refused[level] += 1
            drawn = replace(recipe, seed=redrawn_seed(problem.recipe.seed))
        error = NoQuestionsLeftError(
            f"{level_name(recipe)}: {MAX_SKIPPED} items in a row are reserved or belong to the "
            "other split: use levels with more questions, or reserve fewer"
        )
        logger.warning("Drawing no more items of %s", error, extra=throttled(level))
        raise error

    async def _is_asked(self, problem: Problem, split: Split) -> bool:
        """Return whether a side may ask a problem."""
        if may_be_asked(problem, split):
            return True
        return await self._small_levels.includes(problem.recipe)

    async def make_as_it_is(self, recipe: Recipe) -> Problem:
        """Make the problem of a recipe, whatever its side: of a suite, which is never redrawn."""
        problem = await self._as_it_is(recipe)
        return replace(problem, also_trained_on=bool(has_few_questions(recipe)))
