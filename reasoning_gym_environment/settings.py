"""The options of serve, process and evaluate: one model, without atroposlib.

The command line, its help, the check of a YAML file, docs/configuration.md and Atropos's
configuration are made from these classes. Atropos's own options repeat its fields, which a test
compares, so that a mistake in any option is found before the imports that take seconds.
"""

from __future__ import annotations

import logging
import math
import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, model_validator
from pydantic.fields import FieldInfo

from .errors import ConfigurationError
from .inference.prompts import CHAT_TEMPLATES, SYSTEM_PROMPTS, resolve_system_prompt
from .problems.levels import require_difficulty_where_fixed
from .problems.options import Names, TaskOptions, split_names
from .records import UPSTREAM_THRESHOLD
from .scoring.rewards import ScoreMode
from .util.command_line import ENV, FLAGS, SERVER, Given, Section, build, option, read_file
from .util.files import require_place

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from .sandbox.pool import PoolSettings
    from .storage.dumps import DumpKind

logger = logging.getLogger(__name__)

DEFAULT_DUMP_GB = 2
"""The limit of dumps that nobody asked for."""

DEFAULT_MODEL = "NousResearch/DeepHermes-3-Llama-3-8B-Preview"


def parse_difficulties(value: Any) -> list[float]:
    """Read difficulties from a number, a list or text, and sort them.

    Example:
        >>> parse_difficulties("0.75, 0.25")
        [0.25, 0.75]
    """
    parts = split_names(value) if isinstance(value, str) else value
    try:
        found = sorted({float(part) for part in (parts if isinstance(parts, list) else [parts])})
    except (TypeError, ValueError):
        found = [-1.0]
    if not all(0 <= difficulty <= 1 for difficulty in found):
        raise ValueError(f"must be numbers from 0 to 1, got {value!r}")
    return found


def parse_name(value: Any) -> str:
    """Read a name that can be part of a file's name.

    Example:
        >>> parse_name(3), parse_name("eu-1"), parse_name("")
        ('3', 'eu-1', '')
    """
    name = str(value)
    if not re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,49})?", name):
        raise ValueError(
            f"must be at most 50 letters, digits and _.-, starting with a letter, digit or _, "
            f"got {name!r:.60}"
        )
    return name


def parse_url(value: Any) -> Any:
    """Check that a URL, if there is one, begins with its scheme and has no password.

    Example:
        >>> parse_url("http://localhost:8000")
        'http://localhost:8000'
    """
    if isinstance(value, str) and re.match(r"\w+://[^/?#]*@", value):
        raise ValueError(
            "must have no user name or password, which logs would show: use an API key"
        )
    if isinstance(value, str) and value and not re.match(r"https?://[^/]", value):
        hint = f"; did you mean http://{value}?" if re.match(r"[\w.-]+(:\d+)?(/|$)", value) else ""
        raise ValueError(f"must be a URL that starts with http:// or https://, got {value!r}{hint}")
    return value


Url = Annotated[str, BeforeValidator(parse_url)]
Difficulties = Annotated[list[float], BeforeValidator(parse_difficulties)]


class CommonSettings(Section):
    tokenizer_name: str = option(
        "",
        "Hugging Face tokenizer of the model, by name or folder; by default model_name's, and none "
        "with server_type openai, where only serve needs one.",
    )
    group_size: int = option(4, "Completions of each problem, scored as one group.", ge=1)
    max_token_length: int = option(
        2048, "Most tokens of a prompt and its completion together.", ge=2
    )
    total_steps: int = option(1000, "Training steps, or groups to collect with process.")
    batch_size: int = option(-1, "Rollouts in a training batch; a trainer replaces it by its own.")
    rollout_server_url: Url = option("http://localhost:8000", "URL of the Atropos API (`run-api`).")
    system_prompt: str = option(
        "think",
        f"A built-in system prompt ({', '.join(SYSTEM_PROMPTS)}) or the text of one; "
        "empty sends none.",
    )
    chat_template: str = option(
        "",
        f"Chat template for a model without one: {', '.join(CHAT_TEMPLATES)}, or a file with a "
        "Jinja template.",
    )
    temperature: float = option(1.0, "Sampling temperature in training.", ge=0)
    top_p: float = option(1.0, "Nucleus sampling in training.", gt=0, le=1)
    seed: int = option(42, "Seed of the training stream.")
    use_wandb: bool = option(True, "Log to Weights & Biases.")
    wandb_name: str | None = option("reasoning_gym", "Name of the run in wandb and at the API.")


class TaskSettings(TaskOptions):
    include_tasks: Names = option(
        [], "Tasks and categories to train on, as a list or separated by commas; empty means all."
    )
    curriculum_url: str | None = option(
        None,
        "Stream of a reward service that chooses the problems of all replicas, such as "
        "http://127.0.0.1:8080/run-1; unset: each replica chooses its own.",
    )
    skip_faulty_items: bool = option(
        True,
        "Draw again where an item's label is known to be false or its question to have no answer; "
        "in evaluation, several answers too.",
    )


class ScoreSettings(Section):
    score_mode: ScoreMode = option(
        ScoreMode.PARTIAL,
        "Rewards before the length penalty: partial (the verifier's score), threshold "
        f"(0 below solved_threshold, by default {UPSTREAM_THRESHOLD}) or binary (1 at full "
        "credit, else 0).",
    )
    solved_threshold: float | None = option(
        None,
        "Score from which an answer counts as solved; by default full credit, but where less is "
        f"right. {UPSTREAM_THRESHOLD} is upstream's rule.",
        gt=0,
        le=1,
    )
    answer_tolerance: bool = option(
        False,
        "Remove surrounding form (bold, $, boxed, code fences, a full stop) from an "
        "answer where that earns more.",
    )
    length_penalty_start: float = option(
        0.75,
        "Fraction of max_token_length from which the rewards of an all-solved group "
        "fall, to 0 at max_token_length.",
        ge=0,
        lt=1,
    )
    mask_too_long_completions: bool = option(
        True, "Tell the trainer to set truncated completions' advantages to 0."
    )
    verify_timeout: float = option(5.0, "Timeout for scoring one answer in seconds.", gt=0)
    verify_group_timeout: float = option(
        120.0, "Timeout for scoring a group's answers in seconds.", gt=0
    )


class EvalSettings(Section):
    steps_per_eval: int = option(100, "Training steps between evaluations; 0 or less for none.")
    num_eval_samples_per_task: int = option(5, "Evaluation items of each task.", ge=1)
    eval_attempts: int = option(1, "Completions of each evaluation item: the k of pass@k.", ge=1)
    eval_difficulties: Difficulties = option(
        [],
        "Difficulties from 0 to 1 to evaluate as well as the default configuration, "
        "as a list or separated by commas: as many items of each task with levels at each.",
    )
    eval_suite: str | None = option(
        None, "Suite for `evaluate`: a name of `suite list`, or a file; fixes the settings above."
    )
    eval_seed: int = option(123, "Seed of the evaluation set; no other seed affects it.")
    eval_temperature: float = option(0.1, "Sampling temperature in evaluation.", ge=0)
    eval_handling: Literal["STOP_TRAIN", "LIMIT_TRAIN", "NONE"] = option(
        "STOP_TRAIN", "What happens to training rollouts during an evaluation."
    )
    max_eval_workers: int = option(16, "Evaluation completions requested at once.", ge=1)
    data_dir_to_save_evals: str | None = option(None, "Folder of evaluation results.")


class StorageSettings(Section):
    data_dumps_dir: str = option(
        "data_dumps",
        "Folder of the dumps, and of evaluation results unless data_dir_to_save_evals is set.",
        min_length=1,
    )
    dump_all_rollouts: bool | None = option(
        None,
        "Dump every group to JSONL files; unset, this happens unless dump_rollouts or "
        "dump_failed_rollouts is set.",
    )
    dump_rollouts: bool | None = option(None, "Dump successful groups to JSONL files.")
    dump_failed_rollouts: bool | None = option(
        None, "Dump groups in which every score is 0 to JSONL files."
    )
    max_dump_gb: float | None = option(
        None,
        "Most gigabytes of this run's dumps: its oldest files are deleted first. Unset means "
        f"{DEFAULT_DUMP_GB} where no option asks for dumps, else no limit.",
        gt=0,
    )
    rollout_save_score_threshold: float = option(
        0.7, "A group is successful if one of its scores is above this.", ge=0, le=1
    )
    sync_dumps: bool = option(False, "fsync each group.")
    data_path_to_save_groups: str | None = option(
        None, "JSONL file for the groups in Atropos's own format."
    )

    @property
    def dumps_by_default(self) -> bool:
        """Whether no option says which groups to dump, so that all are."""
        asked = (self.dump_all_rollouts, self.dump_rollouts, self.dump_failed_rollouts)
        return asked == (None, None, None)

    @property
    def dumped_kinds(self) -> frozenset[DumpKind]:
        """The kinds of groups to dump."""
        from .storage.dumps import FAILED, PARTIAL, SUCCESSFUL  # slow, not for help

        if self.dumps_by_default or self.dump_all_rollouts:
            return frozenset((SUCCESSFUL, FAILED, PARTIAL))
        asked = {SUCCESSFUL: self.dump_rollouts, FAILED: self.dump_failed_rollouts}
        return frozenset(kind for kind, wanted in asked.items() if wanted)

    @property
    def max_dump_bytes(self) -> float:
        """The limit of this run's dumps."""
        default = DEFAULT_DUMP_GB if self.dumps_by_default else math.inf
        return (self.max_dump_gb or default) * 1e9


class ProcessSettings(Section):
    replica: Annotated[str, BeforeValidator(parse_name)] = option(
        "",
        "Name of this replica, such as 0: a restart under the same name continues its "
        "stream and curriculum. Unset, the API numbers replicas in order of registration.",
    )
    task_processes: int | None = option(
        None,
        "Processes that make problems, and as many that score answers; unset means "
        "half the cores, from 2 to 8.",
        ge=1,
    )
    generation_timeout: float = option(10.0, "Generation timeout in seconds.", gt=0)
    require_containment: bool = option(
        False, "Refuse to start where the sandbox is incomplete, as without a system call filter."
    )
    debug_logging: bool = option(False, "Log every extraction and both scores of the dual format.")
    suppress_base_env_logs: bool = option(True, "Hide the INFO messages of Atropos's base class.")


class AtroposSettings(Section):
    max_num_workers: int = option(
        -1, "Groups in progress; -1 for max_num_workers_per_node a server."
    )
    max_num_workers_per_node: int = option(8, "Groups in progress for each inference server.")
    eval_limit_ratio: float = option(
        0.5, "Share of workers that train with eval_handling LIMIT_TRAIN."
    )
    inference_weight: float = option(
        1.0, "Weight of this environment among several; -1 ignores it."
    )
    max_batches_offpolicy: int = option(3, "Most batches in the queue of the Atropos API.")
    num_rollouts_to_keep: int = option(32, "Groups shown in wandb's table of rollouts.")
    num_rollouts_per_group_for_logging: int = option(
        1, "Rollouts of each group in that table; -1 for all."
    )
    ensure_scores_are_not_same: bool = option(True, "Drop groups whose scores are all equal.")
    min_items_sent_before_logging: int = option(
        2, "Groups sent between two reports; 0 or less reports every time."
    )
    include_messages: bool = option(False, "Send the messages to the trainer with each group.")
    min_batch_allocation: float | None = option(
        None, "Least share of a batch for this environment, from 0 to 1."
    )
    worker_timeout: float = option(600, "Timeout for one group in seconds; -1 for none.")
    thinking_mode: bool = option(
        False,
        "Ask the API for reasoning (`extra_body`); set when reasoning_effort or "
        "max_reasoning_tokens is.",
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = option(
        None, "Reasoning effort; OpenAI's own API gets low to high."
    )
    max_reasoning_tokens: int | None = option(
        None,
        "Most reasoning tokens; only some providers support it, OpenAI does not.",
        ge=1024,
        le=32000,
    )
    custom_thinking_prompt: str | None = option(None, "System prompt added in thinking mode.")


class EnvironmentSettings(  # pydantic orders fields from the last base to the first
    AtroposSettings,
    ProcessSettings,
    StorageSettings,
    EvalSettings,
    ScoreSettings,
    TaskSettings,
    CommonSettings,
):
    """All settings below `env`: Atropos's own and those of this environment.

    Raises:
        pydantic.ValidationError: a value is out of range, contradicts another, or has a name
            that does not exist.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "complexity_level": "difficulty",
        "eval_levels": "eval_difficulties",
    }

    @model_validator(mode="after")
    def _consistent(self) -> EnvironmentSettings:
        if self.batch_size != -1 and self.batch_size < self.group_size:
            raise ValueError(
                f"batch_size must be ≥ group_size ({self.group_size}), got {self.batch_size}; "
                "raise it, or leave it at -1 for the trainer to set"
            )
        require_difficulty_where_fixed(self.complexity_mode, self.difficulty)
        resolve_system_prompt(self.system_prompt)  # refuses a misspelled name
        none_above = self.rollout_save_score_threshold == 1 and not self.dump_all_rollouts
        if self.dump_rollouts and none_above:
            raise ValueError(
                "rollout_save_score_threshold must be < 1 with dump_rollouts, got 1: no score is "
                "above 1; lower it, or set dump_rollouts to false"
            )
        self.wandb_name = self.wandb_name or "reasoning_gym"  # the API registers no nameless one
        return self

    @property
    def complexity_level(self) -> float | None:
        """The old name of `difficulty`."""
        return self.difficulty

    @property
    def eval_levels(self) -> list[float]:
        """The old name of `eval_difficulties`."""
        return self.eval_difficulties

    def require_places(self) -> None:
        """Check that all configured outputs are writable.

        Raises:
            UnwritableError: one is not.
        """
        if self.dumped_kinds:
            require_place(Path(self.data_dumps_dir), "data_dumps_dir")
        if self.data_dir_to_save_evals:
            require_place(Path(self.data_dir_to_save_evals), "data_dir_to_save_evals")
        if self.data_path_to_save_groups:
            folder = Path(self.data_path_to_save_groups).parent
            require_place(folder, "data_path_to_save_groups")


class CommonServerSettings(Section):
    server_type: Literal["openai", "trl", "sglang", "vllm"] = option(
        "openai", "The server's protocol."
    )
    base_url: Url | None = option("", "URL of the server, with /v1.")
    model_name: str = option("default", "Name of the model at the server.")
    api_key: str | None = option(
        "", "API key of the server; by default that of api_key_var.", repr=False
    )
    api_key_var: str = option(
        "", "Environment variable with the API key; OPENAI_API_KEY with server_type openai."
    )
    num_max_requests_at_once: int = option(512, "Most concurrent requests in training.")


class ServerSettings(CommonServerSettings):
    """All settings of an inference server, below `openai`; the API key is never printed."""

    timeout: int = option(1200, "Request timeout in seconds.")
    num_requests_for_eval: int = option(64, "Most concurrent requests in evaluation.")
    rolling_buffer_length: int = option(1000, "Requests over which Atropos averages its timings.")
    tokenizer_name: str = option("none", "Tokenizer of this server; none for the model's own.")
    n_kwarg_is_ignored: bool = option(
        False, "The server ignores `n` and returns one completion a request."
    )
    health_check: bool = True
    """Has no effect here and no help; stored files may have it."""


class RunFlags(Section):
    """Atropos's options outside the two sections."""

    slurm: bool = option(False, "Find the servers in Slurm's list of nodes.")
    testing: bool = option(False, "Use Atropos's mock server.")


GROUPS: Mapping[str, tuple[Any, ...]] = {
    "Common options": (ENV, CommonSettings),
    "Tasks and difficulty": (ENV, TaskSettings, TaskOptions),
    "Scoring": (ENV, ScoreSettings),
    "Evaluation": (ENV, EvalSettings),
    "Storage": (ENV, StorageSettings),
    "Processes and logs": (ENV, ProcessSettings),
    "Inference server": (SERVER, CommonServerSettings),
    "More of the inference server": (SERVER, ServerSettings),
    "More of Atropos": (ENV, AtroposSettings),
}
"""Section and class of the options by heading; the short help omits those named `More …`."""


ENVIRONMENT_DEFAULTS: Mapping[str, Any] = {
    "group_size": 8,
    "max_token_length": 8192,
    "total_steps": 250,
    "batch_size": 1024,
    "steps_per_eval": 25,
    "wandb_name": "reasoning_gym_think",
    "eval_handling": "NONE",
    "num_rollouts_per_group_for_logging": 4,
    "num_rollouts_to_keep": 50,
}
"""Defaults of the command line where they differ from the classes', which have Atropos's."""

COMMAND_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "process": {
        "ensure_scores_are_not_same": False,
        "include_messages": True,
        "dump_all_rollouts": True,
    }
}
"""By command, on top of the others."""

SUITE_FIXES: Mapping[str, Any] = {
    "answer_tolerance": False,
    "complexity_mode": None,
    "difficulty": None,
    "eval_difficulties": [],
    "exclude_tasks": [],
    "skip_faulty_items": True,
    "solved_threshold": None,
    "task_parameters": {},
    "task_weights": {},
    "thinking_mode": False,
}
"""What every suite fixes besides its own settings, so that results can be compared."""

SERVER_DEFAULTS: Mapping[str, Any] = {
    "model_name": DEFAULT_MODEL,
    "base_url": "http://localhost:9004/v1",  # Atropos's launch scripts put the first there
    "num_requests_for_eval": 256,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings of a command.

    Attributes:
        env: an EnvironmentSettings, or the configuration of another environment.
    """

    env: Any
    servers: Sequence[ServerSettings]
    flags: RunFlags


def default_settings(command: str = "") -> Settings:
    """Return the defaults of a command."""
    env = {**ENVIRONMENT_DEFAULTS, **COMMAND_DEFAULTS.get(command, {})}
    return Settings(
        env=EnvironmentSettings(**env),
        servers=[ServerSettings(**SERVER_DEFAULTS)],
        flags=RunFlags(),
    )


class Option(NamedTuple):
    """An option as help and pages show it."""

    heading: str
    name: str
    about: str
    default: str
    field: FieldInfo


def list_options(command: str = "") -> Iterator[Option]:
    """List the options in the order of --help-all, with a command's defaults."""
    defaults = default_settings(command)
    for heading, (section, *models) in GROUPS.items():
        values = defaults.env if section == ENV else defaults.servers[0]
        own = [(name, model) for model in models for name in model.__annotations__]
        for name, model in own:  # without those of its base
            field = model.model_fields[name]
            if field.description:
                default = shown(getattr(values, name))
                yield Option(heading, f"{section}.{name}", field.description, default, field)


def sections(env: type[Section] = EnvironmentSettings) -> dict[str, type[Section]]:
    """Return the model of each section of the command line and the file."""
    return {ENV: env, SERVER: ServerSettings, FLAGS: RunFlags}


def build_settings(given: Given, defaults: Settings) -> Settings:
    """Put what is given on top of the defaults; several servers start from the model's own.

    Raises:
        ConfigurationError: a value is invalid.
    """
    servers: Sequence[Mapping[str, Any]] = given.servers
    if len(servers) < 2 and len(defaults.servers) == 1:
        servers = [{**defaults.servers[0].model_dump(), **(servers[0] if servers else {})}]
    env = with_suite(given.env) if given.env.get("eval_suite") else given.env
    return Settings(
        env=build(type(defaults.env), {**defaults.env.model_dump(), **env}),
        servers=[build(ServerSettings, server, prefix=f"{SERVER}.") for server in servers]
        or defaults.servers,
        flags=build(RunFlags, given.flags),
    )


def with_suite(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return given settings with those that their suite fixes; warn of each that it overrides.

    Raises:
        ConfigurationError: there is no such suite.
    """
    from .problems.suites import load_suite  # slow, not for help

    suite = load_suite(env["eval_suite"])
    options = {"max_token_length": suite.settings.max_token_length, **env}
    fixed = {**SUITE_FIXES, **suite.fixed_settings, "include_tasks": suite.tasks}
    overridden = sorted(name for name in env if name in fixed and env[name] != fixed[name])
    if overridden:
        logger.warning(
            "The suite %s fixes %s: the configured values are ignored",
            suite.name,
            ", ".join(overridden),
        )
    return {**options, **fixed}


def check_start(command: str, env: EnvironmentSettings) -> None:
    """Check the names of tasks and the places of outputs, as far as possible without the library.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
        ConfigurationError: no task is left, or a parameter doesn't exist.
        UnwritableError: an output can't be written.
    """
    from .problems.training import require_names  # slow; help needs none
    from .tasks.catalogue import bundled_snapshot, select_tasks, task_weights

    if known := bundled_snapshot():  # the worker processes check for other versions of the library
        tasks = select_tasks(known.discovery, include=env.include_tasks, exclude=env.exclude_tasks)
        task_weights(tasks, env.task_weights)
        require_names(env.task_parameters, known.ladders)
    if env.eval_suite and command != "evaluate":
        raise ConfigurationError(
            f"eval_suite is for `evaluate` alone, got {env.eval_suite!r} for `{command}`: unset it"
        )
    evaluates = command == "evaluate" or (command == "serve" and env.steps_per_eval > 0)
    if evaluates and not env.data_dir_to_save_evals:
        require_place(Path(env.data_dumps_dir), "data_dumps_dir")
    env.require_places()


def add_options(parser: ArgumentParser, names: Sequence[str]) -> None:
    """Let a command take a file of settings and the named settings of the environment."""
    parser.add_argument("--config", metavar="FILE.yaml", type=Path, help="settings, as for serve")
    defaults = default_settings().env
    for name in names:
        about = EnvironmentSettings.model_fields[name].description
        text = f"{about} (default: {shown(getattr(defaults, name))})".replace("%", "%%")
        parser.add_argument(f"--{ENV}.{name}", metavar="VALUE", help=text)
        for old in (old for old, new in EnvironmentSettings.renamed.items() if new == name):
            parser.add_argument(f"--{ENV}.{old}", dest=f"{ENV}.{name}", help=SUPPRESS)


def environment_of(options: Namespace, names: Sequence[str]) -> EnvironmentSettings:
    """Return the settings of a command with `add_options`: defaults, below the file, below options.

    Raises:
        ConfigurationError: the file can't be read, or a value is invalid.
    """
    env = read_file(options.config, sections()).env if options.config else {}
    if options.config and not env:
        raise ConfigurationError(f"{options.config}: the section `{ENV}` is missing")
    given = {name: getattr(options, f"{ENV}.{name}") for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    return build(EnvironmentSettings, {**ENVIRONMENT_DEFAULTS, **env, **given})


def shown(value: Any) -> str:
    """Return a value as a user would write it."""
    value = getattr(value, "value", value)
    return "unset" if value in (None, "", [], {}) else str(value)


PartSettings = TypeVar("PartSettings", bound="DataclassInstance")


def settings_of(part: type[PartSettings], env: EnvironmentSettings, **more: Any) -> PartSettings:
    """Return the settings of a part, whose fields are named as the options; `more` adds others."""
    options = {f.name: getattr(env, f.name) for f in fields(part) if hasattr(env, f.name)}
    return part(**{**options, **more})


def pool_settings(env: EnvironmentSettings) -> PoolSettings:
    """Return the settings of the worker processes."""
    from .sandbox.pool import PoolSettings, default_processes  # slow, not for help

    return settings_of(PoolSettings, env, processes=env.task_processes or default_processes())
