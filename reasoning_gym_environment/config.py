"""The environment's configuration: flat, because Atropos makes its options from the fields."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atroposlib.envs.base import BaseEnvConfig
from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from .errors import did_you_mean
from .evaluation.run import DECISIVE, EvaluationSettings
from .inference.prompts import SYSTEM_PROMPTS, resolve_system_prompt
from .problems.levels import ComplexityMode, require_level_where_fixed
from .problems.sampler import TaskSampling
from .records import SOLVED_SCORE
from .sandbox.pool import PoolSettings, default_processes
from .scoring.grading import ScoringSettings
from .scoring.rewards import ScoreMode
from .util import settings_text as text
from .util.files import require_place

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AT_LEAST = {"group_size": 1, "max_token_length": 2, "max_eval_workers": 1}
"""The least values of options that Atropos itself has no bounds for."""


class ReasoningGymEnvConfig(BaseEnvConfig):
    """Atropos's own settings and those of this environment.

    Raises:
        pydantic.ValidationError: a value is out of range, contradicts another, or has a name
            that does not exist.
    """

    model_config = ConfigDict(extra="forbid")

    wandb_name: str | None = Field(
        default="reasoning_gym", description="Names the run in wandb and at the API."
    )
    seed: int = Field(default=42, description="Seed of the training stream.")
    replica: str = Field(
        default="",
        description="Name of this replica, such as 0: one of the same name continues where it "
        "ended, with its curriculum. Unset, the API numbers replicas as they come.",
    )
    include_tasks: str | list[str] = Field(
        default=[],
        description="Tasks and categories to train on, as a list or separated by commas; "
        "empty means all.",
    )
    exclude_tasks: str | list[str] = Field(
        default=[], description="Tasks and categories to leave out; wins over include_tasks."
    )
    task_weights: str | dict[str, float] = Field(
        default={},
        description="Relative weight of tasks or categories in the draw, as a mapping or as "
        "'gcd=2,games=0.5'; 1 where none is given.",
    )
    task_parameters: str | dict[str, dict[str, Any]] = Field(
        default={},
        description="Dataset parameters of single tasks in training, as a mapping or as JSON: "
        '\'{"chain_sum": {"min_terms": 2, "max_terms": 9}}\'; they win over the level\'s own.',
    )
    complexity_mode: ComplexityMode | None = Field(
        default=None,
        description="Difficulty of training problems: unset (the library's default), random (all "
        "levels alike), curriculum (each task where the target accuracy is met) or fixed "
        "(complexity_level).",
    )
    complexity_level: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="With complexity_mode fixed: from 0, every task's easiest level, to 1, its "
        "hardest.",
    )
    curriculum_target_accuracy: float = Field(
        default=0.7,
        gt=0,
        lt=1,
        description="With complexity_mode curriculum: the share of solved rollouts to hold.",
    )
    sampling: TaskSampling = Field(
        default=TaskSampling.UNIFORM,
        description="How tasks are drawn, times their weight: uniform, or signal (by the estimated "
        "chance that some rollouts of a group are solved and some are not).",
    )
    system_prompt: str = Field(
        default="think",
        description=f"A built-in system prompt ({', '.join(SYSTEM_PROMPTS)}) or the text of one; "
        "empty sends none.",
    )
    temperature: float = Field(default=1.0, ge=0, description="Sampling temperature in training.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus sampling, in training.")
    eval_temperature: float = Field(
        default=0.1, ge=0, description="Sampling temperature in evaluation."
    )
    score_mode: ScoreMode = Field(
        default=ScoreMode.PARTIAL,
        description="Rewards before the length penalty: partial (as the verifier scores), "
        "threshold (0 below solved_threshold) or binary (1 at full credit, else 0).",
    )
    solved_threshold: float = Field(
        default=SOLVED_SCORE, gt=0, le=1, description="Score from which an answer counts as solved."
    )
    answer_tolerance: bool = Field(
        default=False,
        description="Take surrounding form (bold, $, boxed, code fences, a full stop) off an "
        "answer where that earns more.",
    )
    length_penalty_start: float = Field(
        default=0.75,
        ge=0,
        lt=1,
        description="Fraction of max_token_length from which the rewards of an all-solved group "
        "fall, to 0 at max_token_length.",
    )
    mask_too_long_completions: bool = Field(
        default=True,
        description="Have the trainer set the advantage of truncated completions to zero.",
    )
    num_eval_samples_per_task: int = Field(
        default=5, ge=1, description="Evaluation items of each task."
    )
    eval_attempts: int = Field(
        default=1, ge=1, description="Completions of each evaluation item: the k of pass@k."
    )
    eval_levels: str | float | list[float] = Field(
        default=[],
        description="Difficulties in [0, 1] to evaluate beside the default configuration, as a "
        "list or separated by commas: as many items of each task with levels at each.",
    )
    eval_seed: int = Field(
        default=123, description="Seed of the evaluation set, which depends on nothing else."
    )
    dump_rollouts: bool = Field(default=False, description="Dump successful groups to JSONL files.")
    dump_failed_rollouts: bool = Field(
        default=False, description="Dump groups in which every score is 0 to JSONL files."
    )
    dump_all_rollouts: bool = Field(
        default=False,
        description="Dump every group to JSONL files; `process` does unless told otherwise.",
    )
    rollout_save_score_threshold: float = Field(
        default=0.7,
        ge=0,
        le=1,
        description="A group is successful when one of its scores is above this.",
    )
    sync_dumps: bool = Field(
        default=False, description="Count a group only when it would outlive a power cut."
    )
    data_dumps_dir: str = Field(
        default="data_dumps",
        min_length=1,
        description="Folder of the dumps, and of evaluation results unless "
        "data_dir_to_save_evals is set.",
    )
    task_processes: int | None = Field(
        default=None,
        ge=1,
        description="Processes that make problems, and as many that score answers; unset means "
        "half the cores, from 2 to 8.",
    )
    generation_timeout: float = Field(
        default=10.0, gt=0, description="Seconds after which an item is given up."
    )
    verify_timeout: float = Field(
        default=5.0, gt=0, description="Seconds after which scoring one answer is given up."
    )
    verify_group_timeout: float = Field(
        default=120.0,
        gt=0,
        description="Seconds after which no further answer of a group is scored.",
    )
    debug_logging: bool = Field(
        default=False, description="Log every extraction and both scores of the dual format."
    )
    suppress_base_env_logs: bool = Field(
        default=True, description="Quiet the INFO messages of Atropos's base class."
    )

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: Any) -> Any:
        unknown = sorted(set(data) - set(cls.model_fields)) if isinstance(data, dict) else []
        if unknown:
            hint = did_you_mean(unknown[0], cls.model_fields, otherwise="")
            raise ValueError(f"there is no setting {unknown[0]!r}" + (hint and f"; {hint}"))
        return data

    @field_validator(*text.PARSERS)
    @classmethod
    def _parse_text(cls, value: Any, info: ValidationInfo) -> Any:
        return text.PARSERS[str(info.field_name)](value)

    @model_validator(mode="after")
    def _consistent(self) -> ReasoningGymEnvConfig:
        for name, least in AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.batch_size != -1 and self.batch_size < self.group_size:
            raise ValueError(
                f"batch_size is {self.batch_size}, less than group_size {self.group_size}; "
                "raise batch_size, or leave it at -1 for the trainer to set"
            )
        require_level_where_fixed(self.complexity_mode, self.complexity_level)
        none_above = self.rollout_save_score_threshold == 1 and not self.dump_all_rollouts
        if self.dump_rollouts and none_above:
            raise ValueError(
                "rollout_save_score_threshold is 1 and no score is above that: nothing would be "
                "dumped; lower it or switch dump_rollouts off"
            )
        self.wandb_name = self.wandb_name or "reasoning_gym"  # the API registers no nameless one
        return self

    def require_places(self) -> None:
        """Refuse a place that is asked for and can't be written to.

        Raises:
            UnwritableError: a setting names such a place.
        """
        if self.dump_rollouts or self.dump_failed_rollouts or self.dump_all_rollouts:
            require_place(Path(self.data_dumps_dir), "data_dumps_dir")
        if self.data_dir_to_save_evals:
            require_place(Path(self.data_dir_to_save_evals), "data_dir_to_save_evals")
        if self.data_path_to_save_groups:
            folder = Path(self.data_path_to_save_groups).parent
            require_place(folder, "data_path_to_save_groups")


Settings = TypeVar("Settings", bound="DataclassInstance")


def settings_of(part: type[Settings], config: ReasoningGymEnvConfig, **more: Any) -> Settings:
    """The plain settings of a part: its fields are named as the options; `more` gives others."""
    options = {f.name: getattr(config, f.name) for f in fields(part) if hasattr(config, f.name)}
    return part(**{**options, **more})


def pool_settings(config: ReasoningGymEnvConfig) -> PoolSettings:
    """What the configuration says of the worker processes."""
    processes = config.task_processes or default_processes()
    return settings_of(PoolSettings, config, processes=processes)


def scoring_settings(config: ReasoningGymEnvConfig) -> ScoringSettings:
    """What the configuration says of scores and rewards."""
    return settings_of(ScoringSettings, config)


def evaluation_settings(
    config: ReasoningGymEnvConfig, *, model: str, run_id: str
) -> EvaluationSettings:
    """What the configuration says of evaluations; `run_id` names a folder that isn't configured."""
    decisive = config.model_dump(mode="json", include=set(DECISIVE))
    folder = config.data_dir_to_save_evals or f"{config.data_dumps_dir}/evaluation_{run_id}"
    return settings_of(
        EvaluationSettings,
        config,
        decisive={**decisive, "system_prompt": resolve_system_prompt(config.system_prompt)},
        folder=Path(folder),
        model=model,
        scoring=scoring_settings(config),
    )
