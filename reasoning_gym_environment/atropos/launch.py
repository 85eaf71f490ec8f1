"""`serve`, `process` and `evaluate`: all checks come before the heavy imports."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import textwrap
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ..errors import ConfigurationError, FixableError, did_you_mean
from ..evaluation.store import SAMPLES
from ..settings import (
    HEADINGS,
    SHORT_HELP,
    EnvironmentSettings,
    Option,
    Settings,
    add_option,
    add_retired_options,
    build_settings,
    check_start,
    default_settings,
    evaluation_options,
    list_options,
    sections,
)
from ..util.command_line import ENV, SERVER, Parser, number
from ..util.concurrency import SWITCH_SECONDS
from ..util.files import replacing
from ..util.logs import SecretRedactor, configure_logging
from ..util.settings_file import read_given
from ..util.values import WITHHELD, describe_error
from .models import settings_of_models

if TYPE_CHECKING:
    from atroposlib.envs.base import BaseEnv

    from ..report.process import WatchProcess


logger = logging.getLogger(__name__)


class Command(NamedTuple):
    """A command that uses an inference server; a method of the environment runs it."""

    method: str
    about: str
    example: str


_ONE_SERVER = (
    "reasoning-gym-environment {} \\\n    --model MODEL --url http://localhost:9004/v1"
)
COMMANDS = {
    "serve": Command(
        "env_manager",
        "Feed a trainer through the Atropos API, until training ends.",
        "run-api &\nreasoning-gym-environment init vllm > vllm.yaml\n"
        "reasoning-gym-environment serve --config vllm.yaml",
    ),
    "process": Command(
        "process_manager",
        "Collect env.total_steps groups into files, without a trainer.",
        _ONE_SERVER.format("process") + " --env.use_wandb false",
    ),
    "evaluate": Command(
        "_run_evaluate",
        "Ask a model the fixed evaluation set, and write its samples and metrics. Repeat --model, "
        "and --price, to evaluate several models.",
        _ONE_SERVER.format("evaluate") + " --limit 20",
    ),
}


def run(
    arguments: Sequence[str],
    env_class: Callable[[], type[BaseEnv]],
    defaults: Settings | None = None,
) -> int:
    """Run a command; return 1 after a traceback without API keys if it crashes.

    Args:
        arguments: the command and its options.
        env_class: imports and returns the environment's class.
        defaults: by default, those of this package's environment.

    Raises:
        FixableError: without API keys.
    """
    if not arguments:
        raise ConfigurationError(
            f"type a command after the program's name: {', '.join(COMMANDS)}"
        )
    command, *rest = arguments
    if command not in COMMANDS:
        hint = did_you_mean(
            command,
            COMMANDS,
            otherwise=f"the commands are {', '.join(COMMANDS)}",
            most=1,
        )
        raise ConfigurationError(f"unknown command {command!r}; {hint}")
    shown = default_settings(command, defaults)
    if {"-h", "--help", "--help-all"} & {*rest}:
        print_help(command, shown, everything="--help-all" in rest)
        return 0
    options = build_parser(command, list_options(shown)).parse(rest)
    settings_given = read_given(options, sections(type(shown.env)))
    defaults = default_settings(command, defaults, given=settings_given.env)
    redactor = SecretRedactor(settings_given.keys)
    sys.argv[1:] = [*map(redactor.clean, sys.argv[1:])]  # wandb uploads them
    try:
        settings = build_settings(settings_given, defaults)
        _configure_logging(settings.env, redactor, options)
        settings_of_each = settings_of_models(command, options, settings)
        for each in settings_of_each:
            check_start(command, each)
        settings = settings_of_each[0]
        _require_logins(command, settings, watched=options.watch is not None)
        _require_served(settings_of_each)
        with ExitStack() as stack:
            watch = None
            if options.watch is not None:
                watch = _started_watch(settings, options.watch)
                stack.enter_context(closing(watch))
            loaded = env_class()
            if watch is not None:
                logger.info("Watch the run at %s", watch.url())
            live = sys.stderr.isatty() and not options.json_logs
            if settings.among is not None:
                return _evaluate_each(loaded, settings_of_each, redactor, live=live)
            launch(loaded, command, settings, live=live)
    except FixableError as error:
        error.args = (redactor.clean(str(error)),)
        raise
    except Exception:  # noqa: BLE001 - printed whole, but for the keys
        sys.stderr.write(redactor.clean(traceback.format_exc()))
        return 1
    return 0


def _started_watch(settings: Settings, port: int) -> WatchProcess:
    """Start the process that shows a run's rollouts and the results of all its models."""
    from ..report.process import WatchProcess  # slow, not for help

    results = settings.env.data_dir_to_save_evals
    if settings.among is not None:
        results = settings.among.folder
    folders = (settings.env.data_dumps_dir, results)
    return WatchProcess([Path(folder) for folder in folders if folder], port)


def _evaluate_each(
    env_class: type[BaseEnv],
    settings_of_each: Sequence[Settings],
    redactor: SecretRedactor,
    *,
    live: bool,
) -> int:
    """Evaluate models one after another; the failure of one doesn't end the others.

    Returns:
        The exit status of the first that failed; 0 if none did.
    """
    statuses = []
    lines = ["", "evaluated models"]
    with_results = []
    for place, settings in enumerate(settings_of_each, start=1):
        model = settings.servers[0].model_name
        folder = settings.env.data_dir_to_save_evals
        of_all = f"{model}, model {place} of {len(settings_of_each)}"
        logger.info("Evaluating %s, results in %s", of_all, folder)
        status, reason = _evaluate(env_class, settings, redactor, live=live)
        if status:
            logger.error("Evaluating %s failed: %s", of_all, reason)
        statuses.append(status)
        lines.append(f"{model}: {folder}{f', FAILED: {reason}' if status else ''}")
        if Path(folder, SAMPLES).exists():
            with_results.append(folder)
    if len(with_results) > 1:
        compare = shlex.join(["reasoning-gym-environment", "compare", *with_results])
        lines += ["", f"Compare them: {compare}"]
    sys.stdout.write("\n".join([*lines, ""]))
    return next(filter(None, statuses), 0)


def _evaluate(
    env_class: type[BaseEnv],
    settings: Settings,
    redactor: SecretRedactor,
    *,
    live: bool,
) -> tuple[int, str]:
    """Evaluate a model; return the exit status, and why it failed."""
    try:
        launch(env_class, "evaluate", settings, live=live)
    except FixableError as error:
        return error.exit_status, redactor.clean(str(error))
    except Exception as error:  # noqa: BLE001 - printed whole, but for the keys
        sys.stderr.write(redactor.clean(traceback.format_exc()))
        return 1, redactor.clean(describe_error(error))
    return 0, ""


def _require_logins(command: str, settings: Settings, *, watched: bool) -> None:
    """Check the login of wandb, and what is watched."""
    if command != "evaluate" and settings.env.use_wandb:
        from .output import require_wandb_login

        require_wandb_login()
    if watched and command != "evaluate" and not settings.env.dumped_kinds:
        raise ConfigurationError(
            "--watch shows groups on disk, and no group is dumped: set --env.dump_all_rollouts true"
        )


def _require_served(settings_of_each: Sequence[Settings]) -> None:
    """Ask the servers of all models."""
    from ..inference.early_check import require_served  # slow, not for help

    settings = settings_of_each[0]
    if not settings.flags.slurm:  # whose list of nodes has the addresses
        limit = settings.env.max_token_length
        servers = [server for each in settings_of_each for server in each.servers]
        asyncio.run(require_served(servers, length_limit=limit))


def build_parser(
    command: str, options: Sequence[Option], *, brief: bool = False
) -> Parser:
    """Return the parser of a command; `brief` shortens the help of its options."""
    about = COMMANDS[command]
    parser = Parser(
        prog=f"reasoning-gym-environment {command}",
        description=f"{about.about}\n\nFor example:\n{textwrap.indent(about.example, '    ')}",
        add_help=False,
    )
    groups = {}
    for heading, members in groupby(options, lambda option: option.heading):
        groups[heading] = parser.add_argument_group(heading)
        for option in members:
            text = option.help(brief=brief)
            add_option(groups[heading], option, help=text, metavar="")
    group = groups.get(HEADINGS[-1]) or parser.add_argument_group(HEADINGS[-1])
    group.add_argument(
        "--config",
        metavar="FILE.yaml",
        type=Path,
        help="settings below `env:` and `openai:`; options override them",
    )
    group.add_argument(
        "--quiet", action="store_true", help="log only warnings and errors"
    )
    group.add_argument(
        "--json-logs", action="store_true", help="log JSON, one object a line"
    )
    group.add_argument(
        "--watch",
        metavar="PORT",
        type=number(int, ge=0, le=65535),
        help="show the run in a browser, at this port of this machine; 0 takes a free one",
    )
    group.add_argument(
        "--help", action="store_true", help="the options that most runs set"
    )
    group.add_argument("--help-all", action="store_true", help="all options in full")
    add_retired_options(parser)
    return parser


def print_help(command: str, defaults: Settings, *, everything: bool) -> None:
    """Print the help: the options that most runs set on a line each, or everything in full."""
    options = list_options(defaults)
    if command == "evaluate":
        options = evaluation_options(options)
    own = {option.name for option in list_options()}
    omitted = own - SHORT_HELP[command]  # a subclass's own options are all shown
    shown = [option for option in options if everything or option.name not in omitted]
    parser = build_parser(command, shown, brief=not everything)
    hidden_options = len(options) - len(shown)
    if hidden_options:
        parser.epilog = (
            "In brackets: the default and the valid values. "
            f"--help-all has {hidden_options} more."
        )
    parser.print_help()


def _configure_logging(
    env: EnvironmentSettings, redactor: SecretRedactor, options: Namespace
) -> None:
    """Log without API keys; the progress line stays at the bottom of a terminal."""
    package = __package__.partition(".")[0]
    if options.quiet or options.json_logs:
        os.environ.setdefault("WANDB_SILENT", "true")
    line = f"{package}.rollouts.progress.line"
    lines = {
        "quiet": options.quiet,
        "as_json": options.json_logs,
        "debug": env.debug_logging,
    }
    configure_logging(redactor, live=line, **lines)


def launch(
    env_class: type[BaseEnv],
    command: str,
    settings: Settings,
    *,
    live: bool = False,
) -> None:
    """Run a command until it is done.

    Args:
        live: whether the progress line stays at the bottom of a terminal, and changes there.

    Raises:
        FixableError: it can't start or continue.
    """
    from .config import BASE_CLASS_LOGGER, ServerConfig, as_config

    config = as_config(settings.env, env_class.env_config_cls)
    servers = [
        ServerConfig.model_construct(**dict(server)) for server in settings.servers
    ]
    if command == "evaluate" and config.data_dir_to_save_evals:
        content = {  # all but the API keys
            ENV: settings.env.model_dump(mode="json"),
            SERVER: [
                {**s.model_dump(mode="json"), "api_key": WITHHELD}
                for s in settings.servers
            ],
            **settings.flags.model_dump(),
        }
        with replacing(
            Path(config.data_dir_to_save_evals, "evaluate_config.yaml")
        ) as partial:
            partial.write_text(
                yaml.safe_dump(content, sort_keys=False), encoding="utf-8"
            )
    # Atropos sets DEBUG.
    logging.getLogger(BASE_CLASS_LOGGER).setLevel(logging.INFO)
    at = ", ".join(f"{server.server_type} at {server.base_url}" for server in servers)
    training = "" if command == "evaluate" else f", group_size {config.group_size}"
    logger.info(
        "%s: %s, %s; max_token_length %d%s",
        command,
        servers[0].model_name,
        at,
        config.max_token_length,
        training,
    )
    flags = settings.flags
    env = env_class(config, servers, slurm=flags.slurm, testing=flags.testing)
    if live:
        env.log_progress_every(1.0)
    env.choose_evaluation(
        suite=settings.suite,
        limit=flags.limit,
        price=flags.price,
        among=settings.among,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(getattr(env, COMMANDS[command].method)())
