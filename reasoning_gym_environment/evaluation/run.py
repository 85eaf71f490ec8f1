"""One evaluation, from its set to its results on disk; resumes after an interruption."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TextIO

from msgspec import structs

from ..errors import INCOMPLETE
from ..inference.dialects import SamplingParams
from ..inference.errors import NO_ROOM, InferenceError
from ..inference.prompts import Prompt
from ..inference.usage import RequestPlan, RequestUsage
from ..problems.suites import require_same_questions
from ..records import (
    Attempt,
    Completion,
    GroupResult,
    Ladder,
    Problem,
    Reward,
    Status,
    Verdict,
)
from ..rollouts.answer_check import GROUPS, AnswerCheck, excerpt
from ..sandbox.pool import Generate
from ..scoring.grading import Verifier, grade
from ..storage.rows import StoredGroup, stable_json
from ..util.concurrency import gather_or_cancel
from ..util.log_throttle import THROTTLE, throttled
from ..util.progress import with_progress
from ..util.values import group_by, table
from .evaluation_settings import EvaluationSettings
from .metrics import (
    Baselines,
    EvaluationReport,
    evaluation_report,
)
from .planning import EvaluationItem, EvaluationSet, planned_recipes
from .store import EvaluationStore, locked, next_free_folder
from .tables import evaluation_table, headline
from .usage import UsageLog, describe_plan, usage_table

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


MAX_REFUSED = 5
"""Items in a row that the server refuses for good, after which an evaluation ends."""


class IncompleteEvaluationError(InferenceError):
    """Too many items have no score."""

    exit_status = INCOMPLETE


class CompletionSource(Protocol):
    """What gives an evaluation its completions: inference servers, or a user's function."""

    @property
    def refused(self) -> Collection[str]:
        """The parameters that it samples without."""

    @property
    def waiting(self) -> str:
        """Why nothing is asked for at the moment; usually empty."""

    @property
    def part_size(self) -> int:
        """How many completions a request has at most."""

    def prompt(self, question: str) -> Prompt:
        """Return a question's prompt."""

    async def sample(
        self,
        question: str,
        *,
        n: int,
        length_limit: int,
        sampling: SamplingParams,
        record: Callable[[RequestUsage], None],
    ) -> list[Completion]:
        """Return `n` completions of at most `length_limit` tokens, or raise InferenceError.

        Args:
            record: gets the tokens of each answered request.
        """

    def plan(self, question: str, *, n: int, length_limit: int) -> RequestPlan | None:
        """Return what `sample` will request; None if it can't tell."""

    def take_probe_usage(self) -> list[RequestUsage]:
        """Return the tokens of what was asked since the last call, but by `sample`."""


class Evaluation:
    """The fixed evaluation set and its runs, in the `evaluate` command or while serving.

    Args:
        counts: counter "evaluation/failed_requests".

    Attributes:
        settings: what is evaluated.
        set: set by `prepare`; the same for one `eval_seed` and selection of tasks.
        folder: of the last evaluation's results, or of the first one's before it runs.
        report: of the last evaluation; empty while one is running.
        has_run: whether an evaluation has begun.
    """

    set: EvaluationSet

    def __init__(
        self,
        settings: EvaluationSettings,
        client: CompletionSource,
        verifier: Verifier,
        counts: Counter[str],
    ) -> None:
        self.folder = settings.folder
        self.report = EvaluationReport(attempts=settings.options.eval_attempts)
        self.settings = settings
        self._client = client
        self._verifier = verifier
        self._counts = counts
        self._categories: Mapping[str, str] = {}
        self._unlogged: dict[str, float] = {}
        self.has_run = False
        self._wrong: list[StoredGroup] = []
        self._reasons: Counter[str] = Counter()
        self._usage: UsageLog | None = None
        self._resumable = True
        self._refused = 0

    @property
    def temperature(self) -> float | None:
        """The temperature; None if the endpoint refuses one and samples with its default."""
        if "temperature" in self._client.refused:
            return None
        return self.settings.options.eval_temperature

    def prepare(
        self,
        generate: Generate,
        categories: Mapping[str, str],
        ladders: Mapping[str, Ladder],
    ) -> None:
        """Plan the evaluation set of the selected tasks; items are generated when first needed.

        Args:
            generate: makes items of evaluation's side; a suite's as they are.
        """
        suite = self.settings.suite
        if suite is not None:
            self._categories = {t: c for t, c in categories.items() if t in suite.tasks}
            self.set = EvaluationSet(generate, suite.recipes(), is_fixed=True)
            return
        self._categories = categories
        planned = planned_recipes(
            tasks=sorted(categories),
            ladders=ladders,
            eval_seed=self.settings.options.eval_seed,
            num_eval_samples_per_task=self.settings.options.num_eval_samples_per_task,
            eval_difficulties=self.settings.options.eval_difficulties,
        )
        size = min(self.settings.limit or len(planned), len(planned))
        planned = [planned[number * len(planned) // size] for number in range(size)]
        self.set = EvaluationSet(generate, planned)

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
            raise IncompleteEvaluationError(
                "no item of the evaluation set could be generated"
            )
        if self.settings.suite is not None:
            require_same_questions(
                self.settings.suite, [item.problem for item in items]
            )
        begin = time.monotonic()
        self.report = EvaluationReport(attempts=self.settings.options.eval_attempts)
        settings = self._result_settings(length_limit, identity["library_versions"])
        self.folder = (
            self.settings.folder
            if step is None
            else self.settings.folder / f"step-{step}"
        )
        # While serving, the model changes under its name.
        self._resumable = step is None
        if self.has_run or not self._resumable:
            self.folder = next_free_folder(self.folder)
        self.has_run = True
        folder_option = self.settings.caller.folder_option
        at = {"step": self.settings.options.eval_step if step is None else step}
        with (
            locked(self.folder, folder_option),
            closing(
                EvaluationStore(self.folder, {**settings, **at}, folder_option)
            ) as store,
        ):
            usage = UsageLog(self.folder, store.disk)
            for tokens in self._client.take_probe_usage():
                usage.add(tokens)
            self._usage = usage
            await self._sample_missing(items, store, length_limit, {**identity, **at})
            await self._report(items, store, time.monotonic() - begin)
        self._unlogged = self.report.curves()
        if at["step"] is not None:
            self._unlogged["eval/step"] = at["step"]
        if not self.report.coverage.scored:
            raise IncompleteEvaluationError(self._incomplete())
        if self.report.coverage.missing:
            logger.warning("%s", self._incomplete())

    async def _report(
        self, items: Sequence[EvaluationItem], store: EvaluationStore, seconds: float
    ) -> None:
        """Calculate the metrics of all samples, and write them."""
        keys = dict.fromkeys(item.key for item in items) | dict.fromkeys(store.samples)
        # Samples of items that are not asked now come last.
        samples = [store.samples[key] for key in keys]
        self._wrong = [s for s in samples if s.rollouts[0].status is Status.WRONG][:1]
        self._reasons = Counter(s.rollouts[0].detail for s in samples if not s.scored)
        baselines = Baselines.at_threshold(
            self.settings.scoring.solved_threshold,
            categories=self._categories,
            attempts=self.settings.options.eval_attempts,
        )
        report = await asyncio.to_thread(evaluation_report, samples, baselines)
        missing_items = await self.set.missing()
        self._reasons.update(item.reason for item in missing_items)
        self.report = replace(
            report,
            few_questions=await self.set.few_questions(),
            missing_items=missing_items,
            temperature=self.temperature,
        )
        _warn_without_answers(samples, f"all {len(samples)} items")
        logger.info("Evaluation: %s", headline(self.report))
        results = self._results(seconds)
        await store.disk.write(partial(store.complete, samples, results), must_end=True)

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
        if store.attempts:
            count = sum(map(len, store.attempts.values()))
            logger.info("Keeping %d attempts at unfinished items", count)
        self._refused = 0
        await self._log_plan(missing, store, length_limit)
        concurrent = (
            self.settings.max_eval_workers // self.settings.options.eval_attempts
        )
        slots = asyncio.Semaphore(max(1, concurrent))
        check_is_due = finished < GROUPS < len(items)

        async def sample(asked_alike: Sequence[EvaluationItem]) -> None:
            """Ask a question once for all items that have it, and store a row of each."""
            nonlocal check_is_due
            async with slots:
                problems = [item.problem for item in asked_alike]
                groups = await self._sample(problems, store, length_limit)
            for item, group in zip(asked_alike, groups, strict=True):
                row = self._row(group, identity)
                await store.add(structs.replace(row, sampled_at=item.difficulty))
            if all(group.scored for group in groups):
                store.attempts.pop(problems[0].question, None)
            if check_is_due and len(store.samples) >= GROUPS:
                check_is_due = False
                first_samples = list(store.samples.values())[:GROUPS]
                _warn_without_answers(first_samples, f"the first {GROUPS} items")

        by_question = group_by(lambda item: item.problem.question, missing)
        jobs = [sample(asked_alike) for asked_alike in by_question.values()]
        try:
            await with_progress(
                jobs,
                "evaluation",
                done=finished,
                note=lambda: self._client.waiting,
            )
        except asyncio.CancelledError:
            logger.warning(
                "Interrupted with %d items finished: %s",
                len(store.samples),
                self._hint(),
            )
            raise

    async def _sample(
        self, problems: Sequence[Problem], store: EvaluationStore, length_limit: int
    ) -> list[GroupResult]:
        """Return all attempts at problems with one question; unscored where inference fails."""
        try:
            completions = await self._complete(problems[0], store, length_limit)
            groups = [
                await grade(problem, completions, self._verifier, self.settings.scoring)
                for problem in problems
            ]
        except InferenceError as error:
            self._record_failure(problems[0].recipe.task, error)
            return [
                unscored_group(
                    problem,
                    str(error),
                    attempts=self.settings.options.eval_attempts,
                )
                for problem in problems
            ]
        self._refused = 0
        return groups

    async def _complete(
        self, problem: Problem, store: EvaluationStore, length_limit: int
    ) -> list[Completion]:
        """Return the completions of all attempts at a question, and store those of each request.

        Those that the store has are not requested again.
        """
        question = problem.question
        stored = list(store.attempts.get(question, []))
        missing = self.settings.options.eval_attempts - len(stored)
        part_size = self._client.part_size

        async def request(n: int) -> list[Completion]:
            completions = await self._client.sample(
                question,
                n=n,
                length_limit=length_limit,
                sampling=self.settings.sampling,
                record=partial(self._record_usage, problem.recipe.task),
            )
            await store.add_attempts(question, completions)
            return completions

        parts = await gather_or_cancel(
            request(min(part_size, missing - begun))
            for begun in range(0, missing, part_size)
        )
        return [*stored, *(completion for part in parts for completion in part)]

    async def _log_plan(
        self,
        items: Sequence[EvaluationItem],
        store: EvaluationStore,
        length_limit: int,
    ) -> None:
        """Log what asking items will cost."""
        attempts = self.settings.options.eval_attempts
        missing = {
            item.problem.question: attempts
            - len(store.attempts.get(item.problem.question, []))
            for item in items
        }

        def all_plans() -> list[RequestPlan]:
            plans = (
                self._client.plan(question, n=n, length_limit=length_limit)
                for question, n in missing.items()
            )
            return [plan for plan in plans if plan is not None]

        plans = await asyncio.to_thread(all_plans)
        if plans:
            logger.info("%s", describe_plan(plans, self.settings))

    def _record_usage(self, task: str, tokens: RequestUsage) -> None:
        if self._usage is not None:
            self._usage.add(tokens, task)

    def _row(self, group: GroupResult, identity: Mapping[str, Any]) -> StoredGroup:
        messages = self._client.prompt(group.problem.question).messages
        return StoredGroup.of_run(group, messages, identity, self.settings.scoring)

    def _record_failure(self, task: str, error: InferenceError) -> None:
        self._counts["evaluation/failed_requests"] += 1
        logger.warning(
            "Evaluation of %s: %s", task, error, extra=throttled(self.folder)
        )
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
            "few_questions": dict(self.report.few_questions),
            "missing_items": [item.to_json() for item in self.report.missing_items],
            "also_trained_on": dict(self.report.also_trained_on),
            "config_general": {
                "model_name": self.settings.model,
                "total_evaluation_time_seconds": str(seconds),
                "generation_parameters": sampling,
            },
            "usage": self._usage.to_json(self.settings.price) if self._usage else None,
            "results": {"atropos|reasoning_gym_eval|0": numbers, "all": numbers},
        }

    def take_curves(self) -> dict[str, float]:
        """Return wandb's numbers of an evaluation that ended since the last call, or nothing."""
        curves = self._unlogged
        self._unlogged = {}
        return curves

    def require_complete(self) -> None:
        """Raise IncompleteEvaluationError if more than 2 % of the last one's items lack a score."""
        coverage = self.report.coverage
        if coverage.missing > 0.02 * coverage.items:
            raise IncompleteEvaluationError(self._incomplete())

    def _incomplete(self) -> str:
        coverage = self.report.coverage
        why = self._reasons.most_common(1)[0][0]
        return (
            f"{coverage.missing} of {coverage.items} items could not be made or scored (often: "
            f"{why}): the results stand on the other {coverage.scored}; {self._hint()}"
        )

    def _hint(self) -> str:
        if self._reasons and all(
            reason.startswith(NO_ROOM) for reason in self._reasons
        ):
            return "raise --env.max_token_length, or choose tasks and levels with shorter prompts"
        if not self._resumable:
            return "serving again starts the evaluation anew"
        call, folder_option = self.settings.caller
        among = self.settings.among
        folder = self.folder if among is None else among.folder
        return f"repeat {call} with {folder_option} {folder} to complete it"

    def show(self, terminal: TextIO) -> None:
        """Write the last evaluation's table, headline, a wrong answer and how to see the others."""
        parts = [f"results: {self.folder}", "", headline(self.report), ""]
        for sample in self._wrong:
            answer, oracle = (
                excerpt(str(s)) for s in (sample.rollouts[0].answer, sample.oracle)
            )
            parts += [f"A wrong answer, in {sample.task}: {excerpt(sample.question)}"]
            parts += [f"answered: {answer}", f"oracle: {oracle}", ""]
        see = f"See all answers: reasoning-gym-environment report {shlex.quote(str(self.folder))}"
        tables = [evaluation_table(self.report)]
        if self._usage is not None:
            price = self.settings.price
            tables.append(usage_table(self._usage, self.settings.model, price))
        shown = "\n\n".join([*filter(None, tables), table(parts)])
        terminal.write(f"\n{shown}\n{see}\n")


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


def _warn_without_answers(samples: Sequence[StoredGroup], subject: str) -> None:
    """Log a warning if nearly all completions have no answer; `subject` names the samples."""
    check = AnswerCheck(samples[0].answer_format)
    for sample in samples:
        completed = [
            rollout for rollout in sample.rollouts if rollout.length is not None
        ]
        check.add((r.text, r.finish_reason, r.status) for r in completed)
    consequence = "the results measure the format, not the model"
    text = check.warning(subject, consequence=consequence)
    if text:
        logger.warning("%s", text)
