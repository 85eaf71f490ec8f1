"""`serve`, `process` and `evaluate`: all checks come before the heavy imports."""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigurationError, FixableError
from ..settings import (
    EnvironmentSettings,
    Option,
    Settings,
    build_settings,
    check_start,
    default_settings,
    list_options,
    sections,
)
from ..util.command_line import limits, read_given
from ..util.logs import SecretRedactor, configure_logging
from .watch import LAST_PORT, WatchProcess

logger = logging.getLogger(__name__)

HELP = ("-h", "--help", "--help-all")

_PACKAGE = "reasoning_gym_environment"
_PER_GROUP = ("problems.training.problems", "scoring.grading", "storage.dumps")
"""Loggers of a line or more per group: only under debug_logging."""

_PROGRESS_LINE = f"{_PACKAGE}.rollouts.metrics.line"

ABOUT = {
    "serve": "Feed a trainer through the Atropos API, until training ends.",
    "process": "Collect env.total_steps groups into files, without a trainer.",
    "evaluate": "Run the fixed evaluation set and write its samples and metrics.",
}
_ONE_SERVER = (
    "reasoning-gym-environment {} --openai.base_url http://localhost:9004/v1 \\\n"
    "    --openai.model_name MODEL --env.use_wandb False"
)
EXAMPLES = {
    "serve": "run-api &\nreasoning-gym-environment init vllm > vllm.yaml\n"
    "reasoning-gym-environment serve --config vllm.yaml --env.complexity_mode curriculum",
    "process": _ONE_SERVER.format("process"),
    "evaluate": _ONE_SERVER.format("evaluate"),
}
GENERAL = {
    "--config FILE.yaml": "settings below `env:` and `openai:`; options override them",
    "--suite NAME": "evaluate a fixed set of `suite list` (the same as --env.eval_suite)",
    "--quiet": "log only warnings and errors",
    "--json-logs": "log JSON, one object a line",
    "--watch PORT": "show the run in a browser, at this port of this machine; 0 takes a free one",
    "--slurm": "find the servers in Slurm's list of nodes",
    "--testing": "use Atropos's mock server, for its own tests",
    "--help": "the options that most runs set, one line each",
    "--help-all": "all options in full",
}
_WIDTH = 118
_COLUMN = 37


class Logs(NamedTuple):
    """How much is logged, and in which format."""

    quiet: bool
    as_json: bool


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 after a traceback without API keys if it crashes.

    Args:
        arguments: the command and its options.

    Raises:
        FixableError: without API keys.
    """
    command, *rest = [re.sub(r"^--suite(?=$|=)", "--env.eval_suite", each) for each in arguments]
    if asked := [argument for argument in rest if argument in HELP]:
        print(help_text(command, everything="--help-all" in asked))
        return 0
    logs = Logs(quiet="--quiet" in rest, as_json="--json-logs" in rest)
    rest, port = take_port([a for a in rest if a not in ("--quiet", "--json-logs")])
    given = read_given(rest, sections())
    redactor = SecretRedactor(given.keys)
    sys.argv[1:] = redactor.clean_arguments(sys.argv[1:])  # wandb records them
    try:
        settings = build_settings(given, default_settings(command))
        check_start(command, settings.env)
        with ExitStack() as stack:
            watch = None
            if port is not None:
                watch = stack.enter_context(closing(start_watch(command, settings.env, port)))
            _launch(command, settings, logs, redactor, watch)
    except FixableError as error:
        error.args = (redactor.clean(str(error)),)
        raise
    except Exception:  # noqa: BLE001 - printed whole, but for the keys
        print(redactor.clean(traceback.format_exc()), file=sys.stderr, end="")
        return 1
    return 0


def take_port(arguments: Sequence[str]) -> tuple[list[str], int | None]:
    """Take `--watch PORT` out of the arguments; raises ConfigurationError for another value.

    Example:
        >>> take_port(["--env.seed", "1", "--watch", "8090"])
        (['--env.seed', '1'], 8090)
    """
    rest, port = [], None
    given = iter(arguments)
    for argument in given:
        name, _, value = argument.partition("=")
        if name != "--watch":
            rest.append(argument)
            continue
        value = value or next(given, "")
        if not re.fullmatch("[0-9]{1,5}", value) or int(value) > LAST_PORT:
            raise ConfigurationError(f"--watch must be between 0 and {LAST_PORT}, got {value!r}")
        port = int(value)
    return rest, port


def start_watch(command: str, env: EnvironmentSettings, port: int) -> WatchProcess:
    """Start to serve the run's page; raises ConfigurationError if nothing would be on it."""
    if command != "evaluate" and not env.dumped_kinds:
        raise ConfigurationError(
            "--watch shows groups on disk, and no group is dumped: set --env.dump_all_rollouts true"
        )
    folders = [
        Path(folder) for folder in (env.data_dumps_dir, env.data_dir_to_save_evals) if folder
    ]
    return WatchProcess(folders, port)


def _launch(
    command: str,
    settings: Settings,
    logs: Logs,
    redactor: SecretRedactor,
    watch: WatchProcess | None,
) -> None:
    live = sys.stderr.isatty() and not logs.quiet and not logs.as_json
    if logs.quiet or logs.as_json:
        os.environ.setdefault("WANDB_SILENT", "true")
    handler = None
    if live:
        from ..util.progress import AboveBars

        handler = AboveBars(_PROGRESS_LINE)
    configure_logging(redactor, quiet=logs.quiet, as_json=logs.as_json, handler=handler)
    if not settings.env.debug_logging:
        for name in _PER_GROUP:
            logging.getLogger(f"{_PACKAGE}.{name}").setLevel(logging.WARNING)
    from ..atropos.launch import launch
    from ..reasoning_gym_environment import ReasoningGymEnv

    if watch is not None:
        logger.info("Watch the run at %s", watch.url())
    launch(ReasoningGymEnv, command, settings, progress_interval=1.0 if live else 10.0)


def help_text(command: str, *, everything: bool) -> str:
    """Return the help of a command.

    Args:
        everything: all options in full instead of the common ones on a line each.
    """
    head = [
        f"usage: reasoning-gym-environment {command} [--config FILE.yaml] [--env.NAME VALUE ...] "
        "[--openai.NAME VALUE ...]",
        f"\n{ABOUT[command]}",
        f"\nFor example:\n{textwrap.indent(EXAMPLES[command], '    ')}",
    ]
    options = list(list_options(command))
    listed = [o for o in options if everything or not o.heading.startswith("More ")]
    for heading, members in groupby(listed, lambda option: option.heading):
        head.append(f"\n{heading}:")
        head += [entry(option, everything=everything) for option in members]
    head.append("\nOther options:")
    head += [f"  {name:{_COLUMN - 2}}{about}" for name, about in GENERAL.items()]
    if len(listed) < len(options):
        left = len(options) - len(listed)
        head.append(f"\nIn brackets: the default and the valid values. --help-all has {left} more.")
    return "\n".join(head)


def entry(option: Option, *, everything: bool) -> str:
    """Return an option's name, what it does, its default and its limits."""
    valid = limits(option.field)
    brackets = f"[{'; '.join(filter(None, (option.default, valid)))}]"
    name = f"  --{option.name}"
    if not everything:
        room = max(24, _WIDTH - _COLUMN - len(brackets) - 1)
        about = textwrap.shorten(first_clause(option.about), room, placeholder=" …")
        return f"{name:{_COLUMN}}{about} {brackets}"
    margin = " " * _COLUMN
    text = textwrap.fill(
        f"{option.about} {brackets}", _WIDTH, initial_indent=margin, subsequent_indent=margin
    )
    return name + text[len(name) :] if len(name) < _COLUMN else f"{name}\n{text}"


def first_clause(text: str) -> str:
    """Return a description up to its first full stop, colon or semicolon, without parentheses.

    Example:
        >>> first_clause("Tasks to leave out; wins over include_tasks.")
        'Tasks to leave out'
    """
    return re.split(r"[;:] |\.(?: |$)", re.sub(r" \([^)]*\)", "", text))[0]
