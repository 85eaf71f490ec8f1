"""One evaluation, from its set to its results on disk; resumes after an interruption."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from msgspec import structs

from ..errors import INCOMPLETE, GenerationError
from ..inference.dialects import SamplingParams
from ..inference.errors import NO_ROOM, InferenceError
from ..problems.held_out import held_out_hashes
from ..problems.sampler import evaluation_recipe_at, evaluation_recipes
from ..problems.stream import skip_faulty
from ..problems.suites import Suite, require_same_questions
from ..records import (
    Attempt,
    Completion,
    GroupResult,
    Ladder,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
    recipe_key,
)
from ..rollouts.answer_check import GROUPS, AnswerCheck, excerpt
from ..rollouts.rollouts import Rollouts
from ..sandbox.pool import Generate, generate_with_retry
from ..scoring.grading import ScoringSettings
from ..storage.rows import StoredGroup, stable_json
from ..util.files import LockFile
from ..util.outages import Outage
from ..util.progress import with_progress
from ..util.values import table
from .metrics import Baselines, EvaluationReport, evaluation_report, evaluation_table, headline
from .store import EvaluationStore, locked, next_free_folder

logger = logging.getLogger(__name__)

MAX_REFUSED = 5
"""Items in a row that the server refuses for good, after which an evaluation ends."""


class IncompleteEvaluationError(InferenceError):
    """Too many items have no score."""

    exit_status = INCOMPLETE


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """A problem and its difficulty; None is the default configuration."""

    problem: Problem
    difficulty: float | None

    @property
    def key(self) -> str:
        return recipe_key(self.problem.recipe)


def planned_recipes(
    *,
    tasks: Sequence[str],
    ladders: Mapping[str, Ladder],
    eval_seed: int,
    num_eval_samples_per_task: int,
    eval_difficulties: Sequence[float],
) -> list[tuple[Recipe, float | None]]:
    """Return the recipe and difficulty of every evaluation item; the default comes first.

    Args:
        ladders: by task; a task with fewer than two levels has no difficulty.
    """
    leveled = [task for task in tasks if len(ladders.get(task, ())) > 1]
    if eval_difficulties and (without := sorted(set(tasks) - set(leveled))):
        names = ", ".join(without)
        logger.info("Evaluated only at their defaults, having no levels: %s", names)
    count = num_eval_samples_per_task
    at = partial(evaluation_recipe_at, eval_seed=eval_seed)
    return [(recipe, None) for recipe in evaluation_recipes(eval_seed, tasks, count)] + [
        (at(each, ladders[task], task=task, index=index), each)
        for each in eval_difficulties
        for task in leveled
        for index in range(count)
    ]


class EvaluationSet:
    """The problems of the evaluation set; failed ones are skipped with a warning."""

    def __init__(self, generate: Generate, planned: Sequence[tuple[Recipe, float | None]]) -> None:
        self._make = generate
        self._planned = planned
        self._generating: dict[int, asyncio.Task[EvaluationItem | None]] = {}
        self._items: list[EvaluationItem] | None = None
        self._questions: dict[str, frozenset[bytes]] = {}

    def __len__(self) -> int:
        """The number of planned items."""
        return len(self._planned)

    async def items(self) -> list[EvaluationItem]:
        """Return all items in order; generate missing ones, and retry failed ones."""
        if self._items is None:
            pending = self._generating.items()
            self._generating = {
                number: task
                for number, task in pending
                if not task.done()
                or not (task.cancelled() or task.exception() or not task.result())
            }
            jobs = [self._item(number) for number in range(len(self))]
            generated = await with_progress(jobs, "evaluation set")
            items = [item for item in generated if item is not None]
            if len(items) < len(self):
                return items
            self._items = items
        return self._items

    async def questions(self, task: str) -> frozenset[bytes]:
        """Return the `held_out_hashes` of a task's items; generate the missing ones."""
        if task not in self._questions:
            numbers = [n for n, (recipe, _) in enumerate(self._planned) if recipe.task == task]
            items = await asyncio.gather(*map(self._item, numbers))
            problems = [item.problem for item in items if item is not None]
            hashes = frozenset[bytes]().union(
                *(held_out_hashes(task, p.question, p.oracle) for p in problems)
            )
            if None in items:  # `items` tries these again
                return hashes
            self._questions[task] = hashes
        return self._questions[task]

    async def _item(self, number: int) -> EvaluationItem | None:
        """Return an item; cancellation of one caller doesn't cancel the generation."""
        if number not in self._generating:
            task = asyncio.create_task(self._generate(*self._planned[number]))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._generating[number] = task
        return await asyncio.shield(self._generating[number])

    async def _generate(self, recipe: Recipe, difficulty: float | None) -> EvaluationItem | None:
        try:
            problem = await generate_with_retry(self._make, recipe)
        except GenerationError as error:
            logger.warning("The evaluation set lacks an item: %s", error)
            return None
        return EvaluationItem(problem=problem, difficulty=difficulty)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSettings:
    """What is evaluated, and where the results go; fields are named as the options.

    Attributes:
        system_prompt, chat_template: their texts.
        max_eval_workers: concurrent completions; a single item may exceed it.
        suite: the items; None plans them from the settings above.
        limit: the most items, spread over the planned ones.
    """

    eval_attempts: int
    eval_difficulties: Sequence[float]
    eval_seed: int
    eval_step: int | None
    eval_temperature: float
    generation_timeout: float
    max_reasoning_tokens: int | None
    num_eval_samples_per_task: int
    reasoning_effort: str | None
    skip_faulty_items: bool
    thinking_mode: bool
    tokenizer_name: str
    system_prompt: str
    chat_template: str | None
    scoring: ScoringSettings
    max_eval_workers: int
    folder: Path
    model: str
    suite: Suite | None = None
    limit: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the options that determine the results."""
        others = ("eval_step", "scoring", "max_eval_workers", "folder", "model", "suite")
        names = [field.name for field in fields(self) if field.name not in others]
        return {**self.scoring.to_json(), **{name: getattr(self, name) for name in names}}

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=self.eval_temperature, top_p=1.0, split="eval")


class Evaluation:
    """The fixed evaluation set and its runs, in the `evaluate` command or while serving.

    Args:
        counts: counter "evaluation/failed_requests".

    Attributes:
        settings: what is evaluated.
        temperature: None if the endpoint refuses one and samples with its default.
        set: set by `prepare`; the same for one `eval_seed` and selection of tasks.
        folder: of the last evaluation's results, or of the first one's before it runs.
        report: of the last evaluation; empty while one is running.
        has_run: whether an evaluation has begun.
    """

    set: EvaluationSet

    def __init__(
        self, settings: EvaluationSettings, rollouts: Rollouts, counts: Counter[str]
    ) -> None:
        self.folder = settings.folder
        self.report = EvaluationReport(attempts=settings.eval_attempts)
        self.settings = settings
        self._rollouts = rollouts
        self._counts = counts
        self._categories: Mapping[str, str] = {}
        self.temperature: float | None = settings.eval_temperature
        self._unlogged: EvaluationReport | None = None
        self.has_run = False
        self._wrong: list[StoredGroup] = []
        self._reasons: Counter[str] = Counter()
        self._resumable = True
        self._failures = Outage()
        self._refused = 0

    def prepare(
        self, generate: Generate, categories: Mapping[str, str], ladders: Mapping[str, Ladder]
    ) -> None:
        """Plan the evaluation set of the selected tasks; items are generated when first needed."""
        suite = self.settings.suite
        if suite is not None:
            self._categories = {t: c for t, c in categories.items() if t in suite.tasks}
            self.set = EvaluationSet(generate, suite.recipes())
            return
        self._categories = categories
        planned = planned_recipes(
            tasks=sorted(categories),
            ladders=ladders,
            eval_seed=self.settings.eval_seed,
            num_eval_samples_per_task=self.settings.num_eval_samples_per_task,
            eval_difficulties=self.settings.eval_difficulties,
        )
        size = min(self.settings.limit or len(planned), len(planned))
        planned = [planned[number * len(planned) // size] for number in range(size)]
        source = skip_faulty(generate, self._counts, skip=self.settings.skip_faulty_items)
        self.set = EvaluationSet(source, planned)

    async def run(
        self, *, step: int | None, length_limit: int, identity: Mapping[str, Any]
    ) -> None:
        """Evaluate and write the results.

        Args:
            step: the trainer's step; None in the `evaluate` command, which may have `eval_step`.
            length_limit: tokens of prompt and completion: `max_token_length`, or less if the
                trainer takes less.
            identity: keys with the same value in all samples.

        Raises:
            ConfigurationError: the folder holds an evaluation with other settings.
            FixableError: the library makes other questions than the suite's, or another process
                evaluates into the folder.
            InferenceError: nothing could be scored, or the server refuses every item.
        """
        items = await self.set.items()
        if not items:
            raise IncompleteEvaluationError("no item of the evaluation set could be generated")
        if self.settings.suite is not None:
            require_same_questions(self.settings.suite, [item.problem for item in items])
        begin = time.monotonic()
        self.report = EvaluationReport(attempts=self.settings.eval_attempts)
        settings = self._result_settings(length_limit, identity["library_versions"])
        self.folder = (
            self.settings.folder if step is None else self.settings.folder / f"step-{step}"
        )
        self._resumable = step is None  # while serving, the model changes under its name
        if self.has_run or not self._resumable:
            self.folder = next_free_folder(self.folder)
        self.has_run = True
        at = {"step": self.settings.eval_step if step is None else step}
        with (
            locked(self.folder),
            closing(EvaluationStore(self.folder, {**settings, **at})) as store,
        ):
            await self._sample_missing(items, store, length_limit, {**identity, **at})
            keys = dict.fromkeys(item.key for item in items) | dict.fromkeys(store.samples)
            samples = [store.samples[key] for key in keys]  # those of other items come last
            self._wrong = [s for s in samples if s.rollouts[0].status is Status.WRONG][:1]
            self._reasons = Counter(s.rollouts[0].detail for s in samples if not s.scored)
            baselines = Baselines.at_threshold(
                self.settings.scoring.solved_threshold,
                categories=self._categories,
                attempts=self.settings.eval_attempts,
            )
            self.report = self._unlogged = await asyncio.to_thread(
                evaluation_report, samples, baselines
            )
            _warn_without_answers(samples, f"all {len(samples)} items")
            logger.info("Evaluation: %s", headline(self.report))
            results = self._results(time.monotonic() - begin)
            await store.disk.write(partial(store.complete, samples, results), must_end=True)
        if not self.report.coverage.scored:
            raise IncompleteEvaluationError(self._incomplete())
        if self.report.coverage.missing:
            logger.warning("%s", self._incomplete())

    def _result_settings(self, length_limit: int, versions: Any) -> dict[str, Any]:
        """Return all settings that determine the results but the trainer's step, as JSON."""
        return {
            **self.settings.to_json(),
            "eval_temperature": self.temperature,
            "library_versions": versions,
            "length_limit": length_limit,
            "model_name": self.settings.model,
            "tasks": sorted(self._categories),
            **({"suite": suite.identity} if (suite := self.settings.suite) else {}),
        }

    def key(self, *, length_limit: int, versions: Any) -> str:
        """Return a key that is equal for replicas whose evaluations have equal results."""
        text = stable_json(self._result_settings(length_limit, versions))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    async def _sample_missing(
        self,
        items: Sequence[EvaluationItem],
        store: EvaluationStore,
        length_limit: int,
        identity: Mapping[str, Any],
    ) -> None:
        """Sample and store the items that the store lacks."""
        missing = [item for item in items if item.key not in store.samples]
        finished = len(items) - len(missing)
        message = "Evaluating %d items, %d already finished; after an interruption, %s"
        logger.info(message, len(items), finished, self._hint())
        self._failures = Outage()
        self._refused = 0
        groups = self.settings.max_eval_workers // self.settings.eval_attempts
        slots = asyncio.Semaphore(max(1, groups))
        check_is_due = finished < GROUPS < len(items)

        async def sample_one(item: EvaluationItem) -> None:
            nonlocal check_is_due
            async with slots:
                group = await self._sample(item.problem, length_limit)
            row = self._rollouts.row(group, identity)
            await store.add(structs.replace(row, sampled_at=item.difficulty))
            if check_is_due and len(store.samples) >= GROUPS:
                check_is_due = False
                first = list(store.samples.values())[:GROUPS]
                _warn_without_answers(first, f"the first {GROUPS} items")

        jobs = [sample_one(item) for item in missing]
        waiting = self._rollouts.waiting
        try:
            await with_progress(jobs, "evaluation", done=finished, note=waiting)
        except asyncio.CancelledError:
            logger.warning(
                "Interrupted with %d items finished: %s", len(store.samples), self._hint()
            )
            raise

    async def _sample(self, problem: Problem, length_limit: int) -> GroupResult:
        """Return all attempts at a problem; unscored ones where inference fails."""
        attempts = self.settings.eval_attempts
        try:
            group = await self._rollouts.sample(
                problem,
                n=attempts,
                length_limit=length_limit,
                sampling=self.settings.sampling,
            )
        except InferenceError as error:
            self._record_failure(problem.recipe.task, error)
            return unscored_group(problem, str(error), attempts=attempts)
        self._refused = 0
        return group

    def _record_failure(self, task: str, error: InferenceError) -> None:
        self._counts["evaluation/failed_requests"] += 1
        self._failures.record_failure()
        if self._failures.should_log:
            logger.warning("Evaluation of %s: %s", task, error)
        self._refused = 0 if error.is_transient else self._refused + 1
        if self._refused >= MAX_REFUSED:
            raise InferenceError(
                f"{MAX_REFUSED} items in a row were refused: {error}; then {self._hint()}",
                is_transient=False,
            ) from error

    def _results(self, seconds: float) -> dict[str, Any]:
        """Return the content of `metrics.json`, with the keys of Atropos's `evaluate_log`."""
        sampling = {
            "max_new_tokens": self.settings.scoring.max_token_length,
            "temperature": self.temperature,
        }
        numbers = self.report.numbers()
        return {
            "headline": headline(self.report),
            "config_general": {
                "model_name": self.settings.model,
                "total_evaluation_time_seconds": str(seconds),
                "generation_parameters": sampling,
            },
            "results": {"atropos|reasoning_gym_eval|0": numbers, "all": numbers},
        }

    def take_curves(self) -> dict[str, float]:
        """Return wandb's numbers of an evaluation that ended since the last call, or nothing."""
        report = self._unlogged
        self._unlogged = None
        return report.curves() if report else {}

    def require_complete(self) -> None:
        """Raise IncompleteEvaluationError if more than 2 % of the last one's items lack a score."""
        coverage = self.report.coverage
        if coverage.missing > 0.02 * coverage.items:
            raise IncompleteEvaluationError(self._incomplete())

    def _incomplete(self) -> str:
        coverage = self.report.coverage
        why = self._reasons.most_common(1)[0][0]
        return (
            f"{coverage.missing} of {coverage.items} items could not be scored (often: {why}): the "
            f"results stand on the other {coverage.scored}; {self._hint()}"
        )

    def _hint(self) -> str:
        if self._reasons and all(reason.startswith(NO_ROOM) for reason in self._reasons):
            return "raise --env.max_token_length, or choose tasks and levels with shorter prompts"
        if not self._resumable:
            return "serving again starts the evaluation anew"
        return f"repeat the command with --env.data_dir_to_save_evals {self.folder} to complete it"

    def show(self, terminal: TextIO) -> None:
        """Write the last evaluation's table, headline, a wrong answer and how to see the others."""
        parts = [f"results: {self.folder}", "", headline(self.report), ""]
        for sample in self._wrong:
            answer, oracle = (excerpt(str(s)) for s in (sample.rollouts[0].answer, sample.oracle))
            parts += [f"A wrong answer, in {sample.task}: {excerpt(sample.question)}"]
            parts += [f"answered: {answer}", f"oracle: {oracle}", ""]
        see = f"See all answers: reasoning-gym-environment report {shlex.quote(str(self.folder))}"
        terminal.write(f"\n{evaluation_table(self.report)}\n\n{table(parts)}\n{see}\n")


def unscored_group(problem: Problem, reason: str, *, attempts: int) -> GroupResult:
    """Return a group of attempts for which the server gave no completions."""
    completion = Completion(
        text="",
        tokens=(),
        masks=(),
        logprobs=None,
        finish_reason="error",
    )
    verdict = Verdict(score=None, status=Status.UNSCORED, detail=reason)
    reward = Reward(value=0.0)
    attempt = Attempt(
        completion=completion,
        answer=None,
        verdict=verdict,
        reward=reward,
    )
    return GroupResult(problem=problem, attempts=(attempt,) * attempts)


def _warn_without_answers(samples: Iterable[StoredGroup], subject: str) -> None:
    """Log a warning if nearly all completions have no answer; `subject` names the samples."""
    check = AnswerCheck()
    for sample in samples:
        given = [rollout for rollout in sample.rollouts if rollout.length is not None]
        check.add((r.text, r.finish_reason, r.status) for r in given)
    consequence = "the results measure the format, not the model"
    text = check.warning(subject, consequence=consequence)
    if text:
        logger.warning("%s", text)


class LeaderElection:
    """Elects the replica that evaluates: it locks a file with the last evaluation's step.

    When it dies, `kill -9` included, the kernel frees the lock and another replica takes over.
    Replicas whose file system has no locks all evaluate.
    """

    def __init__(self, path: Path, *, every: int) -> None:
        self._lock = LockFile(path)
        self._every = every
        self._done: int | None = None  # None while another replica leads
        self._retry_at = 0.0

    def is_due(self, step: int) -> bool:
        """Return whether this replica leads, and an evaluation is or was due by a step."""
        if self._done is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + 5.0
            try:
                if self._lock.acquire():
                    last = self._lock.read()  # empty, or of an earlier run: counts from here
                    self.record_done(int(last) if last.isdecimal() and int(last) <= step else step)
                    logger.info("This replica evaluates what is due after step %d", self._done)
            except OSError as error:
                self._done = step
                message = "Could not lock %s (%s): this replica evaluates, and so may others"
                logger.warning(message, self._lock.path, error)
        return self._done is not None and step // self._every > self._done // self._every

    def record_done(self, step: int) -> None:
        """Record that the evaluation due at a step is done."""
        self._done = step
        try:
            if self._lock.held:
                self._lock.write(str(step))
        except OSError as error:
            logger.warning("Could not write %s (%s)", self._lock.path, error)

    def close(self) -> None:
        """Leave the leadership to another replica."""
        self._lock.release()
