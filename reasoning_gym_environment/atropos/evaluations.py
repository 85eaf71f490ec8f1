"""Evaluations: the same for the `evaluate` command and while a trainer is served."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from ..config import ReasoningGymEnvConfig, scoring_settings
from ..errors import FixableError
from ..evaluation.metrics import Background, EvaluationReport, evaluation_report
from ..evaluation.plan import EvaluationItem
from ..evaluation.run import run_evaluation
from ..evaluation.store import EvaluationStore, unused
from ..evaluation.tables import evaluation_table, headline
from ..records import GroupResult
from ..rollouts.prompts import resolve_system_prompt
from ..storage.rows import StoredGroup, recipe_key
from ..tasks.chance import chance_floors
from ..util.files import replacing
from .inference import InferenceError
from .rollouts import Rollouts
from .training_problems import TrainingProblems

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
"""The settings that determine an evaluation's results as they stand, beside those of scoring."""


class Log(Protocol):
    """Atropos's `evaluate_log`: writes `metrics.json` and `samples.jsonl`."""

    def __call__(
        self,
        metrics: dict[str, float],
        *,
        samples: list[dict[str, Any]],
        start_time: float,
        end_time: float,
        generation_parameters: dict[str, Any],
        verbose: bool,
    ) -> Coroutine[Any, Any, None]: ...


class Evaluations:
    """Runs the fixed evaluation set and keeps its results.

    Args:
        model: the name of the model that is evaluated.
        run_id: names the folder of results where none is configured.

    Attributes:
        report: of the last evaluation; empty while one is under way.
    """

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        problems: TrainingProblems,
        rollouts: Rollouts,
        *,
        model: str,
        run_id: str,
    ) -> None:
        self.report = EvaluationReport(attempts=config.eval_attempts)
        self._config = config
        self._problems = problems
        self._rollouts = rollouts
        self._model = model
        self._folder = Path(
            config.data_dir_to_save_evals or f"{config.data_dumps_dir}/evaluation_{run_id}"
        )
        self._begun = False

    async def run(
        self, log: Log, *, step: int | None, max_length: int, identity: Mapping[str, Any]
    ) -> None:
        """Evaluate, and write the results.

        Args:
            step: of the trainer that is served; None in the `evaluate` command.
            max_length: tokens of prompt and completion.
            identity: what every sample says of its run.

        Raises:
            ConfigurationError: the folder holds an evaluation with other settings.
            InferenceError: nothing could be scored.
        """
        begin, self.report = time.time(), EvaluationReport(attempts=self._config.eval_attempts)
        store = self._open(step, max_length, identity["library_versions"])
        await self._ask(store, max_length, identity)
        samples = self._in_order(store)
        self.report = await asyncio.to_thread(self._measure, samples)
        logger.info("Evaluation: %s", headline(self.report))
        self._config.data_dir_to_save_evals = str(store.folder)
        rows = await asyncio.to_thread(lambda: [sample.to_json() for sample in samples])
        written = log(
            self.report.numbers(),
            samples=rows,
            start_time=begin,
            end_time=time.time(),
            generation_parameters={"temperature": self._config.eval_temperature},
            verbose=False,
        )
        await asyncio.to_thread(asyncio.run, written)  # all samples at once would stall the loop
        store.complete()
        self._require_scores(store)

    def _open(self, step: int | None, max_length: int, versions: Any) -> EvaluationStore:
        """Where the samples go: the first evaluation without a step continues what it finds.

        While a trainer is served the model changes under its name: nothing is continued.
        """
        folder = self._folder if step is None else self._folder / f"step-{step}"
        if self._begun or step is not None:
            folder = unused(folder)
        self._begun = True
        settings = {
            **scoring_settings(self._config).to_json(),
            **self._config.model_dump(mode="json", include=set(DECISIVE)),
            "library_versions": versions,
            "max_token_length": max_length,
            "model_name": self._model,
            "step": step,
            "system_prompt": resolve_system_prompt(self._config.system_prompt),
            "tasks": sorted(self._problems.categories),
        }
        return EvaluationStore(folder, settings)

    async def _ask(
        self, store: EvaluationStore, max_length: int, identity: Mapping[str, Any]
    ) -> None:
        """Complete the samples of the store."""
        items = self._problems.evaluation_set
        missing = [item for item in items if _key(item) not in store.samples]
        resume = f"the same command with --env.data_dir_to_save_evals {store.folder} goes on"
        logger.info(
            "Evaluating %d items, %d of them finished before; after an interruption %s",
            len(items),
            len(items) - len(missing),
            resume,
        )

        async def keep(item: EvaluationItem, group: GroupResult) -> None:
            await store.add(self._rollouts.row(group, identity).as_sample(item.difficulty))

        try:
            await run_evaluation(
                missing,
                lambda problem: self._rollouts.evaluate(problem, max_length=max_length),
                keep,
                attempts=self._config.eval_attempts,
                concurrency=self._config.max_eval_workers,
                done=len(items) - len(missing),
            )
        except asyncio.CancelledError:
            logger.warning("Interrupted with %d items finished: %s", len(store.samples), resume)
            raise

    def _in_order(self, store: EvaluationStore) -> list[StoredGroup]:
        """All samples in the order of the set; those it can't make any more come last."""
        keys = dict.fromkeys(_key(item) for item in self._problems.evaluation_set)
        return [store.samples[key] for key in keys | dict.fromkeys(store.samples)]

    def _measure(self, samples: Sequence[StoredGroup]) -> EvaluationReport:
        background = Background(
            categories=self._problems.categories,
            floors=chance_floors(self._config.solved_threshold),
            attempts=self._config.eval_attempts,
        )
        return evaluation_report(samples, background)

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
        terminal.write(f"\n{table}\n\nresults: {self._config.data_dir_to_save_evals}\n")


def withhold_keys(folder: str | None) -> None:
    """Take the API key out of the configuration Atropos puts beside results one may publish.

    Raises:
        FixableError: the file can't be written to.
    """
    path = Path(folder or "", "evaluate_config.yaml")
    if folder is None or not path.exists():
        return
    try:
        text = re.sub(r"(\bapi_key:).*", r"\1 withheld", path.read_text())
        with replacing(path) as whole:
            whole.write_text(text)
    except OSError as error:
        raise FixableError(f"the API key can't be taken out of {path}: {error}") from error


def _key(item: EvaluationItem) -> str:
    return recipe_key(item.problem.recipe)
