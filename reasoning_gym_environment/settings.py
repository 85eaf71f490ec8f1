"""The options of serve, process and evaluate: one table, without atroposlib.

The command line, its help, the check of a YAML file, docs/configuration.md and Atropos's
configuration are made from these classes. Each option is declared once: ours in
`EnvironmentSettings`, Atropos's own in atropos/fields.json. A test compares that file with
atroposlib, so that a mistake in any option is found before the imports that take seconds.
"""

from __future__ import annotations

import json
import logging
import math
import re
from argparse import SUPPRESS, ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple  # noqa: F401 - Literal is in the snapshot

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
)
from pydantic.fields import FieldInfo

from .errors import ConfigurationError, Mistakes
from .evaluation.options import AmongModels, EvaluationOptions
from .inference.prompts import CHAT_TEMPLATES, SYSTEM_PROMPTS, resolve_system_prompt
from .problems.levels import require_difficulty_where_fixed
from .problems.options import Names, TaskOptions, option
from .records import ATROPOS_SOLVED_SCORE
from .scoring.channels import parse_markers
from .scoring.extraction import AnswerFormat
from .scoring.grading import ANY_FORM_IS_PAID, ScoreMode, ScoringSettings
from .util.command_line import (
    ENV,
    SERVER,
    Each,
    Given,
    RetiredOption,
    Section,
    build,
    limits,
    types_of,
)
from .util.files import UnwritableError, require_place
from .util.settings_file import read_given
from .util.values import shorten

if TYPE_CHECKING:
    from .problems.suites import Suite
    from .sandbox.pool import PoolSettings
    from .storage.dumps import DumpKind

logger = logging.getLogger(__name__)

COMMAND_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "serve": {"dump_all_rollouts": True, "max_dump_gb": 2.0},
    "process": {
        "dump_all_rollouts": True,
        "ensure_scores_are_not_same": False,
        "include_messages": True,
    },
}
"""Defaults that one command overrides."""

DUMP_OPTIONS = frozenset(("dump_all_rollouts", "dump_rollouts", "dump_failed_rollouts"))
"""Options that say which groups to dump."""

UNASKED_DUMPS = frozenset(("dump_all_rollouts", "max_dump_gb"))
"""Options whose command defaults hold only where none of DUMP_OPTIONS is set."""

PROCESSED_GROUPS = 250
"""What `process` collects by default: no trainer says when it ends."""

HEADINGS = (
    *("Common options", "Tasks and difficulty", "Scoring", "Evaluation", "Storage"),
    *(
        "Processes and logs",
        "Inference server",
        "More of Atropos",
        "More of the inference server",
    ),
    "Other options",
)
"""Of the options, in the order of the help."""

_TRAINING = (
    "env.tokenizer_name",
    "env.max_token_length",
    "env.system_prompt",
    "env.answer_format",
    "env.include_tasks",
    "env.task_modules",
    "env.complexity_mode",
    "env.score_mode",
    "env.data_dumps_dir",
    "openai.server_type",
    "openai.base_url",
    "openai.model_name",
    "openai.api_key_var",
    "openai.num_max_requests_at_once",
    "env.group_size",
    "env.total_steps",
    "env.use_wandb",
    "env.temperature",
    "env.seed",
    "env.sampling",
)
SHORT_HELP: Mapping[str, frozenset[str]] = {
    "serve": frozenset((*_TRAINING, "env.rollout_server_url", "env.steps_per_eval")),
    "process": frozenset((*_TRAINING, "env.data_path_to_save_groups")),
    "evaluate": frozenset(
        (
            *("openai.model_name", "openai.base_url", "openai.api_key_var"),
            *("openai.server_type", "env.tokenizer_name"),
            *("env.num_eval_samples_per_task", "env.eval_difficulties"),
            *("env.include_tasks", "env.task_modules", "suite", "limit"),
            *("env.eval_temperature", "env.eval_attempts", "env.max_token_length"),
            *("env.system_prompt", "env.max_eval_workers", "env.answer_format"),
            *("env.data_dir_to_save_evals", "price"),
        )
    ),
}
"""The options that most runs set, by command; `--help-all` has all."""

ONLY_TRAINING = "Only in training"
EVALUATION_HEADINGS: Mapping[str, Sequence[str]] = {
    "Model and server": (
        *("openai.model_name", "openai.base_url", "openai.api_key_var"),
        *("openai.api_key", "openai.server_type", "env.tokenizer_name"),
        *("openai.tokenizer_name", "openai.timeout", "openai.num_requests_for_eval"),
        "openai.n_kwarg_is_ignored",
    ),
    "Items": (
        *("env.num_eval_samples_per_task", "env.eval_difficulties"),
        *("env.include_tasks", "env.exclude_tasks", "suite", "limit"),
        *("env.task_modules", "env.task_environment", "env.eval_seed"),
        "env.skip_faulty_items",
    ),
    "Sampling and prompt": (
        *("env.eval_temperature", "env.eval_attempts", "env.max_token_length"),
        *("env.system_prompt", "env.max_eval_workers", "env.chat_template"),
        *("env.chat_template_kwargs", "env.thought_markers", "env.thinking_mode"),
        *("env.reasoning_effort", "env.max_reasoning_tokens"),
    ),
    "Results and costs": (
        *("env.data_dir_to_save_evals", "price", "env.data_dumps_dir"),
        "env.eval_step",
    ),
    "Scoring": (
        *("env.answer_format", "env.solved_threshold", "env.score_mode"),
        *("env.length_penalty_start", "env.verify_timeout"),
    ),
    "Processes and logs": (
        *("env.task_processes", "env.generation_timeout", "env.require_containment"),
        *("env.debug_logging", "env.suppress_base_env_logs"),
    ),
    HEADINGS[-1]: ("slurm", "testing"),
}
"""The options of `evaluate` by purpose, in the order of its help; all others are ONLY_TRAINING."""


MODEL = f"{SERVER}.model_name"
PRICE = "price"
REPEATABLE = (MODEL, PRICE)
"""The options that `evaluate` takes once for each model."""


RETIRED_OPTIONS: Mapping[str, Mapping[str, RetiredOption]] = {
    ENV: {
        "curriculum_url": RetiredOption(
            "each replica learns alone, so leave it out; other trainers share a curriculum through "
            "a stream of the reward service, see docs/rewards.md",
            ignored=False,
        ),
        "custom_thinking_prompt": RetiredOption("set system_prompt", ignored=True),
        "answer_tolerance": RetiredOption(ANY_FORM_IS_PAID, ignored=True),
        "dataset": RetiredOption(
            "name tasks or categories in include_tasks", ignored=False
        ),
        "max_eval_samples": RetiredOption(
            "set num_eval_samples_per_task, or limit for all tasks together",
            ignored=False,
        ),
    },
    SERVER: {
        "health_check": RetiredOption("servers are checked at the start", ignored=True),
    },
}
"""By section: options that earlier versions or Atropos have, and that this one doesn't."""


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


def parse_url(value: Any, info: ValidationInfo) -> Any:
    """Check that a URL, if there is one, begins with its scheme and has no password."""
    if isinstance(value, str) and re.match(r"\w+://[^/?#]*@", value):
        raise ValueError(
            "must have no user name or password, which logs would show: use an API key"
        )
    if isinstance(value, str) and value and not re.match(r"https?://[^/]", value):
        hint = ""
        if re.match(r"[\w.-]+(:\d+)?(/|$)", value):
            has_path = "/" in value or info.field_name != "base_url"
            hint = f"; did you mean http://{value}{'' if has_path else '/v1'}?"
        raise ValueError(
            f"must be a URL that starts with http:// or https://, got {value!r}{hint}"
        )
    return value


def parse_template_variables(value: Any) -> Any:
    """Read the variables of a chat template from a mapping or from JSON.

    Example:
        >>> parse_template_variables('{"enable_thinking": false}')
        {'enable_thinking': False}
    """
    try:
        variables = json.loads(value or "{}") if isinstance(value, str) else value
    except (RecursionError, ValueError) as error:
        raise ValueError(f"must be valid JSON, got {shorten(value)}: {error}") from None
    simple = str | int | float | None
    if not isinstance(variables, dict) or not all(
        isinstance(name, str) and name.isidentifier() and isinstance(one, simple)
        for name, one in variables.items()
    ):
        raise ValueError(
            f"must map names to texts, numbers, true, false or null, got {value!r}"
        )
    return variables


def require_markers(text: str) -> str:
    """Return a pair of markers as given; raises as `parse_markers`."""
    parse_markers(text)
    return text


TemplateVariables = Annotated[dict[str, Any], BeforeValidator(parse_template_variables)]
Url = Annotated[str, BeforeValidator(parse_url)]


def _atropos_model(section: str) -> type[Section]:
    """Return a model of Atropos's own options, made from the snapshot of atroposlib's fields."""
    path = Path(__file__).with_name("atropos") / "fields.json"
    found: dict[str, Any] = {}
    for name, field in json.loads(path.read_text(encoding="utf-8"))[section].items():
        kind = field.pop("type")
        extra = {"heading": field.pop("heading", ""), "alias": field.pop("alias", "")}
        field.pop("upstream_default", None)  # for the test alone
        found[name] = (kind, Field(**field, json_schema_extra=extra))
    return create_model(
        f"Atropos {section}",
        __base__=Section,
        __module__=__name__,
        **found,
    )


if TYPE_CHECKING:

    class AtroposEnvironment(Section):
        wandb_name: str | None = None

        def __getattr__(self, name: str) -> Any: ...

    AtroposServer = AtroposEnvironment
else:
    AtroposEnvironment, AtroposServer = map(_atropos_model, (ENV, SERVER))


class EnvironmentSettings(EvaluationOptions, AtroposEnvironment, TaskOptions):
    """All settings below `env`: Atropos's own and those of this environment.

    Raises:
        pydantic.ValidationError: a value is out of range, contradicts another, or has a name
            that does not exist.
    """

    retired_options: ClassVar = RETIRED_OPTIONS[ENV]

    system_prompt: str = option(
        "think",
        f"Built-in system prompt ({', '.join(SYSTEM_PROMPTS)}) or your own text; empty sends none.",
        heading="Common options",
    )
    chat_template: str = option(
        "",
        f"Chat template for a model without one: {', '.join(CHAT_TEMPLATES)}, or a Jinja file.",
    )
    chat_template_kwargs: TemplateVariables = option(
        {},
        'Variables of the chat template as JSON, such as {"enable_thinking": false}; sent to chat '
        "endpoints too.",
    )
    thought_markers: Annotated[str, AfterValidator(require_markers)] = option(
        "",
        "What opens and closes a thought, such as '<a> </a>', for a model whose markers are "
        "unknown.",
    )
    temperature: float = option(1.0, "Sampling temperature in training.", ge=0)
    top_p: float = option(1.0, "Nucleus sampling in training.", gt=0, le=1)
    seed: int = option(42, "Seed of the training stream.")
    include_tasks: Names = option(
        [],
        "Tasks and categories to use, separated by commas; empty means all.",
        heading="Tasks and difficulty",
    )
    task_modules: Names = option(
        [],
        "Modules with your own tasks: importable names, or paths such as ./my_tasks.py, in a YAML "
        "file relative to it.",
        alias="--task-modules",
        paths=True,
    )
    task_environment: Names = option(
        [],
        "Environment variables that these modules see, besides PATH, LANG and TMPDIR.",
        alias="--task-environment",
    )
    accept_changed_modules: bool = option(
        False, "Continue a checkpoint whose task_modules have changed since."
    )
    skip_faulty_items: bool = option(
        True,
        "Skip problems whose reference answer is known to be wrong or that have no answer; in "
        "evaluation, ambiguous ones too.",
    )
    answer_format: AnswerFormat = option(
        "tags",
        "Where a completion has its answer, outside thoughts: tags (the one <answer>…</answer>), "
        "boxed (the last \\boxed{}) or tags-or-boxed (a box counts where no tag opens). Suites "
        "take tags alone.",
        heading="Scoring",
    )
    score_mode: ScoreMode = option(
        "partial",
        "Reward before the length penalty: partial (1 if solved, else the verifier's score), "
        "library (always the verifier's score, as upstream), threshold (0 below solved_threshold, "
        f"default {ATROPOS_SOLVED_SCORE}) or binary (1 at full credit, else 0).",
    )
    solved_threshold: float | None = option(
        None,
        "Minimum score of a solved answer; by default full credit, or less where less is right. "
        f"Upstream's is {ATROPOS_SOLVED_SCORE}.",
        gt=0,
        le=1,
    )
    length_penalty_start: float = option(
        0.75,
        "Fraction of max_token_length from which an all-solved group's rewards fall, to 0 at the "
        "full length.",
        ge=0,
        lt=1,
    )
    mask_too_long_completions: bool = option(
        True, "Have the trainer set truncated completions' advantages to 0."
    )
    verify_timeout: float = option(
        5.0,
        "Timeout for scoring one answer, in seconds that its process works or waits. A busy "
        "machine makes it no shorter.",
        gt=0,
    )
    data_dumps_dir: str = option(
        "data_dumps",
        "Folder of dumps, and of evaluation results unless data_dir_to_save_evals is set.",
        min_length=1,
        heading="Storage",
    )
    dump_all_rollouts: bool = option(
        False,
        "Dump every group to JSONL; false by default once dump_rollouts or dump_failed_rollouts is "
        "set.",
    )
    dump_rollouts: bool = option(False, "Dump successful groups.")
    dump_failed_rollouts: bool = option(False, "Dump groups whose scores are all 0.")
    max_dump_gb: float = option(
        math.inf,
        "Maximum gigabytes of this run's dumps; the oldest files are deleted. No limit once a dump "
        "option is set.",
        gt=0,
    )
    rollout_save_score_threshold: float = option(
        0.7,
        "A group is successful if a score is above this.",
        ge=0,
        le=1,
    )
    sync_dumps: bool = option(False, "fsync each group.")
    replica: Annotated[str, BeforeValidator(parse_name)] = option(
        "",
        "Name of this replica, such as 0; unset, the API numbers replicas. A restart under its "
        "name continues its stream and curriculum. `process` runs of one seed differ by name.",
        heading="Processes and logs",
    )
    task_processes: int | None = option(
        None,
        "Processes that generate problems, and as many that score; by default half the cores, "
        "2 to 8.",
        ge=1,
    )
    generation_timeout: float = option(
        10.0,
        "Generation timeout, in seconds that the process works or waits. Evaluation items have "
        "at least 60.",
        gt=0,
    )
    require_containment: bool = option(
        False, "Refuse to start where the sandbox is incomplete."
    )
    debug_logging: bool = option(
        False, "Log every extraction and both scores of the dual format."
    )
    suppress_base_env_logs: bool = option(
        True, "Hide the INFO messages of Atropos's base class."
    )

    def model_post_init(self, context: Any, /) -> None:
        """Check the settings together; an assignment is checked alone, since others may follow."""
        if self.batch_size != -1 and self.batch_size < self.group_size:
            raise ValueError(
                f"batch_size must be ≥ group_size ({self.group_size}), got {self.batch_size}; "
                "raise it, or leave it at -1 for the trainer to set"
            )
        for name in ("inference_weight", "max_num_workers"):
            value = getattr(self, name)
            if value <= 0 and value != -1:
                raise ValueError(f"{name} must be a number > 0 or -1, got {value}")
        require_difficulty_where_fixed(self.complexity_mode, self.difficulty)
        resolve_system_prompt(self.system_prompt)  # refuses a misspelled name
        saves_none = self.rollout_save_score_threshold == 1
        if self.dump_rollouts and saves_none and not self.dump_all_rollouts:
            raise ValueError(
                "rollout_save_score_threshold must be < 1 with dump_rollouts, got 1: no score is "
                "above 1; lower it, or set dump_rollouts to false"
            )
        # The API registers no nameless one.
        self.wandb_name = self.wandb_name or "reasoning_gym"

    def validate_config(self) -> None:
        """Check all settings again, alone and together.

        Raises:
            ConfigurationError: says what each bad value must be.
        """
        build(type(self), dict(self))

    @property
    def dumped_kinds(self) -> frozenset[DumpKind]:
        """The kinds of groups to dump."""
        from .storage.dumps import FAILED, PARTIAL, SUCCESSFUL

        if self.dump_all_rollouts:
            return frozenset((SUCCESSFUL, FAILED, PARTIAL))
        wanted_by_kind = {
            SUCCESSFUL: self.dump_rollouts,
            FAILED: self.dump_failed_rollouts,
        }
        return frozenset(kind for kind, wanted in wanted_by_kind.items() if wanted)

    @property
    def max_dump_bytes(self) -> float:
        """The limit of this run's dumps."""
        return self.max_dump_gb * 1e9

    def require_groups_that_differ(self) -> None:
        """Raise ConfigurationError if no group could ever be sent, since its scores are equal."""
        if self.group_size == 1 and self.ensure_scores_are_not_same:
            raise ConfigurationError(
                "group_size must be ≥ 2 with ensure_scores_are_not_same, got 1: the scores of one "
                "rollout are always equal, so no group would be sent; raise it, or set "
                "--env.ensure_scores_are_not_same false"
            )

    def require_number_of_groups(self) -> None:
        """Raise ConfigurationError unless `process` knows how many groups to collect."""
        if self.total_steps < 1:
            raise ConfigurationError(
                f"total_steps must be ≥ 1, got {self.total_steps}: it is the number of groups that "
                "`process` collects; raise it"
            )

    def require_stored_groups(self) -> None:
        """Raise ConfigurationError unless `process` stores groups: it would collect for nothing."""
        if not (self.dumped_kinds or self.data_path_to_save_groups):
            raise ConfigurationError(
                "`process` would store no group: set dump_all_rollouts, dump_rollouts or "
                "dump_failed_rollouts to true, or data_path_to_save_groups to a file"
            )

    def require_places(self) -> None:
        """Raise UnwritableError if a configured output can't be written."""
        if self.dumped_kinds:
            require_place(Path(self.data_dumps_dir), "data_dumps_dir")
        if self.data_dir_to_save_evals:
            require_place(Path(self.data_dir_to_save_evals), "data_dir_to_save_evals")
        groups = self.data_path_to_save_groups
        if groups:
            require_place(Path(groups).parent, "data_path_to_save_groups")
            if Path(groups).suffix == ".html":
                raise UnwritableError(
                    f"data_path_to_save_groups: {groups} is the name of its own page; choose .jsonl"
                )


class ServerSettings(AtroposServer):
    """All settings of an inference server, below `openai`; the API key is never printed."""

    retired_options: ClassVar = RETIRED_OPTIONS[SERVER]

    api_key_var: str = option(
        "",
        "Environment variable with the API key; OPENAI_API_KEY with server_type openai.",
        heading="Inference server",
    )


class RunFlags(Section):
    """Options outside the two sections."""

    suite: str | None = option(
        None,
        "Fixed items to evaluate: a name of `suite list`, or a file.",
        heading="Other options",
    )
    limit: int | None = option(
        None, "Maximum items to evaluate, spread over the tasks.", ge=1
    )
    price: list[Annotated[float, Field(ge=0)]] | None = option(
        None,
        "Dollars per million tokens of prompt and of completion, for what an evaluation costs.",
        min_length=2,
        max_length=2,
    )
    slurm: bool = option(False, "Find the servers in Slurm's list of nodes.")
    testing: bool = option(
        False, "Must be false: Atropos's mock server completes no prompt."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings of a command; `env` may be the configuration of another environment.

    Attributes:
        command: `serve`, `process` or `evaluate`; empty for an environment without one.
        among: the other models that `evaluate` asks.
    """

    env: Any
    servers: Sequence[ServerSettings]
    flags: RunFlags
    suite: Suite | None = None
    command: str = ""
    among: AmongModels | None = None

    @property
    def serves(self) -> bool:
        """Whether this is `serve`, or an environment without a command."""
        return self.command in ("", "serve")


def default_settings(
    command: str = "",
    environment: Settings | None = None,
    *,
    given: Collection[str] = (),
) -> Settings:
    """Return the defaults of a command, on top of this package's or another environment's.

    Args:
        given: names of the options that a user sets below `env`.
    """
    base = environment or Settings(
        env=EnvironmentSettings(), servers=[ServerSettings()], flags=RunFlags()
    )
    defaults = dict(COMMAND_DEFAULTS.get(command, {}))
    set_names = base.env.model_fields_set.union(given)
    for name in UNASKED_DUMPS:
        if name in set_names or DUMP_OPTIONS & set_names:
            defaults.pop(name, None)
    env = base.env.model_copy(update=defaults)
    if command == "process" and env.total_steps == -1:
        env = env.model_copy(update={"total_steps": PROCESSED_GROUPS})
    return replace(base, env=env)


class Option(NamedTuple):
    """An option as help and pages show it."""

    heading: str
    name: str
    about: str
    default: str
    field: FieldInfo
    alias: str

    def help(self, *, brief: bool = False) -> str:
        """Return what the option does, in one clause if `brief`, its default and its limits."""
        about = self.about
        if brief:  # up to its first full stop, colon or semicolon, without parentheses
            about = re.split(
                r"[;:] (?![{\"])|\.(?: |$)", re.sub(r" \([^)]*\)", "", about)
            )[0]
        return (
            f"{about} [{'; '.join(filter(None, (self.default, limits(self.field))))}]"
        )


def list_options(defaults: Settings | None = None) -> list[Option]:
    """List the options in the order of the help: by heading, those named `More …` near the end."""
    defaults = defaults or default_settings()
    options = []
    models = {ENV: defaults.env, SERVER: defaults.servers[0], "": defaults.flags}
    for section, values in models.items():
        heading = HEADINGS[0]
        for name, field in type(values).model_fields.items():
            if name in type(values).retired_options:
                continue  # Atropos's own class has it
            extra: Any = field.json_schema_extra or {}
            heading = extra.get("heading", heading)
            about = field.description or ""
            default = shown(getattr(values, name))
            full = f"{section}.{name}".lstrip(".")
            names = (heading, full, about, default)
            options.append(Option(*names, field, extra.get("alias", "")))
    return sorted(options, key=lambda option: HEADINGS.index(option.heading))


def evaluation_options(options: Sequence[Option]) -> list[Option]:
    """Return options under the headings of evaluation, in the order of its help.

    Options of a subclass keep their heading, and come before what only training uses.
    """
    by_name = {option.name: option for option in options}
    ordered = []
    for heading, names in EVALUATION_HEADINGS.items():
        for name in names:
            ordered.append(by_name.pop(name)._replace(heading=heading))
    own_names = {option.name for option in list_options()}
    of_subclass = [option for name, option in by_name.items() if name not in own_names]
    of_training = [
        option._replace(heading=ONLY_TRAINING)
        for name, option in by_name.items()
        if name in own_names
    ]
    return [*ordered, *of_subclass, *of_training]


def add_option(
    parser: ArgumentParser | _ArgumentGroup, option: Option, **more: Any
) -> None:
    """Let a command take an option; its value is checked later, with those of the file."""
    is_flag = bool in types_of(option.field.annotation)
    text = more.pop("help", option.help())
    settings: dict[str, Any] = {"nargs": "?", "const": True} if is_flag else {}
    if option.name in REPEATABLE:
        settings["action"] = Each
    if option.name == PRICE:
        settings["nargs"] = 2
        more["metavar"] = ("IN", "OUT")
    parser.add_argument(
        *filter(None, (f"--{option.name}", option.alias)),
        default=SUPPRESS,
        type=lambda text: None if text == "None" else text,
        help=text.replace("%", "%%"),
        **{"metavar": "VALUE", **settings, **more},
    )


def add_retired_options(parser: ArgumentParser) -> None:
    """Let a command take the retired options, which its help doesn't show."""
    for section, options in RETIRED_OPTIONS.items():
        for name in options:
            parser.add_argument(
                f"--{section}.{name}", nargs="?", default=SUPPRESS, help=SUPPRESS
            )


def add_settings(parser: ArgumentParser, *names: str) -> None:
    """Let a command take a file of settings, those of its workers and the named ones."""
    parser.add_argument(
        "--config",
        metavar="FILE.yaml",
        type=Path,
        help="settings, as for serve",
    )
    workers = ("task_modules", "task_environment", "task_processes")
    for setting in list_options():
        if setting.name in {f"{ENV}.{name}" for name in (*workers, *names)}:
            add_option(parser, setting)
    add_retired_options(parser)


def read_environment(options: Namespace) -> EnvironmentSettings:
    """Return the settings of a command, options above its file; raises ConfigurationError."""
    settings_given = read_given(options, sections())
    if options.config and not settings_given.env:
        raise ConfigurationError(f"{options.config}: the section `{ENV}` is missing")
    return build(EnvironmentSettings, settings_given.env)


def sections(env: type[Section] = EnvironmentSettings) -> dict[str, type[Section]]:
    """Return the model of each section of the command line and the file."""
    return {ENV: env, SERVER: ServerSettings, "": RunFlags}


def build_settings(given: Given, defaults: Settings) -> Settings:
    """Put what is given on top of the defaults; ConfigurationError for an invalid value.

    Several servers start from the model's own defaults.
    """
    servers: Sequence[Mapping[str, Any]] = given.servers
    if len(servers) < 2 and len(defaults.servers) == 1:
        known = ServerSettings.model_fields  # Atropos's own class has more
        default = {name: value for name, value in defaults.servers[0] if name in known}
        servers = [{**default, **(servers[0] if servers else {})}]
    settings = defaults
    env = given.env
    suite = None
    mistakes = Mistakes()
    with mistakes.collected():
        settings = replace(settings, flags=build(RunFlags, given.flags))
        if settings.flags.suite:
            from .problems.suites import load_suite  # slow, not for help

            _require_all_items(given.env_options)
            suite = load_suite(settings.flags.suite)
            env = with_suite(env, suite)
    with mistakes.collected():
        built = build(type(defaults.env), {**dict(defaults.env), **env})
        settings = replace(settings, env=built)
    built_servers = []
    for server in servers:
        with mistakes.collected():
            built_servers.append(build(ServerSettings, server, prefix=f"{SERVER}."))
    mistakes.require_none()
    return replace(settings, servers=built_servers or defaults.servers, suite=suite)


SELECTING_ITEMS = (
    "include_tasks",
    "exclude_tasks",
    "num_eval_samples_per_task",
    "eval_difficulties",
    "eval_seed",
)
"""The options that choose the items of an evaluation."""


def _require_all_items(options: Collection[str]) -> None:
    """Raise ConfigurationError for options that would choose among a suite's items.

    A file may have them, since it may be that of a training.
    """
    names = [name for name in SELECTING_ITEMS if name in options]
    if names:
        named = ", ".join(f"--{ENV}.{name}" for name in names)
        raise ConfigurationError(
            f"{named}: results on a --suite need all its items; leave it out, or evaluate "
            "without a suite"
        )


def with_suite(env: Mapping[str, Any], suite: Suite) -> dict[str, Any]:
    """Return given settings with a suite's own, and warn of each that it overrides.

    Raises ConfigurationError for answers in boxes, which the suite's prompt doesn't ask for.
    """
    from .problems.suites import require_tags  # slow, not for help

    require_tags(env.get("answer_format", "tags"))
    options = {"max_token_length": suite.settings.max_token_length, **env}
    held = {"answer_format", "complexity_mode", "difficulty", "eval_difficulties"}
    held |= {
        "exclude_tasks",
        "skip_faulty_items",
        "solved_threshold",
        "task_parameters",
    }
    # Results with other values can't be compared.
    held |= {"task_weights", "thinking_mode"}
    defaults = EnvironmentSettings().model_dump(include=held)
    fixed = {**defaults, **suite.fixed_settings, "include_tasks": suite.tasks}
    overridden = sorted(
        name for name in env if name in fixed and env[name] != fixed[name]
    )
    if overridden:
        logger.warning(
            "The suite %s fixes %s: the configured values are ignored",
            suite.name,
            ", ".join(overridden),
        )
    return {**options, **fixed}


def require_known_names(env: EnvironmentSettings, mistakes: Mistakes) -> None:
    """Collect wrong names of tasks and parameters, as far as possible without the library.

    The worker processes check for other versions of the library, and with tasks of modules.
    """
    from .problems.selection import require_names
    from .tasks.catalogue import bundled_snapshot, select_tasks, task_weights

    snapshot = bundled_snapshot()
    if snapshot is None or env.task_modules:
        return
    with mistakes.collected():
        tasks = select_tasks(
            snapshot.discovery, include=env.include_tasks, exclude=env.exclude_tasks
        )
        task_weights(tasks, env.task_weights)
    with mistakes.collected():
        require_names(env.task_parameters, snapshot.ladders)


def check_start(command: str, settings: Settings) -> None:
    """Check the names of tasks and the places of outputs, as far as possible without the library.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
        ConfigurationError: no task is left, or a parameter doesn't exist.
        UnwritableError: an output can't be written.
    """
    from .tasks.modules import find_modules

    env = settings.env
    mistakes = Mistakes()
    find_modules(env.task_modules)
    require_known_names(env, mistakes)
    if command != "evaluate":
        with mistakes.collected():
            env.require_groups_that_differ()
    if command == "process":
        with mistakes.collected():
            env.require_number_of_groups()
        with mistakes.collected():
            env.require_stored_groups()
    for name in ("suite", "limit", "price"):
        value = getattr(settings.flags, name)
        if value and command != "evaluate":
            with mistakes.collected():
                raise ConfigurationError(
                    f"--{name} is for `evaluate` alone, got {value!r} for `{command}`: leave it "
                    "out"
                )
    if settings.flags.suite and settings.flags.limit:
        raise ConfigurationError(
            "--limit: results on a --suite need all its items; leave it out"
        )
    evaluates = command == "evaluate" or (command == "serve" and env.steps_per_eval > 0)
    if evaluates and not env.data_dir_to_save_evals:
        with mistakes.collected():
            require_place(Path(env.data_dumps_dir), "data_dumps_dir")
    with mistakes.collected():
        env.require_places()
    mistakes.require_none()


def shown(value: Any) -> str:
    """Return a value as a user would write it."""
    value = getattr(value, "value", value)
    if value == math.inf:
        return "no limit"
    return "unset" if value in (None, "", [], {}) else str(value)


def scoring_settings(env: EnvironmentSettings) -> ScoringSettings:
    """Return what a score depends on."""
    return ScoringSettings(
        max_token_length=env.max_token_length,
        answer_format=env.answer_format,
        score_mode=env.score_mode,
        solved_threshold=env.solved_threshold,
        length_penalty_start=env.length_penalty_start,
        verify_timeout=env.verify_timeout,
    )


def pool_settings(env: EnvironmentSettings) -> PoolSettings:
    """Return the settings of the worker processes."""
    from .sandbox.pool import PoolSettings, default_processes
    from .tasks.modules import find_modules

    return PoolSettings(
        processes=env.task_processes or default_processes(),
        generation_timeout=env.generation_timeout,
        verify_timeout=env.verify_timeout,
        solved_threshold=env.solved_threshold,
        answer_format=env.answer_format,
        require_containment=env.require_containment,
        modules=find_modules(env.task_modules),
        task_environment=env.task_environment,
    )
