"""One evaluation from the set to the results on disk, resumed where it was interrupted."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from ..inference.errors import InferenceError
from ..inference.requests import SamplingParams
from ..records import Attempt, Completion, GroupResult, Ladder, Problem, Reward, Status, Verdict
from ..sandbox.pool import MakesProblems
from ..scoring.grading import ScoringSettings
from ..storage.rows import StoredGroup, recipe_key, stable_json
from ..tasks.chance_floors import chance_floors, no_reasoning_floors
from ..util.progress import with_progress
from .metrics import Background, EvaluationReport, evaluation_report
from .plan import EvaluationItem, EvaluationPlan, EvaluationSet
from .store import EvaluationStore, unused
from .tables import evaluation_table, headline

logger = logging.getLogger(__name__)

DECISIVE = (
    "eval_attempts",
    "eval_levels",
    "eval_seed",
    "eval_temperature",
    "generation_timeout",
    "max_reasoning_tokens",
    "num_eval_samples_per_task",
    "reasoning_effort",
    "thinking_mode",
    "tokenizer_name",
)
"""The options that determine an evaluation's results as they stand, beside those of scoring."""


class Samples(Protocol):
    """What an evaluation needs of rollouts."""

    async def sample(
        self, problem: Problem, *, n: int, max_length: int, sampling: SamplingParams
    ) -> GroupResult: ...

    def row(self, group: GroupResult, identity: Mapping[str, Any]) -> StoredGroup: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSettings:
    """What is evaluated, and where the results go; fields are named as the options.

    Attributes:
        max_eval_workers: completions asked for at once; a single item may exceed it.
        folder: of the results.
        decisive: JSON; with the scoring and the run's own part, all that determines the results.
        model: the name of the model that is evaluated.
    """

    eval_seed: int
    num_eval_samples_per_task: int
    eval_attempts: int
    eval_levels: Sequence[float]
    eval_temperature: float
    max_eval_workers: int
    scoring: ScoringSettings
    folder: Path
    decisive: Mapping[str, Any]
    model: str

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=self.eval_temperature, top_p=1.0, split="eval")


class Evaluation:
    """The fixed evaluation set and its runs: of the `evaluate` command, or while serving.

    Args:
        counts: where failed requests are counted.

    Attributes:
        set: the same for one `eval_seed` and choice of tasks; there after `prepare`.
        folder: of the last evaluation's results; before one, where they will go.
        report: of the last evaluation; empty while one is under way.
    """

    set: EvaluationSet

    def __init__(
        self, settings: EvaluationSettings, rollouts: Samples, counts: Counter[str]
    ) -> None:
        self.folder = settings.folder
        self.report = EvaluationReport(attempts=settings.eval_attempts)
        self._settings = settings
        self._rollouts = rollouts
        self._counts = counts
        self._categories: Mapping[str, str] = {}
        self._unlogged: EvaluationReport | None = None
        self._begun = False

    def prepare(
        self, pool: MakesProblems, categories: Mapping[str, str], ladders: Mapping[str, Ladder]
    ) -> None:
        """Plan the evaluation set, whose items are made when they are first needed.

        Args:
            categories: category by task, of the tasks in use.
            ladders: by task; of use where difficulties are to be evaluated.
        """
        self._categories = categories
        plan = EvaluationPlan(
            seed=self._settings.eval_seed,
            tasks=sorted(categories),
            per_task=self._settings.num_eval_samples_per_task,
            difficulties=self._settings.eval_levels,
            ladders=ladders,
        )
        self.set = EvaluationSet(pool, plan)

    async def run(self, *, step: int | None, max_length: int, identity: Mapping[str, Any]) -> None:
        """Evaluate, and write the results.

        Args:
            step: of the trainer that is served; None in the `evaluate` command.
            max_length: tokens of prompt and completion.
            identity: what every sample says of its run.

        Raises:
            ConfigurationError: the folder holds an evaluation with other settings.
            InferenceError: nothing could be scored.
        """
        items = await self.set.items()
        begin, self.report = time.time(), EvaluationReport(attempts=self._settings.eval_attempts)
        store = self._open(step, max_length, identity["library_versions"])
        self.folder = store.folder
        await self._ask(items, store, max_length, identity)
        samples = _in_order(items, store)
        self.report = self._unlogged = await asyncio.to_thread(self._measure, samples)
        logger.info("Evaluation: %s", headline(self.report))
        await asyncio.to_thread(store.complete, samples, self._results(time.time() - begin))
        self._require_scores(store)

    def _open(self, step: int | None, max_length: int, versions: Any) -> EvaluationStore:
        """Where the samples go: the first evaluation without a step continues what it finds.

        While a trainer is served the model changes under its name: nothing is continued.
        """
        folder = self._settings.folder
        if step is not None:
            folder = folder / f"step-{step}"
        if self._begun or step is not None:
            folder = unused(folder)
        self._begun = True
        return EvaluationStore(folder, {**self._determined_by(max_length, versions), "step": step})

    def _determined_by(self, max_length: int, versions: Any) -> dict[str, Any]:
        """All that determines the results, but the trainer's step; JSON."""
        return {
            **self._settings.scoring.to_json(),
            **self._settings.decisive,
            "library_versions": versions,
            "max_token_length": max_length,
            "model_name": self._settings.model,
            "tasks": sorted(self._categories),
        }

    def key(self, *, max_length: int, versions: Any) -> str:
        """Name the evaluation; equal for replicas whose evaluations have equal results."""
        text = stable_json(self._determined_by(max_length, versions))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    async def _ask(
        self,
        items: Sequence[EvaluationItem],
        store: EvaluationStore,
        max_length: int,
        identity: Mapping[str, Any],
    ) -> None:
        """Complete the samples of the store."""
        missing = [item for item in items if _key(item) not in store.samples]
        finished = len(items) - len(missing)
        resume = f"the same command with --env.data_dir_to_save_evals {store.folder} goes on"
        logger.info(
            "Evaluating %d items, %d of them finished before; after an interruption %s",
            len(items),
            finished,
            resume,
        )
        places = asyncio.Semaphore(
            max(1, self._settings.max_eval_workers // self._settings.eval_attempts)
        )

        async def one(item: EvaluationItem) -> None:
            async with places:
                group = await self._sample(item.problem, max_length)
            row = self._rollouts.row(group, identity)
            await store.add(row.as_sample(item.difficulty))

        try:
            await with_progress([one(item) for item in missing], "evaluation", done=finished)
        except asyncio.CancelledError:
            logger.warning("Interrupted with %d items finished: %s", len(store.samples), resume)
            raise

    async def _sample(self, problem: Problem, max_length: int) -> GroupResult:
        """All attempts at a problem; unscored where the servers give no completions."""
        attempts = self._settings.eval_attempts
        try:
            return await self._rollouts.sample(
                problem, n=attempts, max_length=max_length, sampling=self._settings.sampling
            )
        except InferenceError as error:
            self._counts["evaluation/failed_requests"] += 1
            logger.warning("Evaluation of %s: %s", problem.recipe.task, error)
            return unscored_group(problem, str(error), attempts=attempts)

    def _measure(self, samples: Sequence[StoredGroup]) -> EvaluationReport:
        background = Background(
            categories=self._categories,
            floors=chance_floors(self._settings.scoring.solved_threshold),
            no_reasoning_floors=no_reasoning_floors(self._settings.scoring.solved_threshold),
            attempts=self._settings.eval_attempts,
        )
        return evaluation_report(samples, background)

    def _results(self, seconds: float) -> dict[str, Any]:
        """The evaluation as Atropos's `evaluate_log` writes it into `metrics.json`."""
        sampling = {
            "max_new_tokens": self._settings.scoring.max_token_length,
            "temperature": self._settings.eval_temperature,
        }
        numbers = self.report.numbers()
        return {
            "config_general": {
                "model_name": self._settings.model,
                "total_evaluation_time_seconds": str(seconds),
                "generation_parameters": sampling,
            },
            "results": {"atropos|reasoning_gym_eval|0": numbers, "all": numbers},
        }

    def take_curves(self) -> dict[str, float]:
        """What wandb gets of an evaluation that has ended since the last call; empty without."""
        report, self._unlogged = self._unlogged, None
        return report.curves() if report else {}

    def _require_scores(self, store: EvaluationStore) -> None:
        lost = sum(not sample.scored for sample in store.samples.values())
        if lost == len(store.samples):
            raise InferenceError("no evaluation sample could be scored; see the warnings above")
        if lost:
            logger.warning(
                "%d of %d samples could not be scored; the same command with "
                "--env.data_dir_to_save_evals %s asks for them again",
                lost,
                len(store.samples),
                store.folder,
            )

    def show(self, terminal: TextIO) -> None:
        """Write the last evaluation's table."""
        table = evaluation_table(self.report)
        terminal.write(f"\n{table}\n\nresults: {self.folder}\n")


def unscored_group(problem: Problem, reason: str, *, attempts: int) -> GroupResult:
    """Stands for the completions that the server did not give."""
    completion = Completion(text="", tokens=(), masks=(), logprobs=None, finish_reason="error")
    verdict = Verdict(score=None, status=Status.UNSCORED, detail=reason)
    reward = Reward(value=0.0, score=None)
    attempt = Attempt(completion=completion, answer=None, verdict=verdict, reward=reward)
    return GroupResult(problem=problem, attempts=(attempt,) * attempts)


def _in_order(items: Sequence[EvaluationItem], store: EvaluationStore) -> list[StoredGroup]:
    """All samples in the order of the set; those it can't make any more come last."""
    keys = dict.fromkeys(_key(item) for item in items)
    return [store.samples[key] for key in keys | dict.fromkeys(store.samples)]


def _key(item: EvaluationItem) -> str:
    return recipe_key(item.problem.recipe)
