"""The parts of a run, each made from the options that it depends on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evaluation.evaluation_settings import EvaluationSettings
from ..evaluation.options import Price
from ..evaluation.run import Evaluation
from ..inference.client import InferenceClient
from ..inference.dialects import SamplingParams
from ..inference.prompts import STOP_STRINGS, resolve_system_prompt
from ..problems.split import SplitProblems
from ..problems.training import TrainingProblems
from ..rollouts.accounting import Statistics
from ..rollouts.progress import ProgressReporter
from ..sandbox.pool import TaskPool
from ..sandbox.worker_groups import StartWorker
from ..scoring.channels import parse_markers
from ..scoring.grading import ScoringSettings
from ..settings import Settings, pool_settings, scoring_settings
from ..storage.dumps import DumpWriter
from ..storage.run_record import RunRecorder
from ..util.log_throttle import LogPauses
from ..util.logs import SecretRedactor
from . import output
from .api_client import ApiClient
from .config import ReasoningGymEnvConfig, chat_template_text
from .groups_file import GroupsFile
from .metrics_log import MetricsLog
from .trainer_api import BatchShare, TrainerApi

LEAST_PREFETCH = 64
"""Problems made ahead of demand; twice as many as workers, if that is more, so that none waits."""

RESULT_OPTIONS = frozenset(
    (
        "chat_template_kwargs",
        "generation_timeout",
        "max_reasoning_tokens",
        "reasoning_effort",
        "thinking_mode",
        "thought_markers",
        "tokenizer_name",
    )
)
"""Options beside those of evaluations that determine an evaluation's results."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a run holds: one object for each subject.

    Attributes:
        servers: Atropos's server manager, which shares its places among environments by weight.
        groups_file: Atropos's own file of groups; None unless it is configured.
        log_pauses: between progress lines, and lines about waits.
    """

    dumps: DumpWriter
    evaluation: Evaluation
    groups_file: GroupsFile | None
    inference: InferenceClient
    metrics: MetricsLog
    pool: TaskPool
    problems: TrainingProblems
    progress: ProgressReporter
    log_pauses: LogPauses
    record: RunRecorder
    sampling: SamplingParams
    scoring: ScoringSettings
    servers: Any
    settings: Settings
    split: SplitProblems
    statistics: Statistics
    tokenizer: Any
    trainer: TrainerApi

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of libraries that stored rows name."""
        return {**self.pool.versions, **output.VERSIONS}

    @property
    def max_workers(self) -> int:
        """Items at work at once, as the settings allow."""
        config = self.settings.env
        workers: int = config.max_num_workers
        if workers == -1:
            workers = config.max_num_workers_per_node * len(self.servers.servers)
        return workers

    def start_stream(self, replica: str) -> None:
        """Start the training stream, unless it has started.

        Args:
            replica: by whose name its problems differ from those of others.
        """
        if not self.problems.started:
            self.problems.start_stream(
                replica,
                prefetch=max(LEAST_PREFETCH, 2 * self.max_workers),
            )


def make_parts(
    settings: Settings,
    servers: Any,
    tokenizer: Any,
    *,
    run_id: str,
    log_pauses: LogPauses,
    start_worker: StartWorker | None,
) -> Parts:
    """Return the parts of a run, of which none has started, and create `data_path_to_save_groups`.

    Args:
        settings: all of them, complete.
        servers: Atropos's server manager.
        tokenizer: with its chat template; None at chat endpoints.
        log_pauses: between progress lines, and lines about waits.
        start_worker: starts a worker process; None for the pool's own way.

    Raises:
        UnwritableError: `data_path_to_save_groups` can't be created.
    """
    config: ReasoningGymEnvConfig = settings.env
    statistics = Statistics()
    counts = statistics.counts
    pool = TaskPool(pool_settings(config), counts, start_worker=start_worker)
    split = SplitProblems.of_pool(
        pool, counts, skip_faulty_items=config.skip_faulty_items
    )
    problems = training_problems(config, pool, counts, split)
    inference = inference_client(config, servers, tokenizer)
    evaluated = evaluation_settings(settings, model=inference.model, run_id=run_id)
    trainer = trainer_api(config, log_pauses)
    dumps = dump_writer(config, run_id, counts)

    def reasons_to_wait() -> list[str]:
        return [inference.failover.waiting, trainer.waiting]

    return Parts(
        dumps=dumps,
        evaluation=Evaluation(evaluated, inference, pool, counts),
        groups_file=groups_file(settings, counts),
        inference=inference,
        metrics=MetricsLog(config, statistics, problems),
        pool=pool,
        problems=problems,
        progress=ProgressReporter(
            statistics,
            waiting=reasons_to_wait,
            mask_incomplete=config.mask_too_long_completions,
            answer_format=config.answer_format,
        ),
        log_pauses=log_pauses,
        record=RunRecorder(
            Path(config.data_dumps_dir),
            run_id,
            disk=dumps.disk,
            redactor=SecretRedactor(inference.keys),
        ),
        sampling=SamplingParams(
            temperature=config.temperature, top_p=config.top_p, split="train"
        ),
        scoring=scoring_settings(config),
        servers=servers,
        settings=settings,
        split=split,
        statistics=statistics,
        tokenizer=tokenizer,
        trainer=trainer,
    )


def training_problems(
    config: ReasoningGymEnvConfig,
    pool: TaskPool,
    counts: Counter[str],
    split: SplitProblems,
) -> TrainingProblems:
    """Return the training stream, which selects its tasks later."""
    return TrainingProblems(
        config,
        pool,
        counts,
        tasks=config.include_tasks,
        seed=config.seed,
        split=split,
        max_token_length=config.max_token_length,
        group_size=config.group_size,
    )


def inference_client(
    config: ReasoningGymEnvConfig, servers: Any, tokenizer: Any
) -> InferenceClient:
    """Return the client of Atropos's servers."""
    return InferenceClient(
        [server.client for server in servers.servers],
        tokenizer,
        system_prompt=resolve_system_prompt(config.system_prompt, config.answer_format),
        own_markers=parse_markers(config.thought_markers),
        template_kwargs=config.chat_template_kwargs,
        stop_strings=STOP_STRINGS.get(config.chat_template, ()),
        max_n=servers.max_n_completions,
    )


def trainer_api(config: ReasoningGymEnvConfig, log_pauses: LogPauses) -> TrainerApi:
    """Return the client of the trainer's API, which has not registered yet."""
    share = BatchShare(
        group_size=config.group_size,
        inference_weight=config.inference_weight,
        min_batch_allocation=config.min_batch_allocation,
    )
    client = ApiClient(config.rollout_server_url)
    return TrainerApi(client, share, log_pauses=log_pauses)


def dump_writer(
    config: ReasoningGymEnvConfig, run_id: str, counts: Counter[str]
) -> DumpWriter:
    """Return the writer of the run's groups."""
    return DumpWriter(
        Path(config.data_dumps_dir),
        run_id,
        counts,
        synced=config.sync_dumps,
        max_bytes=config.max_dump_bytes,
    )


def groups_file(settings: Settings, counts: Counter[str]) -> GroupsFile | None:
    """Return Atropos's own file of groups, created; None unless it is configured."""
    path = settings.env.data_path_to_save_groups
    if not path:
        return None
    # `process` may have no other output.
    return GroupsFile(Path(path), counts, waits=settings.command == "process")


def evaluation_settings(
    settings: Settings, *, model: str, run_id: str
) -> EvaluationSettings:
    """Return the settings of evaluations; `run_id` names the results' folder if none is set."""
    config: ReasoningGymEnvConfig = settings.env
    folder = (
        config.data_dir_to_save_evals or f"{config.data_dumps_dir}/evaluation_{run_id}"
    )
    conditions = {name: getattr(config, name) for name in sorted(RESULT_OPTIONS)}
    conditions["system_prompt"] = resolve_system_prompt(
        config.system_prompt, config.answer_format
    )
    conditions["chat_template"] = chat_template_text(config.chat_template)
    return EvaluationSettings(
        options=config,
        conditions=conditions,
        skip_faulty_items=config.skip_faulty_items,
        scoring=scoring_settings(config),
        max_eval_workers=config.max_eval_workers,
        folder=Path(folder),
        model=model,
        suite=settings.suite,
        limit=settings.flags.limit,
        price=Price(*settings.flags.price) if settings.flags.price else None,
        among=settings.among,
    )
