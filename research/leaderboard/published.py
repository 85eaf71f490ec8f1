"""Published answers of models: a file that needs no endpoint, read and imported as evaluations.

A line of the file is one item: its recipe, the beginning of its question's SHA-256, and each text
with the models that gave it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from reasoning_gym_environment.errors import ConfigurationError, GenerationError
from reasoning_gym_environment.problems.suites import question_sha256
from reasoning_gym_environment.records import (
    IGNORE_INDEX,
    Attempt,
    Completion,
    Problem,
    Recipe,
)
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.grading import (
    Grade,
    ScoringSettings,
    grade_texts,
)
from reasoning_gym_environment.storage.rows import (
    StoredGroup,
    StoredRollout,
    fault_of,
)
from reasoning_gym_environment.tasks.recipes import require_valid_recipe
from reasoning_gym_environment.util.progress import with_progress
from reasoning_gym_environment.util.values import convert

STORED_SCORE = "stored_score"
"""The key of a rollout with the score that its publishers gave."""

_ITEMS_AT_ONCE = 4
_UNKNOWN = (IGNORE_INDEX,)
"""The tokens of a completion whose number is unknown; a row without any has no completion."""
_LONGEST_LINE = 1 << 26
"""Bytes; what is longer is no JSON, and inflates without end."""
_GZIP = b"\x1f\x8b"

ModelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}\Z")]
"""A name that is safe as that of a file or folder."""


class PublishedAnswer(Struct):
    """One text, and each model that gave it with the score that was stored, if any."""

    text: str
    given_by: list[tuple[ModelName, float | None]]


class PublishedItem(Struct):
    """One line of a file of published answers.

    Attributes:
        set: the name of the items' set: a suite, or any.
        question_sha256_16: the first 16 hexadecimal digits of the question's SHA-256.
    """

    set: ModelName
    task: str
    parameters: dict[str, Any]
    seed: Annotated[int, Meta(ge=0, lt=2**53)]
    question_sha256_16: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    answers: list[PublishedAnswer]

    @property
    def recipe(self) -> Recipe:
        return Recipe(task=self.task, seed=self.seed, parameters=self.parameters)


def read_published(path: Path) -> Iterator[PublishedItem]:
    """Read a file of published answers, gzipped or not.

    Raises:
        ConfigurationError: a line is invalid, or the file can't be read.
    """
    read = 0
    try:
        with path.open("rb") as start:
            compressed = start.read(2) == _GZIP
        with gzip.open(path, "rb") if compressed else path.open("rb") as lines:
            while line := lines.readline(_LONGEST_LINE):
                read += 1
                item = convert(json.loads(line), PublishedItem)
                require_valid_recipe(item.recipe)
                yield item
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {read}: {error}") from None


async def made_again(pool: TaskPool, item: PublishedItem) -> Problem | None:
    """Return the item's problem, None if it has another question or can't be made."""
    try:
        problem = await pool.generate_fixed(item.recipe)
    except GenerationError:
        return None
    digest = question_sha256(problem.question)
    return problem if digest.startswith(item.question_sha256_16) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedAnswers:
    """Published answers, scored.

    Attributes:
        samples: by set and model.
        changed: number of items by task that the installed library makes differently.
    """

    samples: Mapping[tuple[str, str], Sequence[StoredGroup]]
    changed: Counter[str] = field(default_factory=Counter)


async def import_answers(
    items: Sequence[PublishedItem],
    pool: TaskPool,
    settings: ScoringSettings,
    about: Mapping[str, Any],
) -> ImportedAnswers:
    """Score published answers by the rules of this package, with a progress bar on a terminal.

    Args:
        about: keys of every row, such as the library versions.
    """
    places = asyncio.Semaphore(_ITEMS_AT_ONCE)
    changed: Counter[str] = Counter()

    async def one(item: PublishedItem) -> dict[str, StoredGroup]:
        async with places:
            problem = await made_again(pool, item)
            if problem is None:
                changed[item.task] += 1
                return {}
            texts = [answer.text for answer in item.answers]
            grades = await grade_texts(problem, texts, [1] * len(texts), pool, settings)
        return _by_model(item, problem, grades, about)

    samples: defaultdict[tuple[str, str], list[StoredGroup]] = defaultdict(list)
    scored = await with_progress([one(item) for item in items], "answers")
    for item, by_model in zip(items, scored, strict=True):
        for model, sample in by_model.items():
            samples[item.set, model].append(sample)
    return ImportedAnswers(samples=dict(sorted(samples.items())), changed=changed)


def _by_model(
    item: PublishedItem,
    problem: Problem,
    grades: Sequence[Grade],
    about: Mapping[str, Any],
) -> dict[str, StoredGroup]:
    rollouts: defaultdict[str, list[StoredRollout]] = defaultdict(list)
    for answer, grade in zip(item.answers, grades, strict=True):
        for model, stored in answer.given_by:
            rollouts[model].append(_rollout(problem, answer.text, grade, stored))
    return {
        model: StoredGroup(
            rollouts=own,
            recipe=problem.recipe,
            oracle=problem.oracle,
            fault=fault_of(problem),
            sampled_at=None,
            **about,
        )
        for model, own in rollouts.items()
    }


def _rollout(
    problem: Problem, text: str, grade: Grade, stored: float | None
) -> StoredRollout:
    """Return a rollout without token counts, which published answers lack."""
    completion = Completion(
        text=text, tokens=_UNKNOWN, masks=_UNKNOWN, logprobs=None, finish_reason="stop"
    )
    attempt = Attempt(
        completion=completion,
        answer=grade.answer,
        verdict=grade.verdict,
        reward=grade.reward,
    )
    rollout = StoredRollout.from_attempt(
        attempt, [{"role": "user", "content": problem.question}]
    )
    return rollout if stored is None else replace(rollout, other={STORED_SCORE: stored})
