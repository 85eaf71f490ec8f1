"""Hashes of held-out items, by which training tells the questions that it must not see."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection

from ..records import Problem
from ..tasks.facts import DISGUISES_ITS_ANSWER

ExcludedQuestions = Callable[[str], Awaitable[Collection[bytes]]]
"""Returns the hashes of a task's questions and answers that training must not see."""


def question_hash(question: str) -> bytes:
    """Return a hash of a question or answer, to compare them by."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


def held_out_hashes(task: str, question: str, oracle: str | None) -> frozenset[bytes]:
    """Return the hash of an item's question; and of its answer, where that is the same item."""
    disguised = oracle if task in DISGUISES_ITS_ANSWER else None
    return frozenset(
        question_hash(text) for text in (question, disguised) if text is not None
    )


def is_held_out(problem: Problem, excluded: Collection[bytes]) -> bool:
    hashes = held_out_hashes(problem.recipe.task, problem.question, problem.oracle)
    return not hashes.isdisjoint(excluded)


def fixed_exclusions(hashes: Collection[bytes]) -> ExcludedQuestions:
    """Exclude the same questions for every task."""

    async def of_task(_: str) -> Collection[bytes]:
        return hashes

    return of_task
