"""The commands `serve`, `process` and `evaluate`; unlike Atropos's own, they hide API keys."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from atroposlib.envs.base import BaseEnv

from ..errors import ConfigurationError, FixableError
from ..settings import (
    COMMAND_DEFAULTS,
    RunFlags,
    ServerSettings,
    Settings,
    build_settings,
    check_start,
    sections,
)
from ..util.command_line import ENV, SERVER, build, read_given
from ..util.concurrency import SWITCH_SECONDS
from ..util.files import replacing
from ..util.logs import WITHHELD, SecretRedactor
from .config import ServerConfig
from .output import require_wandb_login

logger = logging.getLogger(__name__)

RUNS = {"serve": "env_manager", "process": "process_manager", "evaluate": "_run_evaluate"}
"""Command to the environment's method that runs it."""


def launch(
    env_class: type[BaseEnv], command: str, settings: Settings, *, progress_interval: float = 10.0
) -> None:
    """Run a command until it is done.

    Args:
        progress_interval: seconds between progress lines.

    Raises:
        FixableError: the run can't start or continue.
    """
    if command != "evaluate" and settings.env.use_wandb:
        require_wandb_login()
    config = build(env_class.env_config_cls, settings.env.model_dump())
    servers = [ServerConfig(**server.model_dump()) for server in settings.servers]
    if command == "evaluate" and config.data_dir_to_save_evals:
        _write_configuration(Path(config.data_dir_to_save_evals), settings)
    logging.getLogger("atroposlib.envs.base").setLevel(logging.INFO)  # Atropos sets DEBUG
    logger.info("%s", headline(command, config, servers))
    flags = settings.flags
    env = env_class(config, servers, slurm=flags.slurm, testing=flags.testing)
    env.progress_interval = progress_interval
    if command == "process":
        env.process_mode = True
        env.n_groups_to_process = config.total_steps
        env.group_size_to_process = config.group_size
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(getattr(env, RUNS[command])())


def headline(command: str, config: Any, servers: Sequence[ServerSettings]) -> str:
    """Return the first line of a run's log."""
    at = ", ".join(f"{server.server_type} at {server.base_url}" for server in servers)
    return (
        f"{command}: {servers[0].model_name}, {at}; group_size {config.group_size}, "
        f"max_token_length {config.max_token_length}, total_steps {config.total_steps}"
    )


def _write_configuration(folder: Path, settings: Settings) -> None:
    """Write all settings except API keys to an evaluation's folder."""
    content = {
        ENV: settings.env.model_dump(mode="json"),
        SERVER: [{**s.model_dump(mode="json"), "api_key": WITHHELD} for s in settings.servers],
        **settings.flags.model_dump(),
    }
    with replacing(folder / "evaluate_config.yaml") as partial:
        partial.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def run_command_line(env_class: type[BaseEnv], arguments: Sequence[str]) -> None:
    """Run a command given as a program's arguments; raises FixableError if one is invalid."""
    command, *options = arguments or [""]
    if command not in RUNS:
        raise ConfigurationError(f"unknown command {command!r}; the commands are {', '.join(RUNS)}")
    if {"-h", "--help", "--help-all"} & {*options}:
        raise ConfigurationError(f"for help, run `reasoning-gym-environment {command} --help-all`")
    given = read_given(options, sections(env_class.env_config_cls))
    redactor = SecretRedactor(given.keys)
    sys.argv[1:] = redactor.clean_arguments(sys.argv[1:])
    config, servers = env_class.config_init()
    env = config.model_copy(update=COMMAND_DEFAULTS.get(command, {}))
    try:
        settings = build_settings(given, Settings(env=env, servers=servers, flags=RunFlags()))
        check_start(command, settings.env)
        launch(env_class, command, settings)
    except FixableError as error:
        error.args = (redactor.clean(str(error)),)
        raise
