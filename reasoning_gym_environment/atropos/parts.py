"""Parts of the environment, each made from the options that it depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evaluation.evaluation_settings import EvaluationSettings
from ..evaluation.run import Evaluation
from ..inference.client import InferenceClient
from ..inference.dialects import SamplingParams
from ..inference.prompts import resolve_system_prompt
from ..problems.training import TrainingProblems
from ..rollouts.accounting import Statistics
from ..rollouts.progress import ProgressReporter
from ..sandbox.pool import TaskPool
from ..sandbox.worker_groups import StartWorker
from ..scoring.channels import parse_markers
from ..scoring.grading import ScoringSettings
from ..settings import pool_settings, scoring_settings
from ..storage.dumps import DumpWriter
from ..storage.run_record import RunRecorder
from ..util.logs import SecretRedactor
from .config import ReasoningGymEnvConfig, chat_template_text
from .delivery import Delivery
from .evaluation_schedule import EvaluationSchedule
from .metrics_log import MetricsLog
from .trainer_api import TrainerApi


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the environment holds: one object for each subject."""

    api: TrainerApi
    delivery: Delivery
    dumps: DumpWriter
    evaluation: Evaluation
    inference: InferenceClient
    metrics: MetricsLog
    pool: TaskPool
    problems: TrainingProblems
    progress: ProgressReporter
    record: RunRecorder
    sampling: SamplingParams
    schedule: EvaluationSchedule
    scoring: ScoringSettings
    statistics: Statistics


def make_parts(
    config: ReasoningGymEnvConfig,
    servers: Any,
    tokenizer: Any,
    system_prompt: str,
    *,
    run_id: str,
    recorded_state: Callable[[], dict[str, Any]],
    evaluation_lock: Callable[[], Path],
    start_worker: StartWorker | None,
) -> Parts:
    """Return the parts of an environment, of which none has started.

    Args:
        servers: Atropos's server manager.
        recorded_state: returns the changing fields of the run's record.
        evaluation_lock: returns the file that elects the replica which evaluates.
        start_worker: starts a worker process; None for the pool's own way.
    """
    statistics = Statistics()
    counts = statistics.counts
    pool = TaskPool(pool_settings(config), counts, start_worker=start_worker)
    problems = training_problems(config, pool, counts)
    inference = inference_client(config, servers, tokenizer, system_prompt)
    dumps = dump_writer(config, run_id, counts)
    evaluation = Evaluation(
        evaluation_settings(config, model=inference.model, run_id=run_id),
        inference,
        pool,
        counts,
    )
    api = TrainerApi(config.rollout_server_url)
    vocabulary = len(tokenizer) if tokenizer else 0
    return Parts(
        api=api,
        delivery=Delivery(api, statistics, vocabulary, config.data_path_to_save_groups),
        dumps=dumps,
        evaluation=evaluation,
        inference=inference,
        metrics=MetricsLog(config, statistics, problems),
        pool=pool,
        problems=problems,
        progress=ProgressReporter(
            statistics,
            waiting=lambda: [inference.failover.waiting, api.waiting],
        ),
        record=run_recorder(config, run_id, dumps, inference, recorded_state),
        sampling=training_sampling(config),
        schedule=EvaluationSchedule(config.steps_per_eval, evaluation_lock),
        scoring=scoring_settings(config),
        statistics=statistics,
    )


def training_problems(
    config: ReasoningGymEnvConfig, pool: TaskPool, counts: Counter[str]
) -> TrainingProblems:
    """Return the training stream, which selects its tasks later."""
    return TrainingProblems(
        config,
        pool,
        counts,
        tasks=config.include_tasks,
        seed=config.seed,
        skip_faulty_items=config.skip_faulty_items,
        max_token_length=config.max_token_length,
        group_size=config.group_size,
    )


def training_sampling(config: ReasoningGymEnvConfig) -> SamplingParams:
    """Return how completions are sampled in training."""
    return SamplingParams(
        temperature=config.temperature,
        top_p=config.top_p,
        split="train",
    )


def inference_client(
    config: ReasoningGymEnvConfig, servers: Any, tokenizer: Any, system_prompt: str
) -> InferenceClient:
    """Return the client of Atropos's servers, which request through it from now on.

    Args:
        servers: Atropos's server manager.
    """
    client = InferenceClient(
        [server.client for server in servers.servers],
        tokenizer,
        system_prompt=system_prompt,
        own_markers=parse_markers(config.thought_markers),
        template_kwargs=config.chat_template_kwargs,
        max_n=servers.max_n_completions,
    )
    for server in servers.servers:
        server.inference = client
        server.tokenizer = tokenizer
    return client


def evaluation_settings(
    config: ReasoningGymEnvConfig, *, model: str, run_id: str
) -> EvaluationSettings:
    """Return the settings of evaluations; `run_id` names the results' folder if none is set."""
    folder = (
        config.data_dir_to_save_evals or f"{config.data_dumps_dir}/evaluation_{run_id}"
    )
    return EvaluationSettings(
        eval_attempts=config.eval_attempts,
        eval_difficulties=config.eval_difficulties,
        eval_seed=config.eval_seed,
        eval_step=config.eval_step,
        eval_temperature=config.eval_temperature,
        generation_timeout=config.generation_timeout,
        max_reasoning_tokens=config.max_reasoning_tokens,
        num_eval_samples_per_task=config.num_eval_samples_per_task,
        reasoning_effort=config.reasoning_effort,
        skip_faulty_items=config.skip_faulty_items,
        thinking_mode=config.thinking_mode,
        tokenizer_name=config.tokenizer_name,
        system_prompt=resolve_system_prompt(config.system_prompt),
        chat_template=chat_template_text(config.chat_template),
        chat_template_kwargs=config.chat_template_kwargs,
        thought_markers=config.thought_markers,
        scoring=scoring_settings(config),
        max_eval_workers=config.max_eval_workers,
        folder=Path(folder),
        model=model,
    )


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


def run_recorder(
    config: ReasoningGymEnvConfig,
    run_id: str,
    dumps: DumpWriter,
    inference: InferenceClient,
    state: Callable[[], dict[str, Any]],
) -> RunRecorder:
    """Return the writer of the run's record, which redacts the API keys."""
    return RunRecorder(
        Path(config.data_dumps_dir),
        run_id,
        disk=dumps.disk,
        redactor=SecretRedactor(inference.keys),
        state=state,
    )
