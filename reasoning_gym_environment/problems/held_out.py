"""Hashes of held-out items, by which training tells the questions that it must not see."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection
from functools import cache

from ..records import Problem
from ..tasks.facts import DISGUISES_ITS_ANSWER
from .identity import IDENTITIES

ExcludedQuestions = Callable[[str], Awaitable[Collection[bytes]]]
"""Returns the hashes of a task's questions and answers that training must not see."""


def question_hash(question: str) -> bytes:
    """Return a hash of a question or answer, to compare them by."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


def held_out_hashes(task: str, question: str, oracle: str | None) -> frozenset[bytes]:
    """Return the hashes by which an item is known: of its question, and of what it copies.

    Items that share a hash are the same: in another order or with other names, by the task's rule
    in IDENTITIES, or with the same answer, which some tasks disguise.
    """
    identity = IDENTITIES[task](question) if task in IDENTITIES else None
    disguised = oracle if task in DISGUISES_ITS_ANSWER else None
    return frozenset(
        question_hash(text)
        for text in (question, identity, disguised)
        if text is not None
    )


def is_held_out(problem: Problem, excluded: Collection[bytes]) -> bool:
    hashes = held_out_hashes(problem.recipe.task, problem.question, problem.oracle)
    return not hashes.isdisjoint(excluded)


def fixed_exclusions(questions: Collection[str]) -> ExcludedQuestions:
    """Exclude the same questions, and the items that copy them, of every task."""

    @cache
    def hashes(task: str) -> Collection[bytes]:
        every = (held_out_hashes(task, question, None) for question in questions)
        return frozenset[bytes]().union(*every)

    async def of_task(task: str) -> Collection[bytes]:
        return hashes(task)

    return of_task
