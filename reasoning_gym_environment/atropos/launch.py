"""serve, process and evaluate: from what a user has set to a running environment.

Atropos's own command line does the same, and prints the API key as it goes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from atroposlib.envs.base import APIServerConfig
from atroposlib.envs.server_handling.server_manager import ServerManagerConfig
from pydantic import BaseModel, ValidationError

from ..errors import ConfigurationError, FixableError
from ..util.command_line import ENV, SERVER, Given, Known, read_given
from ..util.concurrency import SWITCH_SECONDS
from ..util.files import replacing, require_place
from ..util.logs import WITHHELD, SecretRedactor
from ..util.validation import describe_validation
from .defaults import COMMAND_DEFAULTS, ServerConfig

if TYPE_CHECKING:
    from .base import AtroposEnv

logger = logging.getLogger(__name__)

RUNS = {"serve": "env_manager", "process": "process_manager", "evaluate": "_run_evaluate"}
"""Command to the method of an environment that does it."""


def launch(
    env_class: type[AtroposEnv], command: str, given: Given, *, summary_seconds: float = 10.0
) -> None:
    """Run a command until it is done.

    Args:
        summary_seconds: between two lines that say how it goes.

    Raises:
        FixableError: a setting can't work, or the run can't go on.
    """
    config, servers = configure(env_class, command, given)
    flags = built(ServerManagerConfig, given.flags)
    require_places(command, config)
    if command == "evaluate" and config.data_dir_to_save_evals:
        keep_configuration(Path(config.data_dir_to_save_evals), config, servers, flags)
    logging.getLogger("atroposlib.envs.base").setLevel(logging.INFO)  # Atropos sets DEBUG
    logger.info("%s", headline(command, config, servers))
    env = env_class(config, servers, slurm=flags.slurm, testing=flags.testing)
    env.summary_seconds = summary_seconds
    if command == "process":
        env.process_mode = True
        env.n_groups_to_process = config.total_steps
        env.group_size_to_process = config.group_size
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(getattr(env, RUNS[command])())


def configure(
    env_class: type[AtroposEnv], command: str, given: Given
) -> tuple[Any, list[ServerConfig]]:
    """Put what is given over the defaults; several servers have Atropos's own.

    Raises:
        ConfigurationError: a value can't be used.
    """
    config, defaults = env_class.config_init()
    settings = {**config.model_dump(), **COMMAND_DEFAULTS.get(command, {}), **given.env}
    servers = [server.model_dump() for server in defaults]
    if len(given.servers) == 1:
        servers = [{**(servers[0] if len(servers) == 1 else {}), **given.servers[0]}]
    elif given.servers:
        servers = list(given.servers)
    return built(type(config), settings), [
        built(ServerConfig, server, of=f"{SERVER}.") for server in servers
    ]


def built(model: Any, settings: Any, *, of: str = "") -> Any:
    """Build a pydantic model; raises ConfigurationError with a sentence for each bad value."""
    try:
        return model(**settings)
    except ValidationError as error:
        raise ConfigurationError(describe_validation(error, of=of)) from None


def require_places(command: str, config: Any) -> None:
    """Refuse a place that will be written to and can't be; raises UnwritableError naming it."""
    evaluates = command == "evaluate" or (command == "serve" and config.steps_per_eval > 0)
    if evaluates and not config.data_dir_to_save_evals:
        require_place(Path(config.data_dumps_dir), "data_dumps_dir")
    config.require_places()


def headline(command: str, config: Any, servers: Sequence[APIServerConfig]) -> str:
    """Say what a run begins with, in one line."""
    at = ", ".join(f"{server.server_type} at {server.base_url}" for server in servers)
    return (
        f"{command}: {servers[0].model_name}, {at}; group_size {config.group_size}, "
        f"max_token_length {config.max_token_length}, total_steps {config.total_steps}"
    )


def keep_configuration(
    folder: Path, config: BaseModel, servers: Sequence[BaseModel], flags: BaseModel
) -> None:
    """Write the whole configuration beside an evaluation's results, without the API keys."""
    content = {
        ENV: config.model_dump(mode="json"),
        SERVER: [{**s.model_dump(mode="json"), "api_key": WITHHELD} for s in servers],
        **flags.model_dump(include={"slurm", "testing"}),
    }
    with replacing(folder / "evaluate_config.yaml") as partial:
        partial.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def run_command_line(env_class: type[AtroposEnv], arguments: Sequence[str]) -> None:
    """Run the command that a program's arguments ask for: what `cli` of an environment does.

    Raises:
        FixableError: they can't be followed.
    """
    command, *options = arguments or [""]
    if command not in RUNS:
        raise ConfigurationError(f"there is no command {command!r}; there are {', '.join(RUNS)}")
    if {"-h", "--help", "--help-all"} & {*options}:
        raise ConfigurationError(f"`reasoning-gym-environment {command} --help-all` lists them all")
    given = read_given(options, known_settings(env_class.env_config_cls))
    withholder = SecretRedactor(given.keys)
    sys.argv[1:] = withholder.clean_arguments(sys.argv[1:])
    try:
        launch(env_class, command, given)
    except FixableError as error:
        raise error.reworded(withholder.clean(str(error))) from error


def known_settings(env_model: type[BaseModel]) -> Known:
    """List the settings of an environment and of its servers."""
    env, server = (
        {name: field.annotation is bool for name, field in model.model_fields.items()}
        for model in (env_model, ServerConfig)
    )
    return Known(env=env, server=server)
