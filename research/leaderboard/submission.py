"""A stranger's evaluation on a suite, checked before its row is taken.

Of the folder that `evaluate --suite` wrote, only the model's texts are believed, and what nobody
else can know: the model's name, its sampling and its limits. Problems are generated anew and the
answers scored here.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.leaderboard import standing
from reasoning_gym_environment.evaluation.store import (
    PARTIAL_SAMPLES,
    RUN,
    SAMPLES,
    EvaluationResults,
)
from reasoning_gym_environment.inference.prompts import build_messages
from reasoning_gym_environment.problems.suites import Suite, question_sha256
from reasoning_gym_environment.records import recipe_key
from reasoning_gym_environment.sandbox.pool import (
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.storage.rescoring import Rescored, rescore
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.util.files import (
    open_regular,
    read_regular,
    stays_below,
)
from reasoning_gym_environment.util.values import convert, shorten

from .published import ModelName
from .standings import PublishedStanding, ShortText, Statement, Training

LONGEST_LINE = 2**23
"""Bytes of one item with all its attempts."""
LARGEST_SAMPLES = 2**30
"""Bytes of all items; they are held in memory."""
LARGEST_RUN = 2**20
"""Bytes of the settings."""

AS_WRITTEN = "send the folder as `evaluate --suite` wrote it"


class _Run(Struct, frozen=True):
    """The settings of a run that its row depends on; others are ignored."""

    model_name: Annotated[str, Meta(min_length=1, max_length=200)]
    suite: dict[str, str | int]
    system_prompt: str
    eval_attempts: int
    eval_temperature: Annotated[float, Meta(ge=0, le=100)] | None
    max_token_length: Annotated[int, Meta(ge=1, le=2**31)]
    chat_template: str | None
    max_reasoning_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None
    reasoning_effort: ShortText | None
    thinking_mode: bool
    chat_template_kwargs: Annotated[
        dict[ShortText, bool | int | ShortText | None], Meta(max_length=20)
    ]
    answer_format: str = "tags"


def submitted_standing(
    folder: Path, suite: Suite, *, name: str | None, training: Training
) -> PublishedStanding:
    """Check a folder of `evaluate --suite` and score its answers; return its standing.

    Args:
        name: of the row; None takes the model's.
        training: what the model's training had of the tasks, as its submitter says.

    Raises:
        FixableError: the folder breaks a rule; the message names the value and the way out.
    """
    run = _read_run(folder, suite)
    model = _row_name(run.model_name if name is None else name)
    samples = _read_samples(folder, suite, run)
    rescored = asyncio.run(_score(samples))
    for result in rescored:
        _require_scored(folder, result)
    _require_true_scores(folder, rescored)
    settings = {
        "suite": suite.identity,
        "model_name": model,
        "max_token_length": run.max_token_length,
    }
    scored = tuple(result.after for result in rescored)
    results = EvaluationResults(path=folder, samples=scored, settings=settings)
    own = standing(results, suite)
    stated = {
        key: value
        for key, value in asdict(run).items()
        if key in Statement.__struct_fields__
    }
    return PublishedStanding(
        model=own.model,
        tokens=own.tokens,
        items=own.items,
        stated=Statement(training=training, **stated),
    )


def _row_name(model: str) -> str:
    name = model.replace("/", "_")
    try:
        return convert(name, ModelName)
    except ValueError:
        raise FixableError(
            f"the model's name {shorten(model)} can't name a file: give --name, of at most 100 "
            "letters, digits, '.', '_', '@', '+' and '-'"
        ) from None


def _own_file(folder: Path, name: str, *, most: int) -> Path:
    """Return a file's path; FixableError if it is missing, too large, or led to by a link."""
    file = folder / name
    if not stays_below(file, folder):
        raise FixableError(
            f"{file} is missing, or not a regular file of its folder: {AS_WRITTEN}"
        )
    size = file.stat().st_size
    if size > most:
        raise FixableError(
            f"{file} has {size:,} bytes, more than {most:,}: {AS_WRITTEN}, or evaluate with a "
            "lower --env.max_token_length"
        )
    return file


def _json(text: bytes) -> Any:
    """Return the value of JSON; raises ValueError, for NaN and deep nesting as well."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _read_run(folder: Path, suite: Suite) -> _Run:
    """Read a run's settings, which must be the suite's."""
    file = _own_file(folder, RUN, most=LARGEST_RUN)
    try:
        content = convert(_json(read_regular(file)), dict[str, Any])
        run = convert(content.get("settings"), _Run)
    except (OSError, ValueError) as error:
        raise FixableError(
            f"{file} has no settings of a run: {error}; {AS_WRITTEN}"
        ) from None
    if run.suite != suite.identity:
        raise FixableError(
            f"{file}: suite must be {suite.identity}, got {shorten(run.suite)}: run `evaluate "
            f"--suite {suite.name}` of this version"
        )
    for key, value in suite.fixed_settings.items():
        stated = getattr(run, key)
        # An endpoint that refuses a temperature has its own.
        if stated != value and not (key == "eval_temperature" and stated is None):
            raise FixableError(
                f"{file}: {key} must be {shorten(value)}, which the suite fixes, got "
                f"{shorten(stated)}: {AS_WRITTEN}"
            )
    if run.answer_format != "tags":
        raise FixableError(
            f"{file}: answer_format must be tags on a suite, got {shorten(run.answer_format)}: "
            "evaluate without --env.answer_format"
        )
    if run.chat_template:
        raise FixableError(
            f"{file}: chat_template must be empty, got {shorten(run.chat_template)}: it could hold "
            "hints, so evaluate with the model's own"
        )
    return run


def _read_samples(folder: Path, suite: Suite, run: _Run) -> list[StoredGroup]:
    """Read the samples of all items of the suite, each once."""
    partial = folder / PARTIAL_SAMPLES
    if partial.exists():
        raise FixableError(
            f"{partial} exists: the evaluation was interrupted; repeat its command to complete it"
        )
    file = _own_file(folder, SAMPLES, most=LARGEST_SAMPLES)
    digits = {recipe_key(recipe): digest for recipe, _, digest in suite.items()}
    samples: dict[str, StoredGroup] = {}
    for number, line in _lines(file):
        try:
            sample = StoredGroup.from_json(_json(line))
            key = recipe_key(sample.recipe)
            if key not in digits:
                raise ValueError(f"{suite.name} has no item {key[:200]}")
            if key in samples:
                raise ValueError(f"the item {key} is there twice")
            _require_attempts(sample, digits[key], run)
        except ValueError as error:
            raise FixableError(
                f"{file}, line {number}: {error}; {AS_WRITTEN}"
            ) from None
        samples[key] = sample
    if missing := digits.keys() - samples.keys():
        raise FixableError(
            f"{file} lacks {len(missing)} of the {len(suite)} items of {suite.name}, such as "
            f"{min(missing)}: repeat the command of the evaluation to complete it"
        )
    return list(samples.values())


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and texts of a file's lines; FixableError for a very long one."""
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise FixableError(
                        f"{path}, line {number} has more than {LONGEST_LINE:,} bytes: {AS_WRITTEN}"
                    )
                yield number, line
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error


def _require_attempts(sample: StoredGroup, digits: str, run: _Run) -> None:
    """Raise ValueError unless an item was asked as the suite says, and each attempt has a text."""
    if not question_sha256(sample.question).startswith(digits):
        raise ValueError(
            f"the question {shorten(sample.question)} has another hash than the suite's {digits}"
        )
    if len(sample.rollouts) != run.eval_attempts:
        raise ValueError(
            f"the item must have {run.eval_attempts} attempts, got {len(sample.rollouts)}"
        )
    asked = build_messages(run.system_prompt, sample.question)
    for rollout in sample.rollouts:
        if rollout.prompt != asked or rollout.conversation[-1]["role"] != "assistant":
            raise ValueError(
                "the prompt is not the suite's system prompt and the question alone"
            )
        rollout.text.encode()
        if rollout.completion_tokens < 1 or rollout.tokens < rollout.completion_tokens:
            raise ValueError(
                f"an attempt has no completion ({shorten(rollout.detail)}): repeat the command of "
                "the evaluation to ask again"
            )
        if rollout.completion_tokens > run.max_token_length:
            raise ValueError(
                f"a completion has {rollout.completion_tokens} tokens, more than the run's "
                f"max_token_length of {run.max_token_length}"
            )


async def _score(samples: Sequence[StoredGroup]) -> list[Rescored]:
    """Score all texts by the rules of this version."""
    settings = PoolSettings(processes=default_processes())
    scoring = ScoringSettings(max_token_length=2**20)
    async with TaskPool(settings, Counter()) as pool:
        return await rescore(samples, pool, scoring, concurrency=2 * settings.processes)


def _require_scored(folder: Path, result: Rescored) -> None:
    """Raise FixableError if an item could not be made or one of its answers not be scored."""
    unscored = [r.detail for r in result.after.rollouts if not r.scored]
    if result.kept or unscored:
        raise FixableError(
            f"{folder}: {recipe_key(result.after.recipe)} can't be scored here: "
            f"{result.kept or unscored[0]}; install the requirements of this version, and repeat "
            "this command on an idle machine"
        )


def _require_true_scores(folder: Path, results: Sequence[Rescored]) -> None:
    """Raise FixableError if a stored answer is solved there and not here, or the reverse."""
    changes = [change for result in results for change in result.changes]
    other = [
        (result, change)
        for result in results
        for change in result.changes
        if change.before.solved != change.after.solved
    ]
    if not other:
        return
    result, change = other[0]
    raise FixableError(
        f"{folder}: {len(other)} of {len(changes)} answers have another score here, such as "
        f"{recipe_key(result.after.recipe)}: {shorten(change.after.answer)} is stored as "
        f"{change.before.status.value} and is {change.after.status.value}. If another version "
        f"scored them, run `reasoning-gym-environment rescore {folder}`, and move "
        f"samples.rescored.jsonl to {SAMPLES}"
    )
