"""What training must not ask: held-out items, known by hashes of their questions."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from functools import cache

from ..records import Problem
from ..tasks.facts import DISGUISES_ITS_ANSWER
from .identity import IDENTITIES


def question_hash(question: str) -> bytes:
    """Return a hash of a question or answer, to compare them by."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


class HeldOut(frozenset[bytes]):
    """The hashes of items that training must not ask.

    Items that share a hash are the same: they have one question, one by the task's rule in
    IDENTITIES (in another order, with other names), or one answer where questions disguise it.
    """

    @classmethod
    def of(cls, task: str, question: str, oracle: str | None) -> HeldOut:
        """Hold out an item and its copies."""
        texts = [question]
        identity = IDENTITIES[task](question) if task in IDENTITIES else None
        if identity is not None:
            texts.append(identity)
        if oracle is not None and task in DISGUISES_ITS_ANSWER:
            texts.append(oracle)
        return cls(map(question_hash, texts))

    @classmethod
    def all_of(cls, parts: Iterable[HeldOut]) -> HeldOut:
        """Hold out what any of the parts does."""
        return cls(hashed for part in parts for hashed in part)

    def includes(self, problem: Problem) -> bool:
        """Return whether training must not ask a problem."""
        item = HeldOut.of(problem.recipe.task, problem.question, problem.oracle)
        return not self.isdisjoint(item)


NOTHING_HELD_OUT = HeldOut()

HeldOutOfTask = Callable[[str], Awaitable[HeldOut]]
"""Returns what is held out of a task: evaluation items are made when training draws their task."""


def hold_out_questions(questions: Iterable[str]) -> HeldOutOfTask:
    """Hold out the same questions, and the items that copy them, of every task."""
    texts = list(questions)

    @cache
    def held_out(task: str) -> HeldOut:
        return HeldOut.all_of(HeldOut.of(task, text, None) for text in texts)

    async def of_task(task: str) -> HeldOut:
        return held_out(task)

    return of_task
